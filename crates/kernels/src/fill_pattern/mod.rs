//! Repeats a pattern of 1, 2, 4, 8 or 16 bytes over a range.
//!
//! - Number: [`Builtin::FillPattern`], 2.
//! - Arguments: the destination, then [`Params`].
//! - Split: chunks of [`CHUNK`] bytes.
//!
//! The pattern starts anew at the first byte of the range, whatever its address, and a range that is no multiple of it ends
//! with a part of the pattern. Every allowed pattern also repeats after 16 bytes, so device code knows only one length.

pub mod reference;

use crate::{Builtin, KernelError, Split};
use std::fmt;

/// Bytes in a chunk: a multiple of 16, so that the pattern starts anew in each.
pub const CHUNK: u64 = 1 << 20;

/// From this size on the range is filled by copying its own beginning: `memcpy` of a block in the first-level cache
/// reaches the speed of `memset`, which knows ways to write that portable code has not.
const BLOCK: usize = 16 << 10;

/// What to repeat, expanded to 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Pattern([u8; 16]);

impl Pattern {
    /// A pattern of 1, 2, 4, 8 or 16 bytes; other lengths are refused.
    pub const fn new(bytes: &[u8]) -> Result<Pattern, KernelError> {
        let len = bytes.len();
        if !(len.is_power_of_two() && len <= 16) {
            return Err(KernelError::PatternLength { len });
        }
        let mut expanded = [0; 16];
        let mut i = 0;
        while i < 16 {
            // The length is a power of two, and a division would cost more than the rest of an enqueued fill.
            expanded[i] = bytes[i & (len - 1)];
            i += 1;
        }
        Ok(Pattern(expanded))
    }

    /// The same byte over and over.
    pub const fn byte(byte: u8) -> Pattern {
        Pattern([byte; 16])
    }

    /// The first 16 bytes of a filled range.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The byte, if the pattern is one byte repeated.
    pub fn as_byte(&self) -> Option<u8> {
        (self.0 == [self.0[0]; 16]).then_some(self.0[0])
    }

    /// Length in bytes of the shortest pattern that gives the same: 1, 2, 4, 8 or 16. A device with a native fill for
    /// short patterns uses it.
    pub fn period(&self) -> usize {
        let repeats = |&len: &usize| (len..16).all(|i| self.0[i] == self.0[i - len]);
        [1, 2, 4, 8].into_iter().find(repeats).unwrap_or(16)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:02x?})", &self.0[..self.period()])
    }
}

/// The parameters: 24 bytes, alignment 8.
///
/// | bytes | content |
/// |---|---|
/// | 0..16 | the pattern, expanded to 16 bytes |
/// | 16..24 | length of the range in bytes, u64 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Params {
    /// The pattern, expanded to 16 bytes.
    pub pattern: Pattern,
    /// Length of the range in bytes.
    pub len: u64,
}

const _: () = assert!(size_of::<Params>() == 24 && align_of::<Params>() == 8);

impl Params {
    /// The parameters of a fill of `len` bytes.
    pub const fn new(pattern: Pattern, len: u64) -> Params {
        Params { pattern, len }
    }

    /// The bytes as they are passed to the kernel.
    pub fn to_bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.pattern.0);
        bytes[16..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Reads what [`to_bytes`](Params::to_bytes) wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Params, KernelError> {
        if let Some((&pattern, len)) = bytes.split_first_chunk::<16>()
            && let Ok(len) = len.try_into()
        {
            return Ok(Params { pattern: Pattern(pattern), len: u64::from_le_bytes(len) });
        }
        Err(KernelError::ParamsSize { kernel: Builtin::FillPattern, given: bytes.len() })
    }
}

/// The chunks of a range of `len` bytes.
pub const fn split(len: u64) -> Split {
    Split::new(len, CHUNK)
}

