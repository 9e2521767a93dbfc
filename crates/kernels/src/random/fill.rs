//! A checked fill: which one, with which parameters.

use super::draw::{BLOCK_THREADS, Draw, Layout, Source};
use super::params::{CELL_SIZE, Params};
use super::permutation;
use crate::{Builtin, KernelError, Split};
use anyaccel_hal::DType;

/// Elements in a chunk, but for torch-cuda, where it takes whole passes over all threads, and permutations.
const CHUNK: u64 = 1 << 16;

/// A fill with random numbers whose parameters were found valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    pub(super) kernel: Builtin,
    pub(super) dtype: DType,
    pub(super) draw: Draw,
    pub(super) params: Params,
}

impl Fill {
    /// Checks parameters as they arrive at a kernel.
    pub fn new(kernel: Builtin, params: Params) -> Result<Fill, KernelError> {
        let field = |field, value| KernelError::RandomField { kernel, field, value };
        let known = u8::try_from(params.dtype).ok().and_then(DType::from_number);
        let dtype = known.ok_or_else(|| field("dtype", params.dtype))?;
        let draw = params.draw().ok_or_else(|| field("source", params.source))?;
        let fill = Fill { kernel, dtype, draw, params };
        if !fill.fits_dtype() {
            return Err(KernelError::RandomDType { kernel, dtype });
        }
        let most = if kernel == Builtin::RandomIntegers { 2 } else { 0 };
        if params.reduction > most {
            return Err(field("reduction", params.reduction));
        }
        if params.count.checked_mul(dtype.size() as u64).is_none_or(|bytes| bytes > i64::MAX as u64) {
            return Err(KernelError::RandomCount { kernel, dtype, count: params.count });
        }
        if kernel == Builtin::RandomPermutation {
            if draw.layout != Layout::Portable {
                return Err(KernelError::RandomLayout { kernel });
            }
            permutation::check(dtype, params.count)?;
        }
        Ok(fill)
    }

    /// Reads and checks the parameter bytes of a launch.
    pub fn from_bytes(kernel: Builtin, bytes: &[u8]) -> Result<Fill, KernelError> {
        Fill::new(kernel, Params::from_bytes(kernel, bytes)?)
    }

    fn fits_dtype(&self) -> bool {
        use DType::*;
        let float = matches!(self.dtype, F16 | Bf16 | F32 | F64);
        let integer = matches!(self.dtype, U8 | U16 | U32 | U64 | I8 | I16 | I32 | I64);
        match self.kernel {
            Builtin::RandomBits => integer,
            Builtin::RandomUniform | Builtin::RandomNormal | Builtin::RandomLogNormal | Builtin::RandomExponential => {
                float
            }
            Builtin::RandomGeometric => float || integer,
            Builtin::RandomBernoulli | Builtin::RandomIntegers => float || integer || self.dtype == Bool,
            Builtin::RandomPermutation => integer && self.dtype.size() >= 4,
            Builtin::Noop | Builtin::FillPattern | Builtin::Convert | Builtin::Histogram => false,
        }
    }

    /// Random bits.
    pub fn bits(dtype: DType, count: u64, draw: Draw) -> Result<Fill, KernelError> {
        Fill::with(Builtin::RandomBits, dtype, count, draw, [0; 3])
    }

    /// Uniform numbers from `from` on and below `to`, or all equal to them if they are equal. Refused unless both, rounded to
    /// the type, and their difference are finite and `from <= to`.
    pub fn uniform(dtype: DType, count: u64, draw: Draw, from: f64, to: f64) -> Result<Fill, KernelError> {
        let kernel = Builtin::RandomUniform;
        let (low, high) = (round(dtype, from), round(dtype, to));
        let argument = |argument, value: f64, expected| KernelError::random_argument(kernel, argument, value, expected);
        if !low.is_finite() {
            return Err(argument("from", from, "a finite number of the element type"));
        }
        if !high.is_finite() {
            return Err(argument("to", to, "a finite number of the element type"));
        }
        if from > to {
            return Err(argument("to", to, "a number not below `from`"));
        }
        let range = round(dtype, high - low);
        if !range.is_finite() {
            return Err(argument("to - from", range, "a finite number of the element type"));
        }
        Fill::with(kernel, dtype, count, draw, [low, high, range].map(f64::to_bits))
    }

