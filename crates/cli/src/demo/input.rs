//! What the demo reads.
//!
//! A regular file is read up to the length that it had when it was opened, twice: once for the device, once for the
//! check. Anything else (a pipe, a terminal, a device node, a file of `/proc` without a length) can be read only once,
//! so the check counts along.

use crate::output::{Class, Failure, one_line};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

/// An open input.
#[derive(Debug)]
pub(crate) struct Input {
    file: File,
    /// As messages name it.
    pub(crate) name: String,
    /// Its length, if it can be read twice.
    len: Option<u64>,
    changed_at: Option<SystemTime>,
    read: u64,
}

impl Input {
    /// Opens a file, `-` for standard input. Opening a FIFO waits for its writer.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let name = one_line(&path.display().to_string());
        let fail = |error: io::Error| Failure::new(Class::Input, format!("can't open {name}: {error}"));
        let (file, name) = if path == Path::new("-") {
            (standard_input().map_err(fail)?, "standard input".to_owned())
        } else {
            (File::open(path).map_err(fail)?, name)
        };
        let found = file.metadata().map_err(|error| Failure::new(Class::Input, format!("{name}: {error}")))?;
        if found.is_dir() {
            return Err(Failure::new(Class::Input, format!("{name} is a directory; name a file")));
        }
        let (len, changed_at) = (readable_twice(&found), found.modified().ok());
        let mut input = Self { file, name, len, changed_at, read: 0 };
        if input.len.is_some() && path == Path::new("-") {
            // `demo - < file` begins where the shell's earlier commands have left off.
            let at = input.file.stream_position().map_err(|error| input.failed(&error))?;
            if at > 0 {
                input.len = None;
            }
        }
        Ok(input)
    }

    /// Its length, if it can be read twice.
    pub(crate) fn len(&self) -> Option<u64> {
        self.len
    }

    /// Bytes read since it was opened or rewound.
    pub(crate) fn position(&self) -> u64 {
        self.read
    }

    /// Reads until `chunk` is full or the input ends, and returns how many bytes it read.
    pub(crate) fn read_chunk(&mut self, chunk: &mut [u8]) -> Result<usize, Failure> {
        let wanted = match self.len {
            Some(len) => usize::try_from(len - self.read).unwrap_or(usize::MAX).min(chunk.len()),
            None => chunk.len(),
        };
        let mut filled = 0;
        while filled < wanted {
            match self.file.read(&mut chunk[filled..wanted]) {
                Ok(0) if self.len.is_some() => {
                    let (expected, got) = (self.len.unwrap_or(0), self.read + filled as u64);
                    let message = format!("{} shrank while it was read, from {expected} to {got} bytes", self.name);
                    return Err(Failure::new(Class::Input, message));
                }
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        self.read += filled as u64;
        Ok(filled)
    }

    /// Goes back to the start, to read the same bytes again.
    pub(crate) fn rewind(&mut self) -> Result<(), Failure> {
        self.file.seek(SeekFrom::Start(0)).map_err(|error| self.failed(&error))?;
        self.read = 0;
        Ok(())
    }

    /// Whether somebody has written to it since it was opened, as far as its length and time of change tell.
    pub(crate) fn has_changed(&self) -> bool {
        match self.file.metadata() {
            Ok(now) => Some(now.len()) != self.len || now.modified().ok() != self.changed_at,
            Err(_) => true,
        }
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::new(Class::Input, format!("can't read {}: {error}", self.name))
    }
}

/// The length of a file that can be read twice. Files of `/proc` are regular and say that they are empty.
fn readable_twice(found: &Metadata) -> Option<u64> {
    (found.is_file() && found.len() > 0).then_some(found.len())
}

#[cfg(unix)]
fn standard_input() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

#[cfg(windows)]
fn standard_input() -> io::Result<File> {
    use std::os::windows::io::AsHandle;
    Ok(File::from(io::stdin().as_handle().try_clone_to_owned()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::path::PathBuf;

    /// A file with this content, gone when dropped.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, content: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("anyaccel-input-{}-{name}", std::process::id()));
            fs::write(&path, content).expect("a file for the test");
            Self(path)
        }

        fn open_to_write(&self) -> File {
            OpenOptions::new().append(true).open(&self.0).expect("the file")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _left_behind = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_file_is_read_in_chunks_and_again() {
        let file = Scratch::new("twice", b"abcdefg");
        let mut input = Input::open(&file.0).expect("it opens");
        assert_eq!(input.len(), Some(7));
        for _pass in 0..2 {
            let mut chunk = [0; 4];
            assert_eq!((input.read_chunk(&mut chunk).ok(), &chunk), (Some(4), b"abcd"));
            assert_eq!((input.read_chunk(&mut chunk).ok(), &chunk[..3]), (Some(3), &b"efg"[..]));
            assert_eq!((input.read_chunk(&mut chunk).ok(), input.position()), (Some(0), 7));
            input.rewind().expect("it seeks");
        }
        assert!(!input.has_changed());
    }

    #[test]
    fn what_is_written_behind_the_end_is_not_read() {
        let file = Scratch::new("grows", b"abc");
        let mut input = Input::open(&file.0).expect("it opens");
        file.open_to_write().write_all(b"defghi").expect("it writes");
        let mut chunk = [0; 16];
        assert_eq!(input.read_chunk(&mut chunk).ok(), Some(3));
        assert_eq!(input.read_chunk(&mut chunk).ok(), Some(0));
        assert!(input.has_changed());
    }

    #[test]
    fn a_file_that_shrinks_is_an_error_with_both_lengths() {
        let file = Scratch::new("shrinks", &[7; 1000]);
        let mut input = Input::open(&file.0).expect("it opens");
        let mut chunk = [0; 600];
        assert_eq!(input.read_chunk(&mut chunk).ok(), Some(600));
        file.open_to_write().set_len(700).expect("it shrinks");
        let failure = format!("{:?}", input.read_chunk(&mut chunk).expect_err("it is shorter"));
        assert!(failure.contains("Input") && failure.contains("from 1000 to 700 bytes"), "{failure}");
    }
}