/// Fills the range. One byte repeated is a `memset`; the others reach nearly its speed.
pub fn fill(range: &mut [u8], pattern: Pattern) {
    if let Some(byte) = pattern.as_byte() {
        range.fill(byte);
        return;
    }
    let first = range.len().min(BLOCK);
    let (block, rest) = range.split_at_mut(first);
    fill_block(block, pattern);
    for piece in rest.chunks_mut(BLOCK) {
        piece.copy_from_slice(&block[..piece.len()]);
    }
}

/// Fills by whole cache lines, then what is left.
fn fill_block(block: &mut [u8], Pattern(pattern): Pattern) {
    let mut line = [0; 64];
    for quarter in line.as_chunks_mut::<16>().0 {
        *quarter = pattern;
    }
    let (lines, tail) = block.as_chunks_mut::<64>();
    for place in lines {
        *place = line;
    }
    tail.copy_from_slice(&line[..tail.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_start_and_pattern_equals_the_reference() {
        let digits: [u8; 16] = *b"\x00\x01\x82\x03\x04\x85\x06\x07\x08\x09\x0a\xfb\x0c\x0d\x0e\x0f";
        let lengths = (0..200).chain([BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 77, 3 * BLOCK + 5]);
        for len in lengths {
            for pattern_len in [1, 2, 4, 8, 16] {
                for start in [0, 1, 3, 8] {
                    let pattern = Pattern::new(&digits[..pattern_len]).unwrap();
                    let mut got = vec![0xee; start + len + 9];
                    let mut want = got.clone();
                    fill(&mut got[start..start + len], pattern);
                    reference::fill(&mut want[start..start + len], &digits[..pattern_len]);
                    assert!(got == want, "len {len}, pattern {pattern:?}, start {start}");
                }
            }
        }
    }

    #[test]
    fn chunks_give_the_whole() {
        let pattern = Pattern::new(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let len = 2 * CHUNK as usize + 13;
        let mut whole = vec![0; len];
        let mut parts = vec![0; len];
        fill(&mut whole, pattern);
        for range in split(len as u64).ranges() {
            fill(&mut parts[range.start as usize..range.end as usize], pattern);
        }
        assert!(whole == parts);
    }

    #[test]
    fn odd_pattern_lengths_are_refused() {
        for len in [0, 3, 5, 6, 7, 12, 15, 17, 32] {
            let error = Pattern::new(&vec![1; len]).unwrap_err();
            assert_eq!(error, KernelError::PatternLength { len });
            assert!(error.to_string().contains(&format!("{len} bytes")));
        }
    }

    #[test]
    fn the_period_is_the_shortest() {
        for (bytes, period) in [
            (&[7_u8; 16][..], 1),
            (&[1, 2, 1, 2, 1, 2, 1, 2], 2),
            (&[1, 2, 3, 4], 4),
            (&[1, 1, 1, 1, 1, 1, 1, 2], 8),
            (&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 16),
        ] {
            let pattern = Pattern::new(bytes).unwrap();
            assert_eq!(pattern.period(), period, "{pattern:?}");
            assert_eq!(pattern.as_byte().is_some(), period == 1);
        }
        assert_eq!(Pattern::byte(9), Pattern::new(&[9, 9]).unwrap());
    }

    #[test]
    fn parameters_survive_the_trip() {
        let params = Params::new(Pattern::new(b"abcdefgh").unwrap(), 0x0102_0304_0506_0708);
        let bytes = params.to_bytes();
        assert_eq!(&bytes[..], b"abcdefghabcdefgh\x08\x07\x06\x05\x04\x03\x02\x01");
        assert_eq!(Params::from_bytes(&bytes), Ok(params));
        let error = Params::from_bytes(&bytes[..23]).unwrap_err();
        assert_eq!(error, KernelError::ParamsSize { kernel: Builtin::FillPattern, given: 23 });
        assert!(error.to_string().contains("24 bytes"), "{error}");
    }
}
