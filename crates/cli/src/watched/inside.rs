//! The process that is watched.

use super::Told;
use std::fs::File;
use std::io::{self, Write};
use std::process::exit;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The pipe to whoever watches.
static PIPE: OnceLock<Mutex<File>> = OnceLock::new();

/// Takes the pipe that stands where standard input would. To be called before anything is loaded.
///
/// # Errors
/// There is none.
pub(crate) fn open() -> io::Result<()> {
    let pipe = taken()?;
    // Opened once a process: a second pipe would be the same one.
    let _first = PIPE.set(Mutex::new(pipe));
    Ok(())
}

#[cfg(unix)]
fn taken() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

#[cfg(windows)]
fn taken() -> io::Result<File> {
    use std::os::windows::io::AsHandle;
    Ok(File::from(io::stdin().as_handle().try_clone_to_owned()?))
}

/// Says something. Ends the process if nobody listens any more.
pub(crate) fn tell(told: &Told) {
    let Some(pipe) = PIPE.get() else { return };
    let line = serde_json::to_string(told).map(|line| line + "\n");
    let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
    if line.map_err(io::Error::from).and_then(|line| pipe.write_all(line.as_bytes())).is_err() {
        exit(1);
    }
}
