//! The suite on plugins, from a process that is watched: its findings are gathered case by case.
//!
//! A case in which the process ends is a failure of that case. The suite then goes on behind it in a new process, as often as
//! [`RESTARTS`] for each library; so it does with the next library, whatever became of the one before.

use super::{Args, Document, show};
use crate::output::{Class, Failure, Output, one_line};
use crate::watched::{Next, Process, Told, how_it_ended};
use anyaccel_cts::{CaseReport, Report, Verdict, all};
use std::ffi::OsString;
use std::io;
use std::time::{Duration, Instant};

/// How many processes may be lost on one library.
const RESTARTS: usize = 20;

/// For how many times the limit of a case nothing may happen: a driver may start slowly, once.
const PATIENCE: u32 = 10;

/// How a process ended before its time.
struct Lost {
    /// `the plugin took the process down`, say.
    what: &'static str,
    /// By which signal, with which status, or after which silence.
    how: String,
}

impl Lost {
    fn at(&self, place: &str) -> String {
        one_line(&format!("{} {place} ({})", self.what, self.how))
    }
}

/// The library whose cases run.
struct Open {
    report: Report,
    /// How many cases it has.
    cases: usize,
    /// The case that runs.
    running: Option<String>,
    began: Instant,
    /// When the last case was judged.
    since: Instant,
    /// How many processes were lost.
    lost: usize,
    /// How many cases had been judged when this process began.
    at_start: usize,
}

/// What a process does before the first case.
enum Before {
    Starts,
    Loads(String),
    Asks(String, String),
}

struct Found {
    reports: Vec<Report>,
    /// How many of them were printed.
    shown: usize,
    open: Option<Open>,
    before: Before,
    failed: Option<Failure>,
    /// Whether the process has said that it came to its end.
    ended: bool,
}

/// Runs the suite in processes of its own; `None` if there can be none.
pub(super) fn run(args: &Args, output: &mut Output) -> Option<Result<(), Failure>> {
    let (reports, before) = (Vec::new(), Before::Starts);
    let mut found = Found { reports, shown: 0, open: None, before, failed: None, ended: false };
    loop {
        let judged = found.open.as_ref().map_or(0, |open| open.report.cases.len());
        let mut process = match Process::start(arguments(found.reports.len(), judged), None) {
            Ok(process) => process,
            Err(_) if found.reports.is_empty() && found.open.is_none() => return None,
            Err(error) => return Some(Err(cant(&error))),
        };
        match found.follow(&mut process, args, output) {
            Ok(Some(lost)) if found.goes_on(&lost, args) => {}
            Ok(_) => return Some(found.finish(args, output)),
            Err(failure) => return Some(Err(failure)),
        }
    }
}

/// This command's arguments, for a process that begins with that library and behind that many of its cases.
fn arguments(library: usize, cases: usize) -> Vec<OsString> {
    let mut own = std::env::args_os().skip(1);
    let command = own.next().into_iter();
    let watched = ["--watched".to_owned(), library.to_string(), cases.to_string()].map(OsString::from);
    command.chain(watched).chain(own).collect()
}

fn cant(error: &io::Error) -> Failure {
    Failure::new(Class::Device, format!("the suite needs a process of its own for plugins, and can't have it: {error}"))
}

impl Found {
    /// Listens to a process until it ends. `None` if that was its end, else how it was lost.
    fn follow(&mut self, process: &mut Process, args: &Args, output: &mut Output) -> Result<Option<Lost>, Failure> {
        let patience = args.limit().saturating_mul(PATIENCE);
        self.before = Before::Starts;
        if let Some(open) = &mut self.open {
            open.at_start = open.report.cases.len();
        }
        loop {
            match process.next(patience).map_err(|error| cant(&error))? {
                Next::Told(told) => self.hear(told, args, output)?,
                Next::Ended(status) if self.ended && status.success() => return Ok(None),
                Next::Ended(status) => {
                    let (what, how) = how_it_ended(status);
                    return Ok(Some(Lost { what, how }));
                }
                Next::Silent => {
                    return Ok(Some(Lost {
                        what: "the plugin hangs",
                        how: format!("nothing happened for {patience:?}"),
                    }));
                }
            }
        }
    }

    fn hear(&mut self, told: Told, args: &Args, output: &mut Output) -> Result<(), Failure> {
        match (told, &mut self.open) {
            (Told::Loads(path), _) => self.before = Before::Loads(path),
            (Told::Asks(name, kind), _) => self.before = Before::Asks(name, kind),
            (Told::Subject(again, _), Some(open)) => {
                // In another process it may say something else of itself.
                let more = again.complaints.into_iter().filter(|complaint| !open.report.complaints.contains(complaint));
                let more: Vec<String> = more.collect();
                open.report.complaints.extend(more);
            }
            (Told::Subject(report, cases), None) if cases > 0 => {
                self.show(args, output)?;
                let (began, running) = (Instant::now(), None);
                self.open = Some(Open { report, cases, running, began, since: began, lost: 0, at_start: 0 });
            }
            (Told::Begins(id), Some(open)) => open.running = Some(id),
            (Told::Judged(case), Some(open)) => open.judged(case),
            (Told::Done, _) => self.close(),
            (Told::Text(text), _) => output.whole(&text)?,
            (Told::Failed(class, message), _) => self.failed = Some(Failure::new(class, message)),
            (Told::End, _) => self.ended = true,
            // Without cases there is no report, and the process says why. Work is of other commands.
            (Told::Subject(..) | Told::Begins(_) | Told::Judged(_), None) | (Told::Works(..), _) => {}
        }
        Ok(())
    }

