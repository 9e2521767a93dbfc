//! The fast code against the reference, on every pair of types, at every level of instructions.
//! The reference itself is held against written-out values in `definition`.

use super::*;
use crate::cpu::Isa;

mod definition;

/// Small deterministic random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
}

/// Whether a real element is a NaN of which more than one will do.
fn is_nan(dtype: DType, bytes: &[u8]) -> bool {
    let bits = bytes.iter().rev().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
    let (magnitude, infinity) = match dtype {
        DType::F16 => (bits & 0x7fff, 0x7c00),
        DType::Bf16 => (bits & 0x7fff, 0x7f80),
        DType::F32 => (bits & 0x7fff_ffff, 0x7f80_0000),
        DType::F64 => (bits & (u64::MAX >> 1), 0x7ff0_0000_0000_0000),
        // Of these only the NaN with all bits set is free in its sign; the others' payload is part of the contract.
        DType::F8E4m3fn | DType::F8E5m2 => (bits & 0x7f, 0x7e),
        _ => return false,
    };
    magnitude > infinity
}

/// The same bytes, or both a NaN where its payload is unspecified.
fn agree(dtype: DType, got: &[u8], want: &[u8]) -> bool {
    let part = dtype.component().unwrap_or(dtype);
    let parts = got.chunks(part.size()).zip(want.chunks(part.size()));
    got == want || parts.into_iter().all(|(a, b)| a == b || is_nan(part, a) && is_nan(part, b))
}

/// Holds all levels against the reference on these source elements, for every destination type.
fn check_all(src_dtype: DType, src: &[u8]) {
    for &dst_dtype in DType::ALL {
        let len = src.len() / src_dtype.size() * dst_dtype.size();
        let mut want = vec![0xa5; len];
        reference::convert(dst_dtype, &mut want, src_dtype, src).unwrap();
        for isa in Isa::available() {
            let mut got = vec![0x5a; len];
            route::run(isa, dst_dtype, &mut got, src_dtype, src);
            if agree(dst_dtype, &got, &want) {
                continue;
            }
            let (from, to) = (src_dtype.size(), dst_dtype.size());
            for (i, (got, want)) in got.chunks(to).zip(want.chunks(to)).enumerate() {
                let src = &src[i * from..][..from];
                assert!(
                    agree(dst_dtype, got, want),
                    "{isa:?}: {src_dtype} {src:02x?} to {dst_dtype}: got {got:02x?}, not {want:02x?}"
                );
            }
        }
    }
}

/// Every code of a 16-bit type, or of the two halves of a 32-bit one as far as they are independent.
fn all_16_bit_codes() -> Vec<u8> {
    (0..=u16::MAX).flat_map(u16::to_le_bytes).collect()
}

/// `f32` values at which the rounding to a narrow type changes: each of its codes, the points half-way between, and the
/// neighbours of both; then every power of two and the limits of the integers.
fn telling_f32() -> Vec<f32> {
    let mut values = vec![0.0, f32::INFINITY, f32::NAN, f32::from_bits(0x7f80_0001)];
    let mut with_neighbours = |x: f32| values.extend([x.next_down(), x, x.next_up()]);
    for dtype in DType::ALL.iter().filter(|dtype| dtype.is_floating_point() && dtype.size() <= 2) {
        let codes: Vec<u8> = match dtype.size() {
            1 => (0..=u8::MAX).collect(),
            // Every 7th bfloat16 still meets each exponent; all of them would take long.
            _ => (0..=u16::MAX).step_by(7).flat_map(u16::to_le_bytes).collect(),
        };
        let mut floats = vec![0; codes.len() / dtype.size() * 4];
        reference::convert(DType::F32, &mut floats, *dtype, &codes).unwrap();
        let floats: Vec<f32> = floats.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let finite = floats.iter().copied().filter(|x| x.is_finite());
        for x in finite.clone() {
            with_neighbours(x);
        }
        let ulp = |x: f32| 2_f64.powi((x.abs().log2().floor() as i32).max(-126));
        for x in finite.filter(|x| *x != 0.0) {
            for mantissa_bits in [0, 2, 3, 7, 10] {
                let half = ulp(x) * 0.5_f64.powi(mantissa_bits + 1);
                with_neighbours((f64::from(x) + half) as f32);
            }
        }
    }
    for exponent in -149..128 {
        let power = 2_f64.powi(exponent);
        for factor in [1.0, 1.25, 1.5, 1.75] {
            with_neighbours((power * factor) as f32);
            with_neighbours((-power * factor) as f32);
        }
    }
    values
}

