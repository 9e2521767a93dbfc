//! `anyaccel replay`: a recorded history of allocator calls through the production allocator, on devices that are only
//! numbers.

use crate::layout::{bytes, item, table};
use crate::output::{Class, Failure, Output, one_line};
use anyaccel_engine::alloc::Settings;
use anyaccel_engine::alloc::replay::{Conf, DeviceTally, HEADER, Replay, Tally};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes of a line, and of a configuration, at most.
const LONGEST_LINE: u64 = 64 << 10;

/// So many failed requests are explained; of more the lines are named.
const EXPLAINED: usize = 3;

/// Text is written when it has grown so far.
const BLOCK: usize = 64 << 10;

const LONG: &str = "\
Replays a recorded history of allocator calls through this project's caching
allocator, on devices that are only numbers: nothing is started, no memory is
taken. Without --json it prints what the history came to: the peaks, the calls
to each device, and where it ran out of memory and why.

What FILE holds is told by its content; - is standard input. This version knows
one kind, the trace of an allocator: 'stats_every N', then one operation a line:

  alloc ID SIZE STREAM    free ID             record ID STREAM
  empty_cache             stats               snapshot
  reset_peak              reset_accumulated   fraction F
  device N                current STREAM      hold 0|1
  pool_begin A B STREAM|* pool_end A B        pool_release A B
  capture STREAM 0|1

--conf-file has KEY=VALUE lines: FAKE_CUDA_TOTAL_MB (memory of a device),
FAKE_CUDA_DEVICES, PYTORCH_ALLOC_CONF (settings). Without it there is one device
of 80 GiB with the default settings. --conf replaces the settings.

Example:
  $ anyaccel replay run.trace --conf expandable_segments:True
  $ anyaccel replay --json oom.trace --conf-file oom.conf > oom.jsonl
  $ anyaccel replay --json run.trace | jq -r 'select(.r == \"oom\").op'

JSON (lines, as recorded from PyTorch 2.14; one an operation):
  i, op         its number from 0, and its text
  r             ok, null (no bytes), oom, skip (of one that ran out), err (msg)
  seg, off      of alloc: the segment's number, the place in it
  dev[]         calls to devices, D.S being device.segment: M taken, X refused,
                F given back; R V address space reserved, released; m u mapped,
                unmapped; C a mapping refused
  stats         each as all, small and large pool: current, peak, allocated,
                freed; every N operations, when memory runs out, on request
  segments[]    of snapshot: blocks are size, requested, allocated, active, 0

Exit code: 0, also if the history ran out of memory; 1 if it can't be replayed;
2 for bad arguments.";

/// Replay a recorded history of allocator calls
#[derive(clap::Args, Debug)]
#[command(long_about = LONG)]
pub(crate) struct Args {
    /// The history, - for standard input
    file: PathBuf,

    /// Its circumstances: memory, devices, settings
    #[arg(long, value_name = "FILE")]
    conf_file: Option<PathBuf>,

    /// Settings of the allocator, as max_split_size_mb:128
    #[arg(long, value_name = "SETTINGS")]
    conf: Option<String>,

    /// Print one line of JSON for each operation
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let conf = args.circumstances()?;
    let mut lines = Lines::open(&args.file)?;
    let mut replay = Replay::new(&conf);
    let mut text = String::new();
    let mut seen = false;
    let outcome = loop {
        let line = match lines.next() {
            Ok(Some(line)) => line,
            Ok(None) => break Ok(()),
            Err(failure) => break Err(failure),
        };
        if !seen && !line.trim_ascii().is_empty() {
            seen = true;
            if let Err(failure) = lines.is_trace(&line) {
                break Err(failure);
            }
        }
        match replay.line(&line) {
            Ok(Some(answer)) if output.is_json() => {
                text.push_str(&answer);
                text.push('\n');
            }
            Ok(_) => {}
            Err(error) => break Err(Failure::new(Class::Input, format!("{}, {error}", lines.name))),
        }
        if text.len() >= BLOCK {
            output.part(&text)?;
            text.clear();
            if output.is_abandoned() {
                return Ok(());
            }
        }
    };
    if !text.is_empty() {
        output.part(&text)?;
    }
    outcome?;
    if !seen {
        return Err(Failure::new(Class::Input, format!("{} is empty; a trace begins with '{HEADER} N'", lines.name)));
    }
    if output.is_json() { Ok(()) } else { output.text(&told(&lines.name, &conf, &replay.tally())) }
}

impl Args {
    fn circumstances(&self) -> Result<Conf, Failure> {
        let mut conf = match &self.conf_file {
            None => Conf::default(),
            Some(path) => {
                let (file, name) = open(path)?;
                let mut text = Vec::new();
                file.take(LONGEST_LINE + 1).read_to_end(&mut text).map_err(|error| unread(&name, &error))?;
                if text.len() as u64 > LONGEST_LINE {
                    let message = format!("{name} is longer than {}; is it a configuration?", bytes(LONGEST_LINE));
                    return Err(Failure::new(Class::Input, message));
                }
                let text = String::from_utf8(text)
                    .map_err(|_| Failure::new(Class::Input, format!("{name} is no text in UTF-8")))?;
                Conf::parse(&text).map_err(|error| Failure::new(Class::Input, format!("{name}, {error}")))?
            }
        };
        if let Some(settings) = &self.conf {
            conf.settings = Settings::parse(settings).map_err(|error| {
                Failure::new(Class::Usage, format!("--conf: {}:{}: {}", error.key, error.value, error.reason))
            })?;
        }
        Ok(conf)
    }
}

