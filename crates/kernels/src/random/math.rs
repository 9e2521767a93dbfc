//! Elementary functions that give the same bits on every device.
//!
//! They use nothing but additions, multiplications and `fma`, each rounded to nearest, in the order written here, and
//! operations on bits and integers. Subnormal numbers are kept. Nothing may be contracted or reordered.
//!
//! Each takes just the arguments that random numbers need, as its description says, and has no branches, so that loops over
//! it become vector code.

use std::f32::consts as c32;
use std::f64::consts as c64;

// The polynomials interpolate their functions at the Chebyshev nodes of the range; the coefficients rise.

/// `(log(1 + f) - f + f^2 / 2) / f^3` for `1 + f` within sqrt(1/2) .. sqrt(2).
pub(crate) const LOG_F32: [f32; 9] =
    [0.3333333, -0.24999997, 0.20000716, -0.16667803, 0.14249058, -0.12425687, 0.1168542, -0.11479734, 0.06971612];
/// As [`LOG_F32`].
pub(crate) const LOG_F64: [f64; 22] = [
    0.3333333333333333,
    -0.25000000000000006,
    0.20000000000000187,
    -0.1666666666666401,
    0.14285714285649315,
    -0.12500000000449604,
    0.11111111119953218,
    -0.09999999968981615,
    0.0909090847442931,
    -0.08333334219778231,
    0.07692332367644233,
    -0.07142856773736442,
    0.0666607399972828,
    -0.062493683330542255,
    0.058908107429987304,
    -0.05572610028285413,
    0.051979802601619045,
    -0.047929379856894314,
    0.04931432109322028,
    -0.057264502758265015,
    0.0514568607669441,
    -0.02163707074370185,
];
/// `(sin(a) - a) / a^3` by `a^2`, for `a` up to pi / 4.
pub(crate) const SIN_F32: [f32; 4] = [-0.16666667, 0.008333332, -0.00019840087, 2.7249896e-06];
/// `(cos(a) - 1 + a^2 / 2) / a^4` by `a^2`, for `a` up to pi / 4.
pub(crate) const COS_F32: [f32; 4] = [0.041666668, -0.0013888888, 2.48006e-05, -2.7300933e-07];
/// As [`SIN_F32`].
pub(crate) const SIN_F64: [f64; 8] = [
    -0.16666666666666666,
    0.008333333333333333,
    -0.00019841269841269839,
    2.75573192239811e-06,
    -2.5052108382388815e-08,
    1.605904278076985e-10,
    -7.646961311710078e-13,
    2.791242229090309e-15,
];
/// As [`COS_F32`].
pub(crate) const COS_F64: [f64; 8] = [
    0.041666666666666664,
    -0.001388888888888889,
    2.4801587301587298e-05,
    -2.7557319223983495e-07,
    2.0876756986340885e-09,
    -1.1470745069454793e-11,
    4.7793760797086676e-14,
    -1.5518099807987152e-16,
];
/// `(exp(r) - 1 - r) / r^2` for `r` up to log(2) / 2.
pub(crate) const EXP_F32: [f32; 5] = [0.5, 0.16666576, 0.041666552, 0.008363233, 0.001392625];
/// As [`EXP_F32`].
pub(crate) const EXP_F64: [f64; 11] = [
    0.5,
    0.1666666666666667,
    0.04166666666666667,
    0.008333333333326084,
    0.0013888888888883711,
    0.0001984126987500228,
    2.480158732567746e-05,
    2.755725517000089e-06,
    2.755727347871858e-07,
    2.5105312729622103e-08,
    2.09147553258932e-09,
];

/// log(2) in two parts: a multiple of the upper one by an exponent is exact.
pub(crate) const LN2_F32: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
pub(crate) const LN2_F64: [f64; 2] = [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10];

