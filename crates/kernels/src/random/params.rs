//! The parameters, the same for all fills.

use super::draw::{Draw, Layout, Source};
use crate::{Builtin, KernelError};

/// Bytes of a cell: the seed (u64), then the offset (i64).
pub const CELL_SIZE: u64 = 16;

/// The parameters: 64 bytes, alignment 8.
///
/// | bytes | content |
/// |---|---|
/// | 0..8 | number of elements, u64 |
/// | 8..16 | the seed, u64; 0 if it comes from the cell |
/// | 16..24 | the offset, or what is added to the cell's, u64 |
/// | 24..28 | where seed and offset are, u32: 0 here, 1 in the cell |
/// | 28..32 | the layout, u32: 0 portable, else the number of blocks of torch-cuda |
/// | 32..36 | [`DType::number`](anyaccel_hal::DType::number) of the elements, u32 |
/// | 36..40 | integers: how a draw is brought into the range, u32 (below); else 0 |
/// | 40..48 | `a` |
/// | 48..56 | `b` |
/// | 56..64 | `c` |
///
/// | built-in | `a` | `b` | `c` |
/// |---|---|---|---|
/// | uniform | `from`, f64 | `to`, f64 | `to - from`, f64 |
/// | normal, log-normal | the mean, f64 | the standard deviation, f64 | 0 |
/// | exponential | `-1 / lambda`, f64 | 0 | 0 |
/// | geometric | `1 / log(1 - p)`, f64 | 0 | 0 |
/// | Bernoulli | the threshold, u64 | 0 | 0 |
/// | integers | the number of values, u64, 0 for 2^64 | the smallest value, i64 | 0 |
/// | bits, permutation | 0 | 0 | 0 |
///
/// An f64 is exactly a value of the type that is computed in (float64 for float64, else float32). A draw is brought into
/// the range by the upper half of its product with 64 bits (0), the remainder of 64 bits (1) or that of 32 bits (2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Params {
    /// Number of elements.
    pub count: u64,
    /// The seed; 0 if it comes from the cell.
    pub seed: u64,
    /// The offset, or what is added to the cell's.
    pub offset: u64,
    /// 0 if seed and offset are here, 1 if they are in the cell.
    pub source: u32,
    /// 0 for the portable layout, else the number of blocks of torch-cuda.
    pub layout: u32,
    /// [`DType::number`](anyaccel_hal::DType::number) of the elements.
    pub dtype: u32,
    /// How a draw of an integer is brought into the range.
    pub reduction: u32,
    /// The first constant.
    pub a: u64,
    /// The second constant.
    pub b: u64,
    /// The third constant.
    pub c: u64,
}

const _: () = assert!(size_of::<Params>() == 64 && align_of::<Params>() == 8);

impl Params {
    /// The bytes as they are passed to the kernel.
    pub fn to_bytes(&self) -> [u8; 64] {
        let longs = [self.count, self.seed, self.offset];
        let shorts = [self.source, self.layout, self.dtype, self.reduction];
        let mut bytes = [0; 64];
        for (place, value) in bytes[..24].as_chunks_mut().0.iter_mut().zip(longs) {
            *place = value.to_le_bytes();
        }
        for (place, value) in bytes[24..40].as_chunks_mut().0.iter_mut().zip(shorts) {
            *place = value.to_le_bytes();
        }
        for (place, value) in bytes[40..].as_chunks_mut().0.iter_mut().zip([self.a, self.b, self.c]) {
            *place = value.to_le_bytes();
        }
        bytes
    }

    /// Reads what [`to_bytes`](Params::to_bytes) wrote. [`Fill::new`](super::Fill::new) checks the fields.
    pub fn from_bytes(kernel: Builtin, bytes: &[u8]) -> Result<Params, KernelError> {
        let wrong_size = KernelError::ParamsSize { kernel, given: bytes.len() };
        let bytes: &[u8; 64] = bytes.try_into().map_err(|_| wrong_size)?;
        let words = bytes.as_chunks().0;
        let long = |at: usize| u64::from_le_bytes(words[at]);
        let low = |at: usize| long(at) as u32;
        let high = |at: usize| (long(at) >> 32) as u32;
        Ok(Params {
            count: long(0),
            seed: long(1),
            offset: long(2),
            source: low(3),
            layout: high(3),
            dtype: low(4),
            reduction: high(4),
            a: long(5),
            b: long(6),
            c: long(7),
        })
    }

    /// Source and layout; `None` if there is no such source.
    pub fn draw(&self) -> Option<Draw> {
        let source = match self.source {
            0 => Source::Value { seed: self.seed, offset: self.offset },
            1 => Source::Cell { delta: self.offset },
            _ => return None,
        };
        Some(Draw { source, layout: Layout::from_number(self.layout) })
    }

    pub(super) fn with_draw(mut self, draw: Draw) -> Params {
        (self.source, self.seed, self.offset) = match draw.source {
            Source::Value { seed, offset } => (0, seed, offset),
            Source::Cell { delta } => (1, 0, delta),
        };
        self.layout = draw.layout.number();
        self
    }
}
