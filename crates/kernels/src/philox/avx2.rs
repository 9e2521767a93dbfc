//! Four blocks at a time.
//!
//! A register holds one word of four blocks, in the lower halves of its 64-bit lanes. The multiplication reads nothing
//! but those, so the upper halves may hold anything and are never cleared.

use super::{Axis, Block, Counter, MULTIPLIER, ROUNDS, keys, portable};
use std::arch::x86_64::*;

const LANES: usize = 4;

#[target_feature(enable = "avx2,f16c,fma")]
pub(super) fn blocks(seed: u64, first: Counter, axis: Axis, out: &mut [Block]) {
    let keys = keys(seed).map(|[a, b]| [_mm256_set1_epi64x(a.into()), _mm256_set1_epi64x(b.into())]);
    // Which block each lane computes, so that interleaving neighbours within 128 bits puts the blocks in order.
    let order = _mm256_setr_epi64x(0, 2, 1, 3);
    let (moving, fixed) = match axis {
        Axis::Low => (first.low, first.high),
        Axis::High => (first.high, first.low),
    };
    let mut moving = _mm256_add_epi64(_mm256_set1_epi64x(moving as i64), order);
    let fixed = _mm256_set1_epi64x(fixed as i64);
    let step = _mm256_set1_epi64x(LANES as i64);
    let (groups, tail) = out.as_chunks_mut::<LANES>();
    let done = groups.len() * LANES;
    for group in groups {
        let (low, high) = match axis {
            Axis::Low => (moving, fixed),
            Axis::High => (fixed, moving),
        };
        let [a, b] = rounds(&keys, [low, _mm256_srli_epi64::<32>(low), high, _mm256_srli_epi64::<32>(high)]);
        moving = _mm256_add_epi64(moving, step);
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
    let first = _mm256_blend_epi32::<0xaa>(words[0], _mm256_slli_epi64::<32>(words[1]));
    let second = _mm256_blend_epi32::<0xaa>(words[2], _mm256_slli_epi64::<32>(words[3]));
    // Within 128 bits: lanes 0 and 2 of both, then lanes 1 and 3.
    [_mm256_unpacklo_epi64(first, second), _mm256_unpackhi_epi64(first, second)]
}
