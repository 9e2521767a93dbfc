//! Eight blocks at a time.
//!
//! A register holds one word of eight blocks, in the lower halves of its 64-bit lanes. The multiplication reads nothing
//! but those, so the upper halves may hold anything and are never cleared.

use super::{Axis, Block, Counter, MULTIPLIER, ROUNDS, keys, portable};
use std::arch::x86_64::*;

const LANES: usize = 8;
/// Doublewords 0, 0, 2, 2 of each 128 bits.
const HIGH: i32 = 0b11_11_01_01;
const LOW: i32 = 0b10_10_00_00;

/// The moving word of the counter does not carry.
#[target_feature(enable = "avx2,f16c,fma,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn blocks(seed: u64, first: Counter, axis: Axis, out: &mut [Block]) {
    match axis {
        Axis::Low => run::<0>(seed, first, axis, out),
        Axis::High => run::<2>(seed, first, axis, out),
    }
}

/// Word `MOVING` of the counter moves. The other three are the same for all blocks, and so is much of the first two
/// rounds, which the compiler takes out of the loop.
#[inline]
#[target_feature(enable = "avx2,f16c,fma,avx512f,avx512bw,avx512dq,avx512vl")]
fn run<const MOVING: usize>(seed: u64, first: Counter, axis: Axis, out: &mut [Block]) {
    let keys = keys(seed).map(|[a, b]| [_mm512_set1_epi64(a.into()), _mm512_set1_epi64(b.into())]);
    // Which block each lane computes, so that interleaving neighbours within 128 bits puts the blocks in order.
    let order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    let word = |half: u64| _mm512_set1_epi64(half as i64);
    let [mut low, low_upper, mut high, high_upper] =
        [first.low, first.low >> 32, first.high, first.high >> 32].map(word);
    if MOVING == 0 {
        low = _mm512_add_epi64(low, order);
    } else {
        high = _mm512_add_epi64(high, order);
    }
    let lanes = word(LANES as u64);
    let step = word(2 * LANES as u64);
    let (groups, tail) = out.as_chunks_mut::<{ 2 * LANES }>();
    let done = groups.len() * 2 * LANES;
    for group in groups {
        let counter = [low, low_upper, high, high_upper];
        let mut next = counter;
        next[MOVING] = _mm512_add_epi64(next[MOVING], lanes);
        let vectors = rounds(&keys, [counter, next]);
        if MOVING == 0 {
            low = _mm512_add_epi64(low, step);
        } else {
            high = _mm512_add_epi64(high, step);
        }
        for (vector, place) in vectors.into_iter().zip(group.as_chunks_mut::<4>().0) {
            // SAFETY: K2, 4 blocks of 16 bytes.
            unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), vector) };
        }
    }
    portable(seed, first.advance(axis, done as u64), axis, tail);
}

#[inline]
#[target_feature(enable = "avx2,f16c,fma,avx512f,avx512bw,avx512dq,avx512vl")]
fn rounds(keys: &[[__m512i; 2]; ROUNDS], mut counters: [[__m512i; 4]; 2]) -> [__m512i; 4] {
    let multiplier = MULTIPLIER.map(|m| _mm512_set1_epi64(m.into()));
    // 0x96 is the truth table of the exclusive or of three.
    for [key_0, key_1] in *keys {
        for words in &mut counters {
            let a = _mm512_mul_epu32(multiplier[0], words[0]);
            let b = _mm512_mul_epu32(multiplier[1], words[2]);
            *words = [
                _mm512_ternarylogic_epi64::<0x96>(_mm512_shuffle_epi32::<HIGH>(b), words[1], key_0),
                b,
                _mm512_ternarylogic_epi64::<0x96>(_mm512_shuffle_epi32::<HIGH>(a), words[3], key_1),
                a,
            ];
        }
    }
    // The lower half of each lane of the one, put over the upper half of the other. (A shift would do, but is made one more
    // multiplication by the compiler.)
    let [[a, b], [c, d]] = counters.map(|words| {
        let first = _mm512_mask_shuffle_epi32::<LOW>(words[0], 0xaaaa, words[1]);
        let second = _mm512_mask_shuffle_epi32::<LOW>(words[2], 0xaaaa, words[3]);
        [_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second)]
    });
    [a, b, c, d]
}
