//! Fills with random numbers.
//!
//! | number | built-in | fills with | element types |
//! |---|---|---|---|
//! | 5 | [`Builtin::RandomBits`] | random bits | integers |
//! | 6 | [`Builtin::RandomUniform`] | uniform numbers | floats |
//! | 7 | [`Builtin::RandomNormal`] | normal numbers | floats |
//! | 8 | [`Builtin::RandomLogNormal`] | the exponentials of normal numbers | floats |
//! | 9 | [`Builtin::RandomExponential`] | exponentially distributed numbers | floats |
//! | 10 | [`Builtin::RandomGeometric`] | the trial of the first success, from 1 on | floats, integers |
//! | 11 | [`Builtin::RandomBernoulli`] | 0 or 1 | floats, integers, bool |
//! | 12 | [`Builtin::RandomIntegers`] | uniform integers of a range | floats, integers, bool |
//! | 13 | [`Builtin::RandomPermutation`] | 0, 1, .. in random order | integers of 32 and 64 bits |
//!
//! Floats are float16, bfloat16, float32 and float64.
//!
//! - Arguments: the destination, the cell, then [`Params`]. The cell is read only if [`Params::source`] says so; otherwise
//!   any place stands for it (H4 allows none of no bytes). It is 16 bytes: the seed (u64) and the offset (i64), a
//!   generator's state.
//! - Split: see [`Fill::split`]. Each chunk is a run of elements that no other chunk touches.
//!
//! # Which words an element takes
//!
//! A *call* is one block of [`philox`](crate::philox), with the seed as its key: words `w0 w1 w2 w3`. It gives `P` elements:
//! 4 of one word each, or 2 of two words each ([`Fill::per_call`]). Two words are taken by float64; by integers in the
//! portable layout, by integers with a range of 2^28 or more in the other; by bits of 64-bit types; and by permutations.
//! Let `o` be the offset divided by 4. The lowest two bits of an offset are ignored.
//!
//! - **portable** ([`Layout::Portable`]): element `i` is element `i % P` of the call at counter `low = o + i / P`,
//!   `high = 0`. It depends on nothing but seed, offset and `i`.
//! - **torch-cuda** ([`Layout::TorchCuda`]): the order of PyTorch's CUDA kernels, launched as `blocks` blocks of 256 threads.
//!   With `S = 256 * blocks`, element `i` is element `(i / S) % P` of the call at counter `low = o + i / (S * P)`,
//!   `high = i % S`.
//!
//! # What becomes of the words
//!
//! Results are computed in float64 for float64 and else in float32, `*` and `+` in one step where they meet
//! (`fma`), and rounded to the element type at the end, ties to even. From a word `x`, or two words `x`, `y`:
//!
//! - `u = fma(float32(x), 2^-32, 2^-33)`, with `float32(x)` rounded to nearest: in (0, 1].
//! - `d = fma(float64(x ^ y << 21), 2^-53, 2^-54)`, in (0, 1], stands for `u` where two words are taken for a float64.
//! - `z = x << 32 | y`, a 64-bit integer.
//!
//! | built-in | result |
//! |---|---|
//! | bits | the low bits of `x`; 64-bit types take `z` |
//! | uniform | `v = fma(u, to - from, from)`, rounded to the element type; `from` if it then equals `to` |
//! | normal | `fma(n, std, mean)`; see below |
//! | log-normal | `exp(fma(n, std, mean))` |
//! | exponential | `log(u) * (-1 / lambda)`, with `-2^-24` (`-2^-53`) for the logarithm where `u >= 1 - 2^-24` (`1 - 2^-53`) |
//! | geometric | `ceil(log(u) * (1 / log(1 - p)))`, at least 1; integers end at their largest value |
//! | Bernoulli | 1 where the integer below `u` (`x`, or `x ^ y << 21`) is less than a threshold, else 0 |
//! | integers | `base + z % range`, `base + x % range` or `base + (z * range) >> 64`, wrapping at 64 bits; then as [`convert`](crate::convert) from int64 |
//! | permutation | see [`permutation`] |
//!
//! Normal numbers come in pairs (Box and Muller): the pair of elements that shares words `x`, `y` (float64: the call) takes
//! `u` from the first and an angle `a = 2 pi (y + 1/2) / 2^32` (2^53) from the second, and becomes `r sin a`, `r cos a` with
//! `r = sqrt(-2 log u)`.
//!
//! `log`, `exp`, `sqrt`, `sin` and `cos` are those of [`math`]: polynomials made of `+`, `*` and `fma` alone, in a fixed order, so
//! that every device gets the same bits. They differ from the true functions by a few units in the last place.
//!
//! # What equals what
//!
//! In the torch-cuda layout uniform numbers, integers and Bernoulli trials have the bits of `torch.cuda` (`uniform_`,
//! `random_`, `bernoulli_(p)`) for the same seed and offset. The normal family shares its counters and differs from it by what the vendor's
//! fast `sin` and `log` differ from ours, below 1e-5 of a standard deviation. Two things follow PyTorch where one might not
//! expect it: with `p = 1` a trial fails once in 2^25 (its `u` rounds to 1), and a range below 2^28 is reduced by the remainder of 32
//! bits, which favours small numbers by up to 1 part in 16. The portable layout does neither.

mod draw;
mod fill;
mod integers;
pub mod math;
mod params;
pub mod permutation;
pub mod reference;
mod run;
mod stage;

pub use draw::{Draw, Layout, Source};
pub use fill::Fill;
pub use params::{CELL_SIZE, Params};

#[cfg(doc)]
use crate::Builtin;

#[cfg(test)]
mod tests;
