//! Floating-point types narrower than `float32`, to and from it, bit by bit.
//!
//! Nothing here branches: both sides of each choice are computed and one is selected, so that loops over these functions
//! become vector code. Codes and bits are u32 with the sign apart, as one width vectorises best.

const F32_INFINITY: u32 = 0x7f80_0000;
const F32_NAN: u32 = 0x7fc0_0000;
const F32_MANTISSA: u32 = 23;

/// The magnitude of a code with `M` mantissa bits and the given bias, by the formula alone: codes that stand for infinity
/// or NaN come out as the number that they would be otherwise.
#[inline(always)]
fn widen<const M: u32, const BIAS: u32>(code: u32) -> f32 {
    let shifted = code << (F32_MANTISSA - M);
    let normal = shifted + ((127 - BIAS) << F32_MANTISSA);
    // A subnormal code counts steps from 0. Put behind the leading one of the smallest normal number, they count the same
    // steps from there, and the difference is exact.
    let smallest = (128 - BIAS) << F32_MANTISSA;
    let subnormal = f32::from_bits(smallest + shifted) - f32::from_bits(smallest);
    if code >> M == 0 { subnormal } else { f32::from_bits(normal) }
}

/// The code nearest to a magnitude given as the bits of an `f32` without sign, ties to even, by the formula alone. The
/// result means something below the magnitude that the first unusable power of two has; the caller handles the rest.
#[inline(always)]
fn narrow<const M: u32, const BIAS: u32>(bits: u32) -> u32 {
    let dropped = F32_MANTISSA - M;
    let odd = (bits >> dropped) & 1;
    let rounded = bits.wrapping_add((1 << (dropped - 1)) - 1 + odd);
    let normal = rounded.wrapping_sub((127 - BIAS) << F32_MANTISSA) >> dropped;
    // Added to a number whose last bit weighs as much as the last bit of a subnormal code, the value is rounded by the
    // addition itself, and the code is what was added to the bits.
    let ruler = (127 - BIAS + dropped + 1) << F32_MANTISSA;
    let ruled = f32::from_bits(bits) + f32::from_bits(ruler);
    let subnormal = ruled.to_bits().wrapping_sub(ruler);
    if bits < (128 - BIAS) << F32_MANTISSA { subnormal } else { normal }
}

/// The magnitude and the sign (0 or 0x8000_0000) of an `f32`.
#[inline(always)]
fn parts(value: f32) -> (u32, u32) {
    let bits = value.to_bits();
    (bits & 0x7fff_ffff, bits & 0x8000_0000)
}

#[inline(always)]
fn signed(magnitude: f32, sign: u32) -> f32 {
    f32::from_bits(magnitude.to_bits() | sign)
}

/// Bits of an IEEE type with infinities from the code `INF` on.
#[inline(always)]
fn widen_ieee<const M: u32, const BIAS: u32, const INF: u32>(code: u32, sign: u32) -> f32 {
    let special = F32_INFINITY | ((code - (code & INF)) << (F32_MANTISSA - M));
    let finite = widen::<M, BIAS>(code);
    signed(if code >= INF { f32::from_bits(special) } else { finite }, sign)
}

/// The code of an IEEE type with infinities from the code `INF` on; any NaN becomes the code `NAN`.
#[inline(always)]
fn narrow_ieee<const M: u32, const BIAS: u32, const INF: u32, const NAN: u32>(bits: u32) -> u32 {
    let limit = ((INF >> M) + 127 - BIAS) << F32_MANTISSA;
    let finite = narrow::<M, BIAS>(bits);
    let code = if bits >= limit { INF } else { finite };
    if bits > F32_INFINITY { NAN } else { code }
}

#[inline(always)]
pub(super) fn f16_to_f32(x: u16) -> f32 {
    let x = u32::from(x);
    widen_ieee::<10, 15, 0x7c00>(x & 0x7fff, (x & 0x8000) << 16)
}

#[inline(always)]
pub(super) fn f32_to_f16(x: f32) -> u16 {
    let (bits, sign) = parts(x);
    (narrow_ieee::<10, 15, 0x7c00, 0x7e00>(bits) | sign >> 16) as u16
}

