//! Random fills on one core, each beside the scalar textbook version and beside `rand`'s fastest generator (`SmallRng`;
//! normal numbers by `rand_distr`) in the same run: `cargo bench -p anyaccel-kernels --bench random [-- FILTER]`.
//!
//! The three take turns, and the fastest pass of each counts, so that other load on the machine hits all. A rate counts
//! the bytes written; a ratio above 1 says that ours is faster.

use anyaccel_hal::DType;
use anyaccel_kernels::philox::{Counter, block};
use anyaccel_kernels::random::{Draw, Fill};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Exp1, StandardNormal};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// In the second-level cache, in memory; and how many turns each takes.
const SIZES: [(&str, usize, usize); 2] = [("512 KiB", 512 << 10, 400), ("64 MiB", 64 << 20, 10)];

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    println!("{:<30} {:>8} {:>8} {:>17} {:>17}", "GB/s", "size", "ours", "textbook (ratio)", "rand (ratio)");
    for size in SIZES {
        for row in rows() {
            if row.name.contains(&filter) {
                run(&row, size);
            }
        }
    }
}

type Baseline = fn(&mut SmallRng, &mut [u8]);

struct Row {
    name: &'static str,
    fill: fn(u64, Draw) -> Fill,
    blocks: u32,
    textbook: Option<fn(u64, &mut [u8])>,
    rand: Option<Baseline>,
}

fn rows() -> Vec<Row> {
    fn valid<E: std::fmt::Debug>(fill: Result<Fill, E>) -> Fill {
        fill.expect("valid arguments")
    }
    let row = |name, fill, textbook, rand| Row { name, fill, blocks: 0, textbook, rand };
    // 132 multiprocessors of 2048 threads.
    let torch = |name, fill, textbook| Row { name, fill, blocks: 1056, textbook, rand: None };
    vec![
        row("bits u32", |n, draw| valid(Fill::bits(DType::U32, n, draw)), Some(textbook_bits), Some(rand_bits)),
        row(
            "uniform f32",
            |n, draw| valid(Fill::uniform(DType::F32, n, draw, 0.0, 1.0)),
            Some(textbook_uniform),
            Some(rand_uniform),
        ),
        row("uniform f64", |n, draw| valid(Fill::uniform(DType::F64, n, draw, 0.0, 1.0)), None, Some(rand_uniform_f64)),
        row("uniform f16", |n, draw| valid(Fill::uniform(DType::F16, n, draw, 0.0, 1.0)), None, None),
        row("uniform bf16", |n, draw| valid(Fill::uniform(DType::Bf16, n, draw, 0.0, 1.0)), None, None),
        row(
            "normal f32",
            |n, draw| valid(Fill::normal(DType::F32, n, draw, 0.0, 1.0)),
            Some(textbook_normal),
            Some(rand_normal),
        ),
        row("normal f64", |n, draw| valid(Fill::normal(DType::F64, n, draw, 0.0, 1.0)), None, Some(rand_normal_f64)),
        row("normal bf16", |n, draw| valid(Fill::normal(DType::Bf16, n, draw, 0.0, 1.0)), None, None),
        row("log-normal f32", |n, draw| valid(Fill::log_normal(DType::F32, n, draw, 0.0, 1.0)), None, None),
        row("exponential f32", |n, draw| valid(Fill::exponential(DType::F32, n, draw, 1.0)), None, Some(rand_exp)),
        row("geometric f32", |n, draw| valid(Fill::geometric(DType::F32, n, draw, 0.1)), None, None),
        row("Bernoulli bool", |n, draw| valid(Fill::bernoulli(DType::Bool, n, draw, 0.3)), None, Some(rand_bool)),
        row(
            "integers i64 below 1000",
            |n, draw| valid(Fill::integers(DType::I64, n, draw, 0, 1000)),
            None,
            Some(rand_i64),
        ),
        row("permutation i64", |n, draw| valid(Fill::permutation(DType::I64, n, draw)), None, None),
        torch(
            "uniform f32, torch-cuda",
            |n, draw| valid(Fill::uniform(DType::F32, n, draw, 0.0, 1.0)),
            Some(textbook_uniform),
        ),
        torch(
            "normal f32, torch-cuda",
            |n, draw| valid(Fill::normal(DType::F32, n, draw, 0.0, 1.0)),
            Some(textbook_normal),
        ),
        torch("integers i64, torch-cuda", |n, draw| valid(Fill::integers(DType::I64, n, draw, 0, 1000)), None),
    ]
}

