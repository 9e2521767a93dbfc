//! States as bytes.

use super::{CALL_WORDS, MAX_OFFSET, RandomError};

/// Seed and offset of a generator, as they are saved, restored and handed to kernels: 16 bytes, the seed (u64), then the
/// offset (i64), both little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    seed: u64,
    offset: u64,
}

impl State {
    /// Bytes of a state.
    pub const SIZE: usize = 16;
    /// Bytes of a seed, which is a state with the offset 0.
    pub const SEED_SIZE: usize = 8;

    /// Refused unless the offset is a multiple of 4 up to [`MAX_OFFSET`].
    pub fn new(seed: u64, offset: u64) -> Result<State, RandomError> {
        if offset > MAX_OFFSET || !offset.is_multiple_of(CALL_WORDS) {
            return Err(RandomError::Offset { given: offset.into() });
        }
        Ok(State { seed, offset })
    }

    /// The seed.
    pub const fn seed(self) -> u64 {
        self.seed
    }

    /// The offset, in words.
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// The 16 bytes.
    pub fn to_bytes(self) -> [u8; State::SIZE] {
        let mut bytes = [0; State::SIZE];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// Reads 16 bytes, or 8 that are a seed alone.
    pub fn from_bytes(bytes: &[u8]) -> Result<State, RandomError> {
        match bytes.as_chunks() {
            ([seed], []) => State::new(u64::from_le_bytes(*seed), 0),
            ([seed, offset], []) => {
                let offset = i64::from_le_bytes(*offset);
                let known = u64::try_from(offset).map_err(|_| RandomError::Offset { given: offset.into() })?;
                State::new(u64::from_le_bytes(*seed), known)
            }
            _ => Err(RandomError::StateLength { given: bytes.len() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_seed_then_offset() {
        let state = State::new(0x0807_0605_0403_0201, 0x14).unwrap();
        let bytes = state.to_bytes();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 0x14, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(State::from_bytes(&bytes), Ok(state));
        assert_eq!(State::from_bytes(&bytes[..8]), State::new(state.seed(), 0));
        assert_eq!(State::new(1, MAX_OFFSET).map(State::offset), Ok(MAX_OFFSET));
    }

    #[test]
    fn other_lengths_are_refused_and_both_good_ones_named() {
        for given in [0, 1, 7, 9, 12, 15, 17, 24, 5056] {
            let error = State::from_bytes(&vec![0; given]).unwrap_err();
            assert_eq!(error, RandomError::StateLength { given });
            let text = error.to_string();
            assert!(
                text.contains("16 bytes") && text.contains("or 8 ") && text.ends_with(&format!("not {given}")),
                "{text}"
            );
        }
    }

    #[test]
    fn offsets_off_the_calls_are_refused() {
        for offset in [-4_i64, -1, 1, 2, 3, 5, i64::MAX, i64::MIN] {
            let mut bytes = [0; 16];
            bytes[8..].copy_from_slice(&offset.to_le_bytes());
            assert_eq!(State::from_bytes(&bytes), Err(RandomError::Offset { given: offset.into() }));
        }
        assert!(State::new(0, 1 << 63).is_err());
    }
}
