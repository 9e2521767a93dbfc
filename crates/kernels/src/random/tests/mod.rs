//! Every fill at every level of instructions against the definition; known numbers; accuracy; statistics; bad arguments.

use super::*;
use crate::Builtin;
use crate::cpu::Isa;
use anyaccel_hal::DType;

#[allow(unused_imports)]
mod arguments;
#[allow(unused_imports)]
mod known;
#[allow(unused_imports)]
mod levels;
#[allow(unused_imports)]
mod precision;
#[allow(unused_imports)]
mod statistics;

const FLOATS: [DType; 4] = [DType::F16, DType::Bf16, DType::F32, DType::F64];
const INTEGERS: [DType; 8] =
    [DType::U8, DType::U16, DType::U32, DType::U64, DType::I8, DType::I16, DType::I32, DType::I64];

/// All elements of a fill whose seed and offset are in its parameters.
fn whole(fill: &Fill) -> Vec<u8> {
    let mut bytes = vec![0xa5; fill.destination_len() as usize];
    fill.run(0..fill.params().count, &mut bytes, &[]).expect("a valid fill");
    bytes
}

fn f32s(fill: &Fill) -> Vec<f32> {
    assert_eq!(fill.dtype(), DType::F32);
    whole(fill).as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

fn f64s(fill: &Fill) -> Vec<f64> {
    let mut bytes = vec![0; fill.params().count as usize * 8];
    crate::convert::convert(DType::F64, &mut bytes, fill.dtype(), &whole(fill)).expect("the same length");
    bytes.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect()
}

fn i64s(fill: &Fill) -> Vec<i64> {
    let mut bytes = vec![0; fill.params().count as usize * 8];
    crate::convert::convert(DType::I64, &mut bytes, fill.dtype(), &whole(fill)).expect("the same length");
    bytes.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect()
}

/// One fill of each kind for each element type it has, and a few more.
fn all_fills(count: u64, draw: Draw) -> Vec<Fill> {
    let mut fills = Vec::new();
    for dtype in FLOATS {
        fills.push(Fill::uniform(dtype, count, draw, 0.0, 1.0));
        fills.push(Fill::uniform(dtype, count, draw, -3.25, 0.0));
        fills.push(Fill::uniform(dtype, count, draw, 7.0, 7.0));
        fills.push(Fill::normal(dtype, count, draw, 0.0, 1.0));
        fills.push(Fill::normal(dtype, count, draw, 100.0, 0.3));
        fills.push(Fill::log_normal(dtype, count, draw, -1.0, 2.0));
        fills.push(Fill::exponential(dtype, count, draw, 1.5));
    }
    for dtype in FLOATS.into_iter().chain(INTEGERS) {
        fills.push(Fill::geometric(dtype, count, draw, 0.001));
        fills.push(Fill::geometric(dtype, count, draw, 0.4));
    }
    for dtype in FLOATS.into_iter().chain(INTEGERS).chain([DType::Bool]) {
        for p in [0.0, 0.3, 1.0] {
            fills.push(Fill::bernoulli(dtype, count, draw, p));
        }
        fills.push(Fill::integers(dtype, count, draw, 0, 2));
        fills.push(Fill::whole_numbers(dtype, count, draw));
    }
    for dtype in INTEGERS {
        fills.push(Fill::bits(dtype, count, draw));
        fills.push(Fill::integers(dtype, count, draw, 3, 100));
    }
    for (from, to) in [(-5, 1 << 28), (-(1 << 63), 1 << 63), (-1, (1 << 63) - 1)] {
        fills.push(Fill::integers(DType::I64, count, draw, from, to));
        fills.push(Fill::integers(DType::F64, count, draw, from, to));
        fills.push(Fill::integers(DType::F32, count, draw, from, to));
        fills.push(Fill::integers(DType::Bf16, count, draw, from, to));
    }
    fills.push(Fill::integers(DType::U64, count, draw, 1 << 63, 1 << 64));
    if draw.layout == Layout::Portable {
        for dtype in [DType::U32, DType::I32, DType::U64, DType::I64] {
            fills.push(Fill::permutation(dtype, count, draw));
        }
    }
    fills.into_iter().map(|fill| fill.expect("valid arguments")).collect()
}
