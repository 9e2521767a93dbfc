//! Whether the numbers look as they should. Seeds are fixed, so a test that passes once passes always; the bounds are those
//! that one run in about 10^5 would exceed.

use super::*;

const N: u64 = 1 << 18;

fn seeds() -> impl Iterator<Item = Draw> {
    [0, 1, 0xdead_beef].into_iter().flat_map(|seed| [Draw::portable(seed, 0), Draw::torch_cuda(seed, 0, 40)])
}

/// Mean, variance and the correlation of neighbours, each within 4.5 standard errors.
fn moments(values: &[f64], mean: f64, variance: f64, kurtosis: f64, what: &str) {
    let n = values.len() as f64;
    let got_mean = values.iter().sum::<f64>() / n;
    let got_variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let product = |lag: usize| values.iter().zip(&values[lag..]).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>() / n;
    let error = (variance / n).sqrt();
    assert!((got_mean - mean).abs() < 4.5 * error, "{what}: mean {got_mean}");
    let error = variance * ((kurtosis - 1.0) / n).sqrt();
    assert!((got_variance - variance).abs() <= 4.5 * error, "{what}: variance {got_variance}");
    for lag in [1, 2, 3, 4, 256] {
        let correlation = product(lag) / variance;
        assert!(correlation.abs() < 4.5 / n.sqrt(), "{what}: correlation {correlation} at distance {lag}");
    }
}

/// Counts against expectations, within 4.5 standard deviations of chi-square.
fn chi_square(counts: &[f64], expected: &[f64], what: &str) {
    let sum: f64 = counts.iter().zip(expected).map(|(count, expected)| (count - expected).powi(2) / expected).sum();
    let freedom = counts.len() as f64 - 1.0;
    assert!((sum - freedom).abs() < 4.5 * (2.0 * freedom).sqrt() + 4.0, "{what}: chi-square {sum} of {freedom}");
}

fn bins(values: &[f64], bins: usize, bin: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut counts = vec![0.0; bins];
    for &value in values {
        counts[((bin(value) * bins as f64) as usize).min(bins - 1)] += 1.0;
    }
    counts
}

