//! Runs cases. Each on a thread of its own, so that a hang is a failure of that case and not of the suite.

use crate::case::{Capability, Case, Failure, Level, Stop};
use crate::cases;
use crate::env::{Env, abilities};
use crate::report::{CaseReport, Report, Verdict};
use crate::subject::{Abilities, Subject, matches};
use crate::ways::Way;
use anyaccel_hal::Kind;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// The backend was asked what it can; the report has no case yet.
    Subject {
        /// What is known of the run as a whole.
        report: &'a Report,
        /// How many cases it will have.
        cases: usize,
    },
    /// A case begins. Those that don't apply don't.
    Begins(&'a Case),
    /// A case was judged.
    Ended(&'a CaseReport),
}

impl Step<'_> {
    /// Prints the id of a case that begins, for tests.
    pub fn print(self) {
        if let Self::Begins(case) = self {
            println!("{}", case.id);
        }
    }
}

/// How to run the suite.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which cases: ids with `*` for any text; empty for all.
    pub filter: Vec<String>,
    /// Only cases of this level.
    pub level: Option<Level>,
    /// Kinds whose absence is a failure instead of a reason to skip.
    pub require: Vec<Kind>,
    /// Where random programs begin, and what a backend that chooses at random is given.
    pub seed: u64,
    /// How long one case may take.
    pub timeout: Duration,
    /// Stop at the first case that fails the run.
    pub fail_fast: bool,
    /// Told of each step before the next one: for a progress line, or for what is to be known even if the backend takes the
    /// process down.
    pub watch: fn(Step<'_>),
    /// How many of the chosen cases have been judged already, by a run that did not come to its end: they are left out.
    pub after: usize,
    /// A program that calls [`fork::child_main`](crate::fork::child_main) first thing, for cases that need a process of
    /// their own; without it they are skipped.
    pub child: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            filter: Vec::new(),
            level: None,
            require: Vec::new(),
            seed: 1,
            timeout: Duration::from_secs(30),
            fail_fast: false,
            watch: |_| (),
            after: 0,
            child: None,
        }
    }
}

impl Options {
    fn chooses(&self, case: &Case) -> bool {
        self.level.is_none_or(|level| level == case.level)
            && (self.filter.is_empty() || self.filter.iter().any(|pattern| matches(pattern, case.id)))
    }
}

/// Runs the suite on a backend.
pub fn run(subject: &Subject, options: &Options) -> Report {
    let began = Instant::now();
    let found = abilities(subject, options.seed, options.child.is_some());
    let mut report = Report {
        subject: subject.name().into(),
        kind: subject.kind().name().into(),
        seed: options.seed,
        absent: found.as_ref().err().cloned(),
        complaints: Vec::new(),
        cases: Vec::new(),
        millis: 0,
    };
    if let Err(reason) = &found
        && options.require.contains(&subject.kind())
    {
        report.complaints.push(format!("{} is required and not here: {reason}", subject.kind()));
    }
    let ids: Vec<&str> = cases::all().map(|case| case.id).collect();
    for pattern in subject.idle_patterns(&ids) {
        report.complaints.push(format!("the exemption {pattern:?} of {} fits no case", subject.name()));
    }
    let chosen = || cases::all().filter(|case| options.chooses(case));
    (options.watch)(Step::Subject { report: &report, cases: chosen().count() });
    for case in chosen().skip(options.after) {
        let began = Instant::now();
        let verdict = match why_not(case, subject, &found) {
            Some(reason) => Verdict::Skip { reason },
            None => {
                (options.watch)(Step::Begins(case));
                judge(case, subject, options)
            }
        };
        let stop = options.fail_fast && verdict.is_failure();
        let judged = CaseReport::new(case, verdict, began.elapsed());
        (options.watch)(Step::Ended(&judged));
        report.cases.push(judged);
        if stop {
            break;
        }
    }
    report.millis = began.elapsed().as_millis() as u64;
    report
}

