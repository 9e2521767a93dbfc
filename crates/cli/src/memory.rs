//! `anyaccel memory`: what a memory history shows, in words.

use crate::layout::{bytes, counted, item, percent};
use crate::output::{Class, Failure, Output, one_line};
use crate::snapshot_file;
use anyaccel_snapshot::findings::{Findings, FreeMemory, findings};
use anyaccel_snapshot::words::stack_line;
use anyaccel_snapshot::{Snapshot, StackId};
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;

const LONG: &str = "\
Examines a memory history and says in words what it shows: who holds memory at
the peak, who never gives it back, who asks all the time, what is free at the
end and who pins it, and why a request failed.

SNAPSHOT is what torch.cuda.memory._dump_snapshot or this project's
dump_snapshot wrote, plain or gzip; - is standard input. It is read as plain
data: nothing in it can run.

Example:
  $ anyaccel memory oom.pickle
  $ anyaccel memory --json oom.pickle | jq '.devices[0].holders[0]'

JSON (schema anyaccel.memory.v1), sizes in bytes, stacks innermost frame first:
  devices[]     device, events, peak_allocated, peak_event, peak_reserved
    holders[]   bytes, blocks, stack at the peak
    never_freed bytes, blocks; stacks[] with grows where blocks pile up
    churn       requests, bytes; stacks[] with the mean lifetime in events
    end         allocated, reserved, free, gaps, idle, largest, pins[]
    out_of_memory[]  each with its story in words[]
    caveats     what the recording can't tell
  notes[]       keys of the file that are not known

Exit code: 0, 1 if the file can't be read, 2 for bad arguments.";

/// Rows of each list in text.
const ROWS: usize = 8;

/// Say what a memory history shows
#[derive(clap::Args, Debug)]
#[command(long_about = LONG)]
pub(crate) struct Args {
    /// The snapshot, - for standard input
    #[arg(value_name = "SNAPSHOT")]
    file: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    devices: Vec<Value>,
    notes: Vec<String>,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let (snapshot, name) = snapshot_file::read(&args.file)?;
    let mut all = Vec::new();
    for history in snapshot_file::histories(&snapshot, &name)? {
        let found = findings(&snapshot, history.device());
        all.push(found.map_err(|error| Failure::new(Class::Input, format!("{name}: {error}")))?);
    }
    if output.is_json() {
        let devices = all.iter().map(|found| found.to_json(&snapshot)).collect();
        return output.document(&Document { schema: "anyaccel.memory.v1", devices, notes: snapshot.notes.clone() });
    }
    let mut text = String::new();
    for (at, found) in all.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        text.push_str(&told(found, &snapshot));
    }
    for note in &snapshot.notes {
        text.push_str(&item(0, "note", 4, &one_line(note)));
    }
    output.text(&text)
}

fn told(found: &Findings, snapshot: &Snapshot) -> String {
    const LABEL: usize = 10;
    let mut text = format!("device {}\n", found.device);
    let seconds = found.span_us as f64 / 1e6;
    text.push_str(&item(2, "events", LABEL, &format!("{} over {seconds:.1} s", found.events)));
    let when = match found.peak_event {
        Some(event) => format!("at event {event}"),
        None => "from the beginning".to_owned(),
    };
    let peak = format!("{} in use {when}; {} reserved at most", bytes(found.peak), bytes(found.peak_reserved));
    text.push_str(&item(2, "peak", LABEL, &peak));
    text.push_str(&item(2, "at the end", LABEL, &free_told(&found.end)));
    for story in &found.out_of_memory {
        text.push_str("\n  Out of memory\n");
        for sentence in story.words(snapshot) {
            text.push_str(&item(2, "", 0, &one_line(&sentence)));
        }
    }
    if found.failed > found.out_of_memory.len() as u64 {
        text.push_str(&format!("  {} failed in all\n", counted(found.failed, "request", "requests")));
    }
    text.push_str(&list(
        "Who holds memory at the peak",
        snapshot,
        found.holders.iter().map(|share| {
            (
                format!(
                    "{:>9} {:>6} {:>6} {}",
                    bytes(share.bytes),
                    percent(share.bytes as f64, found.peak as f64),
                    share.blocks,
                    noun(share.blocks, "block", "blocks")
                ),
                share.stack,
            )
        }),
    ));
    let (left, blocks) = found.kept_total;
    let title = format!("Never given back: {} in {}", bytes(left), counted(blocks, "block", "blocks"));
    text.push_str(&list(
        &title,
        snapshot,
        found.kept.iter().map(|kept| {
            let grows = if kept.grows() { "  PILES UP" } else { "" };
            let blocks = noun(kept.blocks, "block", "blocks");
            (format!("{:>9} {:>6} {blocks}{grows}", bytes(kept.bytes), kept.blocks), kept.stack)
        }),
    ));
    let (requests, asked) = found.requests;
    let title = format!(
        "Churn: {} for {} in all; {} taken, {} given back",
        counted(requests, "request", "requests"),
        bytes(asked),
        counted(found.device_calls.0, "segment", "segments"),
        found.device_calls.1
    );
    text.push_str(&list(
        &title,
        snapshot,
        found.churn.iter().map(|churn| {
            (
                format!(
                    "{:>7} {:<8} {:>9} live for {}",
                    churn.allocs,
                    noun(churn.allocs, "request", "requests"),
                    bytes(churn.bytes),
                    counted(churn.lifetime.round() as u64, "event", "events")
                ),
                churn.stack,
            )
        }),
    ));
    text.push_str(&list(
        "Who pins free memory at the end",
        snapshot,
        found
            .end
            .pins
            .iter()
            .map(|pins| (format!("{:>9} in {}", bytes(pins.bytes), counted(pins.gaps, "piece", "pieces")), pins.stack)),
    ));
    for caveat in snapshot_file::caveats(&found.caveats) {
        text.push('\n');
        text.push_str(&item(2, "note", 4, &caveat));
    }
    text
}

fn free_told(end: &FreeMemory) -> String {
    let largest = match &end.largest {
        Some(gap) => format!(", the largest of {}", bytes(gap.size)),
        None => String::new(),
    };
    let pending = if end.pending > 0 { format!(", {} waiting for streams", bytes(end.pending)) } else { String::new() };
    format!(
        "{} in use{pending}, {} reserved; {} free in {}{largest}; {} of it whole segments",
        bytes(end.allocated),
        bytes(end.reserved),
        bytes(end.free),
        counted(end.gaps, "piece", "pieces"),
        bytes(end.idle)
    )
}

/// A noun for a number that stands in a column before it.
fn noun<'a>(count: u64, one: &'a str, more: &'a str) -> &'a str {
    if count == 1 { one } else { more }
}

/// A title and, for each entry, a line of figures and the stack below it.
fn list(title: &str, snapshot: &Snapshot, entries: impl Iterator<Item = (String, StackId)>) -> String {
    let mut text = String::new();
    for (figures, stack) in entries.take(ROWS) {
        text.push_str(&format!("    {figures}\n"));
        text.push_str(&item(8, "", 0, &one_line(&stack_line(snapshot, stack))));
    }
    if text.is_empty() { text } else { format!("\n  {title}\n{text}") }
}
