//! A command's work on a device, in a process of its own where the environment names plugins: one that takes it down is told in
//! a line, by its name.

use super::{Next, Process, Told, how_it_ended, tell};
use crate::doctor::{PATIENCE, first_lost, named};
use crate::environment::PLUGINS;
use crate::output::{Class, Failure, Output};
use anyaccel::{Runtime, plugins};
use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// What the work takes from standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reads {
    /// Nothing.
    Nothing,
    /// What it works on.
    Input,
}

/// How far the work is.
enum Stage {
    /// Plugins are loaded and asked.
    Choosing,
    /// On that backend, in words.
    At(String),
    /// The command has come to its end; the process has not.
    Over(String),
}

/// Runs this command once more in a process of its own, with `--watched` behind its name, and prints what that says. `None` if
/// no plugin is named, or there can be no other process.
pub(crate) fn work(reads: Reads, output: &mut Output) -> Option<Result<(), Failure>> {
    if named().is_empty() {
        return None;
    }
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next()?;
    let arguments = [command, OsString::from("--watched")].into_iter().chain(arguments);
    let process = match reads {
        Reads::Nothing => Process::start(arguments, None),
        Reads::Input => Process::start_fed(arguments),
    };
    Some(follow(process.ok()?, output))
}

/// In the process that is watched: says that work begins on a runtime's backend.
pub(crate) fn begins(runtime: &Runtime) {
    let Some(kind) = runtime.kind() else { return };
    let plugin = plugins().into_iter().find(|plugin| plugin.outcome.as_ref().is_ok_and(|&it| it == kind));
    let library = plugin.map_or_else(String::new, |plugin| plugin.path.display().to_string());
    tell(&Told::Works(library, kind.name().to_owned()));
}

fn follow(mut process: Process, output: &mut Output) -> Result<(), Failure> {
    let cant = |error: io::Error| Failure::new(Class::Device, format!("can't ask how a process ended: {error}"));
    let (mut stage, mut failed) = (Stage::Choosing, None);
    loop {
        // How long work takes is its own business.
        let patience = if matches!(stage, Stage::At(_)) { Duration::MAX } else { PATIENCE };
        match process.next(patience).map_err(cant)? {
            Next::Told(Told::Works(library, kind)) => stage = Stage::At(name(&library, &kind)),
            Next::Told(Told::Text(text)) => {
                output.whole(&text)?;
                if output.is_abandoned() {
                    // Nobody is left to work for.
                    return Ok(());
                }
            }
            Next::Told(Told::Failed(class, message)) => failed = Some(Failure::new(class, message)),
            Next::Told(Told::End) => {
                stage = match stage {
                    Stage::At(name) | Stage::Over(name) => Stage::Over(name),
                    Stage::Choosing => Stage::Over(format!("a plugin of {PLUGINS}")),
                };
            }
            Next::Told(_) => {}
            // What the command has found comes before what its process dies of.
            Next::Ended(status) if matches!(stage, Stage::Over(_)) && (failed.is_some() || status.success()) => {
                return failed.map_or(Ok(()), Err);
            }
            Next::Ended(status) => return Err(lost(&stage, Some(status))),
            Next::Silent => return Err(failed.unwrap_or_else(|| lost(&stage, None))),
        }
    }
}

/// A backend, so that its user knows which library is meant.
fn name(library: &str, kind: &str) -> String {
    if library.is_empty() { format!("the backend '{kind}'") } else { format!("{PLUGINS}: {library}") }
}

/// What became of a process that has not come to its end: how it ended, or that it hangs.
fn lost(stage: &Stage, status: Option<ExitStatus>) -> Failure {
    let (name, when) = match stage {
        // Which one it is shows when each is tried alone.
        Stage::Choosing => match first_lost() {
            Some(failure) => return failure,
            None => (format!("{PLUGINS}: one of its plugins"), "when they are loaded or asked for their devices"),
        },
        Stage::At(name) => (name.clone(), "in the midst of its work"),
        Stage::Over(name) => (name.clone(), "at the end of the process"),
    };
    let what = match status.map(how_it_ended) {
        Some((what, how)) => format!("{what} {when} ({how})"),
        None => format!("the plugin hangs {when}: nothing happened for {PATIENCE:?}"),
    };
    Failure::new(Class::Device, format!("{name}: {what}"))
}
