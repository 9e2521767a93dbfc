//! What the demo tells: the document of `--json`, and the same for people.

use super::check::{Counts, Pass};
use super::memory::MemoryDocument;
use super::pipeline::{Graphs, LaneTimes, Plan, Run};
use crate::layout::{bytes, counted, item, percent, rate, table};
use crate::output::one_line;
use serde::Serialize;
use std::time::Duration;

/// Width of the labels.
const LABEL: usize = 10;

/// How many of the most frequent bytes are shown.
const TOP: usize = 5;

/// The document of `demo --json`.
#[derive(Serialize)]
pub(crate) struct Document<'a> {
    /// `anyaccel.demo.v1`.
    schema: &'static str,
    /// What was read.
    input: InputDocument<'a>,
    /// Where it was counted.
    device: &'a DeviceDocument,
    /// Bits per byte, 0 to 8; 0 for no bytes.
    entropy_bits_per_byte: f64,
    /// The most frequent bytes, the first the most frequent.
    top: Vec<TopByte>,
    /// The pass through the device.
    pass: PassDocument,
    /// The check.
    check: CheckDocument,
    /// With `--graph`: the graphs, else null.
    graph: Option<GraphDocument>,
    /// What each stream did.
    streams: Vec<StreamDocument>,
    /// What it took of memory.
    memory: MemoryDocument,
}

/// The graphs, one a stream, which are alike.
#[derive(Serialize)]
struct GraphDocument {
    /// How often the pipeline was captured.
    captures: u64,
    /// Nodes of a graph.
    nodes: u64,
    /// Replays of all graphs.
    replays: u64,
}

/// What was read.
#[derive(Serialize)]
struct InputDocument<'a> {
    /// Its name; bytes that are not Unicode are replaced.
    name: &'a str,
    /// Bytes read.
    bytes: u64,
    /// Bytes of a chunk.
    chunk_bytes: u64,
    /// Chunks read.
    chunks: u64,
}

/// Where it was counted.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeviceDocument {
    /// `host:0`.
    pub(crate) name: String,
    /// What kind of card it is.
    pub(crate) model: String,
    /// Why the built-in host device was used although nobody had named it; null if one was named or found.
    pub(crate) fallback: Option<String>,
}

/// A byte value and its count.
#[derive(Serialize)]
struct TopByte {
    /// The value.
    byte: u8,
    /// How often it occurs.
    count: u64,
}

/// The pass through the device, set-up apart.
#[derive(Serialize)]
struct PassDocument {
    /// From the first read to the results in host memory, without a check that ran alongside.
    seconds: f64,
    /// Bytes per second.
    bytes_per_second: f64,
    /// Of the seconds, the host spent so many reading the input.
    reading_seconds: f64,
    /// Of the seconds, the host spent so many waiting for the device.
    waiting_seconds: f64,
    /// From before the first copy to after the last kernel, by the device's clock.
    device_ms: f64,
    /// Whether the host buffers were pinned; else the runtime staged them.
    pinned: bool,
}

/// The check.
#[derive(Serialize)]
struct CheckDocument {
    /// Whether all counts are equal.
    ok: bool,
    /// `second_pass`, or `alongside` for an input that can be read only once.
    how: &'static str,
    /// Seconds of the single-threaded second pass; null if alongside.
    seconds: Option<f64>,
    /// Bytes per second of the single-threaded second pass; null if alongside.
    bytes_per_second: Option<f64>,
    /// How many times as fast the pass through the device was; null if alongside.
    speedup: Option<f64>,
}

/// What a stream did. Times come from its events; copy, kernel and idle add up to `device_ms`.
#[derive(Serialize)]
struct StreamDocument {
    /// Its id.
    stream: u64,
    /// Chunks.
    chunks: u64,
    /// Bytes.
    bytes: u64,
    /// Copying to the device, from when the stream was ready for it: a wait for a copy engine, or on the host device for a
    /// core, counts too. 0 for turns in a graph, which are one operation.
    copy_ms: f64,
    /// Counting, or graphs.
    kernel_ms: f64,
    /// Without work: the host had not enqueued any.
    idle_ms: f64,
}

/// How the result was checked.
#[derive(Clone, Debug)]
pub(crate) enum Check {
    /// By a second pass.
    SecondPass(Pass),
    /// Along with the pass, since the input can't be read again.
    Alongside(Counts),
}

impl Check {
    pub(crate) fn counts(&self) -> &Counts {
        match self {
            Self::SecondPass(pass) => &pass.counts,
            Self::Alongside(counts) => counts,
        }
    }

    fn pass(&self) -> Option<&Pass> {
        match self {
            Self::SecondPass(pass) => Some(pass),
            Self::Alongside(_) => None,
        }
    }
}

/// All there is to tell.
pub(crate) struct Told<'a> {
    pub(crate) input: &'a str,
    pub(crate) plan: Plan,
    pub(crate) device: &'a DeviceDocument,
    pub(crate) run: &'a Run,
    pub(crate) check: &'a Check,
    pub(crate) memory: MemoryDocument,
}

