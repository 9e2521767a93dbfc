//! How the work of a kernel falls into chunks.

use std::ops::Range;

/// The chunks of one launch. They cover the items `0..len` once, in order; they may run in any order and in parallel.
///
/// An item is what the kernel counts in: a byte or an element. All chunks but the last have the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    len: u64,
    chunk: u64,
}

impl Split {
    /// Chunks of `chunk` items, or of a multiple of it where there would be more than `u32::MAX` of them.
    pub(crate) const fn new(len: u64, chunk: u64) -> Split {
        let mut chunk = chunk;
        while len.div_ceil(chunk) > u32::MAX as u64 {
            chunk *= 2;
        }
        Split { len, chunk }
    }

    /// The number of chunks: 0 if there is nothing to do.
    pub const fn chunks(self) -> u32 {
        self.len.div_ceil(self.chunk) as u32
    }

    /// The items of chunk `index`. Empty for an index past the last chunk, so that a grid may be larger than the work.
    pub const fn range(self, index: u32) -> Range<u64> {
        let start = (index as u64).saturating_mul(self.chunk);
        let start = if start < self.len { start } else { self.len };
        let rest = self.len - start;
        start..start + if rest < self.chunk { rest } else { self.chunk }
    }

    /// The items of each chunk, in order.
    pub fn ranges(self) -> impl ExactSizeIterator<Item = Range<u64>> + Clone {
        (0..self.chunks()).map(move |index| self.range(index))
    }
}

#[cfg(test)]
mod tests {
    use super::Split;

    #[test]
    fn chunks_cover_everything_once_and_in_order() {
        for chunk in [1, 16, 1000] {
            for len in [0, 1, 15, 16, 17, 999, 1000, 1001, 12345] {
                let split = Split::new(len, chunk);
                let mut next = 0;
                for range in split.ranges() {
                    assert_eq!(range.start, next);
                    assert!(!range.is_empty() && range.end - range.start <= chunk);
                    next = range.end;
                }
                assert_eq!(next, len);
                assert_eq!(split.range(split.chunks()), len..len);
                assert_eq!(split.range(u32::MAX), len..len);
            }
        }
    }

    #[test]
    fn absurd_lengths_get_larger_chunks() {
        let split = Split::new(u64::MAX, 1 << 16);
        assert!(split.chunks() >= 1 << 31);
        let last = split.range(split.chunks() - 1);
        assert!(last.start < u64::MAX && last.end == u64::MAX);
        assert_eq!(split.range(1).start % (1 << 16), 0);
    }
}
