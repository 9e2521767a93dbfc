//! Plugins, apart from each other and from this process: first each is tried in a process of its own, then another one examines
//! everything, with the plugins that have lost theirs left out.

use super::Args;
use crate::environment::PLUGINS;
use crate::output::{Class, Failure, Output, one_line};
use crate::watched::{Next, Process, Told, how_it_ended, tell};
use anyaccel_cts::{Ask, subjects};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a process may say nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A plugin that has lost its process.
#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Lost {
    /// Which one of those that the variable names.
    pub(super) at: usize,
    pub(super) path: String,
    pub(super) problem: String,
}

/// The plugins that this process is told to leave out.
pub(super) fn left_out(lost: &str) -> Result<Vec<Lost>, Failure> {
    serde_json::from_str(lost).map_err(|error| Failure::new(Class::Usage, format!("--watched is internal: {error}")))
}

/// In a process of its own: loads a plugin and asks it for what the examination asks it for. What is wrong with it is no failure
/// here: the examination tells.
pub(super) fn probe(library: &Path) -> Result<(), Failure> {
    let path = library.display().to_string();
    tell(&Told::Loads(path.clone()));
    if let Ok(subject) = subjects::plugin(library) {
        tell(&Told::Asks(path, subject.kind().name().to_owned()));
        if let Ok(made) = subject.make(&Ask { devices: 1, memory: 0, seed: 1 }) {
            let driver = made.driver();
            let visible = if driver.fork_safe_probe() { driver.probe().visible } else { 0 };
            let described = (0..visible).filter_map(|ordinal| driver.describe(ordinal)).count();
            let checks = driver.checks().len();
            tell(&Told::Text(format!("{described} devices are described, {checks} layers examined")));
        }
    }
    Ok(())
}

/// Runs the command in processes of its own; `None` if no plugin is named, or there can be none.
pub(super) fn run(args: &Args, output: &mut Output) -> Option<Result<(), Failure>> {
    let named = named();
    if named.is_empty() {
        return None;
    }
    let mut lost = Vec::new();
    for (at, path) in named.iter().enumerate() {
        let problem = try_out(path).ok()?;
        lost.extend(problem.map(|problem| Lost { at, path: one_line(&path.display().to_string()), problem }));
    }
    let left = named.iter().enumerate().filter(|(at, _)| !lost.iter().any(|lost| lost.at == *at));
    let left = std::env::join_paths(left.map(|(_, path)| path)).ok()?;
    Some(examine(args, &lost, left, output))
}

/// The plugins that the environment names, as the runtime reads it.
pub(crate) fn named() -> Vec<PathBuf> {
    let value = std::env::var_os(PLUGINS).unwrap_or_default();
    std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// What is wrong with the first plugin that would lose this process, for commands that ask all of them.
pub(crate) fn first_lost() -> Option<Failure> {
    named().into_iter().find_map(|path| {
        // Without a second process there is still this one.
        let problem = try_out(&path).ok().flatten()?;
        let message =
            format!("{PLUGINS}: {}: {problem}; anyaccel doctor shows what there is without it", path.display());
        Some(Failure::new(Class::Environment, message))
    })
}

/// Why a plugin can't be used, if it loses its process.
fn try_out(path: &Path) -> io::Result<Option<String>> {
    let arguments = [OsString::from("doctor"), OsString::from("--probe"), path.as_os_str().to_owned()];
    let mut process = Process::start(arguments, Some((PLUGINS, None)))?;
    let (mut stage, mut ended) = ("before it is loaded", false);
    loop {
        let lost = match process.next(PATIENCE)? {
            Next::Told(Told::Loads(_)) => {
                stage = "when it is loaded";
                continue;
            }
            Next::Told(Told::Asks(..)) => {
                stage = "when it is asked for its devices";
                continue;
            }
            Next::Told(told) => {
                if matches!(told, Told::End) {
                    (stage, ended) = ("at the end of the process", true);
                }
                continue;
            }
            Next::Ended(status) if ended && status.success() => return Ok(None),
            Next::Ended(status) => {
                let (what, how) = how_it_ended(status);
                format!("{what} {stage} ({how})")
            }
            Next::Silent => format!("the plugin hangs {stage}: nothing happened for {PATIENCE:?}"),
        };
        return Ok(Some(lost));
    }
}

/// Examines everything in one process, with these plugins, and prints what it says.
fn examine(args: &Args, lost: &[Lost], left: OsString, output: &mut Output) -> Result<(), Failure> {
    let cant = |error: io::Error| {
        Failure::new(Class::Device, format!("can't examine plugins in a process of its own: {error}"))
    };
    let lost = serde_json::to_string(lost).map_err(|error| cant(error.into()))?;
    let json = args.json.then_some("--json".to_owned());
    let arguments = ["doctor".to_owned(), "--watched".to_owned(), lost].into_iter().chain(json);
    let mut process = Process::start(arguments, Some((PLUGINS, Some(left)))).map_err(cant)?;
    let (mut failed, mut ended) = (None, false);
    loop {
        match process.next(PATIENCE).map_err(cant)? {
            Next::Told(Told::Text(text)) => output.whole(&text)?,
            Next::Told(Told::Failed(class, message)) => failed = Some(Failure::new(class, message)),
            Next::Told(told) => ended |= matches!(told, Told::End),
            Next::Ended(_) if ended => return failed.map_or(Ok(()), Err),
            Next::Ended(status) => {
                let (what, how) = how_it_ended(status);
                return Err(Failure::new(Class::Wrong, format!("{what}, in the midst of others ({how})")));
            }
            Next::Silent => {
                let message = format!("a plugin hangs, in the midst of others: nothing happened for {PATIENCE:?}");
                return Err(Failure::new(Class::Wrong, message));
            }
        }
    }
}
