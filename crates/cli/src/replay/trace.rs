//! The trace of an allocator: a text, one operation a line.

use super::Input;
use crate::layout::{bytes, counted, item, table};
use crate::output::{Class, Failure, Output, one_line};
use crate::snapshot_file;
use anyaccel_engine::alloc::replay::{Conf, DeviceTally, HEADER, Replay, Tally};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};

/// Bytes of a line at most.
pub(super) const LONGEST_LINE: u64 = 64 << 10;

/// So many failed requests are explained; of more the lines are named.
const EXPLAINED: usize = 3;

/// Text is written when it has grown so far.
const BLOCK: usize = 64 << 10;

/// Replays it line by line, as it comes.
pub(super) fn run(input: Input, conf: &Conf, output: &mut Output) -> Result<(), Failure> {
    let mut lines = Lines::new(input);
    let mut replay = Replay::new(conf);
    let mut text = String::new();
    let mut refused = Refused::default();
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
            Ok(answer) => refused.look(lines.number, answer.as_deref()),
            Err(error) => break Err(Failure::new(Class::Input, format!("{}, {error}", lines.name))),
        }
        if text.len() >= BLOCK {
            output.lines(&text)?;
            text.clear();
            if output.is_abandoned() {
                return Ok(());
            }
        }
    };
    if !text.is_empty() {
        output.lines(&text)?;
    }
    outcome?;
    if !seen {
        return Err(Failure::new(Class::Input, format!("{}: the file is empty", lines.name)));
    }
    if output.is_json() { Ok(()) } else { output.text(&told(&lines.name, conf, &replay.tally(), &refused)) }
}

/// Operations that the allocator refused: it goes on behind them.
#[derive(Default)]
struct Refused {
    count: u64,
    /// The first ones, [`EXPLAINED`] at most.
    first: Vec<String>,
}

impl Refused {
    /// Looks at the answer to a line.
    fn look(&mut self, line: u64, answer: Option<&str>) {
        // An answer is parsed only if it may be one: a name in a trace can look like it.
        let Some(answer) = answer.filter(|answer| answer.contains(r#""r":"err""#)) else { return };
        let Ok(answer) = serde_json::from_str::<Value>(answer) else { return };
        if answer["r"] != "err" {
            return;
        }
        self.count += 1;
        if self.first.len() < EXPLAINED {
            let [op, message] = [&answer["op"], &answer["msg"]].map(|part| part.as_str().unwrap_or_default());
            self.first.push(format!("line {line}, {op}: {message}"));
        }
    }
}

/// A text file, line by line: however long it is, one line is kept.
struct Lines {
    reader: BufReader<Box<dyn Read>>,
    name: String,
    number: u64,
}

impl Lines {
    fn new(input: Input) -> Self {
        Self { reader: BufReader::new(input.reader), name: input.name, number: 0 }
    }

    /// The next line without its end.
    fn next(&mut self) -> Result<Option<String>, Failure> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(LONGEST_LINE + 1).read_until(b'\n', &mut line);
        if read.map_err(|error| snapshot_file::unread(&self.name, &error))? == 0 {
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
            "{}: it begins with '{begins}'; what can be replayed is a snapshot of memory, a pickle, or the trace of an \
             allocator, which begins with '{HEADER} N'",
            self.name
        );
        Err(Failure::new(Class::Input, message))
    }
}

/// The history as a whole, for people.
fn told(name: &str, conf: &Conf, tally: &Tally, refused: &Refused) -> String {
    const LABEL: usize = 8;
    let mut text = item(0, "history", LABEL, name);
    let devices = counted(conf.devices as u64, "device", "devices");
    text.push_str(&item(0, "on", LABEL, &format!("{devices} of {}", bytes(conf.total))));
    let settings = if conf.settings.text.is_empty() { "the defaults" } else { &conf.settings.text };
    text.push_str(&item(0, "settings", LABEL, &one_line(settings)));
    let done = format!(
        "{}: {}, {}",
        counted(tally.ops, "operation", "operations"),
        counted(tally.allocs, "request", "requests"),
        counted(tally.frees, "free", "frees")
    );
    text.push_str(&item(0, "done", LABEL, &done));
    if refused.count > 0 {
        let many = counted(refused.count, "operation", "operations");
        let first: Vec<String> = refused.first.iter().map(|line| one_line(line)).collect();
        let more = if refused.count > first.len() as u64 { "; --json tells of all" } else { "" };
        text.push_str(&item(0, "refused", LABEL, &format!("{many}: {}{more}", first.join("; "))));
    }
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
    let mut text = format!("\nran out of memory {}\n", counted(failed, "time", "times"));
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