/// A case that a run would have, and whether it applies.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Planned {
    /// Its id.
    pub id: &'static str,
    /// Its level.
    pub level: Level,
    /// The hal rules that it proves.
    pub rules: Vec<String>,
    /// The sentences that it proves.
    pub sentences: Vec<&'static str>,
    /// Why it would be skipped, if it would be.
    pub skipped: Option<String>,
}

/// What [`run`] would do, by asking the backend only what it can.
pub fn plan(subject: &Subject, options: &Options) -> Vec<Planned> {
    let found = abilities(subject, options.seed, options.child.is_some());
    let planned = |case: &Case| Planned {
        id: case.id,
        level: case.level,
        rules: case.rules.iter().map(|rule| format!("H{rule}")).collect(),
        sentences: case.sentences.to_vec(),
        skipped: why_not(case, subject, &found),
    };
    cases::all().filter(|case| options.chooses(case)).map(planned).collect()
}

/// Why a case does not apply, if it does not.
fn why_not(case: &Case, subject: &Subject, found: &Result<Abilities, String>) -> Option<String> {
    let abilities = match found {
        Ok(abilities) => abilities,
        Err(reason) => return Some(format!("the backend is not here: {reason}")),
    };
    if let Some(reason) = subject.never_reason(case.id) {
        return Some(format!("never: {reason}"));
    }
    if abilities.devices < case.devices {
        return Some(format!("needs {} devices, there is {}", case.devices, abilities.devices));
    }
    if case.way == Way::Captured && !abilities.has(Capability::Graphs) {
        return Some(format!("needs {}", Capability::Graphs));
    }
    let captured = if case.way == Way::Eager { &[] } else { case.needs_captured };
    case.needs.iter().chain(captured).find(|&&need| !abilities.has(need)).map(|need| format!("needs {need}"))
}

fn judge(case: &Case, subject: &Subject, options: &Options) -> Verdict {
    let result = attempt(case, subject, options);
    match (result, subject.not_yet_reason(case.id)) {
        (Err(Stop::Skip(reason)), _) => Verdict::Skip { reason },
        (Ok(()), None) => Verdict::Pass,
        (Ok(()), Some(reason)) => Verdict::Stale { reason: reason.into() },
        (Err(Stop::Fail(failure)), None) => Verdict::Fail(failure),
        (Err(Stop::Fail(failure)), Some(reason)) => Verdict::KnownGap { reason: reason.into(), failure },
    }
}

/// Runs a case under the watchdog. A thread that does not come back is left behind: nothing can end it.
fn attempt(case: &Case, subject: &Subject, options: &Options) -> Result<(), Stop> {
    let env = Env {
        subject: subject.clone(),
        seed: options.seed,
        patience: options.timeout / 3,
        devices: case.devices,
        way: case.way,
        level: case.level,
        child: options.child.clone(),
        complaints: Arc::default(),
    };
    let inside = env.clone();
    let (report, result) = sync_channel(1);
    let run = case.run;
    let spawned = thread::Builder::new().name(case.id.into()).spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&inside)));
        // The receiver is gone only if the watchdog gave up: nobody wants to know any more.
        let _late = report.send(outcome);
    });
    let thread = match spawned {
        Ok(thread) => thread,
        Err(error) => return Err(broken(case, "a thread for the case", &error.to_string())),
    };
    match result.recv_timeout(options.timeout) {
        Ok(Ok(outcome)) => {
            // It has reported, so this is only the way out of the thread.
            let _ended = thread.join();
            outcome.map_err(|stop| match stop {
                Stop::Fail(failure) if failure.rule.is_empty() => {
                    Stop::Fail(Failure { rule: case.first_promise(), ..failure })
                }
                other => other,
            })?;
            match env.complaints().first() {
                Some(complaint) => Err(broken(case, "no complaint about the suite", complaint)),
                None => Ok(()),
            }
        }
        Ok(Err(panic)) => Err(broken(case, "no panic", &panic_text(&*panic))),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            Err(broken(case, &format!("an end within {:?}", options.timeout), "none: the case hangs"))
        }
    }
}

fn broken(case: &Case, expected: &str, seen: &str) -> Stop {
    Stop::Fail(case.failure(expected, seen))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a panic: {}", text.unwrap_or("of an unknown type"))
}
