//! The numbers and names of the built-in kernels.

use std::fmt;

/// A built-in kernel. The discriminant is the number by which backends and the C ABI know it: it is never reused, and a
/// change of arguments or results takes a new one. 0 is no kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Builtin {
    /// Does nothing: see [`noop`](crate::noop).
    Noop = 1,
    /// Repeats a pattern over a range of bytes: see [`fill_pattern`](crate::fill_pattern).
    FillPattern = 2,
    /// Converts elements from one type to another: see [`convert`](crate::convert).
    Convert = 3,
    /// Counts how often each byte value occurs: see [`histogram`](crate::histogram).
    Histogram = 4,
    /// Fills with random bits: see [`random`](crate::random), for this and all that follow.
    RandomBits = 5,
    /// Fills with uniform numbers.
    RandomUniform = 6,
    /// Fills with normal numbers.
    RandomNormal = 7,
    /// Fills with the exponentials of normal numbers.
    RandomLogNormal = 8,
    /// Fills with exponentially distributed numbers.
    RandomExponential = 9,
    /// Fills with geometrically distributed numbers.
    RandomGeometric = 10,
    /// Fills with Bernoulli trials.
    RandomBernoulli = 11,
    /// Fills with uniform integers.
    RandomIntegers = 12,
    /// Fills with a random permutation.
    RandomPermutation = 13,
}

impl Builtin {
    /// Every built-in, by rising number.
    pub const ALL: &'static [Builtin] = &[
        Builtin::Noop,
        Builtin::FillPattern,
        Builtin::Convert,
        Builtin::Histogram,
        Builtin::RandomBits,
        Builtin::RandomUniform,
        Builtin::RandomNormal,
        Builtin::RandomLogNormal,
        Builtin::RandomExponential,
        Builtin::RandomGeometric,
        Builtin::RandomBernoulli,
        Builtin::RandomIntegers,
        Builtin::RandomPermutation,
    ];

    /// Whether this is one of the fills of [`random`](crate::random), which share arguments and code.
    pub const fn is_random(self) -> bool {
        !matches!(self, Builtin::Noop | Builtin::FillPattern | Builtin::Convert | Builtin::Histogram)
    }

    /// The stable number, equal to the discriminant.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The built-in with this number, if this build knows one.
    pub fn from_number(number: u32) -> Option<Builtin> {
        Builtin::ALL.iter().copied().find(|builtin| builtin.number() == number)
    }

    /// The name, which is also that of its symbol in device code and, but for the random ones, of its folder.
    pub const fn name(self) -> &'static str {
        match self {
            Builtin::Noop => "noop",
            Builtin::FillPattern => "fill_pattern",
            Builtin::Convert => "convert",
            Builtin::Histogram => "histogram",
            Builtin::RandomBits => "random_bits",
            Builtin::RandomUniform => "random_uniform",
            Builtin::RandomNormal => "random_normal",
            Builtin::RandomLogNormal => "random_log_normal",
            Builtin::RandomExponential => "random_exponential",
            Builtin::RandomGeometric => "random_geometric",
            Builtin::RandomBernoulli => "random_bernoulli",
            Builtin::RandomIntegers => "random_integers",
            Builtin::RandomPermutation => "random_permutation",
        }
    }

    /// Size in bytes of its `Params`.
    pub const fn params_size(self) -> usize {
        match self {
            Builtin::Noop => 0,
            Builtin::FillPattern => size_of::<crate::fill_pattern::Params>(),
            Builtin::Convert => size_of::<crate::convert::Params>(),
            Builtin::Histogram => size_of::<crate::histogram::Params>(),
            _ => size_of::<crate::random::Params>(),
        }
    }

    /// How many places come before its `Params`.
    pub const fn places(self) -> usize {
        match self {
            Builtin::Noop => 0,
            Builtin::FillPattern => 1,
            _ => 2,
        }
    }
}

/// Writes [`Builtin::name`].
impl fmt::Display for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Builtin;

    #[test]
    fn numbers_names_and_arguments_are_frozen() {
        let table = [
            (1, "noop", 0, 0),
            (2, "fill_pattern", 1, 24),
            (3, "convert", 2, 16),
            (4, "histogram", 2, 8),
            (5, "random_bits", 2, 64),
            (6, "random_uniform", 2, 64),
            (7, "random_normal", 2, 64),
            (8, "random_log_normal", 2, 64),
            (9, "random_exponential", 2, 64),
            (10, "random_geometric", 2, 64),
            (11, "random_bernoulli", 2, 64),
            (12, "random_integers", 2, 64),
            (13, "random_permutation", 2, 64),
        ];
        assert_eq!(Builtin::ALL.len(), table.len());
        for (number, name, places, params) in table {
            let builtin = Builtin::from_number(number).expect(name);
            assert_eq!((builtin.number(), builtin.name()), (number, name));
            assert_eq!((builtin.places(), builtin.params_size()), (places, params));
            assert_eq!(builtin.is_random(), name.starts_with("random"));
        }
        assert_eq!(Builtin::from_number(0), None);
        assert_eq!(Builtin::from_number(table.len() as u32 + 1), None);
    }
}