/// Integers at which something changes, as 64 bits of which a narrower type takes the low ones.
fn telling_integers() -> Vec<u64> {
    let mut values = Vec::new();
    for bit in 0..64 {
        let power = 1_u64 << bit;
        for delta in -2..=2 {
            values.push(power.wrapping_add_signed(delta));
            values.push(power.wrapping_neg().wrapping_add_signed(delta));
        }
        // Ties of float32 (24 bits) and float64 (53 bits) and their neighbours.
        for drop in [24, 53].into_iter().filter(|drop| bit >= *drop) {
            let half = 1_u64 << (bit - drop);
            for odd in [half, half * 3] {
                values.extend([power + odd - 1, power + odd, power + odd + 1]);
            }
        }
    }
    let mut random = Random(1);
    values.extend((0..4000).map(|_| random.next() >> (random.next() % 64)));
    values
}

#[test]
fn every_8_bit_source_value() {
    let codes: Vec<u8> = (0..=u8::MAX).collect();
    for dtype in DType::ALL.iter().filter(|dtype| dtype.size() == 1) {
        check_all(*dtype, &codes);
    }
}

#[test]
fn every_16_bit_source_value() {
    let codes = all_16_bit_codes();
    for dtype in DType::ALL.iter().filter(|dtype| dtype.size() == 2) {
        check_all(*dtype, &codes);
    }
}

#[test]
fn every_part_of_complex32() {
    let mut other = Random(2);
    let with_other = |code: u16| [code, if code & 3 == 0 { 0 } else { other.next() as u16 }];
    let codes: Vec<u8> = (0..=u16::MAX).flat_map(with_other).flat_map(u16::to_le_bytes).collect();
    check_all(DType::C32, &codes);
}

#[test]
fn telling_and_random_integers() {
    let values = telling_integers();
    for dtype in [DType::U32, DType::I32, DType::U64, DType::I64] {
        let low = |value: &u64| value.to_le_bytes()[..dtype.size()].to_vec();
        check_all(dtype, &values.iter().flat_map(low).collect::<Vec<u8>>());
    }
}

#[test]
fn telling_and_random_floats() {
    let mut random = Random(3);
    let mut singles = telling_f32();
    singles.extend((0..20_000).map(|_| f32::from_bits(random.next() as u32)));
    let bytes: Vec<u8> = singles.iter().flat_map(|x| x.to_le_bytes()).collect();
    check_all(DType::F32, &bytes);
    check_all(DType::C64, &bytes[..bytes.len() / 8 * 8]);
}

#[test]
fn telling_and_random_doubles() {
    let mut random = Random(4);
    let mut doubles = vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for x in telling_f32().into_iter().step_by(3).map(f64::from) {
        doubles.extend([x.next_down(), x, x.next_up()]);
    }
    for value in telling_integers() {
        let (unsigned, signed) = (value as f64, value as i64 as f64);
        for x in [unsigned, signed] {
            doubles.extend([x.next_down(), x, x.next_up(), x + 0.5, x - 0.5]);
        }
    }
    doubles.extend((0..20_000).map(|_| f64::from_bits(random.next())));
    let bytes: Vec<u8> = doubles.iter().flat_map(|x| x.to_le_bytes()).collect();
    check_all(DType::F64, &bytes);
    check_all(DType::C128, &bytes[..bytes.len() / 16 * 16]);
}

#[test]
fn every_length_and_alignment() {
    let mut random = Random(5);
    let noise: Vec<u8> = (0..1 << 15).map(|_| random.next() as u8).collect();
    for &src in DType::ALL {
        for &dst in DType::ALL {
            // One tile and what is around it, at odd addresses; past the end nothing may change.
            for count in [0, 1, 7, 33, 511, 512, 513, 1100] {
                let from = &noise[1..][..count * src.size()];
                let mut want = vec![0; count * dst.size()];
                reference::convert(dst, &mut want, src, from).unwrap();
                for isa in Isa::available() {
                    let mut got = vec![0xc3; 1 + count * dst.size() + 64];
                    let (head, tail) = (1, 1 + count * dst.size());
                    route::run(isa, dst, &mut got[head..tail], src, from);
                    assert!(agree(dst, &got[head..tail], &want), "{isa:?} {src} {dst} {count}");
                    assert_eq!(got[0], 0xc3);
                    assert!(got[tail..].iter().all(|&byte| byte == 0xc3));
                }
            }
        }
    }
}

