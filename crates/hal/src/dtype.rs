//! Element types and sets of them.
//!
//! The types are PyTorch's (2.14) that hold one plain number per element: no quantized types, no `bits*`, no sub-byte or
//! packed ones, for which PyTorch itself has no conversion. Names and aliases are those of `torch.dtype`.

use core::fmt;
use core::str::FromStr;

/// The type of one element of a buffer.
///
/// The discriminant is part of the C ABI and never changes: it is the value of PyTorch's `c10::ScalarType`, so a binding
/// passes it through unchanged. All values are below 64, which [`DTypeSet`] relies on.
///
/// Elements lie in the byte order of the device; a complex element is its real part followed by its imaginary part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DType {
    /// Unsigned 8-bit integer.
    U8 = 0,
    /// Signed 8-bit integer.
    I8 = 1,
    /// Signed 16-bit integer.
    I16 = 2,
    /// Signed 32-bit integer.
    I32 = 3,
    /// Signed 64-bit integer.
    I64 = 4,
    /// IEEE 754 binary16.
    F16 = 5,
    /// IEEE 754 binary32.
    F32 = 6,
    /// IEEE 754 binary64.
    F64 = 7,
    /// Complex number of two [`DType::F16`].
    C32 = 8,
    /// Complex number of two [`DType::F32`].
    C64 = 9,
    /// Complex number of two [`DType::F64`].
    C128 = 10,
    /// One byte: 0 is false, 1 is true. Readers take any other byte as true; writers never write one.
    Bool = 11,
    /// The upper half of a binary32: 8 exponent bits, 7 mantissa bits.
    Bf16 = 15,
    /// 1 sign, 5 exponent (bias 15), 2 mantissa bits; infinities and NaNs as in IEEE 754 (OCP OFP8).
    F8E5m2 = 23,
    /// 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinity, NaN is `S.1111.111`, largest value 448 (OCP OFP8).
    F8E4m3fn = 24,
    /// 1 sign, 5 exponent (bias 16), 2 mantissa bits; no infinity, no negative zero, the one NaN is `0x80`.
    F8E5m2fnuz = 25,
    /// 1 sign, 4 exponent (bias 8), 3 mantissa bits; no infinity, no negative zero, the one NaN is `0x80`.
    F8E4m3fnuz = 26,
    /// Unsigned 16-bit integer.
    U16 = 27,
    /// Unsigned 32-bit integer.
    U32 = 28,
    /// Unsigned 64-bit integer.
    U64 = 29,
    /// 8 exponent bits (bias 127) and nothing else: a power of two from 2^-127 to 2^127; `0xff` is NaN (OCP MX scale).
    F8E8m0fnu = 44,
}

