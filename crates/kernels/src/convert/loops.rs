//! The loops: each converts a whole slice in one step, compiled once for each level of instructions.
//!
//! Not every pair of types has one. [`route`](super::route) strings loops together for the others.

use super::small;
use crate::cpu::Isa;
use anyaccel_hal::DType;

/// Converts as many elements as both slices hold, whatever their alignment.
///
/// # Safety
///
/// The CPU has the features that the loop was compiled for (rule K1).
pub(super) type Loop = unsafe fn(src: &[u8], dst: &mut [u8]);

/// A float as an integer by the rules of `as`, in a form that becomes vector code, which `as` itself does not (rustc 1.95).
/// The bounds are the integer's, or the nearest floats within them.
macro_rules! truncate {
    ($x:ident: $float:ty => $integer:ty) => {{
        const MIN: $float = <$integer>::MIN as $float;
        const MAX: $float = {
            let rounded = <$integer>::MAX as $float;
            if rounded as i128 > <$integer>::MAX as i128 { rounded.next_down() } else { rounded }
        };
        let within = if $x < MIN { MIN } else { $x };
        let within = if within > MAX { MAX } else { within };
        let within = if $x.is_nan() { 0.0 } else { within };
        // SAFETY: K3, `within` is neither NaN nor outside of MIN..=MAX, which the integer type holds.
        let integer: $integer = unsafe { within.to_int_unchecked() };
        if $x > MAX { <$integer>::MAX } else { integer }
    }};
}