impl<'a> Told<'a> {
    fn bytes(&self) -> u64 {
        self.run.lanes.iter().map(|lane| lane.bytes).sum()
    }

    fn chunks(&self) -> u64 {
        self.run.lanes.iter().map(|lane| lane.chunks).sum()
    }

    fn speedup(&self) -> Option<f64> {
        let pass = self.check.pass()?;
        ratio(pass.time.as_secs_f64(), self.run.time.as_secs_f64())
    }

    pub(crate) fn document(&self) -> Document<'a> {
        let run = self.run;
        let per_second = |time: Duration| ratio(self.bytes() as f64, time.as_secs_f64()).unwrap_or(0.0);
        Document {
            schema: "anyaccel.demo.v1",
            input: InputDocument {
                name: self.input,
                bytes: self.bytes(),
                chunk_bytes: self.plan.chunk as u64,
                chunks: self.chunks(),
            },
            device: self.device,
            entropy_bits_per_byte: run.counts.entropy(),
            top: run.counts.top(TOP).into_iter().map(|(byte, count)| TopByte { byte, count }).collect(),
            pass: PassDocument {
                seconds: run.time.as_secs_f64(),
                bytes_per_second: per_second(run.time),
                reading_seconds: run.reading.as_secs_f64(),
                waiting_seconds: run.waiting.as_secs_f64(),
                device_ms: run.device_ms,
                pinned: run.pinned,
            },
            check: CheckDocument {
                ok: run.counts == *self.check.counts(),
                how: if self.check.pass().is_some() { "second_pass" } else { "alongside" },
                seconds: self.check.pass().map(|pass| pass.time.as_secs_f64()),
                bytes_per_second: self.check.pass().map(|pass| per_second(pass.time)),
                speedup: self.speedup(),
            },
            graph: run.graphs.map(|Graphs { captures, nodes, replays }| GraphDocument { captures, nodes, replays }),
            streams: run.lanes.iter().map(|lane| stream(lane, run.device_ms)).collect(),
            memory: self.memory,
        }
    }

    /// What is known only afterwards, for people.
    pub(crate) fn text(&self) -> String {
        let run = self.run;
        let mut text = String::new();
        let mut line = |label: &str, said: &str| text.push_str(&item(0, label, LABEL, said));
        line(
            "read",
            &format!(
                "{} in {} of {}",
                exact(self.bytes()),
                counted(self.chunks(), "chunk", "chunks"),
                bytes(self.plan.chunk as u64)
            ),
        );
        line("entropy", &format!("{:.4} bits per byte", run.counts.entropy()));
        line("top bytes", &top(&run.counts));
        let seconds = run.time.as_secs_f64();
        let of_host = |part: Duration| percent(part.as_secs_f64(), seconds);
        line(
            "throughput",
            &format!(
                "{} ({seconds:.3} s; the host spent {} reading, {} waiting)",
                rate(self.bytes(), seconds),
                of_host(run.reading),
                of_host(run.waiting),
            ),
        );
        if let Some(Graphs { captures, nodes, replays }) = run.graphs {
            let once = if captures == 1 { "once".to_owned() } else { format!("once on each of {captures} streams") };
            let (nodes, times) = (counted(nodes, "node", "nodes"), counted(replays, "time", "times"));
            line("graph", &format!("{nodes}, captured {once}, replayed {times}"));
        }
        line("check", &self.checked());
        text.push('\n');
        text.push_str(&self.streams());
        text.push('\n');
        text.push_str(&self.memory.table());
        text
    }

    fn checked(&self) -> String {
        if run_differs(self.run, self.check) {
            return "FAILED: the counts differ from those of one thread".to_owned();
        }
        let Some(pass) = self.check.pass() else {
            return "equal to what one thread counted along; the input can be read only once".to_owned();
        };
        let seconds = pass.time.as_secs_f64();
        let speed = rate(self.bytes(), seconds);
        let mut said = format!("equal to one thread's count, which took {seconds:.3} s ({speed})");
        if let Some(speedup) = self.speedup() {
            said.push_str(&format!("; the device was {speedup:.2} times as fast"));
        }
        said
    }

    fn streams(&self) -> String {
        let whole = self.run.device_ms;
        let row = |name: String, lane: &LaneTimes, whole: f64| {
            let idle = idle(lane, whole);
            [
                name,
                lane.chunks.to_string(),
                bytes(lane.bytes),
                format!("{:.1} ms", lane.copy_ms),
                format!("{:.1} ms", lane.kernel_ms),
                format!("{idle:.1} ms"),
                percent(whole - idle, whole),
            ]
        };
        let lanes = &self.run.lanes;
        let mut rows: Vec<_> = lanes.iter().map(|lane| row(lane.stream_id.to_string(), lane, whole)).collect();
        if lanes.len() > 1 {
            let sum = lanes.iter().fold(LaneTimes::default(), |sum, lane| LaneTimes {
                stream_id: 0,
                chunks: sum.chunks + lane.chunks,
                bytes: sum.bytes + lane.bytes,
                copy_ms: sum.copy_ms + lane.copy_ms,
                kernel_ms: sum.kernel_ms + lane.kernel_ms,
            });
            rows.push(row("all".to_owned(), &sum, whole * lanes.len() as f64));
        }
        let kernel = if self.run.graphs.is_some() { "graph" } else { "kernel" };
        table(["stream", "chunks", "data", "copy+wait", kernel, "idle", "busy"], &rows)
    }
}

