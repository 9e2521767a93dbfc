//! The suite on a plugin, in a process that is watched: a plugin that takes it down, ends it or hangs is told with the case that
//! did it.
//!
//! The command starts itself once more with `--watched`. That process writes a line on standard error before each library and
//! each case, and one when all is done; this one keeps the last, passes all other lines on, and has the last word if the
//! other does not come to its end. An exit status proves nothing: a plugin can call `exit(0)`.

use crate::cts::Args;
use crate::output::{Class, Failure, Output, one_line};
use anyaccel_cts::{Case, Subject};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// What begins the line before a library; like the other two, in no line that is meant for people.
const SUBJECT: &str = "\u{1}library ";

/// What begins the line before a case.
const CASE: &str = "\u{1}case ";

/// The last line.
const END: &str = "\u{1}end";

/// For how many times the limit of a case nothing may happen before the first one: a driver may start slowly, once.
const PATIENCE: u32 = 10;

fn say(line: &str) {
    // Nobody is left to be told if it can't be written.
    let _written = writeln!(io::stderr().lock(), "{line}");
}

/// Says that a library is asked what it can.
pub(crate) fn tell_subject(subject: &Subject) {
    say(&format!("{SUBJECT}{}", one_line(subject.name())));
}

/// Says that a case begins.
pub(crate) fn tell(case: &Case) {
    say(&format!("{CASE}{}", case.id));
}

/// Says that the command has come to its end, whatever that was.
pub(crate) fn tell_end() {
    say(END);
}

/// Runs the command in a process of its own and returns how it ended; `None` if this one can do it itself.
pub(crate) fn run(args: &Args) -> Option<ExitCode> {
    if !args.needs_watching() {
        return None;
    }
    let me = std::env::current_exe().ok()?;
    let spawned = Command::new(me)
        .args(std::env::args_os().skip(1))
        .arg("--watched")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    // Without a second process there is still the first.
    let mut child = spawned.ok()?;
    let silence = args.limit().saturating_mul(PATIENCE);
    let (last, hangs) = watch(&mut child, silence);
    if hangs {
        // It has ended by itself if it can't be killed.
        let _ended = child.kill();
    }
    let status = child.wait().ok()?;
    if hangs {
        let message = format!("the plugin hangs {}: nothing happened for {silence:?}", last.place());
        return Some(wrong(args, message));
    }
    match (ended_well(status), last) {
        (Some(code), Last::End) => Some(code),
        (Some(_), last) => Some(wrong(args, format!("the plugin ended the process {} ({status})", last.place()))),
        (None, last) => Some(wrong(args, format!("the plugin took the process down {} ({status})", last.place()))),
    }
}

fn wrong(args: &Args, message: String) -> ExitCode {
    Output::new(args.json).finish(Err(Failure::new(Class::Wrong, message)))
}

/// The exit code of a process that no signal ended.
fn ended_well(status: ExitStatus) -> Option<ExitCode> {
    status.code().and_then(|code| u8::try_from(code).ok()).map(ExitCode::from)
}

/// What the process has told last of where it is.
#[derive(PartialEq, Eq, Debug)]
enum Last {
    /// Nothing: it loads the libraries.
    Nothing,
    /// A library begins.
    Subject(String),
    /// A case begins.
    Case(String),
    /// All is done.
    End,
}

impl Last {
    fn of(line: &str) -> Option<Self> {
        if line == END {
            return Some(Self::End);
        }
        let subject = line.strip_prefix(SUBJECT).map(|name| Self::Subject(name.to_owned()));
        subject.or_else(|| line.strip_prefix(CASE).map(|id| Self::Case(id.to_owned())))
    }

    fn place(&self) -> String {
        match self {
            Self::Nothing => "before the first case".to_owned(),
            Self::Subject(name) => format!("before the first case of {name}"),
            Self::Case(id) => format!("in the case {id}"),
            Self::End => "after the last case".to_owned(),
        }
    }
}

/// Passes on what the process says until it says no more: what it told last of where it is, and whether it hangs there. Only
/// before a library's first case: the suite gives up on cases by itself, and whoever reads its report may take a while.
fn watch(child: &mut Child, silence: Duration) -> (Last, bool) {
    let mut last = Last::Nothing;
    let Some(stderr) = child.stderr.take() else { return (last, false) };
    let (told, lines) = sync_channel(64);
    // Not joined: what a killed process has forked may keep the pipe open.
    let _reader = std::thread::spawn(move || {
        let lines = BufReader::new(stderr).split(b'\n').map_while(Result::ok);
        for line in lines.map(|line| String::from_utf8_lossy(&line).into_owned()) {
            if told.send(line).is_err() {
                break;
            }
        }
    });
    let mut since = Instant::now();
    loop {
        let left = match last {
            Last::Nothing | Last::Subject(_) => silence.saturating_sub(since.elapsed()),
            Last::Case(_) | Last::End => Duration::MAX,
        };
        match lines.recv_timeout(left) {
            Ok(line) => match Last::of(&line) {
                Some(now) => (last, since) = (now, Instant::now()),
                None => say(&line),
            },
            Err(RecvTimeoutError::Timeout) => return (last, true),
            Err(RecvTimeoutError::Disconnected) => return (last, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_where_the_process_is() {
        assert_eq!(Last::of("\u{1}case memory.a").map(|last| last.place()), Some("in the case memory.a".to_owned()));
        let first = Last::of("\u{1}library /a.so").map(|last| last.place());
        assert_eq!(first, Some("before the first case of /a.so".to_owned()));
        assert_eq!(Last::of("\u{1}end"), Some(Last::End));
        assert_eq!(Last::of("case memory.a"), None);
    }
}
