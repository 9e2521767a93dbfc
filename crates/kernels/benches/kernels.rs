//! The built-in kernels on one core, each beside what a textbook or the standard library does with the same bytes in the
//! same run: `cargo bench -p anyaccel-kernels [-- FILTER]`.
//!
//! Subject and baseline take turns, and the fastest turn of each counts, so that other load on the machine hits both.
//! A rate counts the bytes of the larger side; the ratio is subject to baseline, above 1 is faster.

use anyaccel_hal::DType;
use anyaccel_kernels::fill_pattern::Pattern;
use anyaccel_kernels::{convert, fill_pattern, histogram, noop};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// In the second-level cache, in the third-level cache, in memory.
const SIZES: [(&str, usize); 3] = [("512 KiB", 512 << 10), ("16 MiB", 16 << 20), ("512 MiB", 512 << 20)];

const TURNS: usize = 7;

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    println!("{:<34} {:>8} {:>10} {:>10}  {:>6} of", "", "size", "GB/s", "baseline", "ratio");
    let mut bench = Bench { filter };
    bench_noop(&bench);
    bench_histogram(&mut bench);
    bench_fill(&mut bench);
    bench_convert(&mut bench);
}

struct Bench {
    filter: String,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }

    fn row(
        &mut self,
        name: &str,
        (size_name, bytes): (&str, usize),
        mut subject: impl FnMut(),
        baseline_name: &str,
        mut baseline: impl FnMut(),
    ) {
        let repeats = ((64 << 20) / bytes).max(1);
        let turn = |work: &mut dyn FnMut()| {
            let start = Instant::now();
            (0..repeats).for_each(|_| work());
            start.elapsed()
        };
        let mut best = [Duration::MAX; 2];
        for _ in 0..TURNS {
            best[0] = best[0].min(turn(&mut subject));
            best[1] = best[1].min(turn(&mut baseline));
        }
        let [ours, theirs] = best.map(|time| (bytes * repeats) as f64 / time.as_secs_f64() / 1e9);
        let ratio = ours / theirs;
        println!("{name:<34} {size_name:>8} {ours:>10.2} {theirs:>10.2}  {ratio:>6.2} {baseline_name}");
    }
}

fn bench_noop(bench: &Bench) {
    if bench.wants("noop") {
        let calls = 10_000_000;
        let start = Instant::now();
        (0..calls).for_each(|_| black_box(noop::noop as fn())());
        let each = start.elapsed().as_secs_f64() / f64::from(calls) * 1e9;
        println!("{:<34} {each:>30.2} ns a call", "noop");
    }
}

/// A buffer on a cache line, as device memory is.
struct Aligned(Vec<u8>);

impl Aligned {
    const LINE: usize = 64;

    fn new(len: usize, byte: u8) -> Aligned {
        Aligned(vec![byte; len + Aligned::LINE])
    }

    fn bytes(&mut self) -> &mut [u8] {
        let (start, len) = (self.0.as_ptr().align_offset(Aligned::LINE), self.0.len() - Aligned::LINE);
        &mut self.0[start..][..len]
    }
}

/// Cheap noise, so that the branch predictor has nothing to learn.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len / 8).flat_map(|_| next()).collect()
}

fn bench_histogram(bench: &mut Bench) {
    let program = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    for size in SIZES {
        let random = noise(size.1);
        let program: Vec<u8> = program.iter().copied().cycle().take(size.1).collect();
        let zeros = vec![0_u8; size.1];
        for (name, data) in [("random", &random), ("a program", &program), ("zeros", &zeros)] {
            let name = format!("histogram {name}");
            if !bench.wants(&name) || data.len() != size.1 {
                continue;
            }
            let (mut ours, mut theirs) = ([0; 256], [0; 256]);
            let subject = || {
                // By chunks, as a backend runs it.
                for range in histogram::split(data.len() as u64).ranges() {
                    let part = &data[range.start as usize..range.end as usize];
                    histogram::count(black_box(part), &mut ours);
                }
            };
            let baseline = || textbook_histogram(black_box(data), &mut theirs);
            bench.row(&name, size, subject, "the textbook loop", baseline);
            assert_eq!(ours, theirs);
        }
    }
}

#[inline(never)]
fn textbook_histogram(data: &[u8], counts: &mut [u64; 256]) {
    for &byte in data {
        counts[usize::from(byte)] += 1;
    }
}

fn bench_fill(bench: &mut Bench) {
    for size in SIZES {
        let (mut range, mut other) = (Aligned::new(size.1, 1), Aligned::new(size.1, 1));
        let (range, other) = (range.bytes(), other.bytes());
        for len in [1, 2, 4, 8, 16] {
            let name = format!("fill_pattern of {len} bytes");
            if !bench.wants(&name) {
                continue;
            }
            let bytes: Vec<u8> = (0..len).collect();
            let Ok(pattern) = Pattern::new(&bytes) else { continue };
            let subject = || fill_pattern::fill(black_box(&mut range[..]), pattern);
            bench.row(&name, size, subject, "memset", || black_box(&mut other[..]).fill(7));
        }
    }
}

fn bench_convert(bench: &mut Bench) {
    use DType::*;
    let pairs = [
        (F32, F32),
        (F32, F16),
        (F16, F32),
        (F32, Bf16),
        (Bf16, F32),
        (F64, F32),
        (F32, F64),
        (U8, F32),
        (F32, U8),
        (I32, F32),
        (F32, I32),
        (I64, F32),
        (F32, I64),
        (U8, I64),
        (I64, I32),
        (F32, Bool),
        (F32, F8E4m3fn),
        (F8E4m3fn, F32),
        (F32, F8E5m2fnuz),
        (Bf16, F16),
        (F16, F8E5m2),
        (U8, F16),
        (C64, C32),
        (F32, C64),
    ];
    for size in SIZES {
        for (src, dst) in pairs {
            let name = format!("convert {src} to {dst}");
            if !bench.wants(&name) {
                continue;
            }
            let count = size.1 / src.size().max(dst.size());
            let (mut input, mut output) = (Aligned::new(count * src.size(), 0x3f), Aligned::new(count * dst.size(), 0));
            let (mut from, mut to) = (Aligned::new(size.1, 1), Aligned::new(size.1, 0));
            let (input, output) = (input.bytes(), output.bytes());
            let (from, to) = (from.bytes(), to.bytes());
            let subject = || {
                for range in convert::split(count as u64).ranges() {
                    let (start, end) = (range.start as usize, range.end as usize);
                    let source = &input[start * src.size()..end * src.size()];
                    let destination = &mut output[start * dst.size()..end * dst.size()];
                    let result = convert::convert(dst, black_box(destination), src, black_box(source));
                    assert!(result.is_ok());
                }
            };
            let baseline = || black_box(&mut to[..]).copy_from_slice(black_box(from));
            bench.row(&name, size, subject, "memcpy of the larger side", baseline);
        }
    }
}