/// What is known at the start, for people.
pub(crate) fn opening(input: &str, device: &DeviceDocument) -> String {
    let mut text = item(0, "input", LABEL, input);
    text.push_str(&item(0, "device", LABEL, &format!("{}, {}", device.name, one_line(&device.model))));
    if let Some(why) = &device.fallback {
        text.push_str(&item(0, "", LABEL, why));
    }
    text
}

fn run_differs(run: &Run, check: &Check) -> bool {
    run.counts != *check.counts()
}

fn ratio(of: f64, to: f64) -> Option<f64> {
    (of > 0.0 && to > 0.0).then(|| of / to)
}

fn exact(size: u64) -> String {
    if size < 1024 { format!("{size} bytes") } else { format!("{} ({size} bytes)", bytes(size)) }
}

fn idle(lane: &LaneTimes, whole: f64) -> f64 {
    (whole - lane.copy_ms - lane.kernel_ms).max(0.0)
}

fn stream(lane: &LaneTimes, whole: f64) -> StreamDocument {
    StreamDocument {
        stream: lane.stream_id,
        chunks: lane.chunks,
        bytes: lane.bytes,
        copy_ms: lane.copy_ms,
        kernel_ms: lane.kernel_ms,
        idle_ms: idle(lane, whole),
    }
}

fn top(counts: &Counts) -> String {
    let total = counts.total() as f64;
    let shown = |(byte, count): (u8, u64)| {
        let name = if byte.is_ascii_graphic() { format!("'{}'", char::from(byte)) } else { format!("0x{byte:02x}") };
        format!("{name} {}", percent(count as f64, total))
    };
    let all: Vec<String> = counts.top(TOP).into_iter().map(shown).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(stream_id: u64) -> LaneTimes {
        LaneTimes { stream_id, chunks: 2, bytes: 3, copy_ms: 1.0, kernel_ms: 2.0 }
    }

    fn told(text: &[u8], check: Check) -> (Run, DeviceDocument, Check) {
        let mut counts = Counts::new();
        counts.add(text);
        let run = Run {
            counts,
            lanes: vec![lane(1), lane(2)],
            graphs: None,
            pinned: true,
            time: Duration::from_millis(500),
            reading: Duration::from_millis(100),
            waiting: Duration::from_millis(200),
            device_ms: 6.0,
        };
        let device = DeviceDocument {
            name: "host:0".to_owned(),
            model: "A processor".to_owned(),
            fallback: Some("no accelerator found; using the built-in host device".to_owned()),
        };
        (run, device, check)
    }

    fn one_pass(text: &[u8]) -> Check {
        let mut counts = Counts::new();
        counts.add(text);
        Check::SecondPass(Pass { counts, time: Duration::from_secs(1) })
    }

    #[test]
    fn text_fits_in_80_columns_and_agrees_with_the_document() {
        let (run, device, check) = told(b"aaabbb", one_pass(b"aaabbb"));
        let plan = Plan { streams: 2, chunk: 2 };
        let told =
            Told { input: "file", plan, device: &device, run: &run, check: &check, memory: MemoryDocument::default() };
        let text = opening("file", &device) + &told.text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for said in ["1.0000 bits", "'a' 50 %, 'b' 50 %", "2.00 times as fast", "20 % reading, 40 % waiting"] {
            assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(said), "{said} in {text}");
        }
        let json = serde_json::to_value(told.document()).expect("a document");
        assert_eq!(json["check"]["speedup"], 2.0);
        assert_eq!(json["check"]["ok"], true);
        assert_eq!(json["streams"][1]["idle_ms"], 3.0);
        assert_eq!(json["top"][0], serde_json::json!({"byte": 97, "count": 3}));
    }

    #[test]
    fn a_wrong_count_is_told_as_such() {
        let (run, device, check) = told(b"aaabbb", one_pass(b"aaabbc"));
        let plan = Plan { streams: 2, chunk: 2 };
        let told =
            Told { input: "file", plan, device: &device, run: &run, check: &check, memory: MemoryDocument::default() };
        assert!(told.text().contains("FAILED"));
        assert_eq!(serde_json::to_value(told.document()).expect("a document")["check"]["ok"], false);
    }
}
