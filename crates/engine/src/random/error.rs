//! What is refused, and why.

use super::{MAX_OFFSET, State};

/// A request to a generator that cannot be met. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RandomError {
    /// A seed that 64 bits cannot hold.
    #[error("seed {given} is out of range: a seed is from -2^63 to 2^64 - 1, and a negative one counts down from 2^64")]
    Seed {
        /// The seed asked for; a number beyond 128 bits is the nearest one within.
        given: i128,
    },
    /// A state of a wrong length.
    #[error(
        "a generator's state has {} bytes (seed and offset), or {} (the seed alone), not {given}",
        State::SIZE,
        State::SEED_SIZE
    )]
    StateLength {
        /// Bytes given.
        given: usize,
    },
    /// An offset at which no call of the generator begins.
    #[error("offset {given} is not a multiple of 4 from 0 to {MAX_OFFSET}")]
    Offset {
        /// The offset asked for.
        given: i128,
    },
    /// A fill that would go beyond the end of the sequence.
    #[error(
        "{wanted} more numbers after offset {offset} go beyond the end of the sequence at {MAX_OFFSET}; take another seed"
    )]
    Exhausted {
        /// Where the generator is.
        offset: u64,
        /// What the fill takes, in words; `u64::MAX` if 64 bits do not hold it.
        wanted: u64,
    },
    /// As many states as generators are needed.
    #[error("{given} states for {expected} generators")]
    StateCount {
        /// Number of states.
        given: usize,
        /// Number of generators.
        expected: usize,
    },
    /// A torch-cuda layout for a device that could not run one block of 256 threads.
    #[error(
        "no torch-cuda layout for {multiprocessors} multiprocessors of {threads} threads: at least 1 of 256 are needed"
    )]
    Layout {
        /// Number of multiprocessors.
        multiprocessors: u32,
        /// The most threads of one at a time.
        threads: u32,
    },
    /// A fill that one call gives neither 2 nor 4 elements of.
    #[error("a call of the generator gives 2 or 4 elements, not {given}")]
    PerCall {
        /// The number given.
        given: u64,
    },
}
