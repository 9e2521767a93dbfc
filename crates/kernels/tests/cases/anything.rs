//! A launch of any built-in with any arguments.

use super::{Case, Noise, conversions, counted, filled, fills};
use anyaccel_hal::DType;
use anyaccel_kernels::random::{Draw, Fill, Layout, Source};

/// Numbers of all sizes: of `bits` bits, of which the upper ones are often 0.
fn sized(noise: &mut Noise, bits: u32) -> u64 {
    noise.next() >> (64 - bits) >> (noise.next() % u64::from(bits))
}

/// Floats of all sizes, often small ones.
fn float(noise: &mut Noise) -> f64 {
    let x = f64::from_bits(noise.next());
    match noise.next() % 4 {
        0 if x.is_finite() => x,
        1 => f64::from(f32::from_bits(noise.next() as u32)),
        2 => (noise.next() % 200) as f64 - 100.0,
        _ => noise.next() as f64 / 2_f64.powi(62) - 2.0,
    }
}

/// A fill; `None` if its arguments turn out to be none.
fn fill(noise: &mut Noise) -> Option<Fill> {
    let dtype = DType::ALL[noise.next() as usize % DType::ALL.len()];
    let count = sized(noise, 14);
    let blocks = 1 + sized(noise, 8) as u32;
    let layout = if noise.coin() { Layout::Portable } else { Layout::TorchCuda { blocks } };
    let draw = Draw { source: Source::Value { seed: noise.next(), offset: noise.next() & !3 }, layout };
    let probability = noise.next() as f64 / 2_f64.powi(64);
    let (x, y) = (float(noise), float(noise));
    let fill = match noise.next() % 10 {
        0 => Fill::bits(dtype, count, draw),
        1 => Fill::uniform(dtype, count, draw, x.min(y), x.max(y)),
        2 => Fill::normal(dtype, count, draw, x, y.abs()),
        3 => Fill::log_normal(dtype, count, draw, x, y.abs()),
        4 => Fill::exponential(dtype, count, draw, x.abs()),
        5 => Fill::geometric(dtype, count, draw, probability.powi(1 + (noise.next() % 20) as i32)),
        6 => Fill::bernoulli(dtype, count, draw, probability),
        7 => {
            let from = i128::from(noise.next() as i64 >> (noise.next() % 64));
            Fill::integers(dtype, count, draw, from, from + 1 + i128::from(sized(noise, 64)))
        }
        8 => Fill::whole_numbers(dtype, count, draw),
        _ => Fill::permutation(dtype, count, Draw { layout: Layout::Portable, ..draw }),
    };
    fill.ok()
}

/// The launch of a seed.
pub(crate) fn anything(seed: u64) -> Case {
    let mut noise = Noise(seed);
    let (dst_at, src_at) = (noise.next() as usize % 32, noise.next() as usize % 32);
    match noise.next() % 8 {
        0 => filled(sized(&mut noise, 14) as usize, dst_at, 1 << (noise.next() % 5), noise.next()),
        1 => counted(sized(&mut noise, 17) as usize, dst_at / 8 * 8, src_at, noise.next()),
        2..=4 => {
            let [dst, src] = [0; 2].map(|_| DType::ALL[noise.next() as usize % DType::ALL.len()]);
            let count = sized(&mut noise, 12) as usize;
            let elements = if noise.coin() {
                noise.bytes(count * src.size())
            } else {
                // From somewhere on, in a list of numbers at which conversions go wrong.
                let all = conversions::elements(src);
                let at = noise.next() as usize % (all.len() / src.size());
                all[at * src.size()..].iter().copied().take(count * src.size()).collect()
            };
            conversions::case(dst, src, &elements, dst_at, src_at)
        }
        _ => {
            let fill = std::iter::repeat_with(|| fill(&mut noise)).flatten().next();
            let fill = fill.expect("one among very many to be valid");
            if noise.coin() {
                return fills::case(fill, dst_at, 0, None);
            }
            let mut cell = [0; 16];
            cell[..8].copy_from_slice(&noise.next().to_le_bytes());
            cell[8..].copy_from_slice(&noise.next().to_le_bytes());
            let fill = fill.with_source(Source::Cell { delta: sized(&mut noise, 40) & !3 });
            fills::case(fill, dst_at, src_at, Some(cell))
        }
    }
}
