//! The definition of the result, one element at a time.

use super::draw::{BLOCK_THREADS, Layout};
use super::fill::Fill;
use super::math::{exp_f32, exp_f64, log_f32, log_f64, sin_cos_f32, sin_cos_f64, sqrt_f32, sqrt_f64};
use super::permutation;
use crate::convert;
use crate::philox::{Counter, block};
use crate::{Builtin, KernelError};
use anyaccel_hal::DType;

/// Writes element `i` to `out`, which has its size. `cell` is as for [`Fill::run`].
pub fn element(fill: &Fill, i: u64, cell: &[u8], out: &mut [u8]) -> Result<(), KernelError> {
    let start = fill.start(cell)?;
    let p = fill.per_call();
    if fill.kernel() == Builtin::RandomPermutation {
        permutation::fill(fill.dtype(), fill.params().count, start, i..i + 1, out);
        return Ok(());
    }
    // Which call, and which of its elements.
    let (counter, k) = match fill.draw().layout {
        Layout::Portable => (Counter { low: start.call.wrapping_add(i / p), high: 0 }, i % p),
        Layout::TorchCuda { blocks } => {
            let s = BLOCK_THREADS * u64::from(blocks);
            (Counter { low: start.call.wrapping_add(i / (s * p)), high: i % s }, i / s % p)
        }
    };
    let w = block(start.seed, counter);
    let (k, dtype) = (k as usize, fill.dtype());
    let value = if dtype == DType::F64 { from_two(fill, w, k) } else { from_one(fill, w, k) };
    match value {
        Value::F32(x) => convert::reference::convert(dtype, out, DType::F32, &x.to_le_bytes())?,
        Value::F64(x) => out.copy_from_slice(&x.to_le_bytes()),
        Value::Integer(z) => convert::reference::convert(dtype, out, DType::U64, &z.to_le_bytes())?,
        Value::Signed(z) => convert::reference::convert(dtype, out, DType::I64, &z.to_le_bytes())?,
    }
    if fill.kernel() == Builtin::RandomUniform {
        let [from, to, _] = floats(fill);
        let mut wide = [0; 8];
        convert::reference::convert(DType::F64, &mut wide, dtype, out)?;
        if f64::from_le_bytes(wide) == to {
            convert::reference::convert(dtype, out, DType::F64, &from.to_le_bytes())?;
        }
    }
    Ok(())
}

enum Value {
    F32(f32),
    F64(f64),
    Integer(u64),
    Signed(i64),
}

fn floats(fill: &Fill) -> [f64; 3] {
    let params = fill.params();
    [params.a, params.b, params.c].map(f64::from_bits)
}

fn integer(fill: &Fill, w: [u32; 4], k: usize) -> Value {
    let params = fill.params();
    let range = if params.a == 0 { 1 << 64 } else { u128::from(params.a) };
    let pair = || u128::from(w[2 * k]) << 32 | u128::from(w[2 * k + 1]);
    let drawn = match params.reduction {
        0 => (pair() * range) >> 64,
        1 => pair() % range,
        _ => u128::from(w[k]) % range,
    };
    Value::Signed((drawn as u64).wrapping_add(params.b) as i64)
}

/// For all types but float64.
fn from_one(fill: &Fill, w: [u32; 4], k: usize) -> Value {
    let [a, b, c] = floats(fill).map(|x| x as f32);
    let unit = |x: u32| (x as f32).mul_add(2.0_f32.powi(-32), 2.0_f32.powi(-33));
    let normal = || {
        let pair = k / 2 * 2;
        let radius = sqrt_f32(-2.0 * log_f32(unit(w[pair])));
        let (sin, cos) = sin_cos_f32(w[pair + 1]);
        (radius * if k == pair { sin } else { cos }).mul_add(b, a)
    };
    match fill.kernel() {
        Builtin::RandomUniform => Value::F32(unit(w[k]).mul_add(c, a)),
        Builtin::RandomNormal => Value::F32(normal()),
        Builtin::RandomLogNormal => Value::F32(exp_f32(normal())),
        Builtin::RandomExponential => {
            let (u, near) = (unit(w[k]), 2.0_f32.powi(-24));
            Value::F32(if u >= 1.0 - near { -near } else { log_f32(u) } * a)
        }
        Builtin::RandomGeometric => Value::F32((log_f32(unit(w[k])) * a).ceil().max(1.0)),
        Builtin::RandomBernoulli => Value::Integer(u64::from(u64::from(w[k]) < fill.params().a)),
        Builtin::RandomIntegers => integer(fill, w, k),
        _ if fill.dtype().size() == 8 => Value::Integer(u64::from(w[2 * k]) << 32 | u64::from(w[2 * k + 1])),
        _ => Value::Integer(u64::from(w[k])),
    }
}

/// For float64.
fn from_two(fill: &Fill, w: [u32; 4], k: usize) -> Value {
    let [a, b, c] = floats(fill);
    let bits = |k: usize| u64::from(w[2 * k]) ^ u64::from(w[2 * k + 1]) << 21;
    let unit = |z: u64| (z as f64).mul_add(2.0_f64.powi(-53), 2.0_f64.powi(-54));
    let normal = || {
        let radius = sqrt_f64(-2.0 * log_f64(unit(bits(0))));
        let (sin, cos) = sin_cos_f64(bits(1));
        (radius * if k == 0 { sin } else { cos }).mul_add(b, a)
    };
    match fill.kernel() {
        Builtin::RandomUniform => Value::F64(unit(bits(k)).mul_add(c, a)),
        Builtin::RandomNormal => Value::F64(normal()),
        Builtin::RandomLogNormal => Value::F64(exp_f64(normal())),
        Builtin::RandomExponential => {
            let (u, near) = (unit(bits(k)), 2.0_f64.powi(-53));
            Value::F64(if u >= 1.0 - near { -near } else { log_f64(u) } * a)
        }
        Builtin::RandomGeometric => Value::F64((log_f64(unit(bits(k))) * a).ceil().max(1.0)),
        Builtin::RandomBernoulli => Value::Integer(u64::from(bits(k) < fill.params().a)),
        _ => integer(fill, w, k),
    }
}
