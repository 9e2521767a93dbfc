//! The main job: chunks of a file through pinned memory to the device, counted there on several streams.
//!
//! Each lane is a stream with one pinned buffer and one device buffer. A turn of a lane:
//!
//! ```text
//! host    wait for the lane's last copy, read the next chunk into its pinned buffer, enqueue
//! stream  [begun] copy to the device [copied] count [counted]
//! ```
//!
//! The host waits for the copy and not for the count, so it reads the next chunk while the device counts this one; lanes
//! overlap because nothing orders them. A lane adds into 2048 bytes of its own, so no count waits for another. At the end
//! the first stream waits, by events, for all others, and one copy brings all results back.
//!
//! With `--graph` a lane's turn is a graph, captured once and replayed for every whole chunk; see
//! [`captured`](super::captured). The host then waits for the whole turn before it reads into the buffer again.
//!
//! The bracketed events are timed; a lane keeps those of its last turns until the device has passed them.

use super::captured::Captured;
use super::check::Counts;
use super::input::Input;
use crate::layout::{bytes, counted};
use crate::output::{Class, Failure};
use crate::progress::Progress;
use anyaccel::{Buffer, Event, EventOptions, PinnedBuffer, Runtime, Stream};
use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a lane's counts: 256 of 64 bits.
pub(super) const RESULT: u64 = 2048;

/// How to cut the work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Lanes.
    pub(crate) streams: usize,
    /// Bytes of a chunk.
    pub(crate) chunk: usize,
}

impl Plan {
    /// No more lanes than chunks, and no chunk larger than the input.
    pub(crate) fn fit(self, len: Option<u64>) -> Self {
        let Some(len) = len else { return self };
        let chunk = self.chunk.min(usize::try_from(len).unwrap_or(usize::MAX).max(1));
        let chunks = usize::try_from(len.div_ceil(chunk as u64)).unwrap_or(usize::MAX).max(1);
        Self { streams: self.streams.min(chunks), chunk }
    }
}

/// What a stream did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneTimes {
    pub(crate) stream_id: u64,
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
    /// Between the events around copies. A stream that is at rest passes the first at once, so this includes the wait for
    /// an engine or a core that does the copy. 0 for turns in a graph, which are one operation.
    pub(crate) copy_ms: f64,
    /// Between the events around kernels, or around graphs.
    pub(crate) kernel_ms: f64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) counts: Counts,
    pub(crate) lanes: Vec<LaneTimes>,
    /// With `--graph`: the graphs.
    pub(crate) graphs: Option<Graphs>,
    /// Whether the host buffers are pinned.
    pub(crate) pinned: bool,
    /// From the first read to the results in host memory, without what the check took alongside.
    pub(crate) time: Duration,
    /// Of that, the host spent so much reading,
    pub(crate) reading: Duration,
    /// and so much waiting for the device.
    pub(crate) waiting: Duration,
    /// From before the first copy to after the last kernel, by the device's clock.
    pub(crate) device_ms: f64,
}

/// The graphs of all lanes, which are alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Graphs {
    /// How often the pipeline was captured: once a stream.
    pub(crate) captures: u64,
    /// Nodes of a graph.
    pub(crate) nodes: u64,
    /// Replays in all.
    pub(crate) replays: u64,
}

/// A stream and what it works on.
struct Lane {
    stream: Stream,
    host: PinnedBuffer,
    device: Buffer,
    captured: Option<Captured>,
    times: LaneTimes,
    under_way: VecDeque<Lap>,
    spare: Vec<Lap>,
}

/// The events of one turn.
struct Lap {
    begun: Event,
    copied: Event,
    counted: Event,
}

/// The lanes and what they share.
pub(crate) struct Pipeline {
    runtime: Runtime,
    lanes: Vec<Lane>,
    counts: Buffer,
    results: PinnedBuffer,
    origin: Event,
}

