//! The loops from blocks of words to values, compiled once for each level of instructions.
//!
//! Each takes whole blocks and writes what they give, one after the other: 4 values of a block, or 2 that take two words
//! each. The values are float32 or float64, int64, bool or bits; conversion to the element type comes after.

use super::math;
use crate::cpu::Isa;
use crate::philox::Block;

/// The constants of a fill, as they are in its parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) c: u64,
}

impl Constants {
    #[inline(always)]
    fn f64(&self) -> [f64; 3] {
        [self.a, self.b, self.c].map(f64::from_bits)
    }

    #[inline(always)]
    fn f32(&self) -> [f32; 3] {
        self.f64().map(|x| x as f32)
    }
}

/// Writes the values of as many blocks as both slices hold.
///
/// # Safety
///
/// The CPU has the features that the loop was compiled for (rule K1).
pub(super) type Loop = unsafe fn(constants: &Constants, words: &[Block], out: &mut [u8]);

/// A word as a number in (0, 1].
#[inline(always)]
pub(super) fn unit_f32(x: u32) -> f32 {
    const STEP: f32 = 1.0 / (1_u64 << 32) as f32;
    (x as f32).mul_add(STEP, STEP / 2.0)
}

/// 53 bits as a number in (0, 1].
#[inline(always)]
pub(super) fn unit_f64(x: u64) -> f64 {
    const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
    (x as f64).mul_add(STEP, STEP / 2.0)
}

/// Two words as 53 bits.
#[inline(always)]
pub(super) fn join_53(x: u32, y: u32) -> u64 {
    u64::from(x) ^ u64::from(y) << 21
}

/// Two words as 64 bits.
#[inline(always)]
pub(super) fn join_64(x: u32, y: u32) -> u64 {
    u64::from(x) << 32 | u64::from(y)
}

/// The four values of a block that takes one word for each.
#[inline(always)]
fn each_word<const SIZE: usize>(words: &[Block], out: &mut [u8], value: impl Fn(u32) -> [u8; SIZE]) {
    for (out, &word) in out.as_chunks_mut::<SIZE>().0.iter_mut().zip(words.as_flattened()) {
        *out = value(word);
    }
}

/// The two values of a block that takes two words for each.
#[inline(always)]
fn each_two<const SIZE: usize>(words: &[Block], out: &mut [u8], value: impl Fn(u32, u32) -> [u8; SIZE]) {
    for (out, &[x, y]) in out.as_chunks_mut::<SIZE>().0.iter_mut().zip(words.as_flattened().as_chunks().0) {
        *out = value(x, y);
    }
}

/// Two normal numbers.
#[inline(always)]
fn pair_f32(x: u32, y: u32, mean: f32, std: f32) -> [f32; 2] {
    let radius = math::sqrt_f32(-2.0 * math::log_f32(unit_f32(x)));
    let (sin, cos) = math::sin_cos_f32(y);
    [(radius * sin).mul_add(std, mean), (radius * cos).mul_add(std, mean)]
}

/// Two normal numbers.
#[inline(always)]
fn pair_f64([w0, w1, w2, w3]: Block, mean: f64, std: f64) -> [f64; 2] {
    let radius = math::sqrt_f64(-2.0 * math::log_f64(unit_f64(join_53(w0, w1))));
    let (sin, cos) = math::sin_cos_f64(join_53(w2, w3));
    [(radius * sin).mul_add(std, mean), (radius * cos).mul_add(std, mean)]
}

/// Pairs of normal numbers, each changed by `last`.
#[inline(always)]
fn pairs_f32(constants: &Constants, words: &[Block], out: &mut [u8], last: impl Fn(f32) -> f32) {
    let [mean, std, _] = constants.f32();
    // In two steps, so that all lanes of the widest vectors are float32.
    const PAIRS: usize = 16;
    let (groups, rest) = words.as_flattened().as_chunks::<{ 2 * PAIRS }>();
    let (outs, out_rest) = out.as_chunks_mut::<{ 8 * PAIRS }>();
    for (out, words) in outs.iter_mut().zip(groups) {
        let mut numbers = [[0.0; PAIRS]; 2];
        for i in 0..PAIRS {
            let pair = pair_f32(words[2 * i], words[2 * i + 1], mean, std);
            numbers[0][i] = last(pair[0]);
            numbers[1][i] = last(pair[1]);
        }
        for (i, place) in out.as_chunks_mut().0.iter_mut().enumerate() {
            *place = numbers[i % 2][i / 2].to_le_bytes();
        }
    }
    for (out, &[x, y]) in out_rest.as_chunks_mut::<8>().0.iter_mut().zip(rest.as_chunks().0) {
        let [a, b] = pair_f32(x, y, mean, std).map(|x| u64::from(last(x).to_bits()));
        *out = (a | b << 32).to_le_bytes();
    }
}

