//! The parameters to the byte, and what is refused.

use super::*;
use crate::KernelError;

#[test]
fn the_parameters_are_laid_out_as_described() {
    let draw = Draw::torch_cuda(0x0807_0605_0403_0201, 0x1817_1615_1413_1211, 0x3231_3029);
    let fill = Fill::uniform(DType::F32, 0x0102, draw, 1.0, 3.0).expect("valid");
    let mut want = vec![2, 1, 0, 0, 0, 0, 0, 0];
    want.extend([1, 2, 3, 4, 5, 6, 7, 8]);
    want.extend([0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
    want.extend([0, 0, 0, 0, 0x29, 0x30, 0x31, 0x32, 6, 0, 0, 0, 0, 0, 0, 0]);
    for constant in [1.0, 3.0, 2.0_f64] {
        want.extend(constant.to_le_bytes());
    }
    assert_eq!(fill.params().to_bytes()[..], want);

    let cell = Draw { source: Source::Cell { delta: 8 }, layout: Layout::Portable };
    let fill = Fill::integers(DType::U8, 1, cell, 5, 9).expect("valid");
    let Params { seed, offset, source, layout, dtype, reduction, a, b, c, .. } = *fill.params();
    assert_eq!((seed, offset, source, layout, dtype, reduction, a, b, c), (0, 8, 1, 0, 0, 0, 4, 5, 0));
    let torch = |to| *Fill::integers(DType::I64, 1, Draw::torch_cuda(0, 0, 1), -1, to).expect("valid").params();
    assert_eq!((torch((1 << 28) - 2).reduction, torch((1 << 28) - 1).reduction), (2, 1));
    assert_eq!(torch(3).b, u64::MAX);
    let whole_range = *Fill::integers(DType::I64, 1, draw, -(1 << 63), 1 << 63).expect("valid").params();
    assert_eq!((whole_range.a, whole_range.b, whole_range.reduction), (0, 0, 1));
}

#[test]
fn parameters_survive_the_trip() {
    for draw in [
        Draw::portable(u64::MAX, 4),
        Draw { source: Source::Cell { delta: 4 }, layout: Layout::TorchCuda { blocks: 9 } },
    ] {
        for fill in all_fills(77, draw) {
            assert_eq!(Fill::from_bytes(fill.kernel(), &fill.params().to_bytes()), Ok(fill));
        }
    }
    for len in [0, 63, 65] {
        let kernel = Builtin::RandomNormal;
        let error = Fill::from_bytes(kernel, &[0; 65][..len]).unwrap_err();
        assert_eq!(error, KernelError::ParamsSize { kernel, given: len });
        assert!(error.to_string().contains("random_normal") && error.to_string().contains("64 bytes"), "{error}");
    }
}

#[test]
fn parameters_without_meaning_are_refused() {
    let good = *Fill::normal(DType::F32, 5, Draw::portable(0, 0), 0.0, 1.0).expect("valid").params();
    let kernel = Builtin::RandomNormal;
    let field = |field, value| Err(KernelError::RandomField { kernel, field, value });
    assert_eq!(Fill::new(kernel, Params { source: 2, ..good }), field("source", 2));
    assert_eq!(Fill::new(kernel, Params { dtype: 300, ..good }), field("dtype", 300));
    assert_eq!(Fill::new(kernel, Params { reduction: 1, ..good }), field("reduction", 1));
    assert_eq!(
        Fill::new(kernel, Params { dtype: 4, ..good }),
        Err(KernelError::RandomDType { kernel, dtype: DType::I64 })
    );
    let count = 1 << 62;
    assert_eq!(
        Fill::new(kernel, Params { count, ..good }),
        Err(KernelError::RandomCount { kernel, dtype: DType::F32, count })
    );
    assert!(Fill::new(Builtin::Noop, good).is_err());
    let kernel = Builtin::RandomPermutation;
    let permuted = *Fill::permutation(DType::I64, 5, Draw::portable(0, 0)).expect("valid").params();
    assert_eq!(Fill::new(kernel, Params { layout: 1, ..permuted }), Err(KernelError::RandomLayout { kernel }));
    assert!(Fill::uniform(DType::F32, 1, Draw::torch_cuda(0, 0, 0), 0.0, 1.0).is_err(), "no blocks");
}

#[test]
fn arguments_out_of_range_are_refused_by_name() {
    let draw = Draw::portable(0, 0);
    let refused = |fill: Result<Fill, KernelError>, name: &str| {
        let error = fill.expect_err(name).to_string();
        assert!(error.contains(&format!(" {name} is")), "{name}: {error}");
    };
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e39] {
        refused(Fill::uniform(DType::F32, 1, draw, bad, 2.0), "from");
        refused(Fill::uniform(DType::F32, 1, draw, 2.0, bad), "to");
        refused(Fill::normal(DType::F32, 1, draw, bad, 1.0), "mean");
        refused(Fill::log_normal(DType::F32, 1, draw, 0.0, bad), "std");
        refused(Fill::exponential(DType::F32, 1, draw, bad), "lambda");
    }
    refused(Fill::uniform(DType::F16, 1, draw, 0.0, 65536.0), "to");
    refused(Fill::uniform(DType::F32, 1, draw, 1.0, 0.5), "to");
    refused(Fill::uniform(DType::F32, 1, draw, -3e38, 3e38), "to - from");
    refused(Fill::normal(DType::F64, 1, draw, 0.0, -0.1), "std");
    for bad in [0.0, -1.0, 1e-40] {
        refused(Fill::exponential(DType::F32, 1, draw, bad), "lambda");
    }
    for bad in [0.0, 1.0, -0.5, 1.5, f64::NAN] {
        refused(Fill::geometric(DType::F32, 1, draw, bad), "p");
    }
    for bad in [-0.1, 1.0000001, f64::NAN] {
        refused(Fill::bernoulli(DType::Bool, 1, draw, bad), "p");
    }
    for (dtype, from, to) in [
        (DType::I64, 5, 5),
        (DType::I64, 6, 5),
        (DType::U8, 0, 257),
        (DType::U8, -1, 5),
        (DType::I8, -129, 0),
        (DType::Bool, 0, 3),
        (DType::F16, 0, 65506),
        (DType::I64, 0, (1 << 63) + 1),
        (DType::U64, 0, (1 << 64) + 1),
    ] {
        let error = Fill::integers(dtype, 1, draw, from, to).expect_err("a bad range");
        assert!(matches!(error, KernelError::RandomRange { .. }), "{error}");
        assert!(error.to_string().contains(&format!("from {from} on and below {to}")), "{error}");
    }
    assert!(Fill::permutation(DType::I32, (1 << 31) + 1, draw).is_err());
    assert!(Fill::permutation(DType::I32, 1 << 31, draw).is_ok());
    assert!(Fill::permutation(DType::I16, 5, draw).is_err());
    assert!(Fill::bits(DType::F32, 5, draw).is_err());
    assert!(Fill::integers(DType::C64, 5, draw, 0, 1).is_err());
}

#[test]
fn parts_of_a_wrong_size_are_refused() {
    let fill = Fill::bits(DType::U16, 10, Draw::portable(0, 0)).expect("valid");
    let kernel = Builtin::RandomBits;
    let dtype = DType::U16;
    let mut part = [7; 20];
    let wrong = fill.run(0..10, &mut part[..19], &[]);
    assert_eq!(wrong, Err(KernelError::RandomLength { kernel, dtype, count: 10, len: 19 }));
    for (start, end) in [(0, 11), (11, 11), (5, 4), (u64::MAX, u64::MAX)] {
        let wrong = fill.run(start..end, &mut part, &[]);
        assert_eq!(wrong, Err(KernelError::RandomElements { kernel, start, end, count: 10 }));
    }
    assert_eq!(part, [7; 20]);
}

/// The probability of the torch-cuda layout is that of PyTorch's comparison.
#[test]
fn thresholds_of_trials() {
    let threshold = |dtype, draw, p| Fill::bernoulli(dtype, 1, draw, p).expect("valid").params().a;
    let (portable, torch) = (Draw::portable(0, 0), Draw::torch_cuda(0, 0, 1));
    assert_eq!(threshold(DType::Bool, portable, 0.0), 0);
    assert_eq!(threshold(DType::Bool, portable, 1.0), 1 << 32);
    assert_eq!(threshold(DType::Bool, portable, 0.25), 1 << 30);
    assert_eq!(threshold(DType::F64, portable, 1.0), 1 << 53);
    assert_eq!(threshold(DType::Bool, torch, 0.0), 0);
    // From 2^32 - 128 on a word rounds to 2^32.
    assert_eq!(threshold(DType::Bool, torch, 1.0), (1 << 32) - 128);
    for p in [0.5, 0.1, 0.999, 1e-7] {
        let t = threshold(DType::U8, torch, p) as u32;
        assert!(stage::unit_f32(t - 1) < p as f32 && stage::unit_f32(t) >= p as f32, "{p}");
        let t = threshold(DType::F64, torch, p);
        assert!(stage::unit_f64(t - 1) < p && stage::unit_f64(t) >= p, "{p}");
    }
}

/// Parameters of a launch come from outside: whatever they are, they are refused or do what they say.
#[test]
fn no_parameters_cause_a_panic() {
    let mut state = 0_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let extremes =
        [0.0_f64, -0.0, 1.0, -1.5, 1e300, -1e-300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(f64::to_bits);
    let counts = [0, 1, 5, 300, 5000, 1 << 31, (1 << 60) - 1, i64::MAX as u64, u64::MAX];
    let mut accepted = 0;
    for _ in 0..20_000 {
        let kernel = Builtin::ALL[next(Builtin::ALL.len() as u64) as usize];
        let dtype = DType::ALL[next(DType::ALL.len() as u64) as usize];
        let mut constant = || if next(4) == 0 { next(u64::MAX) << next(64) } else { extremes[next(9) as usize] };
        let [a, b, c, seed, offset] = [(); 5].map(|()| constant());
        let layout = [0, 1, 2, 1000, u32::MAX][next(5) as usize];
        let (source, reduction) = (next(3) as u32, next(4) as u32);
        let count = counts[next(9) as usize];
        let dtype = u32::from(dtype.number());
        let params = Params { count, seed, offset, source, layout, dtype, reduction, a, b, c };
        let Ok(fill) = Fill::from_bytes(kernel, &params.to_bytes()) else { continue };
        accepted += 1;
        let len = count.min(next(600));
        let start = [0, next(count - len + 1), count - len][next(3) as usize];
        let mut part = vec![0; len as usize * fill.dtype().size()];
        fill.run(start..start + len, &mut part, &[0x8f; 16]).expect("a part of the fill");
        assert!(fill.split().chunks() > 0 || count == 0);
    }
    assert!(accepted > 500, "{accepted} of them were accepted");
}
