//! Seeds as callers give them.

use crate::error::{Error, Result};

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
    /// The smallest seed, -2^63.
    pub const MIN: i128 = i64::MIN as i128;
    /// The largest seed, 2^64 - 1.
    pub const MAX: i128 = u64::MAX as i128;

    /// Modulo 2^64.
    ///
    /// # Errors
    /// [`Error::SeedRange`].
    pub fn get(self) -> Result<u64> {
        if (Self::MIN..=Self::MAX).contains(&self.0) {
            Ok(self.0 as u64)
        } else {
            Err(Error::SeedRange { seed: self.0 })
        }
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
