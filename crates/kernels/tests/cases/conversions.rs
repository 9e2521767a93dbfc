//! Conversions of each type to each.

use super::{Case, Noise};
use anyaccel_hal::DType;
use anyaccel_kernels::{Builtin, convert};

/// Patterns of `bits` bits between which roundings differ: alone, below and above each bit.
fn patterns(bits: u32) -> Vec<u64> {
    let mut patterns = vec![0, 1, 3];
    for bit in 1..bits {
        let top = (1 << bits) - 1;
        let one = 1_u64 << bit;
        patterns.extend([one - 1, one, one + 1, (top ^ (one - 1)) & top, one | one >> 1, (one | one >> 1) + 1]);
    }
    patterns.iter_mut().for_each(|pattern| *pattern &= (1 << bits) - 1);
    patterns.sort_unstable();
    patterns.dedup();
    patterns
}

/// Elements of a real type at which conversions go wrong, or all that there are.
fn telling(dtype: DType) -> Vec<u64> {
    let mut noise = Noise(u64::from(dtype.number()));
    let signed = |magnitude: u64, width: u32| [magnitude, magnitude | 1 << (width - 1)];
    match dtype {
        DType::F32 => {
            let mantissas = patterns(23);
            let magnitudes = (0..256).flat_map(|exponent| mantissas.iter().map(move |m| exponent << 23 | m));
            let noise = (0..10_000).map(|_| noise.next() & 0xffff_ffff);
            magnitudes.flat_map(|magnitude| signed(magnitude, 32)).chain(noise).collect()
        }
        DType::F64 => {
            let (all, few) = (patterns(52), [0, 1, 1 << 51, (1 << 51) + 1, (1 << 52) - 1]);
            let mantissas = |exponent: u64| match exponent {
                // Where float32 and narrower types, and integers, begin and end.
                860..=880 | 895..=900 | 1000..=1023 | 1030..=1032 | 1046..=1056 | 1075..=1090 | 1148..=1152 => &all[..],
                _ => &few[..],
            };
            let magnitudes = (0..2048).flat_map(|exponent| mantissas(exponent).iter().map(move |m| exponent << 52 | m));
            // Random ones of the size of the other types.
            let sized = |bits: u64| bits & !(0x7ff << 52) | (860 + (bits >> 52) % 300) << 52;
            let noise = (0..10_000).map(|i| if i % 2 == 0 { noise.next() } else { sized(noise.next()) });
            magnitudes.flat_map(|magnitude| signed(magnitude, 64)).chain(noise).collect()
        }
        _ if dtype.size() <= 2 => (0..1 << (8 * dtype.size())).collect(),
        _ => {
            let width = 8 * dtype.size() as u32;
            let values = patterns(width - 1).into_iter().flat_map(|x| [x, !x]);
            values.chain((0..10_000).map(|_| noise.next() >> (noise.next() % u64::from(width)))).collect()
        }
    }
}

/// As [`telling`], as bytes; the parts of complex numbers are telling ones in two orders.
pub(super) fn elements(dtype: DType) -> Vec<u8> {
    let part = dtype.component().unwrap_or(dtype);
    let mut values = telling(part);
    if dtype.is_complex() {
        values = values.iter().zip(values.iter().rev()).flat_map(|(&re, &im)| [re, im]).collect();
        values.extend([0, 0, 0, 1 << (8 * part.size() - 1)]);
    }
    values.iter().flat_map(|value| value.to_le_bytes()[..part.size()].to_vec()).collect()
}

/// Whether a real element is a NaN of which more than one will do.
fn is_any_nan(dtype: DType, bytes: &[u8]) -> bool {
    let bits = bytes.iter().rev().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
    let (magnitude, infinity) = match dtype {
        DType::F16 => (bits & 0x7fff, 0x7c00),
        DType::Bf16 => (bits & 0x7fff, 0x7f80),
        DType::F32 => (bits & 0x7fff_ffff, 0x7f80_0000),
        DType::F64 => (bits & (u64::MAX >> 1), 0x7ff0_0000_0000_0000),
        DType::F8E4m3fn | DType::F8E5m2 => (bits & 0x7f, 0x7e),
        _ => return false,
    };
    magnitude > infinity
}

/// The same bytes, or both a NaN where its payload is unspecified.
fn agree(case: &Case, got: &[u8]) -> bool {
    let params = convert::Params::from_bytes(&case.params).expect("a conversion");
    let dtype = params.dst_dtype().expect("a dtype");
    let part = dtype.component().unwrap_or(dtype);
    let parts = got.chunks(part.size()).zip(case.after.chunks(part.size()));
    got == case.after || parts.into_iter().all(|(a, b)| a == b || is_any_nan(part, a) && is_any_nan(part, b))
}

pub(super) fn case(dst: DType, src: DType, elements: &[u8], dst_at: usize, src_at: usize) -> Case {
    let count = elements.len() / src.size();
    let mut after = vec![0; count * dst.size()];
    convert::convert(dst, &mut after, src, elements).expect("lengths that fit");
    let params = convert::Params::new(dst, src, count as u64).to_bytes().to_vec();
    let name = format!("{count} x {src} at {src_at} to {dst} at {dst_at}");
    let src = [vec![0; src_at], elements.to_vec()].concat();
    Case { src, src_at, agree, ..Case::new(Builtin::Convert, name, params, dst_at, after) }
}

pub(crate) fn convert() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut noise = Noise(1);
    for &src in DType::ALL {
        let all = elements(src);
        for &dst in DType::ALL {
            cases.push(case(dst, src, &all, 0, 0));
            for count in [0, 1, 7, 300] {
                let (dst_at, src_at) = (noise.next() as usize % 16, noise.next() as usize % 16);
                cases.push(case(dst, src, &noise.bytes(count * src.size()), dst_at, src_at));
            }
        }
    }
    cases
}
