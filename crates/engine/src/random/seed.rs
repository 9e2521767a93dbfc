//! Seeds.

use super::RandomError;

/// A seed: 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed(u64);

impl Seed {
    /// The seed of an integer from -2^63 to 2^64 - 1, modulo 2^64; others are refused.
    pub fn new(seed: i128) -> Result<Seed, RandomError> {
        if (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&seed) {
            Ok(Seed(seed as u64))
        } else {
            Err(RandomError::Seed { given: seed })
        }
    }

    /// 53 bits of entropy: a seed that a float64 holds, as PyTorch draws them.
    pub const fn from_entropy(entropy: u64) -> Seed {
        Seed(entropy & ((1 << 53) - 1))
    }

    /// The bits.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<u64> for Seed {
    fn from(seed: u64) -> Seed {
        Seed(seed)
    }
}

impl From<i64> for Seed {
    fn from(seed: i64) -> Seed {
        Seed(seed as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_taken_modulo_2_to_the_64() {
        for (given, bits) in
            [(0, 0), (-1, u64::MAX), (i128::from(i64::MIN), 1 << 63), (i128::from(u64::MAX), u64::MAX), (42, 42)]
        {
            assert_eq!(Seed::new(given).map(Seed::get), Ok(bits), "{given}");
        }
        assert_eq!(Seed::from(-2_i64), Seed::from(u64::MAX - 1));
    }

    #[test]
    fn seeds_beyond_64_bits_are_refused_by_name() {
        for given in [1 << 64, i128::from(i64::MIN) - 1, i128::MAX, i128::MIN] {
            let error = Seed::new(given).unwrap_err();
            assert_eq!(error, RandomError::Seed { given });
            assert!(error.to_string().contains(&given.to_string()), "{error}");
        }
    }

    #[test]
    fn entropy_gives_53_bits() {
        assert_eq!(Seed::from_entropy(u64::MAX).get(), (1 << 53) - 1);
        assert_eq!(Seed::from_entropy(5).get(), 5);
    }
}
