//! A snapshot under one or several settings, side by side.

use super::{Args, Given, Input, circumstances};
use crate::layout::{bytes, counted, item, percent, table};
use crate::output::{Failure, Output, one_line};
use crate::snapshot_file::{self, wrong_settings};
use anyaccel_engine::alloc::Settings;
use anyaccel_snapshot::replay::{Conf, DEFAULT_MEMORY, Outcome, replay, row};
use anyaccel_snapshot::words::stack_line;
use anyaccel_snapshot::{History, Snapshot};
use serde_json::{Value, json};

/// Failures that are explained, of as many settings.
const EXPLAINED: usize = 3;

/// What each device came to under one setting.
struct Setting {
    settings: Settings,
    /// As the histories.
    outcomes: Vec<Outcome>,
}

pub(super) fn run(args: &Args, given: &Given, input: Input, output: &mut Output) -> Result<(), Failure> {
    let snapshot = snapshot_file::read_from(input.reader, &input.name)?;
    let histories = snapshot_file::histories(&snapshot, &input.name)?;
    let (settings, total) = settings(given, &snapshot)?;
    let told = args.memory.or(total);
    let memory = |history: &History| told.or(history.total_memory()).unwrap_or(DEFAULT_MEMORY);
    let mut all = Vec::new();
    for settings in settings {
        let one = |history: &History| replay(history, &Conf::new(settings.clone(), memory(history)));
        let outcomes: Vec<Outcome> = histories.iter().map(one).collect();
        if output.is_json() {
            output.lines(&format!("{}\n", line(&histories, &settings, &outcomes, &memory)))?;
            if output.is_abandoned() {
                return Ok(());
            }
        }
        all.push(Setting { settings, outcomes });
    }
    if output.is_json() {
        return Ok(());
    }
    let known = told.is_some() || histories.iter().all(|history| history.total_memory().is_some());
    let mut text = String::new();
    for (at, history) in histories.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        let size = memory(history);
        let from = if known { "" } else { ", since the file does not say and no --memory is given" };
        text.push_str(&item(0, "history", 8, &input.name));
        text.push_str(&item(0, "device", 8, &format!("{}, {}{from}", history.device(), bytes(size))));
        text.push_str(&item(0, "events", 8, &history.events().to_string()));
        text.push('\n');
        text.push_str(&compared(&all, at, size));
        text.push_str(&failures(&all, at, &snapshot, history));
        text.push_str(&doubts(&all, at, history));
    }
    for note in &snapshot.notes {
        text.push_str(&item(0, "note", 4, &one_line(note)));
    }
    output.text(&text)
}

/// The settings to try, and the memory that a file of circumstances names.
fn settings(given: &Given, snapshot: &Snapshot) -> Result<(Vec<Settings>, Option<u64>), Failure> {
    let mut out = given.settings.clone();
    let mut total = None;
    if let Some((text, name)) = &given.file {
        let content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        let lines: Vec<&str> = text.lines().filter(content).map(str::trim).collect();
        if !lines.is_empty() && lines.iter().all(|line| line.contains('=')) {
            let conf = circumstances(text, name)?;
            total = lines.iter().any(|line| line.starts_with("FAKE_CUDA_TOTAL_MB")).then_some(conf.total);
            out.push(conf.settings);
        } else {
            for line in lines {
                let text = if line == "default" { "" } else { line };
                out.push(Settings::parse(text).map_err(|error| wrong_settings(name, &error))?);
            }
        }
    }
    if out.is_empty() {
        let recorded = snapshot.settings.as_ref().map_or("", |settings| settings.text.as_str());
        out.push(Settings::parse(recorded).map_err(|error| wrong_settings("the setting of the recording", &error))?);
    }
    Ok((out, total))
}

/// A line of JSON: the numbers of the first device and, where there are more, of each.
fn line(histories: &[History], settings: &Settings, outcomes: &[Outcome], memory: &dyn Fn(&History) -> u64) -> Value {
    let rows: Vec<Value> = histories
        .iter()
        .zip(outcomes)
        .map(|(history, outcome)| row(outcome, &settings.text, memory(history)))
        .collect();
    let mut first = rows.first().cloned().unwrap_or_else(|| json!({}));
    if rows.len() > 1 {
        let devices = histories.iter().zip(rows).map(|(history, mut row)| {
            row["device"] = json!(history.device());
            row
        });
        first["devices"] = devices.collect();
    }
    first
}

