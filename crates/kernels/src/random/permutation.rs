//! Permutations.
//!
//! Draw `k` is the 64-bit integer `z` of words `2k` and `2k + 1` of the portable layout.
//!
//! - Up to [`SMALL`] elements are shuffled (Fisher and Yates): start with 0, 1, ..; for `k` from `n - 1` down to 1, swap
//!   element `k` with element `(z * (k + 1)) >> 64` by draw `k`. Every order is equally likely but for 1 part in 2^40.
//! - More elements go through a keyed bijection, so that each is computed alone. With `n <= 2^b`, the smallest such `b`, a number of
//!   `b` bits has a lower part of `b / 2` bits, rounded down, and an upper part. In round `r` of 16, the lower part (even `r`) or the
//!   upper part (odd `r`) is changed by an exclusive or with the low bits of `mix(other part, draw r)`. Element `i` is what
//!   becomes of `i` when the rounds are repeated until the result is below `n`, less than twice on average. With
//!   64-bit arithmetic that wraps,
//!
//!   ```text
//!   mix(v, key):  t = (v + key) * 0x9e3779b97f4a7c15;  t = (t ^ t >> 32) * 0xd1b54a32d192ed03;  t >> 32
//!   ```
//!
//!   A generator can't reach all orders of so many elements anyway. These pass for random in the tests of this crate.
//!
//! Its chunks are 2^14 elements, or everything if it is shuffled.

use super::run::Start;
use super::stage::join_64;
use crate::philox::{Block, Counter, block};
use crate::{Builtin, KernelError};
use anyaccel_hal::DType;
use std::ops::Range;

/// Up to so many elements are shuffled.
pub const SMALL: u64 = 1 << 12;

const ROUNDS: usize = 16;
const CHUNK: u64 = 1 << 14;

pub(super) const fn chunk(count: u64) -> u64 {
    if count <= SMALL { SMALL } else { CHUNK }
}

/// Whether the type holds every element.
pub(super) fn check(dtype: DType, count: u64) -> Result<(), KernelError> {
    let bits = dtype.size() as u32 * 8 - u32::from(dtype.is_signed());
    if u128::from(count) > 1 << bits {
        return Err(KernelError::RandomCount { kernel: Builtin::RandomPermutation, dtype, count });
    }
    Ok(())
}

/// Writes elements `range` of a permutation of `count`. Lengths fit, and the type has 4 or 8 bytes.
pub(super) fn fill(dtype: DType, count: u64, start: Start, range: Range<u64>, part: &mut [u8]) {
    if count <= SMALL {
        let mut order = [0; SMALL as usize];
        shuffle(start, &mut order[..count as usize]);
        write(dtype, part, order[range.start as usize..range.end as usize].iter().map(|&x| u64::from(x)));
    } else {
        let bijection = Bijection::new(start, count);
        write(dtype, part, range.map(|i| bijection.element(i)));
    }
}

fn write(dtype: DType, part: &mut [u8], values: impl Iterator<Item = u64>) {
    if dtype.size() == 4 {
        for (place, value) in part.as_chunks_mut().0.iter_mut().zip(values) {
            *place = (value as u32).to_le_bytes();
        }
    } else {
        for (place, value) in part.as_chunks_mut().0.iter_mut().zip(values) {
            *place = value.to_le_bytes();
        }
    }
}

/// Both draws of a call.
fn draws(start: Start, call: u64) -> [u64; 2] {
    let [w0, w1, w2, w3]: Block = block(start.seed, Counter { low: start.call.wrapping_add(call), high: 0 });
    [join_64(w0, w1), join_64(w2, w3)]
}

fn shuffle(start: Start, order: &mut [u16]) {
    for (value, place) in (0..).zip(order.iter_mut()) {
        *place = value;
    }
    let mut call = (u64::MAX, [0; 2]);
    for k in (1..order.len()).rev() {
        let index = k as u64 / 2;
        if call.0 != index {
            call = (index, draws(start, index));
        }
        let other = (u128::from(call.1[k % 2]) * (k as u128 + 1)) >> 64;
        order.swap(k, other as usize);
    }
}

struct Bijection {
    keys: [u64; ROUNDS],
    count: u64,
    lower_bits: u32,
    lower: u64,
    upper: u64,
}

impl Bijection {
    fn new(start: Start, count: u64) -> Bijection {
        let mut keys = [0; ROUNDS];
        for (call, keys) in (0..).zip(keys.as_chunks_mut::<2>().0) {
            *keys = draws(start, call);
        }
        let bits = u64::BITS - (count - 1).leading_zeros();
        let lower_bits = bits / 2;
        let mask = |bits: u32| (1 << bits) - 1;
        Bijection { keys, count, lower_bits, lower: mask(lower_bits), upper: mask(bits - lower_bits) }
    }

    fn element(&self, i: u64) -> u64 {
        let mut value = i;
        loop {
            let (mut low, mut high) = (value & self.lower, value >> self.lower_bits);
            for [even, odd] in self.keys.as_chunks::<2>().0 {
                low ^= mix(high, *even) & self.lower;
                high ^= mix(low, *odd) & self.upper;
            }
            value = high << self.lower_bits | low;
            if value < self.count {
                return value;
            }
        }
    }
}

#[inline(always)]
fn mix(value: u64, key: u64) -> u64 {
    let t = value.wrapping_add(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (t ^ t >> 32).wrapping_mul(0xd1b5_4a32_d192_ed03) >> 32
}
