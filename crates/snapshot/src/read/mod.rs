//! Reads snapshots: PyTorch's pickles (protocols 0 to 5, plain or gzip) and ours, which are the same.
//!
//! A pickle is a program for a stack machine. This reader knows the part of it that makes plain data and refuses the
//! rest by name, so that nothing in a file can run. It reads once, front to back, and turns each dictionary into the
//! record it stands for as soon as it is complete: the tree of objects that Python would build never exists. Nothing
//! recurses, no length is believed before its bytes are there, and what is held is bounded ([`Limits`]).

mod assemble;
mod decode;
mod error;
mod keys;
mod machine;
mod members;
mod objects;
mod protocol0;
mod source;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::Snapshot;
pub use error::ReadError;
use members::Members;
use source::Source;

/// What a file may cost. A hostile file reaches these bounds and is refused; a snapshot of 50 million events does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, about.
    pub memory: u64,
}

impl Default for Limits {
    /// 8 GiB.
    fn default() -> Self {
        Limits { memory: 8 << 30 }
    }
}

/// Reads a snapshot from a file, plain or gzip.
///
/// # Errors
/// [`ReadError`]; the file's name is not in its text.
pub fn read_file(path: &Path) -> Result<Snapshot, ReadError> {
    read(File::open(path)?)
}

/// Reads a snapshot that is in memory, plain or gzip.
///
/// # Errors
/// [`ReadError`].
pub fn read_bytes(bytes: &[u8]) -> Result<Snapshot, ReadError> {
    read(bytes)
}

/// Reads a snapshot, plain or gzip. What follows its end is left alone.
///
/// # Errors
/// [`ReadError`].
pub fn read(input: impl Read) -> Result<Snapshot, ReadError> {
    read_within(input, Limits::default())
}

/// [`read`] with other limits.
///
/// # Errors
/// [`ReadError`].
pub fn read_within(mut input: impl Read, limits: Limits) -> Result<Snapshot, ReadError> {
    let mut head = [0; 4];
    let mut have = 0;
    while have < head.len() {
        match input.read(&mut head[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let whole = (&head[..have]).chain(input);
    match head[..have] {
        [] => Err(ReadError::Unrelated("the file is empty".into())),
        [0x1f, 0x8b, ..] => {
            let unpacked = Members::new(BufReader::with_capacity(64 << 10, whole));
            machine::run(Source::new(unpacked, true), limits)
        }
        [b'P', b'K', ..] => Err(ReadError::Unrelated(
            "a zip archive, as torch.save writes it, is no snapshot; torch.cuda.memory._dump_snapshot(path) writes one"
                .into(),
        )),
        _ => machine::run(Source::new(whole, false), limits),
    }
}