    /// Notes what was lost with a process. Whether another one goes on.
    fn goes_on(&mut self, lost: &Lost, args: &Args) -> bool {
        if self.ended {
            let complaint = lost.at("after the last case");
            match self.reports.last_mut() {
                Some(report) => report.complaints.push(complaint),
                None => self.failed = Some(Failure::new(Class::Wrong, complaint)),
            }
            return false;
        }
        let Some(open) = &mut self.open else { return self.goes_on_without_cases(lost, args) };
        open.lost += 1;
        let done = open.report.cases.len();
        match open.running.take() {
            Some(id) => open.lost_in(&id, lost),
            None if done > open.at_start => {
                let after = open.report.cases.last().map_or("", |case| &case.id);
                open.report.complaints.push(lost.at(&format!("behind the case {after}")));
            }
            None => {
                open.report.complaints.push(lost.at(&format!("before case {} of {}", done + 1, open.cases)));
                open.give_up();
                self.close();
                return true;
            }
        }
        if args.fail_fast || open.report.cases.len() >= open.cases {
            self.close();
        } else if open.lost >= RESTARTS {
            open.give_up();
            self.close();
        }
        true
    }

    /// A process was lost before it came to the cases of a library. Another one goes on with the next library, if this one could
    /// be loaded.
    fn goes_on_without_cases(&mut self, lost: &Lost, args: &Args) -> bool {
        let place = match &self.before {
            Before::Asks(subject, kind) if !args.list => {
                self.reports.push(Report {
                    subject: subject.clone(),
                    kind: kind.clone(),
                    seed: args.seed,
                    absent: None,
                    complaints: vec![lost.at(&format!("before the first case of {subject}"))],
                    cases: Vec::new(),
                    millis: 0,
                });
                return true;
            }
            Before::Starts => "before the first case".to_owned(),
            Before::Loads(library) | Before::Asks(library, _) => format!("before the first case of {library}"),
        };
        self.failed = Some(Failure::new(Class::Wrong, lost.at(&place)));
        false
    }

    fn close(&mut self) {
        if let Some(mut open) = self.open.take() {
            open.report.millis = open.began.elapsed().as_millis() as u64;
            self.reports.push(open.report);
        }
    }

    /// Prints the reports that were not yet.
    fn show(&mut self, args: &Args, output: &mut Output) -> Result<(), Failure> {
        if !output.is_json() {
            for report in &self.reports[self.shown..] {
                output.text(&show::report(report, args.verbose))?;
            }
            self.shown = self.reports.len();
        }
        Ok(())
    }

    fn finish(mut self, args: &Args, output: &mut Output) -> Result<(), Failure> {
        self.close();
        if self.reports.is_empty() || args.list {
            return self.failed.map_or(Ok(()), Err);
        }
        self.show(args, output)?;
        if output.is_json() {
            let ok = self.failed.is_none() && self.reports.iter().all(Report::is_ok);
            output.document(&Document { schema: "anyaccel.cts.v1", ok, reports: &self.reports })?;
        }
        self.failed.map_or_else(|| show::conclude(&self.reports), Err)
    }
}

impl Open {
    fn judged(&mut self, case: CaseReport) {
        self.running = None;
        self.since = Instant::now();
        self.report.cases.push(case);
    }

    /// The process was lost in that case, which is a failure of it.
    fn lost_in(&mut self, id: &str, lost: &Lost) {
        let took: Duration = self.since.elapsed();
        match all().find(|case| case.id == id) {
            Some(case) => {
                let seen = format!("{} ({})", lost.what, lost.how);
                let verdict = Verdict::Fail(case.failure("the process to go on", seen));
                self.judged(CaseReport::new(case, verdict, took));
            }
            // This program and that one are the same, so they have the same cases.
            None => self.report.complaints.push(lost.at(&format!("in the case {id}"))),
        }
    }

    fn give_up(&mut self) {
        let left = match self.cases.saturating_sub(self.report.cases.len()) {
            1 => "1 case was not run".to_owned(),
            left => format!("{left} cases were not run"),
        };
        let lost =
            if self.lost == 1 { "1 process was lost".to_owned() } else { format!("{} processes were lost", self.lost) };
        self.report.complaints.push(format!("{lost}; given up, {left}"));
    }
}
