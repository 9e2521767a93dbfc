//! The state of a generator as bytes.

use crate::error::{Error, Result};
use std::fmt;

/// The state of a generator: 16 bytes, the seed (u64) and then the offset (i64), both little-endian.
///
/// ```
/// use anyaccel::random::State;
/// let state = State::new(1, 8)?;
/// assert_eq!(state.to_bytes(), [1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
/// assert_eq!(State::from_bytes(&[1, 0, 0, 0, 0, 0, 0, 0])?, State::new(1, 0)?, "without offset it is 0");
/// assert!(State::from_bytes(&[1]).is_err());
/// # Ok::<(), anyaccel::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    seed: u64,
    offset: u64,
}

impl State {
    /// Its size in bytes.
    pub const SIZE: usize = 16;

    /// A state.
    ///
    /// # Errors
    /// [`Error::RngOffset`] unless the offset is a multiple of 4 below 2^63.
    pub fn new(seed: u64, offset: u64) -> Result<Self> {
        if offset.is_multiple_of(4) && offset < 1 << 63 {
            Ok(Self { seed, offset })
        } else {
            Err(Error::RngOffset { offset })
        }
    }

    /// Of a generator, whose offsets are right.
    pub(super) fn of(seed: u64, offset: u64) -> Self {
        Self { seed, offset }
    }

    /// Reads 16 bytes, or 8, which are the seed alone.
    ///
    /// # Errors
    /// [`Error::RngStateLength`] for another length; [`Error::RngOffset`] for an offset that no generator has.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        match bytes.as_chunks() {
            ([seed, offset], []) => Self::new(u64::from_le_bytes(*seed), u64::from_le_bytes(*offset)),
            ([seed], []) => Self::new(u64::from_le_bytes(*seed), 0),
            _ => Err(Error::RngStateLength { expected: Self::SIZE, got: bytes.len() }),
        }
    }

    /// The bytes.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// The seed.
    pub fn seed(self) -> u64 {
        self.seed
    }

    /// How many words were drawn since the seed, in multiples of 4.
    pub fn offset(self) -> u64 {
        self.offset
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("seed", &self.seed).field("offset", &self.offset).finish()
    }
}