/// As [`pairs_f32`].
#[inline(always)]
fn pairs_f64(constants: &Constants, words: &[Block], out: &mut [u8], last: impl Fn(f64) -> f64) {
    let [mean, std, _] = constants.f64();
    const PAIRS: usize = 8;
    let (groups, rest) = words.as_chunks::<PAIRS>();
    let (outs, out_rest) = out.as_chunks_mut::<{ 16 * PAIRS }>();
    for (out, blocks) in outs.iter_mut().zip(groups) {
        let mut numbers = [[0.0; PAIRS]; 2];
        for i in 0..PAIRS {
            let pair = pair_f64(blocks[i], mean, std);
            numbers[0][i] = last(pair[0]);
            numbers[1][i] = last(pair[1]);
        }
        for (i, place) in out.as_chunks_mut().0.iter_mut().enumerate() {
            *place = numbers[i % 2][i / 2].to_le_bytes();
        }
    }
    for (out, &block) in out_rest.as_chunks_mut::<16>().0.iter_mut().zip(rest) {
        let [a, b] = pair_f64(block, mean, std).map(|x| u128::from(last(x).to_bits()));
        *out = (a | b << 64).to_le_bytes();
    }
}

/// The logarithm of a number in (0, 1], kept away from 0.
#[inline(always)]
fn log_below_0_f32(u: f32) -> f32 {
    const NEAR: f32 = f32::EPSILON / 2.0;
    let log = math::log_f32(u);
    if u >= 1.0 - NEAR { -NEAR } else { log }
}

/// As [`log_below_0_f32`].
#[inline(always)]
fn log_below_0_f64(u: f64) -> f64 {
    const NEAR: f64 = f64::EPSILON / 2.0;
    let log = math::log_f64(u);
    if u >= 1.0 - NEAR { -NEAR } else { log }
}

