//! The reference against values written out from the formats' definitions and PyTorch's rules, and against the `half` crate.

use super::*;

/// Converts one element given and expected as bits.
fn one(src: DType, bits: u64, dst: DType) -> u64 {
    let mut out = [0; 16];
    let (from, to) = (src.size().min(8), dst.size());
    let mut input = [0; 16];
    input[..from].copy_from_slice(&bits.to_le_bytes()[..from]);
    reference::convert(dst, &mut out[..to], src, &input[..src.size()]).unwrap();
    u64::from_le_bytes(*out.first_chunk().unwrap())
}

fn from_f32(value: f32, dst: DType) -> u64 {
    one(DType::F32, value.to_bits().into(), dst)
}

fn from_f64(value: f64, dst: DType) -> u64 {
    one(DType::F64, value.to_bits(), dst)
}

fn to_f32(src: DType, bits: u64) -> f32 {
    f32::from_bits(one(src, bits, DType::F32) as u32)
}

#[test]
fn codes_stand_for_the_numbers_of_their_format() {
    let two_to = |n: i32| 2_f64.powi(n) as f32;
    for (dtype, code, value) in [
        (DType::F16, 0x3c00, 1.0),
        (DType::F16, 0x7bff, 65504.0),
        (DType::F16, 0x0001, two_to(-24)),
        (DType::F16, 0xfc00, f32::NEG_INFINITY),
        (DType::Bf16, 0x3fc0, 1.5),
        (DType::Bf16, 0x8001, -two_to(-133)),
        (DType::F8E4m3fn, 0x38, 1.0),
        (DType::F8E4m3fn, 0x7e, 448.0),
        (DType::F8E4m3fn, 0x08, two_to(-6)),
        (DType::F8E4m3fn, 0x81, -two_to(-9)),
        (DType::F8E5m2, 0x3c, 1.0),
        (DType::F8E5m2, 0x7b, 57344.0),
        (DType::F8E5m2, 0x01, two_to(-16)),
        (DType::F8E5m2, 0xfc, f32::NEG_INFINITY),
        (DType::F8E4m3fnuz, 0x40, 1.0),
        (DType::F8E4m3fnuz, 0x7f, 240.0),
        (DType::F8E4m3fnuz, 0x01, two_to(-10)),
        (DType::F8E4m3fnuz, 0xff, -240.0),
        (DType::F8E5m2fnuz, 0x40, 1.0),
        (DType::F8E5m2fnuz, 0x7f, 57344.0),
        (DType::F8E5m2fnuz, 0x01, two_to(-17)),
        (DType::F8E8m0fnu, 0x7f, 1.0),
        (DType::F8E8m0fnu, 0x00, two_to(-127)),
        (DType::F8E8m0fnu, 0xfe, two_to(127)),
    ] {
        assert_eq!(to_f32(dtype, code), value, "{dtype} {code:#x}");
    }
    for (dtype, code) in [
        (DType::F8E4m3fn, 0x7f),
        (DType::F8E4m3fn, 0xff),
        (DType::F8E5m2, 0x7d),
        (DType::F8E4m3fnuz, 0x80),
        (DType::F8E5m2fnuz, 0x80),
        (DType::F8E8m0fnu, 0xff),
    ] {
        assert!(to_f32(dtype, code).is_nan(), "{dtype} {code:#x}");
    }
}

