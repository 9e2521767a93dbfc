//! The elementary functions against those of the standard library in float64.

use super::math::*;

/// The distance in units of the last place of the true value, rounded to the type.
fn ulps_f32(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    let unit = f64::from(rounded.abs().next_up() - rounded.abs());
    (f64::from(got) - want).abs() / unit
}

#[test]
fn log_f32_is_near() {
    let mut worst = 0.0_f64;
    for bits in (2.0_f32.powi(-34).to_bits()..=1.0_f32.to_bits()).step_by(167) {
        let x = f32::from_bits(bits);
        worst = worst.max(ulps_f32(log_f32(x), f64::from(x).ln()));
    }
    assert!(worst < 1.5, "{worst} units in the last place");
    assert_eq!(log_f32(1.0).to_bits(), 0);
}

#[test]
fn sqrt_f32_is_near() {
    let mut worst = 0.0_f64;
    for bits in (2.0_f32.powi(-26).to_bits()..64.0_f32.to_bits()).step_by(167) {
        let x = f32::from_bits(bits);
        worst = worst.max(ulps_f32(sqrt_f32(x), f64::from(x).sqrt()));
    }
    assert!(worst < 0.75, "{worst} units in the last place");
    assert_eq!(sqrt_f32(0.0).to_bits(), 0);
    assert_eq!(sqrt_f32(-0.0).to_bits(), (-0.0_f32).to_bits());
}

#[test]
fn exp_f32_is_near_and_ends_where_the_type_does() {
    let mut worst = 0.0_f64;
    for i in -87_000..88_700 {
        let x = i as f32 * 1e-3;
        worst = worst.max(ulps_f32(exp_f32(x), f64::from(x).exp()));
    }
    assert!(worst < 1.5, "{worst} units in the last place");
    assert_eq!(exp_f32(0.0), 1.0);
    for x in [88.73, 89.0, 1e9, f32::INFINITY] {
        assert_eq!(exp_f32(x), f32::INFINITY, "{x}");
    }
    for x in [-104.0, -1e9, f32::NEG_INFINITY] {
        assert_eq!(exp_f32(x), 0.0, "{x}");
    }
    assert!((exp_f32(-100.0) / 3.72e-44 - 1.0).abs() < 0.05);
}

#[test]
fn sin_cos_f32_is_near() {
    let mut worst = 0.0_f64;
    for i in 0..1 << 19 {
        let turn = (i << 13 | i >> 6) as u32;
        let angle = (f64::from(turn) + 0.5) / 2.0_f64.powi(32) * std::f64::consts::TAU;
        let (sin, cos) = sin_cos_f32(turn);
        worst = worst.max((f64::from(sin) - angle.sin()).abs()).max((f64::from(cos) - angle.cos()).abs());
    }
    assert!(worst < 1.2e-7, "off by {worst}");
}

#[test]
fn the_functions_of_f64_are_near() {
    let (mut log, mut sqrt, mut exp, mut sin) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
    let mut state = 1_u64;
    for _ in 0..200_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = ((state >> 11) as f64 + 0.5) / 2.0_f64.powi(53);
        // Small ones and those near 1, too.
        for x in [unit, unit.powi(8), 1.0 - unit * 1e-9] {
            log = log.max((log_f64(x) / x.ln() - 1.0).abs());
            sqrt = sqrt.max((sqrt_f64(x * 80.0) / (x * 80.0).sqrt() - 1.0).abs());
        }
        let x = unit * 1400.0 - 700.0;
        exp = exp.max((exp_f64(x) / x.exp() - 1.0).abs());
        let turn = state >> 11;
        let (s, c) = sin_cos_f64(turn);
        let angle = (turn as f64 + 0.5) / 2.0_f64.powi(53) * std::f64::consts::TAU;
        sin = sin.max((s - angle.sin()).abs()).max((c - angle.cos()).abs());
    }
    assert!(log < 5e-16, "log off by {log:e}");
    assert!(sqrt < 3e-16, "sqrt off by {sqrt:e}");
    assert!(exp < 5e-16, "exp off by {exp:e}");
    // The angle itself, computed in float64 here, is off by that much.
    assert!(sin < 1.2e-15, "sin and cos off by {sin:e}");
    assert_eq!((log_f64(1.0), sqrt_f64(0.0), exp_f64(0.0)), (0.0, 0.0, 1.0));
    assert_eq!((exp_f64(710.0), exp_f64(-746.0)), (f64::INFINITY, 0.0));
}
