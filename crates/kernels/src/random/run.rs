//! Doing a part of a fill.

use super::draw::{BLOCK_THREADS, Layout, Source};
use super::fill::Fill;
use super::integers::{PRODUCT, REMAINDER_64};
use super::permutation;
use super::stage::{self, Constants, Loop, Stage};
use crate::convert;
use crate::cpu::Isa;
use crate::philox::{Axis, Block, Counter, blocks_with};
use crate::{Builtin, KernelError};
use anyaccel_hal::DType;
use std::ops::Range;

/// Blocks computed at a time: words and values stay in the first-level cache.
const BATCH: usize = 256;
/// The most bytes that a block gives: four integers of 64 bits.
const BLOCK_BYTES: usize = 32;

/// Values of a batch.
type Values = [u8; BATCH * BLOCK_BYTES];

/// The seed and a quarter of the offset, of which the lowest two bits don't count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) seed: u64,
    pub(super) call: u64,
}

impl Fill {
    /// Writes the elements of `range` to `part`, which has exactly their size. Any range of elements will do; [`Fill::split`]
    /// gives good ones. `cell` is the cell's 16 bytes, or anything where seed and offset are in the parameters.
    pub fn run(&self, range: Range<u64>, part: &mut [u8], cell: &[u8]) -> Result<(), KernelError> {
        self.run_with(Isa::best(), range, part, cell)
    }

    pub(super) fn run_with(
        &self,
        isa: Isa,
        range: Range<u64>,
        part: &mut [u8],
        cell: &[u8],
    ) -> Result<(), KernelError> {
        let (kernel, dtype, size) = (self.kernel, self.dtype, self.dtype.size());
        let len = range.end.checked_sub(range.start).filter(|_| range.end <= self.params.count);
        let Some(len) = len else {
            let Range { start, end } = range;
            return Err(KernelError::RandomElements { kernel, start, end, count: self.params.count });
        };
        if len * size as u64 != part.len() as u64 {
            return Err(KernelError::RandomLength { kernel, dtype, count: len, len: part.len() });
        }
        let start = self.start(cell)?;
        if kernel == Builtin::RandomPermutation {
            permutation::fill(dtype, self.params.count, start, range, part);
            return Ok(());
        }
        let mut work = Work::new(isa, self, start.seed);
        match self.draw.layout {
            Layout::Portable => work.portable(start.call, range, part),
            Layout::TorchCuda { blocks } => work.torch_cuda(start.call, u64::from(blocks), range, part),
        }
        Ok(())
    }

    /// Seed and offset, read from the cell if that is where they are.
    pub(super) fn start(&self, cell: &[u8]) -> Result<Start, KernelError> {
        let (seed, offset) = match self.draw.source {
            Source::Value { seed, offset } => (seed, offset),
            Source::Cell { delta } => {
                let ([seed, offset], []) = cell.as_chunks() else {
                    return Err(KernelError::RandomCell { kernel: self.kernel, len: cell.len() });
                };
                (u64::from_le_bytes(*seed), u64::from_le_bytes(*offset).wrapping_add(delta))
            }
        };
        Ok(Start { seed, call: offset / 4 })
    }

    /// The loop that computes the values, and their type; that of the elements if nothing is left to convert.
    fn stage(&self) -> (Stage, DType) {
        let wide = self.dtype == DType::F64;
        let float = |narrow, whole| if wide { (whole, DType::F64) } else { (narrow, DType::F32) };
        match self.kernel {
            Builtin::RandomUniform if self.dtype.size() == 2 => (Stage::UniformOpenF32, DType::F32),
            Builtin::RandomUniform => float(Stage::UniformF32, Stage::UniformF64),
            Builtin::RandomNormal => float(Stage::NormalF32, Stage::NormalF64),
            Builtin::RandomLogNormal => float(Stage::LogNormalF32, Stage::LogNormalF64),
            Builtin::RandomExponential => float(Stage::ExponentialF32, Stage::ExponentialF64),
            Builtin::RandomGeometric => float(Stage::GeometricF32, Stage::GeometricF64),
            Builtin::RandomBernoulli if wide => (Stage::Bernoulli53, DType::Bool),
            Builtin::RandomBernoulli => (Stage::Bernoulli32, DType::Bool),
            Builtin::RandomIntegers => match self.params.reduction {
                PRODUCT => (Stage::IntegersProduct, DType::I64),
                REMAINDER_64 => (Stage::Integers64, DType::I64),
                _ => (Stage::Integers32, DType::I64),
            },
            // The others are bits: `Fill::new` lets no other kernel in, and permutations don't come here.
            _ => match self.dtype.size() {
                8 => (Stage::Longs, self.dtype),
                4 => (Stage::Words, self.dtype),
                _ => (Stage::Words, DType::U32),
            },
        }
    }
}

/// What is needed for batch after batch.
struct Work {
    isa: Isa,
    seed: u64,
    per_call: usize,
    constants: Constants,
    stage: Loop,
    /// Type of what the stage gives.
    between: DType,
    dtype: DType,
    /// Uniform numbers of narrow types: their bounds, to exclude the upper one after rounding.
    bounds: Option<[u16; 2]>,
    words: [Block; BATCH],
    values: Values,
}