    /// Normal numbers. Refused unless both are finite and `std >= 0`.
    pub fn normal(dtype: DType, count: u64, draw: Draw, mean: f64, std: f64) -> Result<Fill, KernelError> {
        Fill::gaussian(Builtin::RandomNormal, dtype, count, draw, mean, std)
    }

    /// The exponentials of normal numbers. Refused unless both are finite and `std >= 0`.
    pub fn log_normal(dtype: DType, count: u64, draw: Draw, mean: f64, std: f64) -> Result<Fill, KernelError> {
        Fill::gaussian(Builtin::RandomLogNormal, dtype, count, draw, mean, std)
    }

    fn gaussian(
        kernel: Builtin,
        dtype: DType,
        count: u64,
        draw: Draw,
        mean: f64,
        std: f64,
    ) -> Result<Fill, KernelError> {
        let (m, s) = (round_computed(dtype, mean), round_computed(dtype, std));
        if !m.is_finite() {
            return Err(KernelError::random_argument(kernel, "mean", mean, "a finite number"));
        }
        if !(s.is_finite() && std >= 0.0) {
            return Err(KernelError::random_argument(kernel, "std", std, "a finite number not below 0"));
        }
        Fill::with(kernel, dtype, count, draw, [m.to_bits(), s.to_bits(), 0])
    }

    /// Exponentially distributed numbers with the mean `1 / lambda`. Refused unless `lambda` is positive and finite.
    pub fn exponential(dtype: DType, count: u64, draw: Draw, lambda: f64) -> Result<Fill, KernelError> {
        let kernel = Builtin::RandomExponential;
        let rate = round_computed(dtype, lambda);
        let factor = round_computed(dtype, -1.0 / rate);
        if !(rate > 0.0 && rate.is_finite() && factor.is_finite()) {
            let expected = "a positive finite number with a finite reciprocal";
            return Err(KernelError::random_argument(kernel, "lambda", lambda, expected));
        }
        Fill::with(kernel, dtype, count, draw, [factor.to_bits(), 0, 0])
    }

    /// The trial of the first success, if each succeeds with the probability `p`. Refused unless `0 < p < 1`.
    pub fn geometric(dtype: DType, count: u64, draw: Draw, p: f64) -> Result<Fill, KernelError> {
        let kernel = Builtin::RandomGeometric;
        if !(p > 0.0 && p < 1.0) {
            return Err(KernelError::random_argument(kernel, "p", p, "a probability above 0 and below 1"));
        }
        let least = if dtype == DType::F64 { f64::MIN } else { f32::MIN.into() };
        let factor = round_computed(dtype, (1.0 / (-p).ln_1p()).max(least));
        Fill::with(kernel, dtype, count, draw, [factor.to_bits(), 0, 0])
    }

    /// 1 with the probability `p`, else 0. Refused unless `0 <= p <= 1`.
    ///
    /// In the portable layout the probability is rounded up to a multiple of 2^-32 (float64: 2^-53), so that 0 and 1 are
    /// certain; in the other it is what PyTorch's comparison of a rounded uniform number with `p` gives.
    pub fn bernoulli(dtype: DType, count: u64, draw: Draw, p: f64) -> Result<Fill, KernelError> {
        let kernel = Builtin::RandomBernoulli;
        if !(0.0..=1.0).contains(&p) {
            return Err(KernelError::random_argument(kernel, "p", p, "a probability from 0 to 1"));
        }
        let bits = if dtype == DType::F64 { 53 } else { 32 };
        let threshold = match draw.layout {
            Layout::Portable => (p * (1_u64 << bits) as f64).ceil() as u64,
            Layout::TorchCuda { .. } => {
                let p = round_computed(dtype, p);
                let below = |x: u64| match dtype {
                    DType::F64 => super::stage::unit_f64(x) < p,
                    _ => f64::from(super::stage::unit_f32(x as u32)) < p,
                };
                first_false(0..1 << bits, below)
            }
        };
        Fill::with(kernel, dtype, count, draw, [threshold, 0, 0])
    }

