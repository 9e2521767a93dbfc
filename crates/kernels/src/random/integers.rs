//! Integers of a range.

use super::draw::{Draw, Layout};
use super::fill::Fill;
use crate::{Builtin, KernelError};
use anyaccel_hal::DType;

/// The upper half of the product of 64 bits with the range.
pub(super) const PRODUCT: u32 = 0;
/// The remainder of 64 bits.
pub(super) const REMAINDER_64: u32 = 1;
/// The remainder of 32 bits.
pub(super) const REMAINDER_32: u32 = 2;

/// From this range on PyTorch draws 64 bits.
const WIDE: u128 = 1 << 28;

impl Fill {
    /// Integers from `from` on and below `to`, each equally likely but for 1 part in 2^64 (in the torch-cuda layout: 1 part in 16),
    /// also where the elements are floats, which then round what they don't hold. Refused unless `from < to` and the type
    /// reaches from `from` to `to - 1`.
    pub fn integers(dtype: DType, count: u64, draw: Draw, from: i128, to: i128) -> Result<Fill, KernelError> {
        let kernel = Builtin::RandomIntegers;
        let (least, most) = limits(dtype).ok_or(KernelError::RandomDType { kernel, dtype })?;
        if from >= to || from < least || to - 1 > most {
            return Err(KernelError::RandomRange { kernel, dtype, from, to, least, most });
        }
        let range = (to - from) as u128;
        let reduction = match draw.layout {
            Layout::Portable => PRODUCT,
            Layout::TorchCuda { .. } if range >= WIDE => REMAINDER_64,
            Layout::TorchCuda { .. } => REMAINDER_32,
        };
        // With all 64 bits there is nothing to shift: every number occurs. PyTorch doesn't, so the bits differ if we did.
        let base = if range == 1 << 64 { 0 } else { from as u64 };
        Fill::with_reduction(kernel, dtype, count, draw, [range as u64, base, 0], reduction)
    }

    /// What PyTorch's `random_()` draws where no range is given: from 0 to the largest value of an integer type, or to the
    /// end of the integers that a float type holds without a gap.
    pub fn whole_numbers(dtype: DType, count: u64, draw: Draw) -> Result<Fill, KernelError> {
        let kernel = Builtin::RandomIntegers;
        let most: u64 = match dtype {
            DType::Bf16 => 1 << 8,
            DType::F16 => 1 << 11,
            DType::F32 => 1 << 24,
            DType::F64 => 1 << 53,
            _ => limits(dtype).ok_or(KernelError::RandomDType { kernel, dtype })?.1 as u64,
        };
        let reduction = match (draw.layout, dtype) {
            (Layout::Portable, _) => PRODUCT,
            (_, DType::F64 | DType::I64 | DType::U64) => REMAINDER_64,
            _ => REMAINDER_32,
        };
        // 2^64 is written as 0.
        Fill::with_reduction(kernel, dtype, count, draw, [most.wrapping_add(1), 0, 0], reduction)
    }
}

/// The least and the largest integer that a type reaches, within 64 bits.
fn limits(dtype: DType) -> Option<(i128, i128)> {
    use DType::*;
    let signed = |bits: u32| (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1);
    let unsigned = |bits: u32| (0, (1_i128 << bits) - 1);
    let bits = dtype.size() as u32 * 8;
    match dtype {
        Bool => Some((0, 1)),
        U8 | U16 | U32 | U64 => Some(unsigned(bits)),
        I8 | I16 | I32 | I64 => Some(signed(bits)),
        F16 => Some((-65504, 65504)),
        Bf16 | F32 | F64 => Some(signed(64)),
        _ => None,
    }
}
