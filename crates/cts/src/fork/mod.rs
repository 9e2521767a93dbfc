//! Cases that need a process of their own: what a fork does to the process-wide runtime, what the process exits with.
//!
//! A case of this sort names a script. The runner starts [`Options::child`](crate::Options::child), a program that calls
//! [`child_main`] before anything else, with arguments that name subject and script; that process has one thread and an
//! untouched runtime, runs the script, and reports in one line.
//!
//! In there the subject's driver is registered with the face under kinds of the suite's own: as it is, as one that can't
//! start again in a child, as one without devices, and as one that fails to start. So every subject proves the same,
//! whether its own kind is built in or not.

mod ends;
mod graphs;
mod hammer;
mod process;
mod random;
mod scripts;

use crate::case::{Failure, Outcome, Stop, fail, skip};
use crate::cases::Bent;
use crate::env::{Env, MEMORY};
use crate::subject::{Ask, Subject};
use crate::subjects;
use crate::words::plain;
use anyaccel_hal::{Driver, Kind};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub(crate) use process::in_fork;

/// How long it may take until what a process has printed is read.
const SOON: Duration = Duration::from_secs(2);

/// The first argument of a process that runs a script.
const MARKER: &str = "--anyaccel-cts-child";
/// What a report's line begins with.
const REPORT: &str = "anyaccel-cts-outcome:";
/// Between the parts of a report; never part of one.
const SEPARATOR: char = '\u{1f}';

/// The subject's driver as it is.
pub(crate) const RESTARTS: &str = "cts_restarts";
/// The same as one that can't start again in a forked child.
pub(crate) const FROZEN: &str = "cts_frozen";
/// Frozen, and without a device.
pub(crate) const HIDDEN: &str = "cts_hidden";
/// Frozen, and its first start fails.
pub(crate) const FAILING: &str = "cts_failing";

/// What a script knows.
pub(crate) struct Script {
    pub(crate) subject: Subject,
    pub(crate) seed: u64,
    /// After how long something that must happen counts as not happening.
    pub(crate) patience: Duration,
}

/// The subject of this process, for the constructors that the face calls.
static SUBJECT: OnceLock<(Subject, u64)> = OnceLock::new();

/// If this process was started to run a script on one of the subjects, or on a plugin, runs it and exits. Otherwise returns at
/// once.
///
/// Call it first thing in `main`, while the process has one thread, and name the program in
/// [`Options::child`](crate::Options::child).
pub fn child_main(subjects: &[Subject]) {
    // Another program's arguments need not be Unicode; those of the suite are.
    let mut args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    if args.next().as_deref() != Some(MARKER) {
        return;
    }
    let (name, script) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let seed = args.next().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let millis = args.next().and_then(|millis| millis.parse().ok()).unwrap_or(10_000);
    let outcome = match subjects::named(&name, subjects) {
        Err(reason) => fail("", "a subject that the program knows", reason),
        Ok(subject) => {
            let script_env = Script { subject, seed, patience: Duration::from_millis(millis) };
            register(&script_env).and_then(|()| scripts::run(&script, &script_env))
        }
    };
    println!("\n{REPORT}{}", encode(&outcome));
    std::process::exit(0);
}

