//! Eight blocks at a time.
//!
//! A register holds one word of eight blocks, in the lower halves of its 64-bit lanes. The multiplication reads nothing
//! but those, so the upper halves may hold anything and are never cleared.

use super::{Axis, Block, Counter, MULTIPLIER, ROUNDS, keys, portable};
use std::arch::x86_64::*;

const LANES: usize = 8;

#[target_feature(enable = "avx2,f16c,fma,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn blocks(seed: u64, first: Counter, axis: Axis, out: &mut [Block]) {
    let keys = keys(seed).map(|[a, b]| [_mm512_set1_epi64(a.into()), _mm512_set1_epi64(b.into())]);
    // Which block each lane computes, so that interleaving neighbours within 128 bits puts the blocks in order.
    let order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    let (moving, fixed) = match axis {
        Axis::Low => (first.low, first.high),
        Axis::High => (first.high, first.low),
    };
    let mut moving = _mm512_add_epi64(_mm512_set1_epi64(moving as i64), order);
    let fixed = _mm512_set1_epi64(fixed as i64);
    let step = _mm512_set1_epi64(LANES as i64);
    let (groups, tail) = out.as_chunks_mut::<LANES>();
    let done = groups.len() * LANES;
    for group in groups {
        let (low, high) = match axis {
            Axis::Low => (moving, fixed),
            Axis::High => (fixed, moving),
        };
        let [a, b] = rounds(&keys, [low, _mm512_srli_epi64::<32>(low), high, _mm512_srli_epi64::<32>(high)]);
        moving = _mm512_add_epi64(moving, step);
        // SAFETY: K2, 8 blocks of 16 bytes are two vectors.
        unsafe {
            let place = group.as_mut_ptr().cast::<__m512i>();
            _mm512_storeu_si512(place, a);
            _mm512_storeu_si512(place.add(1), b);
        }
    }
    portable(seed, first.advance(axis, done as u64), axis, tail);
}

#[inline]
#[target_feature(enable = "avx2,f16c,fma,avx512f,avx512bw,avx512dq,avx512vl")]
fn rounds(keys: &[[__m512i; 2]; ROUNDS], mut words: [__m512i; 4]) -> [__m512i; 2] {
    let multiplier = MULTIPLIER.map(|m| _mm512_set1_epi64(m.into()));
    // 0x96 is the truth table of the exclusive or of three.
    for [key_0, key_1] in *keys {
        let a = _mm512_mul_epu32(multiplier[0], words[0]);
        let b = _mm512_mul_epu32(multiplier[1], words[2]);
        words = [
            _mm512_ternarylogic_epi64::<0x96>(_mm512_srli_epi64::<32>(b), words[1], key_0),
            b,
            _mm512_ternarylogic_epi64::<0x96>(_mm512_srli_epi64::<32>(a), words[3], key_1),
            a,
        ];
    }
    let first = _mm512_mask_blend_epi32(0xaaaa, words[0], _mm512_slli_epi64::<32>(words[1]));
    let second = _mm512_mask_blend_epi32(0xaaaa, words[2], _mm512_slli_epi64::<32>(words[3]));
    [_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second)]
}
