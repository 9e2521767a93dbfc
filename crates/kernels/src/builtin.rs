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
}

impl Builtin {
    /// Every built-in, by rising number.
    pub const ALL: &'static [Builtin] = &[Builtin::Noop, Builtin::FillPattern, Builtin::Convert, Builtin::Histogram];

    /// The stable number, equal to the discriminant.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The built-in with this number, if this build knows one.
    pub fn from_number(number: u32) -> Option<Builtin> {
        Builtin::ALL.iter().copied().find(|builtin| builtin.number() == number)
    }

    /// The name, which is also that of its folder and of its symbol in device code.
    pub const fn name(self) -> &'static str {
        match self {
            Builtin::Noop => "noop",
            Builtin::FillPattern => "fill_pattern",
            Builtin::Convert => "convert",
            Builtin::Histogram => "histogram",
        }
    }

    /// Size in bytes of its `Params`.
    pub const fn params_size(self) -> usize {
        match self {
            Builtin::Noop => 0,
            Builtin::FillPattern => size_of::<crate::fill_pattern::Params>(),
            Builtin::Convert => size_of::<crate::convert::Params>(),
            Builtin::Histogram => size_of::<crate::histogram::Params>(),
        }
    }

    /// How many places come before its `Params`.
    pub const fn places(self) -> usize {
        match self {
            Builtin::Noop => 0,
            Builtin::FillPattern => 1,
            Builtin::Convert | Builtin::Histogram => 2,
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
        let table = [(1, "noop", 0, 0), (2, "fill_pattern", 1, 24), (3, "convert", 2, 16), (4, "histogram", 2, 8)];
        assert_eq!(Builtin::ALL.len(), table.len());
        for (number, name, places, params) in table {
            let builtin = Builtin::from_number(number).expect(name);
            assert_eq!((builtin.number(), builtin.name()), (number, name));
            assert_eq!((builtin.places(), builtin.params_size()), (places, params));
        }
        assert_eq!(Builtin::from_number(0), None);
        assert_eq!(Builtin::from_number(table.len() as u32 + 1), None);
    }
}
