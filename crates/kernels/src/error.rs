//! What is wrong with the arguments of a built-in.

use crate::Builtin;
use anyaccel_hal::{DType, Fault};

/// The arguments of a built-in do not fit together. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A launch has other arguments than the kernel takes.
    #[error("{kernel} takes {} places and {} bytes, not {given}", kernel.places(), kernel.params_size())]
    Arguments {
        /// The kernel.
        kernel: Builtin,
        /// What was given, in words.
        given: String,
    },
    /// A place is shorter than what the kernel touches of it.
    #[error("{kernel}: {given} bytes where it touches {touched}")]
    PlaceLength {
        /// The kernel.
        kernel: Builtin,
        /// Length of the place in bytes.
        given: u64,
        /// How many of them it touches.
        touched: u64,
    },
    /// The parameter bytes are not as long as the kernel's `Params`.
    #[error(
        "{kernel}: got {given} bytes of parameters, but they are {} bytes long",
        kernel.params_size()
    )]
    ParamsSize {
        /// The kernel.
        kernel: Builtin,
        /// How many bytes were given.
        given: usize,
    },
    /// The parameters name an element type that does not exist.
    #[error("convert: no dtype has the number {number}; DType::number gives the valid ones")]
    UnknownDType {
        /// The number found.
        number: u32,
    },
    /// A fill pattern has a length other than 1, 2, 4, 8 or 16 bytes.
    #[error("fill_pattern: a pattern of {len} bytes; it has to be 1, 2, 4, 8 or 16 bytes long")]
    PatternLength {
        /// Length of the pattern in bytes.
        len: usize,
    },
    /// The source is not a whole number of elements.
    #[error(
        "convert: the source of {len} bytes is not a whole number of {dtype} elements of {} bytes",
        dtype.size()
    )]
    SourceLength {
        /// Element type of the source.
        dtype: DType,
        /// Length of the source in bytes.
        len: usize,
    },
    /// The destination has not exactly the room that the source's elements take.
    #[error(
        "convert: {count} elements of {dtype} take {} bytes, but the destination has {len}",
        *count as u128 * dtype.size() as u128
    )]
    DestinationLength {
        /// Element type of the destination.
        dtype: DType,
        /// Number of elements in the source.
        count: usize,
        /// Length of the destination in bytes.
        len: usize,
    },
    /// The device does not compute in double precision.
    #[error(
        "{kernel}: elements of float64 take double precision, which the device lacks; use float32, or another device"
    )]
    NoDouble {
        /// The kernel.
        kernel: Builtin,
    },
    /// A random fill has no elements of this type.
    #[error("{kernel}: no elements of {dtype}")]
    RandomDType {
        /// The kernel.
        kernel: Builtin,
        /// The element type asked for.
        dtype: DType,
    },
    /// An argument of a distribution is out of its range.
    #[error("{kernel}: {argument} is {}; it has to be {expected}", f64::from_bits(*bits))]
    RandomArgument {
        /// The kernel.
        kernel: Builtin,
        /// Name of the argument.
        argument: &'static str,
        /// Its value, as the bits of an f64.
        bits: u64,
        /// What would do.
        expected: &'static str,
    },
    /// A range of integers is empty, or goes beyond its element type.
    #[error(
        "{kernel}: no integers of {dtype} from {from} on and below {to}; there has to be one, within {least} ..= {most}"
    )]
    RandomRange {
        /// The kernel.
        kernel: Builtin,
        /// The element type.
        dtype: DType,
        /// The smallest integer asked for.
        from: i128,
        /// The first integer above the range.
        to: i128,
        /// The smallest integer that the type reaches.
        least: i128,
        /// The largest integer that the type reaches.
        most: i128,
    },
    /// A random fill has more elements than fit into memory, or a permutation more than its type has numbers.
    #[error("{kernel}: {count} elements of {dtype} are too many")]
    RandomCount {
        /// The kernel.
        kernel: Builtin,
        /// The element type.
        dtype: DType,
        /// Number of elements asked for.
        count: u64,
    },
    /// Permutations exist in the portable layout only.
    #[error("{kernel}: no torch-cuda layout; use the portable one")]
    RandomLayout {
        /// The kernel.
        kernel: Builtin,
    },
    /// A field of the parameters has no meaning.
    #[error("{kernel}: no {field} has the number {value}")]
    RandomField {
        /// The kernel.
        kernel: Builtin,
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// A range of elements is not within the fill.
    #[error("{kernel}: elements {start}..{end} of {count}")]
    RandomElements {
        /// The kernel.
        kernel: Builtin,
        /// The first element asked for.
        start: u64,
        /// The element after the last one asked for.
        end: u64,
        /// Number of elements of the fill.
        count: u64,
    },
    /// The destination has not exactly the room that the elements take.
    #[error(
        "{kernel}: {count} elements of {dtype} take {} bytes, but there are {len}",
        *count as u128 * dtype.size() as u128
    )]
    RandomLength {
        /// The kernel.
        kernel: Builtin,
        /// The element type.
        dtype: DType,
        /// Number of elements to write.
        count: u64,
        /// Length of the destination in bytes.
        len: usize,
    },
    /// Seed and offset are in the cell, but the cell has the wrong size.
    #[error("{kernel}: a cell of {len} bytes, but seed and offset are 16 bytes long")]
    RandomCell {
        /// The kernel.
        kernel: Builtin,
        /// Length of the cell in bytes.
        len: usize,
    },
}

impl KernelError {
    /// The fault of a launch, of that call.
    pub fn fault(&self, api: &'static str) -> Fault {
        match self {
            // The device lacks it, whatever the arguments: somebody else can do it.
            Self::NoDouble { .. } => Fault::unsupported(api).note(self.to_string()),
            _ => Fault::invalid(api, self.to_string()),
        }
    }

    pub(crate) const fn random_argument(
        kernel: Builtin,
        argument: &'static str,
        value: f64,
        expected: &'static str,
    ) -> KernelError {
        KernelError::RandomArgument { kernel, argument, bits: value.to_bits(), expected }
    }
}