#[inline(always)]
pub(super) fn bf16_to_f32(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// The exponent is that of `f32`, so rounding the bits rounds subnormal numbers and carries into infinity as well.
#[inline(always)]
pub(super) fn f32_to_bf16(x: f32) -> u16 {
    let (bits, sign) = parts(x);
    let rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    let code = if bits > F32_INFINITY { F32_NAN >> 16 } else { rounded };
    (code | sign >> 16) as u16
}

#[inline(always)]
pub(super) fn e5m2_to_f32(x: u8) -> f32 {
    let x = u32::from(x);
    widen_ieee::<2, 15, 0x7c>(x & 0x7f, (x & 0x80) << 24)
}

#[inline(always)]
pub(super) fn f32_to_e5m2(x: f32) -> u8 {
    let (bits, sign) = parts(x);
    (narrow_ieee::<2, 15, 0x7c, 0x7f>(bits) | sign >> 24) as u8
}

#[inline(always)]
pub(super) fn e4m3fn_to_f32(x: u8) -> f32 {
    let x = u32::from(x);
    let finite = widen::<3, 7>(x & 0x7f);
    let magnitude = if x & 0x7f == 0x7f { f32::from_bits(F32_NAN) } else { finite };
    signed(magnitude, (x & 0x80) << 24)
}

/// 480 is the number that the code of NaN would be; what rounds there carries into that code by itself.
#[inline(always)]
pub(super) fn f32_to_e4m3fn(x: f32) -> u8 {
    let (bits, sign) = parts(x);
    let finite = narrow::<3, 7>(bits);
    let code = if bits >= 480_f32.to_bits() { 0x7f } else { finite };
    (code | sign >> 24) as u8
}

#[inline(always)]
fn fnuz_to_f32<const M: u32, const BIAS: u32>(x: u8) -> f32 {
    let x = u32::from(x);
    let number = signed(widen::<M, BIAS>(x & 0x7f), (x & 0x80) << 24);
    if x == 0x80 { f32::from_bits(F32_NAN) } else { number }
}

/// What rounds past the largest magnitude carries into bit 7, and zero must not have that bit set: both by the same rule,
/// since 0x80 is NaN.
#[inline(always)]
fn f32_to_fnuz<const M: u32, const BIAS: u32>(x: f32) -> u8 {
    let (bits, sign) = parts(x);
    let limit = ((0x80 >> M) + 127 - BIAS) << F32_MANTISSA;
    let finite = narrow::<M, BIAS>(bits);
    let code = if finite == 0 { 0 } else { finite | sign >> 24 };
    (if bits >= limit || finite >= 0x80 { 0x80 } else { code }) as u8
}

#[inline(always)]
pub(super) fn e4m3fnuz_to_f32(x: u8) -> f32 {
    fnuz_to_f32::<3, 8>(x)
}

#[inline(always)]
pub(super) fn f32_to_e4m3fnuz(x: f32) -> u8 {
    f32_to_fnuz::<3, 8>(x)
}

#[inline(always)]
pub(super) fn e5m2fnuz_to_f32(x: u8) -> f32 {
    fnuz_to_f32::<2, 16>(x)
}

#[inline(always)]
pub(super) fn f32_to_e5m2fnuz(x: f32) -> u8 {
    f32_to_fnuz::<2, 16>(x)
}

/// 2^-127 is subnormal in `f32`: the one code whose bits are not just the exponent.
#[inline(always)]
pub(super) fn e8m0fnu_to_f32(x: u8) -> f32 {
    let x = u32::from(x);
    let power = if x == 0 { 1 << (F32_MANTISSA - 1) } else { x << F32_MANTISSA };
    f32::from_bits(if x == 0xff { F32_NAN } else { power })
}

/// The half-way point belongs to the larger power, except below 2^-126, where the "half-way point" is 2^-127 itself.
#[inline(always)]
pub(super) fn f32_to_e8m0fnu(x: f32) -> u8 {
    const HALF: u32 = 1 << (F32_MANTISSA - 1);
    let (bits, _) = parts(x);
    let exponent = bits >> F32_MANTISSA;
    let mantissa = bits & ((1 << F32_MANTISSA) - 1);
    let threshold = if exponent == 0 { HALF + 1 } else { HALF };
    let code = exponent + u32::from(mantissa >= threshold);
    (if exponent == 0xff { 0xff } else { code }) as u8
}