fn named(settings: &Settings) -> String {
    if settings.text.is_empty() { "default".to_owned() } else { one_line(&settings.text) }
}

/// The table of settings. Names that are too long for it have a letter, and stand below.
fn compared(all: &[Setting], at: usize, memory: u64) -> String {
    const LONGEST: usize = 26;
    let mut legend = String::new();
    let mut rows = Vec::new();
    for (number, setting) in all.iter().enumerate() {
        let outcome = &setting.outcomes[at];
        let mut name = named(&setting.settings);
        if name.chars().count() > LONGEST {
            let label = format!("#{}", number + 1);
            legend.push_str(&item(0, &label, 3, &name.replace(',', ", ")));
            name = label;
        }
        let end = match &outcome.exhausted {
            Some(_) => "NO".to_owned(),
            None => percent(memory.saturating_sub(outcome.peak_reserved()) as f64, memory as f64),
        };
        let calls = outcome.stats.num_device_alloc + outcome.stats.num_device_free;
        rows.push([
            name,
            bytes(outcome.peak_allocated()),
            bytes(outcome.peak_reserved()),
            format!("{:.0} %", outcome.fragmentation() * 100.0),
            calls.to_string(),
            outcome.stats.num_alloc_retries.to_string(),
            end,
        ]);
    }
    let header = ["setting", "in use", "reserved", "waste", "calls", "retries", "spare"];
    let head = "Peaks in use and reserved; by how much the latter is larger; calls to the\n\
        device; requests that had to free unused memory first; memory to spare at the\n\
        peak, NO where it ran out (peaks until then):\n\n";
    format!("{head}{}{}{legend}", table(header, &rows), if legend.is_empty() { "" } else { "\n" })
}

/// Where it ran out of memory, and why.
fn failures(all: &[Setting], at: usize, snapshot: &Snapshot, history: &History) -> String {
    let mut text = String::new();
    let failed = all
        .iter()
        .filter_map(|setting| setting.outcomes[at].exhausted.as_ref().map(|exhausted| (&setting.settings, exhausted)));
    for (number, (settings, exhausted)) in failed.enumerate() {
        if number == EXPLAINED {
            text.push_str("\nMore settings ran out; name fewer of them to read why.\n");
            break;
        }
        let stack = snapshot.traces.get(history.device()).and_then(|trace| trace.events.get(exhausted.event));
        let asked = stack.map_or_else(String::new, |event| format!(" by {}", stack_line(snapshot, event.stack)));
        let also = if exhausted.recorded { ", as in the recording" } else { "" };
        let why = match &exhausted.report {
            Some(report) => report.to_string(),
            None => "no device could serve a request of 1 EiB or more".to_owned(),
        };
        let said = format!("runs out at event {}{also}{asked}: {why}", exhausted.event);
        text.push('\n');
        text.push_str(&item(0, "", 0, &named(settings).replace(',', ", ")));
        text.push_str(&item(2, "", 0, &one_line(&said)));
    }
    text
}

/// What the numbers can't be trusted for.
fn doubts(all: &[Setting], at: usize, history: &History) -> String {
    let mut doubts = snapshot_file::caveats(history.caveats());
    let caveats = history.caveats();
    let pressed = all.iter().any(|setting| setting.outcomes[at].stats.num_alloc_retries > 0);
    if caveats.waiting_blocks > 0 && pressed {
        doubts.push(format!(
            "{} in use on other streams when given back. How long those streams take when memory \
             runs short is not in the recording: where there are retries, reserved may be off by up to {} either way",
            counted(caveats.waiting_blocks, "block was", "blocks were"),
            bytes(caveats.waiting_bytes)
        ));
    }
    for setting in all {
        let outcome = &setting.outcomes[at];
        let name = named(&setting.settings);
        if !outcome.survived.is_empty() {
            doubts.push(format!(
                "{name}: {} that failed in the recording would have succeeded, first at event {}; \
                 what the program would have done then is not in it, so later peaks are at least these",
                counted(outcome.survived.len() as u64, "request", "requests"),
                outcome.survived[0]
            ));
        }
    }
    let mut text = String::new();
    for doubt in doubts {
        text.push('\n');
        text.push_str(&item(0, "note", 4, &doubt));
    }
    text
}
