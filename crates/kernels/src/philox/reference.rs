//! The definition of the result.

use super::{Block, Counter, MULTIPLIER, keys};

/// The block at a counter.
pub const fn block(seed: u64, counter: Counter) -> Block {
    let mut words = [counter.low as u32, (counter.low >> 32) as u32, counter.high as u32, (counter.high >> 32) as u32];
    let keys = keys(seed);
    let mut round = 0;
    while round < keys.len() {
        let a = MULTIPLIER[0] as u64 * words[0] as u64;
        let b = MULTIPLIER[1] as u64 * words[2] as u64;
        words = [
            (b >> 32) as u32 ^ words[1] ^ keys[round][0],
            b as u32,
            (a >> 32) as u32 ^ words[3] ^ keys[round][1],
            a as u32,
        ];
        round += 1;
    }
    words
}
