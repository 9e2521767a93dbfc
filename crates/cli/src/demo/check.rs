//! The plain pass on one thread that the device's result is held against, and what follows from counts.

use super::input::Input;
use crate::output::Failure;
use anyaccel_kernels::histogram;
use std::time::{Duration, Instant};

/// How often each byte value occurs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Counts(Box<[u64; 256]>);

impl Counts {
    /// Of nothing.
    pub(crate) fn new() -> Self {
        Self(Box::new([0; 256]))
    }

    /// Counts these bytes too.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        histogram::count(bytes, &mut self.0);
    }

    /// The sum of results as the kernel writes them: 256 little-endian u64 each.
    pub(crate) fn sum(results: &[u8]) -> Self {
        let mut counts = Self::new();
        for (at, word) in results.as_chunks::<8>().0.iter().enumerate() {
            let count = &mut counts.0[at % 256];
            *count = count.wrapping_add(u64::from_le_bytes(*word));
        }
        counts
    }

    /// How many bytes were counted.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, &count| sum.wrapping_add(count))
    }

    /// Shannon entropy in bits per byte, 0 for nothing.
    pub(crate) fn entropy(&self) -> f64 {
        let total = self.total() as f64;
        let share = |&count: &u64| count as f64 / total;
        // 0.0 - x: a file of one value has entropy 0, not -0.
        self.0.iter().filter(|&&count| count > 0).map(share).fold(0.0, |sum, share| sum - share * share.log2())
    }

    /// The most frequent values, at most `most`, with their counts.
    pub(crate) fn top(&self, most: usize) -> Vec<(u8, u64)> {
        let mut found: Vec<(u8, u64)> = (0..=255).zip(self.0.iter().copied()).filter(|&(_, count)| count > 0).collect();
        found.sort_by_key(|&(value, count)| (std::cmp::Reverse(count), value));
        found.truncate(most);
        found
    }

    /// The first value whose counts differ, with both.
    pub(crate) fn difference(&self, other: &Self) -> Option<(u8, u64, u64)> {
        let pairs = (0..=255).zip(self.0.iter().zip(other.0.iter()));
        pairs.map(|(value, (&a, &b))| (value, a, b)).find(|&(_, a, b)| a != b)
    }
}

/// A pass over the input on this thread alone: the same reads into one buffer, the same function that counts.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    pub(crate) counts: Counts,
    pub(crate) time: Duration,
}

pub(crate) fn single_thread(input: &mut Input, chunk: usize) -> Result<Pass, Failure> {
    input.rewind()?;
    let mut buffer = vec![0; chunk];
    let mut counts = Counts::new();
    let began = Instant::now();
    loop {
        let filled = input.read_chunk(&mut buffer)?;
        if filled == 0 {
            return Ok(Pass { counts, time: began.elapsed() });
        }
        counts.add(&buffer[..filled]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Counts {
        let mut counts = Counts::new();
        counts.add(bytes);
        counts
    }

    #[test]
    fn entropy_is_shannons() {
        assert_eq!(of(b"").entropy().to_bits(), 0.0_f64.to_bits());
        assert_eq!(of(b"aaaa").entropy().to_bits(), 0.0_f64.to_bits());
        assert!((of(b"abab").entropy() - 1.0).abs() < 1e-12);
        let all: Vec<u8> = (0..=255).collect();
        assert!((of(&all).entropy() - 8.0).abs() < 1e-12);
        assert!((of(b"aab").entropy() - 0.918_295_834).abs() < 1e-9);
    }

    #[test]
    fn the_top_is_ordered_by_count_then_value() {
        assert_eq!(of(b"cabbacc").top(2), [(b'c', 3), (b'a', 2)]);
        assert_eq!(of(b"").top(2), []);
    }

    #[test]
    fn results_of_several_streams_add_up() {
        let mut results = vec![0; 2 * 2048];
        results[8..16].copy_from_slice(&5_u64.to_le_bytes());
        results[2048 + 8..2048 + 16].copy_from_slice(&7_u64.to_le_bytes());
        results[2 * 2048 - 8..].copy_from_slice(&1_u64.to_le_bytes());
        let counts = Counts::sum(&results);
        assert_eq!((counts.total(), counts.top(1)), (13, vec![(1, 12)]));
        assert_eq!(counts.difference(&Counts::new()), Some((1, 12, 0)));
        assert_eq!(counts.difference(&counts.clone()), None);
    }
}
