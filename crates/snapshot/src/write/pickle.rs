//! The opcodes of pickle protocol 4 that plain data needs, in frames of 64 KiB as Python writes them.

use std::collections::HashMap;
use std::io::{self, Write};

/// How many items are appended at once, as Python does it.
pub(super) const BATCH: usize = 1000;

/// When a frame is full.
const FRAME: usize = 64 << 10;

/// The number under which something was remembered, if it was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memo(Option<u32>);

/// A pickle being written. Values are written in the order in which an unpickler builds them.
pub(super) struct Pickle<W> {
    output: W,
    /// Opcodes that are not written out yet.
    frame: Vec<u8>,
    /// Things remembered so far.
    memos: u32,
    /// Keys and other fixed strings that were written.
    constants: HashMap<&'static str, Memo>,
}

impl<W: Write> Pickle<W> {
    /// Begins a pickle.
    ///
    /// # Errors
    /// Those of `output`.
    pub(super) fn begin(mut output: W) -> io::Result<Self> {
        output.write_all(b"\x80\x04")?;
        Ok(Pickle { output, frame: Vec::with_capacity(FRAME + 4096), memos: 0, constants: HashMap::new() })
    }

    /// Writes what has gathered out if it fills a frame.
    pub(super) fn flush_full(&mut self) -> io::Result<()> {
        if self.frame.len() >= FRAME { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.write_all(b"\x95")?;
        self.output.write_all(&(self.frame.len() as u64).to_le_bytes())?;
        self.output.write_all(&self.frame)?;
        self.frame.clear();
        Ok(())
    }

    /// Ends the pickle: the one value that is left is what it is.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.frame.push(b'.');
        self.flush()?;
        self.output.flush()
    }

    /// An empty dictionary, then the mark that its keys and values follow.
    pub(super) fn dict(&mut self) {
        self.empty_dict();
        self.mark();
    }

    pub(super) fn empty_dict(&mut self) {
        self.frame.push(b'}');
    }

    /// Puts what followed the mark into the dictionary before it.
    pub(super) fn end_dict(&mut self) {
        self.frame.push(b'u');
    }

    /// An empty list.
    pub(super) fn list(&mut self) {
        self.frame.push(b']');
    }

    pub(super) fn mark(&mut self) {
        self.frame.push(b'(');
    }

    /// Appends what followed the mark to the list before it.
    pub(super) fn append_marked(&mut self) {
        self.frame.push(b'e');
    }

    /// Makes a pair of the last two values.
    pub(super) fn pair(&mut self) {
        self.frame.push(0x86);
    }

    pub(super) fn boolean(&mut self, value: bool) {
        self.frame.push(if value { 0x88 } else { 0x89 });
    }

    pub(super) fn float(&mut self, value: f64) {
        self.frame.push(b'G');
        self.frame.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn unsigned(&mut self, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.signed(value),
            // The sign needs a byte of its own.
            Err(_) => {
                self.frame.extend_from_slice(&[0x8a, 9]);
                self.frame.extend_from_slice(&value.to_le_bytes());
                self.frame.push(0);
            }
        }
    }

    pub(super) fn signed(&mut self, value: i64) {
        if let Ok(byte) = u8::try_from(value) {
            self.frame.extend_from_slice(&[b'K', byte]);
        } else if let Ok(short) = u16::try_from(value) {
            self.frame.push(b'M');
            self.frame.extend_from_slice(&short.to_le_bytes());
        } else if let Ok(word) = i32::try_from(value) {
            self.frame.push(b'J');
            self.frame.extend_from_slice(&word.to_le_bytes());
        } else {
            // As few bytes as keep the sign.
            let bits = 65 - (if value < 0 { !value } else { value }).leading_zeros() as usize;
            let len = bits.div_ceil(8);
            self.frame.extend_from_slice(&[0x8a, len as u8]);
            self.frame.extend_from_slice(&value.to_le_bytes()[..len]);
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        match u8::try_from(text.len()) {
            Ok(len) => self.frame.extend_from_slice(&[0x8c, len]),
            Err(_) => {
                // Names are far below 4 GiB: whoever has one that long loses its end.
                let text = &text[..text.floor_char_boundary(u32::MAX as usize)];
                self.frame.push(b'X');
                self.frame.extend_from_slice(&(text.len() as u32).to_le_bytes());
                return self.frame.extend_from_slice(text.as_bytes());
            }
        }
        self.frame.extend_from_slice(text.as_bytes());
    }

    /// Remembers the last value.
    pub(super) fn remember(&mut self) -> Memo {
        self.frame.push(0x94);
        self.memos += 1;
        Memo(Some(self.memos - 1))
    }

    /// Names what was remembered, if it was.
    pub(super) fn again(&mut self, memo: Memo) -> bool {
        let Some(number) = memo.0 else { return false };
        match u8::try_from(number) {
            Ok(byte) => self.frame.extend_from_slice(&[b'h', byte]),
            Err(_) => {
                self.frame.push(b'j');
                self.frame.extend_from_slice(&number.to_le_bytes());
            }
        }
        true
    }

    /// A value that is written once and named from then on.
    pub(super) fn once(&mut self, memo: &mut Memo, write: impl FnOnce(&mut Self)) {
        if !self.again(*memo) {
            write(self);
            *memo = self.remember();
        }
    }

    /// A fixed string.
    pub(super) fn constant(&mut self, text: &'static str) {
        let mut memo = self.constants.get(text).copied().unwrap_or_default();
        self.once(&mut memo, |pickle| pickle.text(text));
        self.constants.insert(text, memo);
    }

    /// A key of a dictionary.
    pub(super) fn key(&mut self, key: &'static str) {
        self.constant(key);
    }
}