impl DType {
    /// Every element type, in the order in which messages list them.
    pub const ALL: &'static [DType] = &[
        DType::Bool,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::Bf16,
        DType::F32,
        DType::F64,
        DType::C32,
        DType::C64,
        DType::C128,
        DType::F8E4m3fn,
        DType::F8E4m3fnuz,
        DType::F8E5m2,
        DType::F8E5m2fnuz,
        DType::F8E8m0fnu,
    ];

    /// The stable number of this type, equal to its discriminant.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The type with this number, if there is one.
    pub const fn from_number(number: u8) -> Option<DType> {
        let mut i = 0;
        while i < DType::ALL.len() {
            if DType::ALL[i] as u8 == number {
                return Some(DType::ALL[i]);
            }
            i += 1;
        }
        None
    }

    /// Size of one element in bytes: 1, 2, 4, 8 or 16.
    pub const fn size(self) -> usize {
        use DType::*;
        match self {
            Bool | U8 | I8 | F8E4m3fn | F8E4m3fnuz | F8E5m2 | F8E5m2fnuz | F8E8m0fnu => 1,
            U16 | I16 | F16 | Bf16 => 2,
            U32 | I32 | F32 | C32 => 4,
            U64 | I64 | F64 | C64 => 8,
            C128 => 16,
        }
    }

    /// Natural alignment of one element in bytes. It equals [`size`](DType::size), for complex types too, as device
    /// compilers load a complex number whole.
    pub const fn alignment(self) -> usize {
        self.size()
    }

    /// PyTorch's name without the `torch.` prefix, for example `float32`, `bfloat16` or `complex64`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "uint8",
            DType::U16 => "uint16",
            DType::U32 => "uint32",
            DType::U64 => "uint64",
            DType::I8 => "int8",
            DType::I16 => "int16",
            DType::I32 => "int32",
            DType::I64 => "int64",
            DType::F16 => "float16",
            DType::Bf16 => "bfloat16",
            DType::F32 => "float32",
            DType::F64 => "float64",
            DType::C32 => "complex32",
            DType::C64 => "complex64",
            DType::C128 => "complex128",
            DType::F8E4m3fn => "float8_e4m3fn",
            DType::F8E4m3fnuz => "float8_e4m3fnuz",
            DType::F8E5m2 => "float8_e5m2",
            DType::F8E5m2fnuz => "float8_e5m2fnuz",
            DType::F8E8m0fnu => "float8_e8m0fnu",
        }
    }

    /// Whether this is a real floating-point type, the float8 family included; complex types are not.
    pub const fn is_floating_point(self) -> bool {
        use DType::*;
        match self {
            F16 | Bf16 | F32 | F64 => true,
            F8E4m3fn | F8E4m3fnuz | F8E5m2 | F8E5m2fnuz | F8E8m0fnu => true,
            Bool | U8 | U16 | U32 | U64 | I8 | I16 | I32 | I64 | C32 | C64 | C128 => false,
        }
    }

    /// Whether this is a complex type.
    pub const fn is_complex(self) -> bool {
        self.component().is_some()
    }

    /// The type of the two parts of a complex type; `None` for all others.
    pub const fn component(self) -> Option<DType> {
        match self {
            DType::C32 => Some(DType::F16),
            DType::C64 => Some(DType::F32),
            DType::C128 => Some(DType::F64),
            _ => None,
        }
    }

    /// Whether the type has negative values. False for the unsigned integers, bool and `float8_e8m0fnu`.
    pub const fn is_signed(self) -> bool {
        use DType::*;
        match self {
            I8 | I16 | I32 | I64 | F16 | Bf16 | F32 | F64 | C32 | C64 | C128 => true,
            F8E4m3fn | F8E4m3fnuz | F8E5m2 | F8E5m2fnuz => true,
            Bool | U8 | U16 | U32 | U64 | F8E8m0fnu => false,
        }
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Writes [`DType::name`].
impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Accepted besides the names, as `torch` has them.
const ALIASES: [(&str, DType); 9] = [
    ("half", DType::F16),
    ("float", DType::F32),
    ("double", DType::F64),
    ("short", DType::I16),
    ("int", DType::I32),
    ("long", DType::I64),
    ("chalf", DType::C32),
    ("cfloat", DType::C64),
    ("cdouble", DType::C128),
];

/// Reads a name or one of torch's aliases (`half`, `float`, `double`, `short`, `int`, `long`, `chalf`, `cfloat`,
/// `cdouble`), each with or without `torch.` before it. Case and spaces matter, as they do in torch.
impl FromStr for DType {
    type Err = ParseDTypeError;

    fn from_str(input: &str) -> Result<DType, ParseDTypeError> {
        let name = input.strip_prefix("torch.").unwrap_or(input);
        let by_name = DType::ALL.iter().copied().find(|dtype| dtype.name() == name);
        let by_alias = || ALIASES.iter().find(|(alias, _)| *alias == name).map(|&(_, dtype)| dtype);
        by_name.or_else(by_alias).ok_or_else(|| ParseDTypeError { input: input.into() })
    }
}

/// The text is not the name of a [`DType`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseDTypeError {
    input: Box<str>,
}

impl ParseDTypeError {
    /// The text that was given.
    pub fn input(&self) -> &str {
        &self.input
    }
}

