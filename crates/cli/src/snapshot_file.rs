//! A snapshot from a file or standard input, for the commands that look at memory histories.

use crate::layout::{bytes, counted};
use crate::output::{Class, Failure, one_line};
use anyaccel_engine::alloc::SettingsError;
use anyaccel_snapshot::{Caveats, History, ReadError, Snapshot};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Opens a file, or standard input for `-`; gives its name for messages too.
pub(crate) fn open(path: &Path) -> Result<(Box<dyn Read>, String), Failure> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), "standard input".to_owned()));
    }
    let name = one_line(&path.display().to_string());
    let file = File::open(path).map_err(|error| Failure::new(Class::Input, format!("can't open {name}: {error}")))?;
    if file.metadata().is_ok_and(|found| found.is_dir()) {
        return Err(Failure::new(Class::Input, format!("{name} is a directory; name a file")));
    }
    Ok((Box::new(file), name))
}

/// Settings from the command line or a file that are wrong.
pub(crate) fn wrong_settings(origin: &str, error: &SettingsError) -> Failure {
    let SettingsError { key, value, reason, .. } = error;
    let at = if value.is_empty() { key.clone() } else { format!("{key}:{value}") };
    Failure::new(Class::Usage, format!("{origin}: '{at}': {reason}"))
}

/// Reads a snapshot.
pub(crate) fn read(path: &Path) -> Result<(Snapshot, String), Failure> {
    let (file, name) = open(path)?;
    Ok((read_from(file, &name)?, name))
}

/// A file that is open and can't be read.
pub(crate) fn unread(name: &str, error: &io::Error) -> Failure {
    Failure::new(Class::Input, format!("can't read {name}: {error}"))
}

/// Reads a snapshot from what is open.
pub(crate) fn read_from(file: impl Read, name: &str) -> Result<Snapshot, Failure> {
    anyaccel_snapshot::read(file).map_err(|error| match error {
        ReadError::Io(error) => unread(name, &error),
        error => Failure::new(Class::Input, format!("{name}: {error}")),
    })
}

/// The histories of all devices that have one.
pub(crate) fn histories(snapshot: &Snapshot, name: &str) -> Result<Vec<History>, Failure> {
    History::all(snapshot).map_err(|error| Failure::new(Class::Input, format!("{name}: {error}")))
}

/// What a recording can't tell, a sentence each.
pub(crate) fn caveats(caveats: &Caveats) -> Vec<String> {
    let mut out = Vec::new();
    if caveats.dropped > 0 {
        out.push(format!(
            "the recorder's ring had no room for {}, the oldest",
            counted(caveats.dropped, "event", "events")
        ));
    }
    if caveats.unseen_blocks > 0 {
        out.push(format!(
            "recording began in the middle: {} ({}) lay there already, in the order of their addresses here; \
             {} lay free then, with which a replay does not begin. Peaks before the first event are not known",
            counted(caveats.unseen_blocks, "block", "blocks"),
            bytes(caveats.unseen_bytes),
            bytes(caveats.unseen_cached)
        ));
    }
    if caveats.missing_frees > 0 {
        out.push(format!(
            "{} missing ({}): each is put where its memory was handed out again, so peaks may be lower",
            counted(caveats.missing_frees, "free is", "frees are"),
            bytes(caveats.missing_bytes)
        ));
    }
    if caveats.lost_blocks > 0 {
        out.push(format!(
            "{} gone in the end without a free ({}); nothing says when, so they stay, and peaks may be lower",
            counted(caveats.lost_blocks, "block is", "blocks are"),
            bytes(caveats.lost_bytes)
        ));
    }
    if caveats.recorded_ooms > 0 {
        out.push(format!(
            "{} failed in the recording; what the program would have done otherwise is not in it",
            counted(caveats.recorded_ooms, "request", "requests")
        ));
    }
    if caveats.no_stacks {
        out.push("no event has a stack: calls of empty_cache are told by the order of events alone".to_owned());
    }
    out
}