impl Pipeline {
    /// Makes streams and buffers on the current device, which starts the runtime.
    pub(crate) fn new(runtime: &Runtime, plan: Plan, graph: bool) -> Result<Self, Failure> {
        let needed = plan.streams as u64 * plan.chunk as u64;
        let (free, _total) = runtime.get_memory_info(())?;
        if needed > free / 2 {
            let message = format!(
                "{} with chunks of {} need {} on the device, and as much pinned; half of its {} free may be \
                 used: lower --streams or --chunk",
                counted(plan.streams as u64, "stream", "streams"),
                bytes(plan.chunk as u64),
                bytes(needed),
                bytes(free),
            );
            return Err(Failure::new(Class::Device, message));
        }
        let mut lanes = (0..plan.streams).map(|_| Lane::new(runtime, plan.chunk)).collect::<Result<Vec<_>, _>>()?;
        let size = RESULT * plan.streams as u64;
        let (counts, results) = (runtime.alloc(size)?, runtime.pinned(size as usize)?);
        let origin = timed(runtime)?;
        // The first lane clears the counts of all; the others begin after it.
        let [first, others @ ..] = lanes.as_slice() else {
            return Err(Failure::new(Class::Usage, "at least one stream is needed"));
        };
        first.stream.fill(&counts.all(), &[0])?;
        origin.record(Some(&first.stream))?;
        for lane in others {
            lane.stream.wait_event(&origin)?;
        }
        if graph {
            for (at, lane) in lanes.iter_mut().enumerate() {
                let at = at as u64 * RESULT;
                let captured = Captured::new(runtime, &lane.stream, &lane.host, &lane.device, &counts, at)?;
                lane.captured = Some(captured);
            }
        }
        Ok(Self { runtime: runtime.clone(), lanes, counts, results, origin })
    }

    /// Writes the first lane's graph in Graphviz' language.
    pub(crate) fn dump(&self, path: &Path) -> Result<(), Failure> {
        match self.lanes.iter().find_map(|lane| lane.captured.as_ref()) {
            Some(captured) => captured.dump(path),
            None => Ok(()),
        }
    }

    /// Counts what `input` has. `alongside` counts the same bytes on this thread, if they can't be read again.
    pub(crate) fn run(
        mut self,
        input: &mut Input,
        mut alongside: Option<&mut Counts>,
        progress: &mut Progress,
    ) -> Result<Run, Failure> {
        let [mut reading, mut waiting, mut checking] = [Duration::ZERO; 3];
        let first = &self.lanes[0].stream;
        // Again, so that the device's clock starts with the work.
        self.origin.record(Some(first))?;
        let began = Instant::now();
        for turn in 0.. {
            let at = turn % self.lanes.len();
            let lane = &mut self.lanes[at];
            let before = Instant::now();
            let (ready, filled) = lane.host.with_mut(|chunk| (Instant::now(), input.read_chunk(chunk)))?;
            let filled = filled?;
            reading += ready.elapsed();
            waiting += ready - before;
            if filled == 0 {
                break;
            }
            lane.collect(false)?;
            lane.enqueue(&self.runtime, &self.counts, at, filled as u64)?;
            if let Some(counts) = alongside.as_deref_mut() {
                let before = Instant::now();
                lane.host.with(|chunk| counts.add(&chunk[..filled]))?;
                checking += before.elapsed();
            }
            progress.at(input.position());
        }
        let before = Instant::now();
        let end = self.gather()?;
        waiting += before.elapsed();
        let time = began.elapsed().saturating_sub(checking);
        for lane in &mut self.lanes {
            lane.collect(true)?;
        }
        Ok(Run {
            counts: Counts::sum(self.results.as_slice()?),
            graphs: self.graphs()?,
            pinned: self.lanes.iter().all(|lane| lane.host.is_pinned()),
            time,
            reading,
            waiting,
            device_ms: self.origin.elapsed_time(&end)?,
            lanes: self.lanes.iter().map(|lane| lane.times).collect(),
        })
    }