#[test]
fn float8_rounds_to_even_and_overflows_as_pytorch_does() {
    let inf = f32::INFINITY;
    for (dtype, value, code) in [
        (DType::F8E4m3fn, 464.0, 0x7e),
        (DType::F8E4m3fn, 464.1, 0x7f),
        (DType::F8E4m3fn, 1e9, 0x7f),
        (DType::F8E4m3fn, -inf, 0xff),
        (DType::F8E4m3fn, -0.0, 0x80),
        (DType::F8E4m3fn, 1.0625, 0x38),
        (DType::F8E4m3fn, 1.1875, 0x3a),
        (DType::F8E5m2, 61439.0, 0x7b),
        (DType::F8E5m2, 61440.0, 0x7c),
        (DType::F8E5m2, -inf, 0xfc),
        (DType::F8E5m2, -0.0, 0x80),
        (DType::F8E4m3fnuz, 247.9, 0x7f),
        (DType::F8E4m3fnuz, 248.0, 0x80),
        (DType::F8E4m3fnuz, inf, 0x80),
        (DType::F8E4m3fnuz, -0.0, 0x00),
        (DType::F8E4m3fnuz, -1.0, 0xc0),
        (DType::F8E4m3fnuz, -(2_f32.powi(-11)), 0x00),
        (DType::F8E4m3fnuz, -1.01 * 2_f32.powi(-11), 0x81),
        (DType::F8E5m2fnuz, 61439.0, 0x7f),
        (DType::F8E5m2fnuz, 61440.0, 0x80),
        (DType::F8E5m2fnuz, -inf, 0x80),
        (DType::F8E5m2fnuz, -1e-30, 0x00),
        (DType::F8E8m0fnu, 1.49, 0x7f),
        (DType::F8E8m0fnu, 1.5, 0x80),
        (DType::F8E8m0fnu, -4.0, 0x81),
        (DType::F8E8m0fnu, 0.0, 0x00),
        (DType::F8E8m0fnu, f32::from_bits(0x0040_0000), 0x00),
        (DType::F8E8m0fnu, f32::from_bits(0x0040_0001), 0x01),
        (DType::F8E8m0fnu, 2.5e38, 0xfe),
        (DType::F8E8m0fnu, 3e38, 0xff),
        (DType::F8E8m0fnu, inf, 0xff),
    ] {
        assert_eq!(from_f32(value, dtype), code, "{value:?} to {dtype}");
    }
    let negative_nan = f32::from_bits(0xffc0_0000);
    for (dtype, nan, negative) in [
        (DType::F8E4m3fn, 0x7f, 0xff),
        (DType::F8E5m2, 0x7f, 0xff),
        (DType::F8E4m3fnuz, 0x80, 0x80),
        (DType::F8E5m2fnuz, 0x80, 0x80),
        (DType::F8E8m0fnu, 0xff, 0xff),
    ] {
        assert_eq!(from_f32(f32::NAN.abs(), dtype), nan, "{dtype}");
        assert_eq!(from_f32(negative_nan, dtype), negative, "{dtype}");
    }
}

#[test]
fn narrow_types_are_reached_by_way_of_float32() {
    // A little above half-way between two values, by less than float32 can hold: half-way after the first rounding.
    let above_half = 1.0 + 2_f64.powi(-11) + 2_f64.powi(-40);
    assert_eq!(from_f64(above_half, DType::F16), 0x3c00);
    assert_eq!(from_f64(above_half.next_down(), DType::C32), 0x3c00);
    let above_half = 1.0 + 2_f64.powi(-4) + 2_f64.powi(-40);
    assert_eq!(from_f64(above_half, DType::F8E4m3fn), 0x38);
    assert_eq!(one(DType::I64, (1 << 40) + (1 << 32) + 1, DType::Bf16), 0x5380);
    assert_eq!(one(DType::U64, u64::MAX, DType::F32), 0x5f80_0000);
    assert_eq!(one(DType::I64, u64::MAX, DType::F16), 0xbc00);
    assert_eq!(one(DType::I32, 65520, DType::F16), 0x7c00);
}

#[test]
fn floats_are_truncated_and_held_within_the_integer() {
    for (value, dtype, want) in [
        (-1.9, DType::I8, 0xff),
        (1.9, DType::U8, 1),
        (-1.0, DType::U8, 0),
        (300.0, DType::U8, 255),
        (300.0, DType::I8, 127),
        (-300.0, DType::I8, 0x80),
        (f64::NAN, DType::I64, 0),
        (f64::INFINITY, DType::I64, i64::MAX as u64),
        (f64::NEG_INFINITY, DType::I64, i64::MIN as u64),
        (1e30, DType::U64, u64::MAX),
        (4294967295.9, DType::U32, 0xffff_ffff),
        (-2147483649.0, DType::I32, 0x8000_0000),
        (9007199254740993.0, DType::I64, 9007199254740992),
    ] {
        assert_eq!(from_f64(value, dtype), want, "{value} to {dtype}");
    }
}

