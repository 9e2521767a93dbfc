//! What is wrong with the arguments of a built-in.

use crate::Builtin;
use anyaccel_hal::DType;

/// The arguments of a built-in do not fit together. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
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
}
