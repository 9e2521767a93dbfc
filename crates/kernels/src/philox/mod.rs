//! Philox 4x32-10, a counter-based generator of random words (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
//! easy as 1, 2, 3", SC11).
//!
//! A block is four 32-bit words, a pure function of a key and a counter. The key is a seed: its lower half is key word 0.
//! The counter has 128 bits, here two halves of 64: [`Counter::low`] is counter words 0 and 1, [`Counter::high`] words 2
//! and 3, the less significant word first. This is how cuRAND lays out seed, offset (low) and subsequence (high).
//!
//! [`block`] is the definition. [`blocks`] computes many at once with whatever the CPU offers, with the same bits.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod reference;

pub use reference::block;

use crate::cpu::Isa;

/// Four words, in the order in which they are used.
pub type Block = [u32; 4];

/// Multipliers of counter words 0 and 2.
const MULTIPLIER: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// What the key words grow by between rounds: the golden ratio, and the square root of 3 less 1.
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// The input of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counter {
    /// Words 0 and 1: the position within a sequence.
    pub low: u64,
    /// Words 2 and 3: the sequence.
    pub high: u64,
}

/// Which half of the counter grows from one block to the next. Each half wraps around for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Axis {
    /// [`Counter::low`]: along one sequence.
    Low,
    /// [`Counter::high`]: across sequences, at the same position of each.
    High,
}

impl Counter {
    /// The counter `steps` further on.
    pub const fn advance(self, axis: Axis, steps: u64) -> Counter {
        match axis {
            Axis::Low => Counter { low: self.low.wrapping_add(steps), ..self },
            Axis::High => Counter { high: self.high.wrapping_add(steps), ..self },
        }
    }
}

/// Fills `out` with the blocks at `first` and the counters after it along `axis`.
pub fn blocks(seed: u64, first: Counter, axis: Axis, out: &mut [Block]) {
    blocks_with(Isa::best(), seed, first, axis, out);
}

pub(crate) fn blocks_with(isa: Isa, seed: u64, first: Counter, axis: Axis, out: &mut [Block]) {
    // The loops below move one word of the counter alone, so they stop where it would carry.
    let moving = match axis {
        Axis::Low => first.low,
        Axis::High => first.high,
    };
    let room = (1 << 32) - u64::from(moving as u32);
    if room < out.len() as u64 {
        let (before, after) = out.split_at_mut(room as usize);
        blocks_with(isa, seed, first, axis, before);
        return blocks_with(isa, seed, first.advance(axis, room), axis, after);
    }
    match isa {
        Isa::Portable => portable(seed, first, axis, out),
        // SAFETY: K1.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::blocks(seed, first, axis, out) },
        // SAFETY: K1.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512::blocks(seed, first, axis, out) },
    }
}

fn portable(seed: u64, first: Counter, axis: Axis, out: &mut [Block]) {
    for (steps, place) in (0..).zip(out) {
        *place = block(seed, first.advance(axis, steps));
    }
}

/// The key words of each round.
#[inline(always)]
const fn keys(seed: u64) -> [[u32; 2]; ROUNDS] {
    let mut keys = [[0; 2]; ROUNDS];
    let mut round = 0;
    while round < ROUNDS {
        keys[round] = [
            (seed as u32).wrapping_add(WEYL[0].wrapping_mul(round as u32)),
            ((seed >> 32) as u32).wrapping_add(WEYL[1].wrapping_mul(round as u32)),
        ];
        round += 1;
    }
    keys
}

#[cfg(test)]
mod tests;