impl fmt::Display for ParseDTypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown dtype {:?}; known are ", self.input)?;
        for (i, dtype) in DType::ALL.iter().enumerate() {
            write!(f, "{}{dtype}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str(" and the aliases ")?;
        for (i, (alias, _)) in ALIASES.iter().enumerate() {
            write!(f, "{}{alias}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str(", each with an optional \"torch.\" before it")
    }
}

impl std::error::Error for ParseDTypeError {}

/// A set of element types: 64 bits, one for each [`DType::number`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct DTypeSet(u64);

impl DTypeSet {
    /// The set without members.
    pub const EMPTY: DTypeSet = DTypeSet(0);

    /// The set of every type.
    pub const ALL: DTypeSet = DTypeSet::of(DType::ALL);

    /// The set of the given types; repeated ones count once.
    pub const fn of(dtypes: &[DType]) -> DTypeSet {
        let mut bits = 0;
        let mut i = 0;
        while i < dtypes.len() {
            bits |= 1 << dtypes[i] as u8;
            i += 1;
        }
        DTypeSet(bits)
    }

    /// Whether the type is a member.
    pub const fn contains(self, dtype: DType) -> bool {
        self.0 & 1 << dtype as u8 != 0
    }

    /// This set with one more member.
    #[must_use]
    pub const fn with(self, dtype: DType) -> DTypeSet {
        DTypeSet(self.0 | 1 << dtype as u8)
    }

    /// This set without that member.
    #[must_use]
    pub const fn without(self, dtype: DType) -> DTypeSet {
        DTypeSet(self.0 & !(1 << dtype as u8))
    }

    /// The members of either set.
    #[must_use]
    pub const fn union(self, other: DTypeSet) -> DTypeSet {
        DTypeSet(self.0 | other.0)
    }

    /// The members of both sets.
    #[must_use]
    pub const fn intersection(self, other: DTypeSet) -> DTypeSet {
        DTypeSet(self.0 & other.0)
    }

    /// How many members there are.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there are no members.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set as it crosses the C ABI: bit `n` stands for the type with number `n`.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The set with these bits. Bits without a type are dropped: a newer peer may know types that this build does not.
    pub const fn from_bits(bits: u64) -> DTypeSet {
        DTypeSet(bits & DTypeSet::ALL.0)
    }

    /// The members in the order of [`DType::ALL`].
    pub fn iter(self) -> impl Iterator<Item = DType> + Clone {
        DType::ALL.iter().copied().filter(move |&dtype| self.contains(dtype))
    }
}

impl FromIterator<DType> for DTypeSet {
    fn from_iter<I: IntoIterator<Item = DType>>(dtypes: I) -> DTypeSet {
        dtypes.into_iter().fold(DTypeSet::EMPTY, DTypeSet::with)
    }
}

impl Extend<DType> for DTypeSet {
    fn extend<I: IntoIterator<Item = DType>>(&mut self, dtypes: I) {
        *self = dtypes.into_iter().fold(*self, DTypeSet::with);
    }
}

impl fmt::Debug for DTypeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Numbers, names and sizes as the C ABI and torch have them, written out apart from the code.
    const TABLE: [(u8, &str, usize); 21] = [
        (0, "uint8", 1),
        (1, "int8", 1),
        (2, "int16", 2),
        (3, "int32", 4),
        (4, "int64", 8),
        (5, "float16", 2),
        (6, "float32", 4),
        (7, "float64", 8),
        (8, "complex32", 4),
        (9, "complex64", 8),
        (10, "complex128", 16),
        (11, "bool", 1),
        (15, "bfloat16", 2),
        (23, "float8_e5m2", 1),
        (24, "float8_e4m3fn", 1),
        (25, "float8_e5m2fnuz", 1),
        (26, "float8_e4m3fnuz", 1),
        (27, "uint16", 2),
        (28, "uint32", 4),
        (29, "uint64", 8),
        (44, "float8_e8m0fnu", 1),
    ];

    #[test]
    fn numbers_names_and_sizes_are_frozen() {
        assert_eq!(DType::ALL.len(), TABLE.len());
        assert_eq!(DType::ALL.iter().collect::<HashSet<_>>().len(), TABLE.len());
        for (number, name, size) in TABLE {
            let dtype = DType::from_number(number).expect(name);
            assert_eq!((dtype.number(), dtype.name(), dtype.size()), (number, name, size));
            assert_eq!(dtype.alignment(), size);
        }
        let known = (0..=255).filter_map(DType::from_number).count();
        assert_eq!(known, TABLE.len());
    }

    #[test]
    fn every_name_and_alias_parses_with_and_without_prefix() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse(), Ok(*dtype));
            assert_eq!(format!("torch.{dtype}").parse(), Ok(*dtype));
        }
        for (alias, name) in [
            ("half", "float16"),
            ("float", "float32"),
            ("double", "float64"),
            ("short", "int16"),
            ("int", "int32"),
            ("long", "int64"),
            ("chalf", "complex32"),
            ("cfloat", "complex64"),
            ("cdouble", "complex128"),
        ] {
            assert_eq!(alias.parse::<DType>().unwrap().name(), name);
            assert_eq!(format!("torch.{alias}").parse::<DType>().unwrap().name(), name);
        }
    }

    #[test]
    fn a_bad_name_is_quoted_beside_the_known_ones() {
        for bad in ["", "Float32", "float32 ", "torch.", "torch.torch.int8", "qint8", "f32\n"] {
            let error = bad.parse::<DType>().unwrap_err();
            assert_eq!(error.input(), bad);
            let message = error.to_string();
            assert!(message.contains(&format!("{bad:?}")), "{message}");
            assert!(DType::ALL.iter().all(|d| message.contains(d.name())), "{message}");
            assert!(message.contains("cdouble"), "{message}");
        }
    }

    #[test]
    fn families_are_torchs() {
        let names = |f: fn(DType) -> bool| DType::ALL.iter().filter(|d| f(**d)).map(|d| d.name()).collect::<Vec<_>>();
        assert_eq!(names(DType::is_complex), ["complex32", "complex64", "complex128"]);
        assert_eq!(names(|d| !d.is_signed()), ["bool", "uint8", "uint16", "uint32", "uint64", "float8_e8m0fnu"]);
        let floats = names(DType::is_floating_point);
        assert_eq!(floats.len(), 9);
        assert!(floats.iter().all(|name| name.contains("float")));
        assert_eq!(DType::C32.component(), Some(DType::F16));
    }

    #[test]
    fn a_set_holds_what_was_put_in() {
        const HALVES: DTypeSet = DTypeSet::of(&[DType::F16, DType::Bf16, DType::F16]);
        assert_eq!(HALVES.len(), 2);
        for &dtype in DType::ALL {
            assert_eq!(HALVES.contains(dtype), matches!(dtype, DType::F16 | DType::Bf16));
            assert_eq!(HALVES.with(dtype).without(dtype), HALVES.without(dtype));
            assert_eq!(DTypeSet::EMPTY.with(dtype).iter().collect::<Vec<_>>(), [dtype]);
        }
        assert_eq!(format!("{HALVES:?}"), "{float16, bfloat16}");
        assert_eq!(DType::ALL.iter().copied().collect::<DTypeSet>(), DTypeSet::ALL);
        assert_eq!(DTypeSet::ALL.iter().collect::<Vec<_>>(), DType::ALL);
        assert_eq!(DTypeSet::ALL.intersection(HALVES), HALVES);
        assert_eq!(DTypeSet::EMPTY.union(HALVES), HALVES);
        assert!(DTypeSet::default().is_empty());
        assert_eq!(DTypeSet::from_bits(u64::MAX), DTypeSet::ALL);
        assert_eq!(DTypeSet::from_bits(HALVES.to_bits()), HALVES);
    }
}
