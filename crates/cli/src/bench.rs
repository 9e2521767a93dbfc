//! `anyaccel bench`: the project's own measurements, for anyone to repeat.

use crate::output::{Failure, Output};
use anyaccel_engine::bench::{Effort, Row, memory};
use clap::ValueEnum;
use serde::Serialize;

const LONG: &str = "\
Measures parts of the runtime on this machine, each beside a plain baseline in
the same run: figures depend on the machine and on what else it does, the ratio
less so.

memory: the caching allocator, against a best fit as textbooks have it (an
ordered set, a hash map, a mutex; no streams, no statistics). Times are those of
a pair of taking and returning, on a device that is only numbers, so no driver
is in them; each is the least of several rounds, and the quartile for two
threads. The last rows are bytes of bookkeeping for each of 1,000,000 live
blocks (100,000 with --quick).

Example:
  $ anyaccel bench memory
  $ anyaccel bench memory --json | jq '.rows[] | {name, ours, ratio}'

JSON (schema anyaccel.bench.v1):
  subject       memory
  optimised     whether the figures mean something: false in a debug build
  quick         whether it was measured with --quick
  rows[]        name, unit (ns or bytes), ours, textbook and ratio (null if it
                has no such thing), goal (at most), met

Exit code: 0, met or not; 1 if something failed; 2 for bad arguments.";

/// Measure the runtime itself, beside a baseline
#[derive(clap::Args, Debug)]
#[command(long_about = LONG)]
pub(crate) struct Args {
    /// What to measure
    #[arg(value_enum)]
    subject: Subject,

    /// Measure a tenth as long, for rougher figures
    #[arg(long)]
    quick: bool,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// What can be measured.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Subject {
    Memory,
}

/// The document of `bench --json`.
#[derive(Serialize)]
struct Document {
    /// `anyaccel.bench.v1`.
    schema: &'static str,
    /// What was measured.
    subject: Subject,
    /// Whether the program is optimised.
    optimised: bool,
    /// Whether it was measured for a short while.
    quick: bool,
    /// The figures.
    rows: Vec<RowDocument>,
}

#[derive(Serialize)]
struct RowDocument {
    /// What it is.
    name: &'static str,
    /// `ns` or `bytes`.
    unit: &'static str,
    /// The figure.
    ours: f64,
    /// The baseline's.
    textbook: Option<f64>,
    /// How many times as fast.
    ratio: Option<f64>,
    /// At most this.
    goal: f64,
    /// Whether it is.
    met: bool,
}

impl From<Row> for RowDocument {
    fn from(row: Row) -> Self {
        let Row { name, unit, ours, textbook, goal } = row;
        Self { name, unit, ours, textbook, ratio: row.ratio(), goal, met: row.is_met() }
    }
}

const OPTIMISED: bool = !cfg!(debug_assertions);

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let Subject::Memory = args.subject;
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    if output.is_json() {
        let mut rows = Vec::new();
        memory(effort, &mut |row| rows.push(row.into()));
        let (schema, subject) = ("anyaccel.bench.v1", args.subject);
        return output.document(&Document { schema, subject, optimised: OPTIMISED, quick: args.quick, rows });
    }
    if !OPTIMISED {
        output.text("This is a debug build: its figures mean nothing.\n\n")?;
    }
    let head = ["", "anyaccel", "textbook", "ratio", "goal"].map(str::to_owned);
    output.text(&line(head, ""))?;
    let mut outcome = Ok(());
    memory(effort, &mut |row| {
        if outcome.is_ok() {
            outcome = output.text(&told(row));
        }
    });
    outcome
}

/// The row of a table whose later rows are not known yet.
fn line([name, ours, textbook, ratio, goal]: [String; 5], verdict: &str) -> String {
    let line = format!("{name:<38} {ours:>13} {textbook:>8} {ratio:>6} {goal:>4} {verdict}");
    format!("{}\n", line.trim_end())
}

fn told(row: Row) -> String {
    let Row { name, unit, ours, textbook, goal } = row;
    let textbook = textbook.map_or_else(String::new, |textbook| format!("{textbook:.0}"));
    let ratio = row.ratio().map_or_else(String::new, |ratio| format!("{ratio:.1}x"));
    let cells = [name.to_owned(), format!("{ours:.1} {unit}"), textbook, ratio, format!("{goal:.0}")];
    line(cells, if row.is_met() { "met" } else { "missed" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_and_say_whether_the_goal_is_met() {
        let row = Row {
            name: "random mix, 1000 live, 512 B .. 16 MiB",
            unit: "bytes",
            ours: 12345.6,
            textbook: Some(98765.4),
            goal: 120.0,
        };
        let told = told(row);
        assert!(told.trim_end().chars().count() <= 80, "{told}");
        assert!(told.contains("12345.6 bytes") && told.contains("8.0x") && told.ends_with("missed\n"), "{told}");
        assert!(super::told(Row { ours: 120.0, textbook: None, ..row }).ends_with("120 met\n"));
    }
}