/// Defines the functions for one float type. `$bits` and `$int` are the integers of its width.
macro_rules! functions {
    ($float:ident, $bits:ident, $int:ident, mantissa $mantissa:literal, bias $bias:literal,
        $log:ident, $sqrt:ident, $exp:ident, $sin_cos:ident, $polynomial:ident,
        LOG $log_c:ident, SIN $sin_c:ident, COS $cos_c:ident, EXP $exp_c:ident, LN2 $ln2:ident, $consts:ident,
        sqrt from $magic:literal in $steps:literal, exp within $least:literal .. $most:literal,
        angle of $turn:literal bits
    ) => {
        #[inline(always)]
        fn $polynomial<const N: usize>(x: $float, coefficients: &[$float; N]) -> $float {
            let mut sum = coefficients[N - 1];
            let mut i = N - 1;
            while i > 0 {
                i -= 1;
                sum = sum.mul_add(x, coefficients[i]);
            }
            sum
        }

        /// The natural logarithm of a positive normal number.
        #[inline(always)]
        pub fn $log(x: $float) -> $float {
            let bits = x.to_bits();
            // The exponent that leaves a mantissa within sqrt(1/2) .. sqrt(2).
            let exponent = bits.wrapping_sub($consts::FRAC_1_SQRT_2.to_bits()) as $int >> $mantissa;
            let f = $float::from_bits(bits.wrapping_sub((exponent << $mantissa) as $bits)) - 1.0;
            let exponent = exponent as $float;
            let square = f * f;
            let tail = (square * f).mul_add($polynomial(f, &$log_c), square * -0.5);
            let sum = exponent.mul_add($ln2[1], tail) + f;
            exponent.mul_add($ln2[0], sum)
        }

        /// The square root of 0, -0 or a positive normal number. Of -0 it is -0.
        #[inline(always)]
        pub fn $sqrt(x: $float) -> $float {
            let half = x * 0.5;
            // Newton's steps towards 1 / sqrt(x), from a guess by halving the exponent.
            let mut y = $float::from_bits($magic - ((x.to_bits() & $bits::MAX >> 1) >> 1));
            let mut step = 0;
            while step < $steps {
                y *= (-half * y).mul_add(y, 1.5);
                step += 1;
            }
            let root = x * y;
            (-root).mul_add(root, x).mul_add(0.5 * y, root)
        }

        /// The exponential of any number: 0 or infinity where it leaves the type, subnormal before it does.
        #[inline(always)]
        pub fn $exp(x: $float) -> $float {
            const ROUND: $float = (1_u64 << ($mantissa - 1)) as $float * 3.0;
            let x = if x < $least { $least } else { x };
            let x = if x > $most { $most } else { x };
            let shifted = x.mul_add($consts::LOG2_E, ROUND);
            let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as $int;
            let whole = shifted - ROUND;
            let r = whole.mul_add(-$ln2[1], whole.mul_add(-$ln2[0], x));
            let value = (r * r).mul_add($polynomial(r, &$exp_c), r) + 1.0;
            // Two factors, as a power of two that leaves the type may be needed.
            let power = |exponent: $int| $float::from_bits((exponent.wrapping_add($bias) as $bits) << $mantissa);
            let first = exponent >> 1;
            value * power(first) * power(exponent.wrapping_sub(first))
        }

        /// Sine and cosine of the angle `turn + 1/2`, in units of a whole turn by 2 to the number of bits that `turn` has.
        #[inline(always)]
        pub fn $sin_cos(turn: $bits) -> ($float, $float) {
            const UNIT: $float = $consts::TAU / (1_u64 << $turn) as $float;
            // The nearest quarter turn, and the way from there, which is below an eighth in size.
            let quarter = turn.wrapping_add(1 << ($turn - 3)) >> ($turn - 2);
            let rest = turn.wrapping_sub(quarter << ($turn - 2)) as $int;
            let a = (rest as $float).mul_add(UNIT, UNIT * 0.5);
            let square = a * a;
            let sin = (square * a).mul_add($polynomial(square, &$sin_c), a);
            let cos = (square * square).mul_add($polynomial(square, &$cos_c), square.mul_add(-0.5, 1.0));
            let odd = quarter & 1 == 1;
            let (x, y) = (if odd { cos } else { sin }, if odd { sin } else { cos });
            let sign = |bit: $bits| (bit & 2) << ($bits::BITS - 2);
            (
                $float::from_bits(x.to_bits() ^ sign(quarter)),
                $float::from_bits(y.to_bits() ^ sign(quarter.wrapping_add(1))),
            )
        }
    };
}

functions!(
    f32, u32, i32, mantissa 23, bias 127,
    log_f32, sqrt_f32, exp_f32, sin_cos_f32, polynomial_f32,
    LOG LOG_F32, SIN SIN_F32, COS COS_F32, EXP EXP_F32, LN2 LN2_F32, c32,
    sqrt from 0x5f37_59df in 2, exp within -105.0 .. 89.0,
    angle of 32 bits
);
functions!(
    f64, u64, i64, mantissa 52, bias 1023,
    log_f64, sqrt_f64, exp_f64, sin_cos_f64, polynomial_f64,
    LOG LOG_F64, SIN SIN_F64, COS COS_F64, EXP EXP_F64, LN2 LN2_F64, c64,
    sqrt from 0x5fe6_eb50_c7b5_37a9 in 3, exp within -750.0 .. 710.0,
    angle of 53 bits
);
