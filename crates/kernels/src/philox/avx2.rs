//! Four blocks at a time.
//!
//! A register holds one word of four blocks, in the lower halves of its 64-bit lanes. The multiplication reads nothing
//! but those, so the upper halves may hold anything and are never cleared.

use super::{Axis, Block, Counter, MULTIPLIER, ROUNDS, keys, portable};
use std::arch::x86_64::*;

const LANES: usize = 4;
/// Doublewords 0, 0, 2, 2 of each 128 bits.
const LOW: i32 = 0b10_10_00_00;

/// The moving word of the counter does not carry.
#[target_feature(enable = "avx2,f16c,fma")]
pub(super) fn blocks(seed: u64, first: Counter, axis: Axis, out: &mut [Block]) {
    match axis {
        Axis::Low => run::<0>(seed, first, axis, out),
        Axis::High => run::<2>(seed, first, axis, out),
    }
}

/// Word `MOVING` of the counter moves. The other three are the same for all blocks, and so is much of the first two
/// rounds, which the compiler takes out of the loop.
#[inline]
#[target_feature(enable = "avx2,f16c,fma")]
fn run<const MOVING: u8>(seed: u64, first: Counter, axis: Axis, out: &mut [Block]) {
    let keys = keys(seed).map(|[a, b]| [_mm256_set1_epi64x(a.into()), _mm256_set1_epi64x(b.into())]);
    // Which block each lane computes, so that interleaving neighbours within 128 bits puts the blocks in order.
    let order = _mm256_setr_epi64x(0, 2, 1, 3);
    let word = |half: u64| _mm256_set1_epi64x(half as i64);
    let [mut low, low_upper, mut high, high_upper] =
        [first.low, first.low >> 32, first.high, first.high >> 32].map(word);
    if MOVING == 0 {
        low = _mm256_add_epi64(low, order);
    } else {
        high = _mm256_add_epi64(high, order);
    }
    let step = word(LANES as u64);
    let (groups, tail) = out.as_chunks_mut::<LANES>();
    let done = groups.len() * LANES;
    for group in groups {
        let [a, b] = rounds(&keys, [low, low_upper, high, high_upper]);
        if MOVING == 0 {
            low = _mm256_add_epi64(low, step);
        } else {
            high = _mm256_add_epi64(high, step);
        }
        // SAFETY: K2, 4 blocks of 16 bytes are two vectors.
        unsafe {
            let place = group.as_mut_ptr().cast::<__m256i>();
            _mm256_storeu_si256(place, a);
            _mm256_storeu_si256(place.add(1), b);
        }
    }
    portable(seed, first.advance(axis, done as u64), axis, tail);
}

#[inline]
#[target_feature(enable = "avx2,f16c,fma")]
fn rounds(keys: &[[__m256i; 2]; ROUNDS], mut words: [__m256i; 4]) -> [__m256i; 2] {
    let multiplier = MULTIPLIER.map(|m| _mm256_set1_epi64x(m.into()));
    for [key_0, key_1] in *keys {
        let a = _mm256_mul_epu32(multiplier[0], words[0]);
        let b = _mm256_mul_epu32(multiplier[1], words[2]);
        words = [
            _mm256_xor_si256(_mm256_srli_epi64::<32>(b), _mm256_xor_si256(words[1], key_0)),
            b,
            _mm256_xor_si256(_mm256_srli_epi64::<32>(a), _mm256_xor_si256(words[3], key_1)),
            a,
        ];
    }
    // The lower half of each lane of the one, put over the upper half of the other.
    let first = _mm256_blend_epi32::<0xaa>(words[0], _mm256_shuffle_epi32::<LOW>(words[1]));
    let second = _mm256_blend_epi32::<0xaa>(words[2], _mm256_shuffle_epi32::<LOW>(words[3]));
    // Within 128 bits: lanes 0 and 2 of both, then lanes 1 and 3.
    [_mm256_unpacklo_epi64(first, second), _mm256_unpackhi_epi64(first, second)]
}