    /// The numbers from 0 below `count`, in random order. `draw` has the portable layout, and the type holds `count - 1`; else
    /// it is refused.
    pub fn permutation(dtype: DType, count: u64, draw: Draw) -> Result<Fill, KernelError> {
        Fill::with(Builtin::RandomPermutation, dtype, count, draw, [0; 3])
    }

    fn with(kernel: Builtin, dtype: DType, count: u64, draw: Draw, constants: [u64; 3]) -> Result<Fill, KernelError> {
        Fill::with_reduction(kernel, dtype, count, draw, constants, 0)
    }

    pub(super) fn with_reduction(
        kernel: Builtin,
        dtype: DType,
        count: u64,
        draw: Draw,
        [a, b, c]: [u64; 3],
        reduction: u32,
    ) -> Result<Fill, KernelError> {
        if draw.layout == (Layout::TorchCuda { blocks: 0 }) {
            return Err(KernelError::RandomField { kernel, field: "layout", value: 0 });
        }
        let dtype = u32::from(dtype.number());
        let params = Params { count, seed: 0, offset: 0, source: 0, layout: 0, dtype, reduction, a, b, c };
        Fill::new(kernel, params.with_draw(draw))
    }

    /// The built-in.
    pub const fn kernel(&self) -> Builtin {
        self.kernel
    }

    /// The parameters.
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// Type of the elements.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Source and layout.
    pub const fn draw(&self) -> Draw {
        self.draw
    }

    /// The same fill from another place in the random sequence.
    #[must_use]
    pub fn with_source(self, source: Source) -> Fill {
        let draw = Draw { source, ..self.draw };
        Fill { draw, params: self.params.with_draw(draw), ..self }
    }

    /// Bytes that the destination has.
    pub const fn destination_len(&self) -> u64 {
        self.params.count * self.dtype.size() as u64
    }

    /// Bytes of the cell that are read: 16 or 0.
    pub const fn cell_len(&self) -> u64 {
        match self.draw.source {
            Source::Cell { .. } => CELL_SIZE,
            Source::Value { .. } => 0,
        }
    }

    /// How many elements one call of the generator gives: 4, or 2 where an element takes two words.
    pub fn per_call(&self) -> u64 {
        let two_words = match self.kernel {
            Builtin::RandomBits => self.dtype.size() == 8,
            Builtin::RandomIntegers => self.params.reduction < 2,
            Builtin::RandomPermutation => true,
            _ => self.dtype == DType::F64,
        };
        if two_words { 2 } else { 4 }
    }

    /// The chunks: items are elements. A chunk has 2^16 elements; in the torch-cuda layout as many passes over all threads
    /// as hold no fewer; of a permutation, see [`permutation`](super::permutation).
    pub fn split(&self) -> Split {
        let chunk = match self.draw.layout {
            _ if self.kernel == Builtin::RandomPermutation => permutation::chunk(self.params.count),
            Layout::Portable => CHUNK,
            Layout::TorchCuda { blocks } => {
                let pass = BLOCK_THREADS * u64::from(blocks) * self.per_call();
                CHUNK.div_ceil(pass) * pass
            }
        };
        Split::new(self.params.count, chunk)
    }
}

/// The nearest value of an element type, as an f64. Narrow types are entered by way of float32, as in PyTorch.
fn round(dtype: DType, x: f64) -> f64 {
    use crate::convert::{narrow_bf16, narrow_f16};
    match dtype {
        DType::F64 => x,
        DType::F16 => f64::from(narrow_f16(x as f32)),
        DType::Bf16 => f64::from(narrow_bf16(x as f32)),
        _ => f64::from(x as f32),
    }
}

/// The nearest value of the type in which results of an element type are computed.
fn round_computed(dtype: DType, x: f64) -> f64 {
    if dtype == DType::F64 { x } else { f64::from(x as f32) }
}

/// Where a predicate that is true up to some point ends to be.
fn first_false(mut within: std::ops::Range<u64>, holds: impl Fn(u64) -> bool) -> u64 {
    while within.start < within.end {
        let middle = within.start + (within.end - within.start) / 2;
        if holds(middle) { within.start = middle + 1 } else { within.end = middle }
    }
    within.start
}
