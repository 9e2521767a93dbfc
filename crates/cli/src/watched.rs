//! The suite on a plugin, in a process that is watched: a plugin that takes it down is told with the case that did it.
//!
//! The command starts itself once more with `--watched`. That process writes a line on standard error before each case; this
//! one keeps the last, passes all other lines on, and has the last word if the other dies.

use crate::cts::Args;
use crate::output::{Class, Failure, Output};
use anyaccel_cts::Case;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

/// What begins the line before a case; in no line that is meant for people.
const CASE: &str = "\u{1}case ";

/// Says that a case begins.
pub(crate) fn tell(case: &Case) {
    // Nobody is left to be told if it can't be written.
    let _written = writeln!(io::stderr().lock(), "{CASE}{}", case.id);
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
    let (status, last) = watch(spawned.ok()?)?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => Some(ExitCode::from(code)),
        None => {
            let case = last.map_or_else(|| "before the first case".to_owned(), |id| format!("in the case {id}"));
            let message = format!("the plugin took the process down {case} ({status})");
            Some(Output::new(args.json).finish(Err(Failure::new(Class::Wrong, message))))
        }
    }
}

/// Waits for the process, passing on what it says; how it ended, and the last case that began.
fn watch(mut child: Child) -> Option<(ExitStatus, Option<String>)> {
    let mut last = None;
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            match line.strip_prefix(CASE) {
                Some(id) => last = Some(id.to_owned()),
                // Nobody is left to be told if it can't be written.
                None => drop(writeln!(io::stderr().lock(), "{line}")),
            }
        }
    }
    Some((child.wait().ok()?, last))
}