/// The distribution function of the normal distribution (its error is below 1e-7; Abramowitz and Stegun 7.1.26).
fn normal_cdf(x: f64) -> f64 {
    let z = x.abs() / 2.0_f64.sqrt();
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let tail = series.iter().fold(0.0, |sum, c| sum * t + c) * t * (-z * z).exp() / 2.0;
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[test]
fn uniform_numbers() {
    for draw in seeds() {
        for dtype in [DType::F32, DType::F64] {
            let values = f64s(&Fill::uniform(dtype, N, draw, -2.0, 6.0).expect("valid"));
            let what = format!("{dtype} {draw:?}");
            assert!(values.iter().all(|x| (-2.0..6.0).contains(x)), "{what}");
            moments(&values, 2.0, 64.0 / 12.0, 1.8, &what);
            chi_square(&bins(&values, 1000, |x| (x + 2.0) / 8.0), &[N as f64 / 1000.0; 1000], &what);
            // Pairs of neighbours over a square.
            let mut pairs = vec![0.0; 32 * 32];
            for pair in values.as_chunks::<2>().0 {
                let [x, y] = pair.map(|x| ((x + 2.0) * 4.0) as usize);
                pairs[x * 32 + y] += 1.0;
            }
            chi_square(&pairs, &[N as f64 / 2.0 / 1024.0; 1024], &what);
        }
    }
}

#[test]
fn narrow_uniform_numbers_stay_below_their_bound() {
    for dtype in [DType::F16, DType::Bf16] {
        for (from, to) in [(0.0, 1.0), (-1.0, 0.0), (100.0, 101.0)] {
            let values = f64s(&Fill::uniform(dtype, N, Draw::portable(2, 0), from, to).expect("valid"));
            assert!(values.iter().all(|&x| from <= x && x < to), "{dtype} {from} {to}");
        }
    }
}

#[test]
fn normal_numbers() {
    for draw in seeds() {
        for dtype in [DType::F32, DType::F64] {
            let values = f64s(&Fill::normal(dtype, N, draw, 1.0, 2.0).expect("valid"));
            let what = format!("{dtype} {draw:?}");
            moments(&values, 1.0, 4.0, 3.0, &what);
            chi_square(&bins(&values, 500, |x| normal_cdf((x - 1.0) / 2.0)), &[N as f64 / 500.0; 500], &what);
            let logs: Vec<f64> =
                f64s(&Fill::log_normal(dtype, N, draw, 1.0, 2.0).expect("valid")).iter().map(|x| x.ln()).collect();
            let far = logs.iter().zip(&values).map(|(log, x)| (log - x).abs()).fold(0.0, f64::max);
            assert!(far < 3e-6, "log-normal numbers are the exponentials of the normal ones: off by {far}");
        }
    }
}

#[test]
fn exponential_numbers() {
    for draw in seeds() {
        for dtype in [DType::F32, DType::F64] {
            let values = f64s(&Fill::exponential(dtype, N, draw, 2.0).expect("valid"));
            let what = format!("{dtype} {draw:?}");
            assert!(values.iter().all(|&x| x > 0.0), "{what}");
            moments(&values, 0.5, 0.25, 9.0, &what);
            chi_square(&bins(&values, 500, |x| 1.0 - (-2.0 * x).exp()), &[N as f64 / 500.0; 500], &what);
        }
    }
}

#[test]
fn geometric_numbers() {
    let p = 0.3;
    for draw in seeds() {
        for dtype in [DType::F32, DType::F64, DType::I32] {
            let values = f64s(&Fill::geometric(dtype, N, draw, p).expect("valid"));
            let what = format!("{dtype} {draw:?}");
            assert!(values.iter().all(|&x| x >= 1.0 && x.fract() == 0.0), "{what}");
            let mut counts = [0.0; 20];
            for value in values {
                counts[(value as usize - 1).min(19)] += 1.0;
            }
            let mut expected = [0.0; 20];
            for (k, expected) in expected.iter_mut().enumerate() {
                let tail = (1.0 - p).powi(k as i32);
                *expected = N as f64 * if k < 19 { tail * p } else { tail };
            }
            chi_square(&counts, &expected, &what);
        }
    }
}

#[test]
fn trials() {
    for draw in seeds() {
        for dtype in [DType::Bool, DType::F64] {
            for p in [0.001, 0.3, 0.5, 0.97] {
                let values = f64s(&Fill::bernoulli(dtype, N, draw, p).expect("valid"));
                assert!(values.iter().all(|&x| x == 0.0 || x == 1.0));
                let variance = p * (1.0 - p);
                moments(
                    &values,
                    p,
                    variance,
                    3.0 + (1.0 - 6.0 * variance) / variance,
                    &format!("{p} {dtype} {draw:?}"),
                );
            }
        }
    }
    for dtype in [DType::Bool, DType::F64] {
        let all = |p| f64s(&Fill::bernoulli(dtype, N, Draw::portable(3, 0), p).expect("valid"));
        assert!(all(0.0).iter().all(|&x| x == 0.0) && all(1.0).iter().all(|&x| x == 1.0));
    }
}

#[test]
fn integers_and_bits() {
    for draw in seeds() {
        let values = i64s(&Fill::integers(DType::I16, N, draw, -50, 51).expect("valid"));
        let what = format!("{draw:?}");
        assert!(values.iter().all(|x| (-50..=50).contains(x)), "{what}");
        let values: Vec<f64> = values.iter().map(|&x| x as f64).collect();
        chi_square(&bins(&values, 101, |x| (x + 50.5) / 101.0), &[N as f64 / 101.0; 101], &what);
        moments(&values, 0.0, (101.0 * 101.0 - 1.0) / 12.0, 1.8, &what);
        let wide = f64s(&Fill::integers(DType::I64, N, draw, -(1 << 62), 1 << 62).expect("valid"));
        let unit = 2.0_f64.powi(63);
        chi_square(&bins(&wide, 1000, |x| x / unit + 0.5), &[N as f64 / 1000.0; 1000], &what);
        let bytes = whole(&Fill::bits(DType::U8, N, draw).expect("valid"));
        let mut counts = [0; 256];
        crate::histogram::count(&bytes, &mut counts);
        chi_square(&counts.map(|n| n as f64), &[N as f64 / 256.0; 256], &what);
    }
}

#[test]
fn every_permutation_has_each_number_once() {
    for count in [0, 1, 2, 3, 100, permutation::SMALL, permutation::SMALL + 1, 8192, 8193, 100_003] {
        for seed in 0..4 {
            let mut values = i64s(&Fill::permutation(DType::I32, count, Draw::portable(seed, 8)).expect("valid"));
            assert!(count < 100 || values != (0..count as i64).collect::<Vec<_>>());
            values.sort_unstable();
            assert_eq!(values, (0..count as i64).collect::<Vec<_>>());
        }
    }
}

/// All 24 orders of four, and where each number of many goes.
#[test]
fn permutations_are_random() {
    let mut orders = std::collections::BTreeMap::new();
    for seed in 0..7200 {
        let order = i64s(&Fill::permutation(DType::I64, 4, Draw::portable(seed, 0)).expect("valid"));
        *orders.entry(order).or_insert(0.0) += 1.0;
    }
    assert_eq!(orders.len(), 24);
    chi_square(&orders.into_values().collect::<Vec<_>>(), &[300.0; 24], "orders of four");

    for count in [5000, 8192, 300_000] {
        let n = count as usize;
        let runs = 2_400_000 / count;
        let (mut targets, mut steps, mut fixed) = (vec![0.0; 32 * 32], vec![0.0; 64], 0);
        for seed in 0..runs {
            let order = i64s(&Fill::permutation(DType::I64, count, Draw::portable(seed, 0)).expect("valid"));
            for (i, &to) in order.iter().enumerate() {
                targets[i * 32 / n * 32 + to as usize * 32 / n] += 1.0;
                fixed += u32::from(i as i64 == to);
            }
            for pair in order.windows(2) {
                let step = (pair[1] - pair[0]).rem_euclid(count as i64) as usize;
                steps[step * 64 / n] += 1.0;
            }
        }
        // Bins may differ by one in size, and no step is 0.
        let mut sizes = [0.0; 32];
        (0..n).for_each(|i| sizes[i * 32 / n] += 1.0);
        let each = |a: f64, b: f64| a * b / n as f64 * runs as f64;
        let expected: Vec<f64> = sizes.iter().flat_map(|&a| sizes.map(|b| each(a, b))).collect();
        let sum: f64 = targets.iter().zip(&expected).map(|(x, e)| (x - e).powi(2) / e).sum();
        // The sums of rows and columns are given, so 31 * 31 are free.
        assert!((sum - 961.0).abs() < 4.5 * (2.0 * 961.0_f64).sqrt(), "{count}: chi-square {sum} of 961");
        let mut expected = [0.0; 64];
        (1..n).for_each(|step| expected[step * 64 / n] += runs as f64);
        chi_square(&steps, &expected, &format!("steps of {count}"));
        // One is expected in each run.
        let error = (runs as f64).sqrt();
        assert!((f64::from(fixed) - runs as f64).abs() < 4.5 * error, "{count}: {fixed} fixed points in {runs} runs");
    }
}