fn run(row: &Row, (size_name, bytes, turns): (&str, usize, usize)) {
    let element = (row.fill)(0, Draw::portable(0, 0)).dtype().size();
    let draw = if row.blocks == 0 { Draw::portable(1, 0) } else { Draw::torch_cuda(1, 0, row.blocks) };
    let fill = (row.fill)((bytes / element) as u64, draw);
    let mut out = vec![0_u8; bytes];
    let mut rng = SmallRng::seed_from_u64(1);
    let turn = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let mut best = [Duration::MAX; 3];
    for _ in 0..turns {
        best[0] = best[0].min(turn(&mut || {
            // By chunks, as a backend runs it.
            for range in fill.split().ranges() {
                let part = &mut out[range.start as usize * element..range.end as usize * element];
                let done = fill.run(range, black_box(part), &[]);
                assert!(done.is_ok());
            }
        }));
        if let Some(textbook) = row.textbook {
            best[1] = best[1].min(turn(&mut || textbook(1, black_box(&mut out))));
        }
        if let Some(rand) = row.rand {
            best[2] = best[2].min(turn(&mut || rand(&mut rng, black_box(&mut out))));
        }
    }
    let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    let ours = rate(best[0]);
    let other = |time: Duration| match time {
        Duration::MAX => format!("{:>17}", ""),
        time => format!("{:>8.2} ({:>5.1}x)", rate(time), ours / rate(time)),
    };
    println!("{:<30} {size_name:>8} {ours:>8.2} {} {}", row.name, other(best[1]), other(best[2]));
}

fn textbook_bits(seed: u64, out: &mut [u8]) {
    for (low, out) in (0..).zip(out.as_chunks_mut::<16>().0) {
        *out = join(block(seed, Counter { low, high: 0 }));
    }
}

fn textbook_uniform(seed: u64, out: &mut [u8]) {
    for (low, out) in (0..).zip(out.as_chunks_mut::<16>().0) {
        let words = block(seed, Counter { low, high: 0 });
        *out = join(words.map(|x| (x as f32 * 2.0_f32.powi(-32) + 2.0_f32.powi(-33)).to_bits()));
    }
}

fn textbook_normal(seed: u64, out: &mut [u8]) {
    for (low, out) in (0..).zip(out.as_chunks_mut::<16>().0) {
        let units = block(seed, Counter { low, high: 0 }).map(|x| x as f32 * 2.0_f32.powi(-32) + 2.0_f32.powi(-33));
        let pair = |u: f32, v: f32| {
            let (sin, cos) = (v * std::f32::consts::TAU).sin_cos();
            let radius = (-2.0 * u.ln()).sqrt();
            [radius * sin, radius * cos]
        };
        let ([a, b], [c, d]) = (pair(units[0], units[1]), pair(units[2], units[3]));
        *out = join([a, b, c, d].map(f32::to_bits));
    }
}

fn join([a, b, c, d]: [u32; 4]) -> [u8; 16] {
    let low = u64::from(b) << 32 | u64::from(a);
    let high = u64::from(d) << 32 | u64::from(c);
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

fn rand_bits(rng: &mut SmallRng, out: &mut [u8]) {
    rng.fill_bytes(out);
}

fn each<const SIZE: usize>(out: &mut [u8], mut value: impl FnMut() -> [u8; SIZE]) {
    for out in out.as_chunks_mut::<SIZE>().0 {
        *out = value();
    }
}

fn rand_uniform(rng: &mut SmallRng, out: &mut [u8]) {
    each(out, || rng.random::<f32>().to_le_bytes());
}

fn rand_uniform_f64(rng: &mut SmallRng, out: &mut [u8]) {
    each(out, || rng.random::<f64>().to_le_bytes());
}

fn rand_normal(rng: &mut SmallRng, out: &mut [u8]) {
    each(out, || rng.sample::<f32, _>(StandardNormal).to_le_bytes());
}

fn rand_normal_f64(rng: &mut SmallRng, out: &mut [u8]) {
    each(out, || rng.sample::<f64, _>(StandardNormal).to_le_bytes());
}

fn rand_exp(rng: &mut SmallRng, out: &mut [u8]) {
    each(out, || rng.sample::<f32, _>(Exp1).to_le_bytes());
}

fn rand_bool(rng: &mut SmallRng, out: &mut [u8]) {
    each(out, || [u8::from(rng.random_bool(0.3))]);
}

fn rand_i64(rng: &mut SmallRng, out: &mut [u8]) {
    each(out, || rng.random_range(0..1000_i64).to_le_bytes());
}
