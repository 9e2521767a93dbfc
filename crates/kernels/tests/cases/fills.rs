//! Fills with random numbers: each built-in with each type that it has, in both layouts.

use super::{Case, Noise};
use anyaccel_hal::DType;
use anyaccel_kernels::KernelError;
use anyaccel_kernels::random::{Draw, Fill, Layout, Source};

const TYPES: [DType; 13] = [
    DType::Bool,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::Bf16,
    DType::F32,
    DType::F64,
];

fn fills(count: u64, draw: Draw) -> Vec<Fill> {
    let of = |dtype: DType| -> Vec<Result<Fill, KernelError>> {
        vec![
            Fill::bits(dtype, count, draw),
            Fill::uniform(dtype, count, draw, 0.0, 1.0),
            Fill::uniform(dtype, count, draw, -3.25, 0.0),
            Fill::uniform(dtype, count, draw, 7.0, 7.0),
            // Subnormal numbers of float32, and of float64.
            Fill::uniform(dtype, count, draw, -3e-39, 1e-38),
            Fill::uniform(dtype, count, draw, 1e-310, 2e-308),
            Fill::normal(dtype, count, draw, 0.0, 1.0),
            Fill::normal(dtype, count, draw, 100.0, 0.3),
            Fill::normal(dtype, count, draw, 0.0, 1e-39),
            Fill::log_normal(dtype, count, draw, -1.0, 2.0),
            // Out of the type at both ends.
            Fill::log_normal(dtype, count, draw, 0.0, 90.0),
            Fill::log_normal(dtype, count, draw, 0.0, 700.0),
            Fill::exponential(dtype, count, draw, 1.5),
            Fill::exponential(dtype, count, draw, 1e38),
            Fill::geometric(dtype, count, draw, 1e-12),
            Fill::geometric(dtype, count, draw, 0.001),
            Fill::geometric(dtype, count, draw, 0.4),
            Fill::bernoulli(dtype, count, draw, 0.0),
            Fill::bernoulli(dtype, count, draw, 0.3),
            Fill::bernoulli(dtype, count, draw, 1.0),
            Fill::integers(dtype, count, draw, 0, 2),
            Fill::integers(dtype, count, draw, 3, 100),
            Fill::integers(dtype, count, draw, -100, 100),
            Fill::integers(dtype, count, draw, -5, 1 << 28),
            Fill::integers(dtype, count, draw, -(1 << 63), 1 << 63),
            Fill::integers(dtype, count, draw, -1, (1 << 63) - 1),
            Fill::integers(dtype, count, draw, 1 << 63, 1 << 64),
            Fill::whole_numbers(dtype, count, draw),
            Fill::permutation(dtype, count, draw),
        ]
    };
    // What a type does not have is not there to be tried.
    TYPES.into_iter().flat_map(of).flatten().collect()
}

pub(super) fn case(fill: Fill, dst_at: usize, src_at: usize, cell: Option<[u8; 16]>) -> Case {
    let mut after = vec![0; fill.destination_len() as usize];
    let bytes = cell.as_ref().map_or(&[][..], |cell| &cell[..]);
    fill.run(0..fill.params().count, &mut after, bytes).expect("a valid fill");
    let params = fill.params().to_bytes().to_vec();
    let name = format!("{} of {} {:?} at {dst_at}", fill.kernel(), fill.dtype(), fill.params());
    let mut case = Case::new(fill.kernel(), name, params, dst_at, after);
    case.needs_fp64 = fill.dtype() == DType::F64;
    if cell.is_some() {
        case.src = [vec![0xee; src_at], bytes.to_vec()].concat();
        case.src_at = src_at;
    }
    case
}

pub(crate) fn random() -> Vec<Case> {
    let mut noise = Noise(2);
    let mut cases = Vec::new();
    let layouts = [Layout::Portable, Layout::TorchCuda { blocks: 1 }, Layout::TorchCuda { blocks: 3 }];
    for layout in layouts {
        for count in [0, 1, 2, 3, 5, 1027, 5003] {
            // The position is near where its lower half, or all of it, goes over.
            for (at, high) in [(noise.next() % 7, 0), (1, 0xffff_fffe), (u64::from(u32::MAX) - 2, 0xffff_ffff)] {
                let (seed, offset) = (noise.next(), (high << 32 | at) << 2);
                let draw = Draw { source: Source::Value { seed, offset }, layout };
                for fill in fills(count, draw) {
                    let (dst_at, src_at) = (noise.next() as usize % 17, noise.next() as usize % 17);
                    if at > 7 || high != 0 || count < 100 {
                        cases.push(case(fill, dst_at, 0, None));
                        continue;
                    }
                    let (seed, offset) = (noise.next(), noise.next() >> 20 << 2);
                    let mut cell = [0; 16];
                    cell[..8].copy_from_slice(&seed.to_le_bytes());
                    cell[8..].copy_from_slice(&offset.to_le_bytes());
                    cases.push(case(fill.with_source(Source::Cell { delta: 12 }), dst_at, src_at, Some(cell)));
                }
            }
        }
        let draw = Draw { source: Source::Value { seed: 5, offset: 8 }, layout };
        let large = fills(100_003, draw).into_iter().filter(|fill| fill.dtype().size() >= 4);
        cases.extend(large.map(|fill| case(fill, 0, 0, None)));
    }
    cases
}
