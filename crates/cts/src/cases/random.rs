//! H16: the random built-ins, against their definition to the bit.

use crate::case::{Case, Outcome, fail, same_bytes, skip};
use crate::env::Env;
use crate::lab::{Lab, Region, Stream, arg};
use anyaccel_hal::{Arg, DType, Kernel, Launch};
use anyaccel_kernels::random::{Draw, Fill, Layout, Source};
use anyaccel_kernels::{Builtin, KernelError};

pub(super) const CASES: &[Case] = &[
    Case::hal("random.same-bits", &[16], same_bits),
    Case::hal("random.in-chunks", &[16], in_chunks),
    Case::hal("random.from-a-cell", &[6, 16], from_a_cell),
];

const SEED: u64 = 0x0123_4567_89ab_cdef;
const OFFSET: u64 = 40;
const LAYOUTS: [Layout; 3] = [Layout::Portable, Layout::TorchCuda { blocks: 1 }, Layout::TorchCuda { blocks: 3 }];

fn draw(layout: Layout) -> Draw {
    Draw { source: Source::Value { seed: SEED, offset: OFFSET }, layout }
}

/// Fills of every built-in and type.
fn fills(count: u64, layout: Layout) -> Vec<Fill> {
    use DType::*;
    let (draw, all) = (draw(layout), [Bool, U8, U16, U32, U64, I8, I16, I32, I64, F16, Bf16, F32, F64]);
    let of = |dtype| -> [Result<Fill, KernelError>; 12] {
        [
            Fill::bits(dtype, count, draw),
            Fill::uniform(dtype, count, draw, 0.0, 1.0),
            Fill::uniform(dtype, count, draw, -3.5, 100.0),
            Fill::normal(dtype, count, draw, 1.0, 2.0),
            Fill::log_normal(dtype, count, draw, 0.0, 0.5),
            Fill::exponential(dtype, count, draw, 0.7),
            Fill::geometric(dtype, count, draw, 0.2),
            Fill::bernoulli(dtype, count, draw, 0.3),
            Fill::integers(dtype, count, draw, 0, 2),
            Fill::integers(dtype, count, draw, -100, 100),
            Fill::whole_numbers(dtype, count, draw),
            Fill::permutation(dtype, count, draw),
        ]
    };
    // What does not fit a type is not there to be tried.
    all.into_iter().flat_map(of).flatten().collect()
}

fn kernel(lab: &Lab, fill: &Fill) -> Option<Kernel> {
    let device = lab.device(0);
    if device.info().dtypes.contains(fill.dtype()) { device.builtin(fill.kernel().number()) } else { None }
}

fn check(
    lab: &Lab,
    stream: Stream,
    kernel: Kernel,
    fill: &Fill,
    dst: Region,
    cell: Option<(Region, &[u8])>,
) -> Outcome {
    let (len, params) = (fill.destination_len(), fill.params().to_bytes());
    lab.fill(stream, dst, 0x77)?;
    let to = dst.part(0, len);
    let args = [arg(to), arg(cell.map_or(to, |(cell, _)| cell)), Arg::Bytes(&params)];
    lab.launch(stream, kernel, Launch::linear(fill.split().chunks(), 1), &args)?;
    let mut expected = vec![0x77; dst.len as usize];
    let bytes = cell.map_or(&[][..], |(_, bytes)| bytes);
    if let Err(error) = fill.run(0..fill.params().count, &mut expected[..len as usize], bytes) {
        return fail("H16", "the definition to take the arguments", error.to_string());
    }
    let what = format!("{} of {} x {} in {:?}", fill.kernel(), fill.params().count, fill.dtype(), fill.draw().layout);
    same_bytes("H16", &what, &lab.read(stream, dst)?, &expected)
}

fn each(env: &Env, counts: &[u64], wanted: impl Fn(&Fill) -> bool) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let most = counts.iter().max().map_or(0, |count| 8 * count + 16);
    let dst = lab.memory(most)?;
    let mut tried = 0;
    for &count in counts {
        for layout in LAYOUTS {
            for fill in fills(count, layout).iter().filter(|fill| wanted(fill)) {
                let Some(kernel) = kernel(&lab, fill) else { continue };
                check(&lab, stream, kernel, fill, dst.part(0, fill.destination_len() + 8), None)?;
                tried += 1;
            }
        }
    }
    if tried == 0 { skip("no random built-in") } else { Ok(()) }
}

fn same_bits(env: &Env) -> Outcome {
    each(env, &[1, 5, 777, 3001], |_| true)
}

/// Of more elements than a chunk has, one of each built-in.
fn in_chunks(env: &Env) -> Outcome {
    let shuffles = |fill: &Fill| fill.kernel() == Builtin::RandomPermutation && fill.dtype() == DType::I64;
    each(env, &[(1 << 17) + 5], |fill| fill.dtype() == DType::F32 || shuffles(fill))
}

/// Seed and offset are read when the kernel runs, not when it is launched.
fn from_a_cell(env: &Env) -> Outcome {
    let lab = env.lab()?;
    let stream = lab.stream()?;
    let (dst, mut tried) = (lab.memory(8 * 1000 + 8)?, 0);
    let cell = lab.memory(16)?;
    for layout in LAYOUTS {
        for (at, fill) in (1_u64..).zip(fills(1000, layout)) {
            let Some(kernel) = kernel(&lab, &fill) else { continue };
            let (seed, offset) = (SEED.rotate_left(at as u32), 4 * at);
            let bytes = [seed.to_le_bytes(), offset.to_le_bytes()].concat();
            lab.write(stream, cell, &bytes)?;
            let fill = fill.with_source(Source::Cell { delta: 8 });
            check(&lab, stream, kernel, &fill, dst.part(0, fill.destination_len() + 8), Some((cell, &bytes)))?;
            let by_value = fill.with_source(Source::Value { seed, offset: offset + 8 });
            check(&lab, stream, kernel, &by_value, dst.part(0, fill.destination_len() + 8), None)?;
            tried += 1;
        }
    }
    if tried == 0 { skip("no random built-in") } else { Ok(()) }
}