/// Defines the loops, and [`Stage`], the list of them. `_half` is uniform before it is rounded to a narrow type.
macro_rules! stages {
    ($($(#[$doc:meta])* $stage:ident, $run:ident($constants:ident, $words:ident, $out:ident) $body:block)*) => {
        /// What a loop computes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Stage { $($(#[$doc])* $stage),* }

        $(
            #[inline(always)]
            fn $run($constants: &Constants, $words: &[Block], $out: &mut [u8]) $body
        )*

        stages! { @level portable [] $($stage, $run)* }
        #[cfg(target_arch = "x86_64")]
        stages! { @level avx2 [#[target_feature(enable = "avx2,f16c,fma")]] $($stage, $run)* }
        #[cfg(target_arch = "x86_64")]
        stages! {
            @level avx512 [#[target_feature(enable = "avx2,f16c,fma,avx512f,avx512bw,avx512dq,avx512vl")]] $($stage, $run)*
        }
    };
    (@level $level:ident $features:tt $($stage:ident, $run:ident)*) => {
        mod $level {
            use super::*;

            pub(super) const fn find(stage: Stage) -> Loop {
                match stage { $(Stage::$stage => stages!(@run $features $run)),* }
            }
        }
    };
    (@run [$($features:tt)*] $run:ident) => {{
        $($features)*
        fn run(constants: &Constants, words: &[Block], out: &mut [u8]) {
            super::$run(constants, words, out);
        }
        run
    }};
}

stages! {
    /// The words themselves.
    Words, words(_constants, words, out) {
        each_word(words, out, u32::to_le_bytes);
    }
    /// 64 bits of two words.
    Longs, longs(_constants, words, out) {
        each_two(words, out, |x, y| join_64(x, y).to_le_bytes());
    }
    /// Uniform float32.
    UniformF32, uniform_f32(constants, words, out) {
        let [from, to, range] = constants.f32();
        each_word(words, out, |x| {
            let value = unit_f32(x).mul_add(range, from);
            (if value == to { from } else { value }).to_le_bytes()
        });
    }
    /// Uniform float32 that may still equal the upper bound.
    UniformOpenF32, uniform_open_f32(constants, words, out) {
        let [from, _, range] = constants.f32();
        each_word(words, out, |x| unit_f32(x).mul_add(range, from).to_le_bytes());
    }
    /// Uniform float64.
    UniformF64, uniform_f64(constants, words, out) {
        let [from, to, range] = constants.f64();
        each_two(words, out, |x, y| {
            let value = unit_f64(join_53(x, y)).mul_add(range, from);
            (if value == to { from } else { value }).to_le_bytes()
        });
    }
    /// Normal float32.
    NormalF32, normal_f32(constants, words, out) {
        pairs_f32(constants, words, out, |x| x);
    }
    /// Normal float64.
    NormalF64, normal_f64(constants, words, out) {
        pairs_f64(constants, words, out, |x| x);
    }
    /// Log-normal float32.
    LogNormalF32, log_normal_f32(constants, words, out) {
        pairs_f32(constants, words, out, math::exp_f32);
    }
    /// Log-normal float64.
    LogNormalF64, log_normal_f64(constants, words, out) {
        pairs_f64(constants, words, out, math::exp_f64);
    }
    /// Exponential float32.
    ExponentialF32, exponential_f32(constants, words, out) {
        let [factor, ..] = constants.f32();
        each_word(words, out, |x| (log_below_0_f32(unit_f32(x)) * factor).to_le_bytes());
    }
    /// Exponential float64.
    ExponentialF64, exponential_f64(constants, words, out) {
        let [factor, ..] = constants.f64();
        each_two(words, out, |x, y| (log_below_0_f64(unit_f64(join_53(x, y))) * factor).to_le_bytes());
    }
    /// Geometric float32.
    GeometricF32, geometric_f32(constants, words, out) {
        let [factor, ..] = constants.f32();
        each_word(words, out, |x| {
            let trial = (math::log_f32(unit_f32(x)) * factor).ceil();
            (if trial < 1.0 { 1.0 } else { trial }).to_le_bytes()
        });
    }
    /// Geometric float64.
    GeometricF64, geometric_f64(constants, words, out) {
        let [factor, ..] = constants.f64();
        each_two(words, out, |x, y| {
            let trial = (math::log_f64(unit_f64(join_53(x, y))) * factor).ceil();
            (if trial < 1.0 { 1.0 } else { trial }).to_le_bytes()
        });
    }
    /// Bool by 32 bits.
    Bernoulli32, bernoulli_32(constants, words, out) {
        // A threshold of 2^32 is no word: then the last word counts as below it, too.
        let (last, any) = ((constants.a.wrapping_sub(1)) as u32, constants.a != 0);
        each_word(words, out, |x| [u8::from((x <= last) & any)]);
    }
    /// Bool by 53 bits.
    Bernoulli53, bernoulli_53(constants, words, out) {
        let threshold = constants.a;
        each_two(words, out, |x, y| [u8::from(join_53(x, y) < threshold)]);
    }
    /// int64 by the product of 64 bits.
    IntegersProduct, integers_product(constants, words, out) {
        let (range, base) = (u128::from(constants.a), constants.b);
        let whole = range == 0;
        each_two(words, out, |x, y| {
            let z = join_64(x, y);
            let value = if whole { z } else { ((u128::from(z) * range) >> 64) as u64 };
            value.wrapping_add(base).to_le_bytes()
        });
    }
    /// int64 by the remainder of 64 bits.
    Integers64, integers_64(constants, words, out) {
        let (range, base) = (constants.a, constants.b);
        each_two(words, out, |x, y| {
            let z = join_64(x, y);
            z.checked_rem(range).unwrap_or(z).wrapping_add(base).to_le_bytes()
        });
    }
    /// int64 by the remainder of 32 bits.
    Integers32, integers_32(constants, words, out) {
        let (range, base) = (constants.a, constants.b);
        each_word(words, out, |x| {
            let value = match u32::try_from(range) {
                Ok(range) => x.checked_rem(range).unwrap_or(x),
                Err(_) => x,
            };
            u64::from(value).wrapping_add(base).to_le_bytes()
        });
    }
}

/// The loop of a stage for a level of instructions.
pub(super) const fn find(isa: Isa, stage: Stage) -> Loop {
    match isa {
        Isa::Portable => portable::find(stage),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::find(stage),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::find(stage),
    }
}