#[test]
fn wider_types_keep_every_value() {
    let exact = [
        (DType::F16, DType::F32),
        (DType::F16, DType::C32),
        (DType::Bf16, DType::F32),
        (DType::Bf16, DType::C64),
        (DType::F16, DType::C128),
        (DType::I16, DType::F32),
        (DType::U16, DType::C128),
        (DType::U16, DType::I32),
        (DType::I16, DType::U64),
    ];
    let codes = all_16_bit_codes();
    for (narrow, wide) in exact {
        round_trip(narrow, wide, &codes);
    }
    let codes: Vec<u8> = (0..=u8::MAX).collect();
    for &narrow in DType::ALL.iter().filter(|dtype| dtype.size() == 1 && **dtype != DType::Bool) {
        for wide in [DType::F32, DType::F64, DType::C64, DType::Bf16] {
            round_trip(narrow, wide, &codes);
        }
    }
    for float8 in [DType::F8E4m3fn, DType::F8E4m3fnuz, DType::F8E5m2, DType::F8E5m2fnuz] {
        round_trip(float8, DType::F16, &codes);
        round_trip(float8, DType::C32, &codes);
    }
}

/// There and back again; NaN codes have only to remain NaN.
fn round_trip(narrow: DType, wide: DType, codes: &[u8]) {
    let mut there = vec![0; codes.len() / narrow.size() * wide.size()];
    let mut back = vec![0; codes.len()];
    let mut nan = vec![0; codes.len() / narrow.size() * 4];
    convert(wide, &mut there, narrow, codes).unwrap();
    convert(narrow, &mut back, wide, &there).unwrap();
    convert(DType::F32, &mut nan, narrow, codes).unwrap();
    let elements = codes.chunks(narrow.size()).zip(back.chunks(narrow.size())).zip(nan.chunks(4));
    for ((code, back), as_f32) in elements {
        let mut back_as_f32 = [0; 4];
        convert(DType::F32, &mut back_as_f32, narrow, back).unwrap();
        let both_nan = is_nan(DType::F32, as_f32) && is_nan(DType::F32, &back_as_f32);
        assert!(code == back || both_nan, "{narrow} by way of {wide}: {code:02x?} became {back:02x?}");
    }
}

#[test]
fn chunks_give_the_whole() {
    let count = 2 * CHUNK as usize + 3;
    let src: Vec<u8> = (0..count * 4).map(|i| ((i * 31) >> 3) as u8).collect();
    let (mut whole, mut parts) = (vec![0; count * 2], vec![0; count * 2]);
    convert(DType::F16, &mut whole, DType::F32, &src).unwrap();
    assert_eq!(split(count as u64).chunks(), 3);
    for range in split(count as u64).ranges() {
        let (start, end) = (range.start as usize, range.end as usize);
        let (dst, src) = (&mut parts[start * 2..end * 2], &src[start * 4..end * 4]);
        convert(DType::F16, dst, DType::F32, src).unwrap();
    }
    assert!(whole == parts);
}

#[test]
fn lengths_that_do_not_fit_are_refused_untouched() {
    let mut dst = [7; 8];
    let error = convert(DType::F16, &mut dst, DType::F32, &[0; 15]).unwrap_err();
    assert_eq!(error, KernelError::SourceLength { dtype: DType::F32, len: 15 });
    assert!(error.to_string().contains("15 bytes"), "{error}");
    let error = convert(DType::F16, &mut dst[..7], DType::F32, &[0; 16]).unwrap_err();
    assert_eq!(error, KernelError::DestinationLength { dtype: DType::F16, count: 4, len: 7 });
    let message = "convert: 4 elements of float16 take 8 bytes, but the destination has 7";
    assert_eq!(error.to_string(), message);
    assert!(reference::convert(DType::F16, &mut dst[..7], DType::F32, &[0; 16]).is_err());
    assert_eq!(dst, [7; 8]);
}

#[test]
fn parameters_survive_the_trip() {
    let params = Params::new(DType::F8E8m0fnu, DType::Bf16, 0x0102_0304_0506_0708);
    let bytes = params.to_bytes();
    assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1, 15, 0, 0, 0, 44, 0, 0, 0]);
    assert_eq!(Params::from_bytes(&bytes), Ok(params));
    assert_eq!(params.src_dtype(), Ok(DType::Bf16));
    assert_eq!(params.dst_dtype(), Ok(DType::F8E8m0fnu));
    for number in [12, 255, 256, u32::MAX] {
        let bad = Params { dst: number, ..params };
        assert_eq!(bad.dst_dtype(), Err(KernelError::UnknownDType { number }));
    }
    for len in [0, 15, 17] {
        let error = Params::from_bytes(&vec![0; len]).unwrap_err();
        assert_eq!(error, KernelError::ParamsSize { kernel: Builtin::Convert, given: len });
    }
}