fn unread(name: &str, error: &io::Error) -> Failure {
    Failure::new(Class::Input, format!("can't read {name}: {error}"))
}

fn open(path: &Path) -> Result<(Box<dyn Read>, String), Failure> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), "standard input".to_owned()));
    }
    let name = one_line(&path.display().to_string());
    let file = File::open(path).map_err(|error| Failure::new(Class::Input, format!("can't open {name}: {error}")))?;
    if file.metadata().is_ok_and(|found| found.is_dir()) {
        return Err(Failure::new(Class::Input, format!("{name} is a directory; name a file")));
    }
    Ok((Box::new(file), name))
}

/// A text file, line by line: however long it is, one line is kept.
struct Lines {
    reader: BufReader<Box<dyn Read>>,
    name: String,
    number: u64,
}

impl Lines {
    fn open(path: &Path) -> Result<Self, Failure> {
        let (file, name) = open(path)?;
        Ok(Self { reader: BufReader::new(file), name, number: 0 })
    }

    /// The next line without its end.
    fn next(&mut self) -> Result<Option<String>, Failure> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(LONGEST_LINE + 1).read_until(b'\n', &mut line);
        if read.map_err(|error| unread(&self.name, &error))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        } else if line.len() as u64 > LONGEST_LINE {
            return Err(
                self.wrong(&format!("longer than {}; expected a trace, one operation a line", bytes(LONGEST_LINE)))
            );
        }
        match String::from_utf8(line) {
            Ok(line) => Ok(Some(line)),
            Err(_) => Err(self.wrong("no text in UTF-8; expected a trace, one operation a line")),
        }
    }

    fn wrong(&self, what: &str) -> Failure {
        Failure::new(Class::Input, format!("{}, line {}: {what}", self.name, self.number))
    }

    /// Whether the input is of a kind that can be replayed, by its first line.
    fn is_trace(&self, line: &str) -> Result<(), Failure> {
        if line.split_ascii_whitespace().next() == Some(HEADER) {
            return Ok(());
        }
        let begins: String = line.chars().take(40).collect();
        let message = format!(
            "{} begins with '{begins}'; what can be replayed is the trace of an allocator, which begins with '{HEADER} N'",
            self.name
        );
        Err(Failure::new(Class::Input, message))
    }
}

/// The history as a whole, for people.
fn told(name: &str, conf: &Conf, tally: &Tally) -> String {
    const LABEL: usize = 8;
    let mut text = item(0, "history", LABEL, name);
    let devices = if conf.devices == 1 { "1 device".to_owned() } else { format!("{} devices", conf.devices) };
    text.push_str(&item(0, "on", LABEL, &format!("{devices} of {}", bytes(conf.total))));
    let settings = if conf.settings.text.is_empty() { "the defaults" } else { &conf.settings.text };
    text.push_str(&item(0, "settings", LABEL, &one_line(settings)));
    let done = format!("{} operations: {} requests, {} frees", tally.ops, tally.allocs, tally.frees);
    text.push_str(&item(0, "done", LABEL, &done));
    text.push('\n');
    text.push_str(&devices_told(&tally.devices));
    text.push_str(&exhaustion(tally));
    text
}

fn devices_told(devices: &[DeviceTally]) -> String {
    let row = |(at, device): (usize, &DeviceTally)| {
        let counts = [device.taken, device.returned, device.refused, device.retries, device.out_of_memory];
        let [taken, returned, refused, retries, failed] = counts.map(|count| count.to_string());
        let (in_use, reserved, left) = (device.allocated.1, device.reserved.1, device.allocated.0);
        let [in_use, reserved, left] = [in_use, reserved, left].map(bytes);
        [at.to_string(), in_use, reserved, left, taken, returned, refused, retries, failed]
    };
    let rows: Vec<_> = devices.iter().enumerate().map(row).collect();
    let header = ["device", "in use", "reserved", "left", "taken", "freed", "refused", "retries", "failed"];
    let head = "Peaks of memory in use and reserved, what was left in use; segments (or pages of\n\
        growable ones) taken, freed, refused by the device; requests that had to free\n\
        unused memory first, and that failed:\n\n";
    format!("{head}{}", table(header, &rows))
}

/// Where it ran out of memory, and why.
fn exhaustion(tally: &Tally) -> String {
    let known = tally.exhausted.len() as u64;
    let failed = tally.devices.iter().map(|device| device.out_of_memory).sum::<u64>().max(known);
    if failed == 0 {
        return String::new();
    }
    let mut text = format!("\nran out of memory {failed} times\n");
    for (at, exhausted) in tally.exhausted.iter().enumerate() {
        let mut said = one_line(&exhausted.op);
        match &exhausted.report {
            Some(report) if at < EXPLAINED => said.push_str(&format!(": {report}")),
            Some(_) => {}
            None => said.push_str(": no device could serve a request of 1 EiB or more"),
        }
        text.push_str(&item(0, &format!("line {}", exhausted.line), 9, &said));
    }
    if failed > known {
        text.push_str(&format!("and {} more; --json tells of all\n", failed - known));
    }
    text
}