fn register(script: &Script) -> Outcome {
    if SUBJECT.set((script.subject.clone(), script.seed)).is_err() {
        return fail("", "one script a process", "a second one");
    }
    let constructors: [(&'static str, anyaccel::Constructor); 4] = [
        (RESTARTS, || bend(RESTARTS, |bent| bent)),
        (FROZEN, || bend(FROZEN, Bent::frozen)),
        (HIDDEN, || bend(HIDDEN, |bent| bent.frozen().hidden())),
        (FAILING, || bend(FAILING, |bent| bent.frozen().failing(1))),
    ];
    for (name, construct) in constructors {
        let Some(kind) = Kind::private(name) else { return fail("", "a name for a private kind", name) };
        anyaccel::register_backend(kind, construct)?;
    }
    Ok(())
}

/// The subject's driver, bent. A subject that has none here has no devices either.
fn bend(name: &'static str, bend: fn(Bent) -> Bent) -> Arc<dyn Driver> {
    let kind = Kind::private(name).unwrap_or(Kind::HOST);
    let made = SUBJECT.get().map(|(subject, seed)| subject.make(&Ask { devices: 2, memory: MEMORY, seed: *seed }));
    match made {
        Some(Ok(made)) => Arc::new(bend(Bent::new(made.driver)).of_kind(kind)),
        _ => Arc::new(Bent::new(anyaccel_host::driver()).of_kind(kind).hidden()),
    }
}

/// Runs a script in a process of its own, in which the face is told to use `backend`.
pub(crate) fn script(env: &Env, name: &str, backend: &str) -> Outcome {
    let limit = env.patience * 5 / 2;
    let Some(program) = env.child() else { return skip("no helper process") };
    let spawned = Command::new(program)
        .args([MARKER, env.subject.name(), name])
        .args([env.seed().to_string(), env.patience.as_millis().to_string()])
        .env("ANYACCEL_BACKEND", backend)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Its own, so that the processes that it forks can be ended with it.
        .process_group(0)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return skip(format!("{} does not start: {error}", program.display())),
    };
    // Read while it runs: a backend that prints a lot must not wait for a reader.
    let (sender, printed) = channel();
    if let Some(out) = child.stdout.take() {
        // Not joined: what the process has forked may hold its output open.
        std::thread::spawn(move || {
            let lines = BufReader::new(out).split(b'\n').map_while(Result::ok);
            let _nobody_listens = lines.map(|line| sender.send(line)).take_while(Result::is_ok).count();
        });
    } else {
        drop(sender);
    }
    let deadline = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            other => {
                process::kill_group(&child);
                // It may have ended meanwhile; there is nothing to do about either.
                let _ended = child.kill().and_then(|()| child.wait());
                return fail("", format!("the script to end within {limit:?}"), format!("it hangs ({other:?})"));
            }
        }
    };
    // What it printed is in the pipe, and comes at once.
    let lines = std::iter::from_fn(|| printed.recv_timeout(SOON).ok());
    let lines: Vec<String> = lines.map(|line| String::from_utf8_lossy(&line).into_owned()).collect();
    let text = lines.join("\n");
    let reported = text.lines().find_map(|line| line.strip_prefix(REPORT)).map(decode);
    match reported {
        Some(outcome) if status.success() || outcome.is_err() => outcome,
        _ => fail("", "a report and a clean exit", format!("{status}, and {text:?}")),
    }
}

/// An outcome in one line.
pub(crate) fn encode(outcome: &Outcome) -> String {
    let parts = match outcome {
        Ok(()) => vec!["ok"],
        Err(Stop::Skip(reason)) => vec!["skip", reason],
        Err(Stop::Fail(Failure { rule, expected, seen })) => vec!["fail", rule, expected, seen],
    };
    let separator = SEPARATOR.to_string();
    parts.into_iter().map(|part| part.replace(['\n', SEPARATOR], " ")).collect::<Vec<_>>().join(&separator)
}

pub(crate) fn decode(line: &str) -> Outcome {
    let parts: Vec<&str> = line.split(SEPARATOR).collect();
    match parts[..] {
        ["ok"] => Ok(()),
        ["skip", reason] => skip(reason),
        ["fail", rule, expected, seen] => fail(rule, expected, seen),
        _ => fail("", "an outcome", plain(&line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_survive_the_trip() {
        for outcome in [Ok(()), skip("a reason"), fail("H1", "this", "that, and a\tlot")] {
            assert_eq!(decode(&encode(&outcome)), outcome);
        }
        assert_eq!(decode(&encode(&fail("H1", "two\nlines", ""))), fail("H1", "two lines", ""));
        assert!(decode("nonsense").is_err());
    }
}
