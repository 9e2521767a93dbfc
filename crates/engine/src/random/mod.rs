//! Random number generators: where in which sequence a fill begins, and how far it moves the generator.
//!
//! A [`Generator`] is a seed and an offset into the sequence of Philox 4x32-10 that the seed names. It holds no numbers: a
//! [`Plan`] says how much of the sequence a fill takes, [`Generator::draw`] gives the offset at which it begins and moves
//! on, and a kernel computes the numbers from both. Offsets count 32-bit words and are multiples of 4, the words of one
//! call of the generator.
//!
//! Inside a capture a generator does not move. [`Recorded`] counts what the fills take and gives each its distance from the
//! start; before each replay [`Generator::replay`] gives the start, which goes to the cell that the kernels read, and moves on
//! by all of it. So every replay draws what the eager run would have drawn.
//!
//! Nothing here is shared between threads, draws entropy, or touches a device: the caller brings a lock and 64 random bits.

mod error;
mod generator;
mod plan;
mod recorded;
mod seed;
mod snapshot;
mod state;

pub use error::RandomError;
pub use generator::{DEFAULT_SEED, Generator};
pub use plan::{Layout, Part, Parts, Plan};
pub use recorded::Recorded;
pub use seed::Seed;
pub use snapshot::{Snapshot, set_states};
pub use state::State;

/// Words of one call of the generator: what every offset is a multiple of.
pub const CALL_WORDS: u64 = 4;

/// The largest offset: a state holds it as a signed number.
pub const MAX_OFFSET: u64 = i64::MAX as u64 - (CALL_WORDS - 1);