/// Defines `$name(src, dst)`, the loop between two types where there is one. Each row names the types, how their elements are
/// read and written, and what happens in between. Signed and unsigned integers share a row where only bits matter.
macro_rules! loops {
    ($name:ident, $widen_f16:path, $narrow_f16:path $(, #[$features:meta])*) => {
        loops! { @rows $name [$(#[$features])*] $widen_f16, $narrow_f16,
            // Bytes other than 0 and 1 in a bool are true.
            Bool => U8 | I8, x: u8 => u8 = u8::from(x != 0);
            Bool => U16 | I16, x: u8 => u16 = u16::from(x != 0);
            Bool => U32 | I32, x: u8 => u32 = u32::from(x != 0);
            Bool => U64 | I64, x: u8 => u64 = u64::from(x != 0);
            Bool => F32, x: u8 => f32 = f32::from(u8::from(x != 0));
            Bool => F64, x: u8 => f64 = f64::from(u8::from(x != 0));

            U8 => U16 | I16, x: u8 => u16 = u16::from(x);
            U8 => U32 | I32, x: u8 => u32 = u32::from(x);
            U8 => U64 | I64, x: u8 => u64 = u64::from(x);
            I8 => U16 | I16, x: i8 => i16 = i16::from(x);
            I8 => U32 | I32, x: i8 => i32 = i32::from(x);
            I8 => U64 | I64, x: i8 => i64 = i64::from(x);
            U16 => U32 | I32, x: u16 => u32 = u32::from(x);
            U16 => U64 | I64, x: u16 => u64 = u64::from(x);
            I16 => U32 | I32, x: i16 => i32 = i32::from(x);
            I16 => U64 | I64, x: i16 => i64 = i64::from(x);
            U32 => U64 | I64, x: u32 => u64 = u64::from(x);
            I32 => U64 | I64, x: i32 => i64 = i64::from(x);
            U16 | I16 => U8 | I8, x: u16 => u8 = x as u8;
            U32 | I32 => U8 | I8, x: u32 => u8 = x as u8;
            U32 | I32 => U16 | I16, x: u32 => u16 = x as u16;
            U64 | I64 => U8 | I8, x: u64 => u8 = x as u8;
            U64 | I64 => U16 | I16, x: u64 => u16 = x as u16;
            U64 | I64 => U32 | I32, x: u64 => u32 = x as u32;
            U8 | I8 => U8 | I8, x: u8 => u8 = x;
            U16 | I16 => U16 | I16, x: u16 => u16 = x;
            U32 | I32 => U32 | I32, x: u32 => u32 = x;
            U64 | I64 => U64 | I64, x: u64 => u64 = x;

            U8 => F32, x: u8 => f32 = x as f32;
            U16 => F32, x: u16 => f32 = x as f32;
            U32 => F32, x: u32 => f32 = x as f32;
            U64 => F32, x: u64 => f32 = x as f32;
            I8 => F32, x: i8 => f32 = x as f32;
            I16 => F32, x: i16 => f32 = x as f32;
            I32 => F32, x: i32 => f32 = x as f32;
            I64 => F32, x: i64 => f32 = x as f32;
            U8 => F64, x: u8 => f64 = x as f64;
            U16 => F64, x: u16 => f64 = x as f64;
            U32 => F64, x: u32 => f64 = x as f64;
            U64 => F64, x: u64 => f64 = x as f64;
            I8 => F64, x: i8 => f64 = x as f64;
            I16 => F64, x: i16 => f64 = x as f64;
            I32 => F64, x: i32 => f64 = x as f64;
            I64 => F64, x: i64 => f64 = x as f64;

            F32 => U8, x: f32 => u8 = truncate!(x: f32 => u8);
            F32 => U16, x: f32 => u16 = truncate!(x: f32 => u16);
            F32 => U32, x: f32 => u32 = truncate!(x: f32 => u32);
            F32 => U64, x: f32 => u64 = truncate!(x: f32 => u64);
            F32 => I8, x: f32 => i8 = truncate!(x: f32 => i8);
            F32 => I16, x: f32 => i16 = truncate!(x: f32 => i16);
            F32 => I32, x: f32 => i32 = truncate!(x: f32 => i32);
            F32 => I64, x: f32 => i64 = truncate!(x: f32 => i64);
            F64 => U8, x: f64 => u8 = truncate!(x: f64 => u8);
            F64 => U16, x: f64 => u16 = truncate!(x: f64 => u16);
            F64 => U32, x: f64 => u32 = truncate!(x: f64 => u32);
            F64 => U64, x: f64 => u64 = truncate!(x: f64 => u64);
            F64 => I8, x: f64 => i8 = truncate!(x: f64 => i8);
            F64 => I16, x: f64 => i16 = truncate!(x: f64 => i16);
            F64 => I32, x: f64 => i32 = truncate!(x: f64 => i32);
            F64 => I64, x: f64 => i64 = truncate!(x: f64 => i64);

            F32 => F64, x: f32 => f64 = f64::from(x);
            F64 => F32, x: f64 => f32 = x as f32;
            Bf16 => F32, x: u16 => f32 = small::bf16_to_f32(x);
            F32 => Bf16, x: f32 => u16 = small::f32_to_bf16(x);
            F8E4m3fn => F32, x: u8 => f32 = small::e4m3fn_to_f32(x);
            F32 => F8E4m3fn, x: f32 => u8 = small::f32_to_e4m3fn(x);
            F8E4m3fnuz => F32, x: u8 => f32 = small::e4m3fnuz_to_f32(x);
            F32 => F8E4m3fnuz, x: f32 => u8 = small::f32_to_e4m3fnuz(x);
            F8E5m2 => F32, x: u8 => f32 = small::e5m2_to_f32(x);
            F32 => F8E5m2, x: f32 => u8 = small::f32_to_e5m2(x);
            F8E5m2fnuz => F32, x: u8 => f32 = small::e5m2fnuz_to_f32(x);
            F32 => F8E5m2fnuz, x: f32 => u8 = small::f32_to_e5m2fnuz(x);
            F8E8m0fnu => F32, x: u8 => f32 = small::e8m0fnu_to_f32(x);
            F32 => F8E8m0fnu, x: f32 => u8 = small::f32_to_e8m0fnu(x);

            U8 | I8 => Bool, x: u8 => u8 = u8::from(x != 0);
            U16 | I16 => Bool, x: u16 => u8 = u8::from(x != 0);
            U32 | I32 => Bool, x: u32 => u8 = u8::from(x != 0);
            U64 | I64 => Bool, x: u64 => u8 = u8::from(x != 0);
            F16 | Bf16 => Bool, x: u16 => u8 = u8::from(x & 0x7fff != 0);
            F32 => Bool, x: u32 => u8 = u8::from(x & 0x7fff_ffff != 0);
            F64 => Bool, x: u64 => u8 = u8::from(x & (u64::MAX >> 1) != 0);
            C32 => Bool, x: u32 => u8 = u8::from(x & 0x7fff_7fff != 0);
            C64 => Bool, x: u64 => u8 = u8::from(x & 0x7fff_ffff_7fff_ffff != 0);
            C128 => Bool, x: u128 => u8 = u8::from((x | x >> 64) as u64 & (u64::MAX >> 1) != 0);

            C32 => F16, x: u32 => u16 = x as u16;
            C64 => F32, x: u64 => u32 = x as u32;
            C128 => F64, x: u128 => u64 = x as u64;
            F16 => C32, x: u16 => u32 = u32::from(x);
            F32 => C64, x: u32 => u64 = u64::from(x);
            F64 => C128, x: u64 => u128 = u128::from(x);
        }
    };
    (@rows $name:ident $features:tt $widen_f16:path, $narrow_f16:path,
        $($src:pat => $dst:pat, $x:ident: $read:ty => $write:ty = $value:expr;)*
    ) => {
        const fn $name(src: DType, dst: DType) -> Option<Loop> {
            use DType::*;
            match (src, dst) {
                (F16, F32) => Some($widen_f16),
                (F32, F16) => Some($narrow_f16),
                $(($src, $dst) => {
                    loops! { @run $features $x: $read => $write = $value }
                    Some(run)
                })*
                _ => None,
            }
        }
    };
    (@run [$($features:tt)*] $x:ident: $read:ty => $write:ty = $value:expr) => {
        $($features)*
        fn run(src: &[u8], dst: &mut [u8]) {
            let src = src.as_chunks::<{ size_of::<$read>() }>().0;
            let dst = dst.as_chunks_mut::<{ size_of::<$write>() }>().0;
            for (dst, src) in dst.iter_mut().zip(src) {
                let $x = <$read>::from_le_bytes(*src);
                *dst = <$write>::to_le_bytes($value);
            }
        }
    };
}

loops!(portable, portable_f16::widen, portable_f16::narrow);
#[cfg(target_arch = "x86_64")]
loops!(avx2, f16c::widen, f16c::narrow, #[target_feature(enable = "avx2,f16c")]);
#[cfg(target_arch = "x86_64")]
loops!(
    avx512,
    avx512_f16::widen,
    avx512_f16::narrow,
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
);

/// The loop from one type to another for a level of instructions, if there is one. Which pairs have one does not depend
/// on the level.
pub(super) const fn find(isa: Isa, src: DType, dst: DType) -> Option<Loop> {
    match isa {
        Isa::Portable => portable(src, dst),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2(src, dst),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512(src, dst),
    }
}

/// `float16` without instructions for it.
mod portable_f16 {
    use super::small;

    pub(super) fn widen(src: &[u8], dst: &mut [u8]) {
        for (dst, src) in dst.as_chunks_mut().0.iter_mut().zip(src.as_chunks().0) {
            *dst = small::f16_to_f32(u16::from_le_bytes(*src)).to_le_bytes();
        }
    }

    pub(super) fn narrow(src: &[u8], dst: &mut [u8]) {
        for (dst, src) in dst.as_chunks_mut().0.iter_mut().zip(src.as_chunks().0) {
            *dst = small::f32_to_f16(f32::from_le_bytes(*src)).to_le_bytes();
        }
    }
}

/// `float16`, eight at a time.
#[cfg(target_arch = "x86_64")]
mod f16c {
    use super::portable_f16;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn widen(src: &[u8], dst: &mut [u8]) {
        let (src, src_tail) = src.as_chunks::<16>();
        let (dst, dst_tail) = dst.as_chunks_mut::<32>();
        for (dst, src) in dst.iter_mut().zip(src) {
            // SAFETY: K2, 16 bytes in and 32 out.
            unsafe {
                let halves = _mm_loadu_si128(src.as_ptr().cast());
                _mm256_storeu_ps(dst.as_mut_ptr().cast(), _mm256_cvtph_ps(halves));
            }
        }
        portable_f16::widen(src_tail, dst_tail);
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn narrow(src: &[u8], dst: &mut [u8]) {
        let (src, src_tail) = src.as_chunks::<32>();
        let (dst, dst_tail) = dst.as_chunks_mut::<16>();
        for (dst, src) in dst.iter_mut().zip(src) {
            // SAFETY: K2, 32 bytes in and 16 out.
            unsafe {
                let floats = _mm256_loadu_ps(src.as_ptr().cast());
                let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(floats);
                _mm_storeu_si128(dst.as_mut_ptr().cast(), halves);
            }
        }
        portable_f16::narrow(src_tail, dst_tail);
    }
}

/// `float16`, sixteen at a time.
#[cfg(target_arch = "x86_64")]
mod avx512_f16 {
    use super::f16c;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn widen(src: &[u8], dst: &mut [u8]) {
        let (src, src_tail) = src.as_chunks::<32>();
        let (dst, dst_tail) = dst.as_chunks_mut::<64>();
        for (dst, src) in dst.iter_mut().zip(src) {
            // SAFETY: K2, 32 bytes in and 64 out.
            unsafe {
                let halves = _mm256_loadu_si256(src.as_ptr().cast());
                _mm512_storeu_ps(dst.as_mut_ptr().cast(), _mm512_cvtph_ps(halves));
            }
        }
        f16c::widen(src_tail, dst_tail);
    }

    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn narrow(src: &[u8], dst: &mut [u8]) {
        let (src, src_tail) = src.as_chunks::<64>();
        let (dst, dst_tail) = dst.as_chunks_mut::<32>();
        for (dst, src) in dst.iter_mut().zip(src) {
            // SAFETY: K2, 64 bytes in and 32 out.
            unsafe {
                let floats = _mm512_loadu_ps(src.as_ptr().cast());
                let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(floats);
                _mm256_storeu_si256(dst.as_mut_ptr().cast(), halves);
            }
        }
        f16c::narrow(src_tail, dst_tail);
    }
}