    fn graphs(&self) -> Result<Option<Graphs>, Failure> {
        let captured: Vec<&Captured> = self.lanes.iter().filter_map(|lane| lane.captured.as_ref()).collect();
        let Some(first) = captured.first() else { return Ok(None) };
        let replays = captured.iter().map(|captured| captured.replays).sum();
        Ok(Some(Graphs { captures: captured.len() as u64, nodes: first.nodes()? as u64, replays }))
    }

    /// Brings all counts back once all lanes are done. Returns the event of that moment.
    fn gather(&mut self) -> Result<Event, Failure> {
        let first = &self.lanes[0].stream;
        for lane in &self.lanes[1..] {
            first.wait_event(&lane.stream.record_event(None)?)?;
        }
        let end = timed(&self.runtime)?;
        end.record(Some(first))?;
        first.download_pinned(&mut self.results, 0, &self.counts.all())?;
        first.synchronize()?;
        Ok(end)
    }
}

impl Lane {
    fn new(runtime: &Runtime, chunk: usize) -> Result<Self, Failure> {
        let stream = runtime.stream(())?;
        let times = LaneTimes { stream_id: stream.stream_id(), ..LaneTimes::default() };
        let (host, device) = (runtime.pinned(chunk)?, runtime.alloc(chunk as u64)?);
        Ok(Self { stream, host, device, captured: None, times, under_way: VecDeque::new(), spare: Vec::new() })
    }

    /// One chunk: copy, then count.
    fn enqueue(&mut self, runtime: &Runtime, counts: &Buffer, at: usize, len: u64) -> Result<(), Failure> {
        let lap = match self.spare.pop() {
            Some(lap) => lap,
            None => Lap { begun: timed(runtime)?, copied: timed(runtime)?, counted: timed(runtime)? },
        };
        let (stream, chunk) = (&self.stream, self.device.slice(..len)?);
        let at = at as u64 * RESULT;
        lap.begun.record(Some(stream))?;
        if let Some(captured) = self.captured.as_mut().filter(|_| len == self.device.len()) {
            lap.copied.record(Some(stream))?;
            captured.replay(stream)?;
            lap.counted.record(Some(stream))?;
            self.under_way.push_back(lap);
            self.times.chunks += 1;
            self.times.bytes += len;
            return Ok(());
        }
        stream.upload_pinned(&chunk, &self.host, 0)?;
        lap.copied.record(Some(stream))?;
        stream.histogram(&counts.slice(at..at + RESULT)?, &chunk)?;
        lap.counted.record(Some(stream))?;
        self.under_way.push_back(lap);
        self.times.chunks += 1;
        self.times.bytes += len;
        Ok(())
    }

    /// Adds up the times of the turns that the device has passed. `all`: it has passed all of them.
    fn collect(&mut self, all: bool) -> Result<(), Failure> {
        while let Some(lap) = self.under_way.front() {
            if !all && !lap.counted.query()? {
                break;
            }
            self.times.copy_ms += lap.begun.elapsed_time(&lap.copied)?;
            self.times.kernel_ms += lap.copied.elapsed_time(&lap.counted)?;
            self.spare.extend(self.under_way.pop_front());
        }
        Ok(())
    }
}

fn timed(runtime: &Runtime) -> Result<Event, Failure> {
    Ok(runtime.event(EventOptions { enable_timing: true, ..EventOptions::default() })?)
}

#[cfg(test)]
mod tests {
    use super::Plan;

    #[test]
    fn a_plan_is_no_larger_than_its_input() {
        let plan = |streams, chunk, len| {
            let Plan { streams, chunk } = Plan { streams, chunk }.fit(len);
            (streams, chunk)
        };
        assert_eq!(plan(4, 1 << 20, None), (4, 1 << 20));
        assert_eq!(plan(4, 1 << 20, Some(0)), (1, 1));
        assert_eq!(plan(4, 1 << 20, Some(10)), (1, 10));
        assert_eq!(plan(4, 100, Some(201)), (3, 100));
        assert_eq!(plan(4, 100, Some(u64::MAX)), (4, 100));
    }
}
