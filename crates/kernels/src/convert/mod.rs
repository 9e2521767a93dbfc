//! Converts elements from one type to another, each type to each.
//!
//! - Number: [`Builtin::Convert`], 3.
//! - Arguments: the destination, the source, then [`Params`]. Neither needs any alignment; they may not overlap.
//! - Split: chunks of [`CHUNK`] elements.
//!
//! # What a conversion gives
//!
//! The rules are those of PyTorch's CPU `Tensor.to`, wherever it defines a result:
//!
//! | from | to | result |
//! |---|---|---|
//! | any | itself | the same bytes |
//! | any | bool | false for 0 and -0, else true; NaN is true; a complex number is true if either part is |
//! | bool | number | 0 or 1 |
//! | integer | integer | the low bits, as a cast in C |
//! | integer | float | to nearest, ties to even |
//! | float | integer | truncated towards 0; **out of range goes to the nearest value of the type, NaN to 0** |
//! | float | float | to nearest, ties to even; too large becomes infinity, or NaN where the type has none |
//! | complex | complex | part by part |
//! | complex | real | the real part |
//! | real | complex | the imaginary part is 0 |
//!
//! - PyTorch leaves out-of-range float to integer conversions to the compiler and the chip. Here they have one result,
//!   that of Rust's `as`, on every backend. (PyTorch's uint8 wraps around by way of int64: -1.0 gives 255 there, 0 here.)
//! - `float16`, `bfloat16`, the float8 types and the parts of `complex32` are reached by way of `float32`, as in PyTorch:
//!   a `float64` or `int64` is rounded to `float32` first and then again.
//! - `float8_e4m3fn` and the `fnuz` types have no infinity: infinities and values that round past the largest become NaN.
//!   The `fnuz` types have no negative zero either: it becomes 0.
//! - `float8_e8m0fnu` has neither sign nor zero. The sign is dropped; infinities and NaN become NaN, as does what rounds
//!   past 2^127. Between two powers of two the rule is "up from half-way on", and anything between 2^-127 and 2^-126
//!   goes up: this is what PyTorch does. Zero and what is smaller than 2^-127 become 2^-127.
//! - A NaN stays a NaN; its sign and payload are unspecified, except that a float8 NaN has the payload that PyTorch gives
//!   it: all bits below the sign set in `e4m3fn` and `e5m2`, `0x80` in the `fnuz` types, `0xff` in `e8m0fnu`.

mod loops;
pub mod reference;
mod route;
mod small;

use crate::cpu::Isa;
use crate::{Builtin, KernelError, Split};
use anyaccel_hal::DType;

/// Elements in a chunk: 64 KiB to 1 MiB on either side.
pub const CHUNK: u64 = 1 << 16;

/// The parameters: 16 bytes, alignment 8.
///
/// | bytes | content |
/// |---|---|
/// | 0..8 | number of elements, u64 |
/// | 8..12 | [`DType::number`] of the source, u32 |
/// | 12..16 | [`DType::number`] of the destination, u32 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Params {
    /// Number of elements.
    pub count: u64,
    /// [`DType::number`] of the source.
    pub src: u32,
    /// [`DType::number`] of the destination.
    pub dst: u32,
}

const _: () = assert!(size_of::<Params>() == 16 && align_of::<Params>() == 8);

impl Params {
    /// The parameters of a conversion of `count` elements.
    pub const fn new(dst: DType, src: DType, count: u64) -> Params {
        Params { count, src: src.number() as u32, dst: dst.number() as u32 }
    }

    /// The bytes as they are passed to the kernel.
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.src.to_le_bytes());
        bytes[12..].copy_from_slice(&self.dst.to_le_bytes());
        bytes
    }

    /// Reads what [`to_bytes`](Params::to_bytes) wrote. [`dst_dtype`](Params::dst_dtype) and
    /// [`src_dtype`](Params::src_dtype) check the numbers.
    pub fn from_bytes(bytes: &[u8]) -> Result<Params, KernelError> {
        if let Some((&count, rest)) = bytes.split_first_chunk()
            && let Some((&src, dst)) = rest.split_first_chunk()
            && let Ok(dst) = dst.try_into()
        {
            return Ok(Params {
                count: u64::from_le_bytes(count),
                src: u32::from_le_bytes(src),
                dst: u32::from_le_bytes(dst),
            });
        }
        Err(KernelError::ParamsSize { kernel: Builtin::Convert, given: bytes.len() })
    }

    /// The element type of the destination.
    pub fn dst_dtype(&self) -> Result<DType, KernelError> {
        dtype(self.dst)
    }

    /// The element type of the source.
    pub fn src_dtype(&self) -> Result<DType, KernelError> {
        dtype(self.src)
    }
}

fn dtype(number: u32) -> Result<DType, KernelError> {
    let known = u8::try_from(number).ok().and_then(DType::from_number);
    known.ok_or(KernelError::UnknownDType { number })
}

/// The chunks of a conversion of `count` elements.
pub const fn split(count: u64) -> Split {
    Split::new(count, CHUNK)
}

/// Converts all elements of `src`. `dst` must have room for exactly as many.
pub fn convert(dst_dtype: DType, dst: &mut [u8], src_dtype: DType, src: &[u8]) -> Result<(), KernelError> {
    check(dst_dtype, dst, src_dtype, src)?;
    route::run(Isa::best(), dst_dtype, dst, src_dtype, src);
    Ok(())
}

/// [`convert`] at a level of instructions, between lengths that fit together.
pub(crate) fn convert_with(isa: Isa, dst_dtype: DType, dst: &mut [u8], src_dtype: DType, src: &[u8]) {
    route::run(isa, dst_dtype, dst, src_dtype, src);
}

/// The nearest `float16`.
pub(crate) fn narrow_f16(x: f32) -> f32 {
    small::f16_to_f32(small::f32_to_f16(x))
}

/// The nearest `bfloat16`.
pub(crate) fn narrow_bf16(x: f32) -> f32 {
    small::bf16_to_f32(small::f32_to_bf16(x))
}

/// Whether the lengths fit together; gives the number of elements.
fn check(dst_dtype: DType, dst: &[u8], src_dtype: DType, src: &[u8]) -> Result<usize, KernelError> {
    let count = src.len() / src_dtype.size();
    if !src.len().is_multiple_of(src_dtype.size()) {
        return Err(KernelError::SourceLength { dtype: src_dtype, len: src.len() });
    }
    if count.checked_mul(dst_dtype.size()) != Some(dst.len()) {
        return Err(KernelError::DestinationLength { dtype: dst_dtype, count, len: dst.len() });
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