#[test]
fn integers_keep_their_low_bits() {
    assert_eq!(one(DType::I32, 0x1_23, DType::U8), 0x23);
    assert_eq!(one(DType::I8, 0xff, DType::U64), u64::MAX);
    assert_eq!(one(DType::U8, 0xff, DType::I64), 255);
    assert_eq!(one(DType::U64, 1 << 63, DType::I64), 1 << 63);
}

#[test]
fn truth_is_being_other_than_zero() {
    for (dtype, bits, truth) in [
        (DType::F32, 0x8000_0000, 0),
        (DType::F32, 1, 1),
        (DType::F32, 0x7fc0_0000, 1),
        (DType::F16, 0x8000, 0),
        (DType::Bf16, 0xffff, 1),
        (DType::F64, 1 << 63, 0),
        (DType::U64, 1 << 32, 1),
        (DType::I16, 0x0100, 1),
        (DType::C64, 0x8000_0000_8000_0000, 0),
        (DType::C64, 0x0000_0001_0000_0000, 1),
        (DType::C32, 0x7e00_0000, 1),
        (DType::F8E4m3fn, 0x80, 0),
        (DType::F8E4m3fnuz, 0x80, 1),
        (DType::F8E8m0fnu, 0x00, 1),
        (DType::Bool, 2, 2),
    ] {
        assert_eq!(one(dtype, bits, DType::Bool), truth, "{dtype} {bits:#x}");
    }
    assert_eq!(one(DType::Bool, 2, DType::I32), 1);
    assert_eq!(one(DType::Bool, 1, DType::Bf16), 0x3f80);
}

#[test]
fn complex_numbers_keep_or_get_their_parts() {
    assert_eq!(one(DType::C64, 0x4000_0000_3f80_0000, DType::C32), 0x4000_3c00);
    assert_eq!(one(DType::C64, 0x4000_0000_3f80_0000, DType::I32), 1);
    assert_eq!(one(DType::C32, 0x4000_3c00, DType::C64), 0x4000_0000_3f80_0000);
    assert_eq!(one(DType::I16, 0xffff, DType::C64), 0x0000_0000_bf80_0000);
    let mut out = [0xff; 16];
    reference::convert(DType::C128, &mut out, DType::C32, &[0, 0x3c, 0, 0xc0]).unwrap();
    assert_eq!(out[..8], 1.0_f64.to_le_bytes());
    assert_eq!(out[8..], (-2.0_f64).to_le_bytes());
}

#[test]
fn halves_agree_with_another_implementation() {
    for value in telling_f32() {
        let (f16, bf16) = (half::f16::from_f32(value), half::bf16::from_f32(value));
        let (got_f16, got_bf16) = (from_f32(value, DType::F16), from_f32(value, DType::Bf16));
        if value.is_nan() {
            assert!(half::f16::from_bits(got_f16 as u16).is_nan());
            assert!(half::bf16::from_bits(got_bf16 as u16).is_nan());
        } else {
            assert_eq!(got_f16, u64::from(f16.to_bits()), "{value:?}");
            assert_eq!(got_bf16, u64::from(bf16.to_bits()), "{value:?}");
        }
    }
    for code in 0..=u16::MAX {
        let (f16, bf16) = (half::f16::from_bits(code), half::bf16::from_bits(code));
        let (got_f16, got_bf16) = (to_f32(DType::F16, code.into()), to_f32(DType::Bf16, code.into()));
        assert!(got_f16 == f16.to_f32() || got_f16.is_nan() && f16.is_nan());
        assert!(got_bf16 == bf16.to_f32() || got_bf16.is_nan() && bf16.is_nan());
    }
}
