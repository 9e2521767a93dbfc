//! Writing to a file: all of it or nothing.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Snapshot;

/// Why a file could not be written. What was at the path before is still there.
#[derive(Debug, thiserror::Error)]
#[error("{what} can't be written to '{}': {source}", .path.display())]
pub struct WriteError {
    /// What it was to hold: `the snapshot`.
    pub what: &'static str,
    /// Where it was to go.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl Snapshot {
    /// Writes the snapshot to a file, as PyTorch would. A file that is there is replaced, at once: who opens the path
    /// finds the old one or the new one, whole.
    ///
    /// # Errors
    /// [`WriteError`], naming the path.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), WriteError> {
        save("the snapshot", path.as_ref(), |output| super::write(self, output))
    }
}

/// Writes a file, all of it or nothing: one that is there is replaced at once, when the new one is whole.
pub(crate) fn save(
    what: &'static str,
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), WriteError> {
    replace(path, |file| {
        let mut output = BufWriter::with_capacity(256 << 10, file);
        fill(&mut output)?;
        output.into_inner().map_err(io::IntoInnerError::into_error)
    })
    .map_err(|source| WriteError { what, path: path.to_owned(), source })
}

/// Lets `fill` write a new file beside `path`, which then takes its place.
fn replace(path: &Path, fill: impl FnOnce(File) -> io::Result<File>) -> io::Result<()> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it names no file"));
    };
    if path.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    if path.metadata().is_ok_and(|there| !there.is_file()) {
        // A pipe or a terminal has no place beside it, and is not to be replaced.
        return fill(OpenOptions::new().write(true).open(path)?)?.flush();
    }
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}-{}.part", process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let beside = path.with_file_name(hidden);
    let file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
    let written = fill(file).and_then(|mut file| {
        file.flush()?;
        // On the disk before it has the name.
        file.sync_data()?;
        drop(file);
        fs::rename(&beside, path)
    });
    if written.is_err() {
        // Nothing of it is to stay; that this fails too changes nothing.
        let _left = fs::remove_file(&beside);
    }
    written
}
