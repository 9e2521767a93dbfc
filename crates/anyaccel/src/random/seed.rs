//! Seeds as callers give them.

use crate::error::Result;
use anyaccel_engine::random as engine;

/// A seed: from -2^63 to 2^64 - 1, taken modulo 2^64, so that -1 and 2^64 - 1 are the same. Made from any integer;
/// whether it is in the range is checked by whoever takes it.
///
/// ```
/// use anyaccel::random::Generator;
/// let generator = Generator::new();
/// generator.manual_seed(-1)?;
/// assert_eq!(generator.initial_seed(), u64::MAX);
/// assert!(generator.manual_seed(1_i128 << 64).is_err());
/// assert_eq!(generator.initial_seed(), u64::MAX);
/// # Ok::<(), anyaccel::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seed(i128);

impl Seed {
    /// The seed, if it is in the range.
    pub(super) fn check(self) -> Result<engine::Seed> {
        Ok(engine::Seed::new(self.0)?)
    }
}

macro_rules! from_integer {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Seed {
            fn from(seed: $integer) -> Self {
                Self(i128::from(seed))
            }
        }
    )*};
}
from_integer!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

impl From<usize> for Seed {
    fn from(seed: usize) -> Self {
        Self(seed as i128)
    }
}

impl From<isize> for Seed {
    fn from(seed: isize) -> Self {
        Self(seed as i128)
    }
}
