//! Bytes of a file, front to back, with the place of each.

use std::io::{ErrorKind, Read};

use super::ReadError;

/// Read at once: little of a small file, more of a large one.
const FIRST_BLOCK: usize = 8 << 10;
const BLOCK: usize = 256 << 10;

/// The longest string or line that is read; names are rarely longer than a few hundred bytes.
pub(super) const LONGEST: usize = 16 << 20;

/// A reader with an offset.
pub(super) struct Source<R> {
    input: R,
    packed: bool,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// Offset of `buffer[0]`.
    base: u64,
    /// For what does not lie in the buffer as a whole.
    long: Vec<u8>,
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: R, packed: bool) -> Self {
        Source { input, packed, buffer: vec![0; FIRST_BLOCK], at: 0, end: 0, base: 0, long: Vec::new() }
    }

    /// The offset of the next byte.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    #[cold]
    fn refill(&mut self) -> Result<(), ReadError> {
        // Less than a fixed-size argument may be left; it moves to the front.
        self.buffer.copy_within(self.at..self.end, 0);
        self.base += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        if self.base > 0 && self.buffer.len() < BLOCK {
            self.buffer.resize(BLOCK, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(ReadError::Truncated { offset: self.base + self.end as u64, packed: self.packed }),
                Ok(n) => {
                    self.end += n;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if self.packed => return Err(self.packed_error(&error)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, ReadError> {
        while self.at == self.end {
            self.refill()?;
        }
        let byte = self.buffer[self.at];
        self.at += 1;
        Ok(byte)
    }

    /// The next `N` bytes.
    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        while self.end - self.at < N {
            self.refill()?;
        }
        let mut out = [0; N];
        out.copy_from_slice(&self.buffer[self.at..self.at + N]);
        self.at += N;
        Ok(out)
    }

    /// The next `len` bytes. A length of the file's own is believed only as far as the bytes are there.
    #[inline]
    pub(super) fn bytes(&mut self, len: u64) -> Result<&[u8], ReadError> {
        if self.end - self.at >= len as usize {
            let from = self.at;
            self.at += len as usize;
            return Ok(&self.buffer[from..self.at]);
        }
        self.long_bytes(len)
    }

    #[cold]
    fn long_bytes(&mut self, len: u64) -> Result<&[u8], ReadError> {
        if len > LONGEST as u64 {
            let reason = format!("a string of {len} bytes; no name in a snapshot is longer than {} MiB", LONGEST >> 20);
            return Err(ReadError::Corrupt { offset: self.offset(), reason });
        }
        self.long.clear();
        while self.long.len() < len as usize {
            if self.at == self.end {
                self.refill()?;
            }
            let n = (len as usize - self.long.len()).min(self.end - self.at);
            self.long.extend_from_slice(&self.buffer[self.at..self.at + n]);
            self.at += n;
        }
        Ok(&self.long)
    }

    /// Passes over `len` bytes that nobody needs.
    pub(super) fn skip(&mut self, mut len: u64) -> Result<(), ReadError> {
        while len > 0 {
            if self.at == self.end {
                self.refill()?;
            }
            let n = len.min((self.end - self.at) as u64);
            self.at += n as usize;
            len -= n;
        }
        Ok(())
    }

    /// Reads the end of a gzip file, so that its checksum is looked at. What follows a plain pickle is left alone.
    pub(super) fn finish(&mut self) -> Result<(), ReadError> {
        const MOST: u64 = 16 << 20;
        let end = self.offset() + MOST;
        while self.packed && self.offset() < end {
            self.at = self.end;
            let before = self.offset();
            match self.input.read(&mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => (self.base, self.at, self.end) = (before, 0, n),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.packed_error(&error)),
            }
        }
        Ok(())
    }

    fn packed_error(&self, error: &std::io::Error) -> ReadError {
        let offset = self.base + self.end as u64;
        if error.kind() == ErrorKind::UnexpectedEof {
            return ReadError::Truncated { offset, packed: true };
        }
        ReadError::Gzip { offset, reason: error.to_string() }
    }

    /// The rest of a line, without its end.
    pub(super) fn line(&mut self) -> Result<&[u8], ReadError> {
        self.long.clear();
        loop {
            let byte = self.byte()?;
            if byte == b'\n' {
                return Ok(&self.long);
            }
            if self.long.len() == LONGEST {
                let reason = format!("a line of more than {} MiB", LONGEST >> 20);
                return Err(ReadError::Corrupt { offset: self.offset(), reason });
            }
            self.long.push(byte);
        }
    }
}