impl Work {
    fn new(isa: Isa, fill: &Fill, seed: u64) -> Work {
        let (stage, between) = fill.stage();
        let constants = Constants { a: fill.params.a, b: fill.params.b, c: fill.params.c };
        let bounds = (stage == Stage::UniformOpenF32).then(|| {
            let narrow = |bits: u64| {
                let mut code = [0; 2];
                let value = (f64::from_bits(bits) as f32).to_le_bytes();
                convert::convert_with(isa, fill.dtype, &mut code, DType::F32, &value);
                u16::from_le_bytes(code)
            };
            [narrow(constants.a), narrow(constants.b)]
        });
        Work {
            isa,
            seed,
            per_call: fill.per_call() as usize,
            constants,
            stage: stage::find(isa, stage),
            between,
            dtype: fill.dtype,
            bounds,
            words: [[0; 4]; BATCH],
            values: [0; BATCH * BLOCK_BYTES],
        }
    }

    /// The elements of the calls at `first` and after it, as many as `out` has room for.
    fn calls(&mut self, first: Counter, axis: Axis, out: &mut [u8]) {
        let words = &mut self.words[..out.len() / (self.per_call * self.dtype.size())];
        blocks_with(self.isa, self.seed, first, axis, words);
        if self.between == self.dtype {
            // SAFETY: K1, the loop is that of `isa`.
            unsafe { (self.stage)(&self.constants, words, out) };
        } else {
            let values = &mut self.values[..words.len() * self.per_call * self.between.size()];
            // SAFETY: K1, the loop is that of `isa`.
            unsafe { (self.stage)(&self.constants, words, values) };
            convert::convert_with(self.isa, self.dtype, out, self.between, values);
        }
        if let Some([from, to]) = self.bounds {
            // 0 and -0 are equal.
            let same = |code: u16| code == to || (code | to) & 0x7fff == 0;
            for code in out.as_chunks_mut::<2>().0 {
                *code = if same(u16::from_le_bytes(*code)) { from.to_le_bytes() } else { *code };
            }
        }
    }

    fn portable(&mut self, call: u64, range: Range<u64>, mut part: &mut [u8]) {
        let (per_call, size) = (self.per_call as u64, self.dtype.size());
        let block = self.per_call * size;
        let mut at = range.start;
        while !part.is_empty() {
            let counter = Counter { low: call.wrapping_add(at / per_call), high: 0 };
            let skip = (at % per_call) as usize * size;
            let taken = if skip == 0 && part.len() >= block {
                let taken = (part.len() / block).min(BATCH) * block;
                self.calls(counter, Axis::Low, &mut part[..taken]);
                taken
            } else {
                let mut whole = [0; BLOCK_BYTES];
                self.calls(counter, Axis::Low, &mut whole[..block]);
                let taken = part.len().min(block - skip);
                part[..taken].copy_from_slice(&whole[skip..skip + taken]);
                taken
            };
            at += (taken / size) as u64;
            part = &mut part[taken..];
        }
    }

    /// Pass by pass over all threads, and within a pass by batches of threads: each gives one stretch of elements for each
    /// word of their calls.
    fn torch_cuda(&mut self, call: u64, blocks: u64, range: Range<u64>, part: &mut [u8]) {
        let (per_call, size) = (self.per_call, self.dtype.size());
        let threads = BLOCK_THREADS * blocks;
        let pass_len = threads * per_call as u64;
        let mut values: Values = [0; BATCH * BLOCK_BYTES];
        for pass in range.start / pass_len..range.end.div_ceil(pass_len) {
            // Later threads have no elements in this pass.
            let threads_here = threads.min(range.end - pass * pass_len);
            for thread in (0..threads_here).step_by(BATCH) {
                let count = (threads - thread).min(BATCH as u64);
                // The elements of these threads by each of their words, as far as they are asked for.
                let stretch = |word: usize| {
                    let first = pass * pass_len + word as u64 * threads + thread;
                    (first, first.max(range.start)..(first + count).min(range.end))
                };
                if (0..per_call).all(|word| stretch(word).1.is_empty()) {
                    continue;
                }
                let values = &mut values[..count as usize * per_call * size];
                let counter = Counter { low: call.wrapping_add(pass), high: thread };
                self.calls(counter, Axis::High, values);
                for word in 0..per_call {
                    let (first, wanted) = stretch(word);
                    if wanted.is_empty() {
                        continue;
                    }
                    let from = (wanted.start - first) as usize * per_call + word;
                    let to = (wanted.start - range.start) as usize * size;
                    let len = (wanted.end - wanted.start) as usize * size;
                    pick(&values[from * size..], per_call, size, &mut part[to..to + len]);
                }
            }
        }
    }
}

/// Copies every `step`-th element, from the first on.
fn pick(values: &[u8], step: usize, size: usize, out: &mut [u8]) {
    fn run<const SIZE: usize>(values: &[u8], step: usize, out: &mut [u8]) {
        let values = values.as_chunks::<SIZE>().0.iter().step_by(step);
        for (out, value) in out.as_chunks_mut::<SIZE>().0.iter_mut().zip(values) {
            *out = *value;
        }
    }
    match size {
        1 => run::<1>(values, step, out),
        2 => run::<2>(values, step, out),
        4 => run::<4>(values, step, out),
        _ => run::<8>(values, step, out),
    }
}
