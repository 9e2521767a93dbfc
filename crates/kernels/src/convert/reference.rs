//! The definition of the result, one element at a time.
//!
//! Numbers in narrow formats are read by the formula of their definition and written by searching the nearest one; no trick
//! with bits is shared with the fast code.

use super::KernelError;
use anyaccel_hal::DType;

/// Converts as [`convert`](super::convert) does, slowly.
pub fn convert(dst_dtype: DType, dst: &mut [u8], src_dtype: DType, src: &[u8]) -> Result<(), KernelError> {
    super::check(dst_dtype, dst, src_dtype, src)?;
    let elements = dst.chunks_exact_mut(dst_dtype.size()).zip(src.chunks_exact(src_dtype.size()));
    for (dst, src) in elements {
        if dst_dtype == src_dtype {
            dst.copy_from_slice(src);
        } else {
            convert_one(dst_dtype, dst, src_dtype, src);
        }
    }
    Ok(())
}

/// A number as it was read. The source type decides which of these it is, and with it how often it is rounded.
#[derive(Clone, Copy, Debug)]
enum Number {
    Integer(i128),
    Single(f32),
    Double(f64),
}

impl Number {
    fn is_nonzero(self) -> bool {
        match self {
            Number::Integer(x) => x != 0,
            Number::Single(x) => x != 0.0,
            Number::Double(x) => x != 0.0,
        }
    }

    fn to_f32(self) -> f32 {
        match self {
            Number::Integer(x) => x as f32,
            Number::Single(x) => x,
            Number::Double(x) => x as f32,
        }
    }

    fn to_f64(self) -> f64 {
        match self {
            Number::Integer(x) => x as f64,
            Number::Single(x) => f64::from(x),
            Number::Double(x) => x,
        }
    }

    /// The low bits of an integer; a floating-point number truncated and held within `min..=max`, NaN as 0.
    fn to_integer(self, min: i128, max: i128) -> i128 {
        match self {
            Number::Integer(x) => x,
            Number::Single(_) | Number::Double(_) => (self.to_f64() as i128).clamp(min, max),
        }
    }
}

fn convert_one(dst_dtype: DType, dst: &mut [u8], src_dtype: DType, src: &[u8]) {
    match (src_dtype.component(), dst_dtype.component()) {
        (None, None) => write(dst_dtype, dst, read(src_dtype, src)),
        (Some(part), None) => {
            let (re, im) = src.split_at(part.size());
            let (re, im) = (read(part, re), read(part, im));
            let either = Number::Integer(i128::from(re.is_nonzero() || im.is_nonzero()));
            write(dst_dtype, dst, if dst_dtype == DType::Bool { either } else { re });
        }
        (None, Some(part)) => {
            let (re, im) = dst.split_at_mut(part.size());
            write(part, re, read(src_dtype, src));
            im.fill(0);
        }
        (Some(src_part), Some(dst_part)) => {
            let parts = dst.chunks_exact_mut(dst_part.size());
            for (dst, src) in parts.zip(src.chunks_exact(src_part.size())) {
                write(dst_part, dst, read(src_part, src));
            }
        }
    }
}

/// Reads the bytes of a real element, lowest first.
fn read(dtype: DType, bytes: &[u8]) -> Number {
    let bits = bytes.iter().rev().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
    match dtype {
        DType::Bool => Number::Integer(i128::from(bits != 0)),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => Number::Integer(i128::from(bits)),
        DType::I8 => Number::Integer(i128::from(bits as i8)),
        DType::I16 => Number::Integer(i128::from(bits as i16)),
        DType::I32 => Number::Integer(i128::from(bits as i32)),
        DType::I64 => Number::Integer(i128::from(bits as i64)),
        DType::F32 => Number::Single(f32::from_bits(bits as u32)),
        DType::F64 => Number::Double(f64::from_bits(bits)),
        narrow => Number::Single(Format::of(narrow).decode(bits as u32) as f32),
    }
}

/// Writes a real element, lowest byte first.
fn write(dtype: DType, bytes: &mut [u8], number: Number) {
    let bits = match dtype {
        DType::Bool => u64::from(number.is_nonzero()),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => number.to_integer(0, (1 << (8 * bytes.len())) - 1) as u64,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            let half = 1 << (8 * bytes.len() - 1);
            number.to_integer(-half, half - 1) as u64
        }
        DType::F32 => u64::from(number.to_f32().to_bits()),
        DType::F64 => number.to_f64().to_bits(),
        narrow => u64::from(Format::of(narrow).encode(number.to_f32())),
    };
    let len = bytes.len();
    bytes.copy_from_slice(&bits.to_le_bytes()[..len]);
}

/// What the codes at the upper end and the sign bit mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// All exponent bits set: infinity, and NaN if the mantissa is not 0.
    Ieee,
    /// All bits below the sign set: NaN. No infinity.
    Finite,
    /// Only the sign bit set: NaN. No infinity and no negative zero.
    Unsigned0,
    /// No sign and no zero; all bits set: NaN.
    Scale,
}

/// A format of 8 or 16 bits.
struct Format {
    kind: Kind,
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
}

impl Format {
    fn of(dtype: DType) -> Format {
        let (kind, exponent_bits, mantissa_bits, bias) = match dtype {
            DType::F16 => (Kind::Ieee, 5, 10, 15),
            DType::F8E5m2 => (Kind::Ieee, 5, 2, 15),
            DType::F8E4m3fn => (Kind::Finite, 4, 3, 7),
            DType::F8E4m3fnuz => (Kind::Unsigned0, 4, 3, 8),
            DType::F8E5m2fnuz => (Kind::Unsigned0, 5, 2, 16),
            DType::F8E8m0fnu => (Kind::Scale, 8, 0, 127),
            // Every wider type is read and written without a format, so this is bfloat16.
            _ => (Kind::Ieee, 8, 7, 127),
        };
        Format { kind, exponent_bits, mantissa_bits, bias }
    }

    fn sign_bit(&self) -> u32 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// The smallest code without sign that is not a finite number.
    fn first_special(&self) -> u32 {
        match self.kind {
            Kind::Ieee => ((1 << self.exponent_bits) - 1) << self.mantissa_bits,
            Kind::Finite | Kind::Scale => self.sign_bit() - 1,
            Kind::Unsigned0 => self.sign_bit(),
        }
    }

    /// What a code without sign stands for by the formula. Rises with the code, over the special ones too.
    fn magnitude(&self, code: u32) -> f64 {
        let exponent = (code >> self.mantissa_bits) as i32;
        let steps = f64::from(1 << self.mantissa_bits);
        let fraction = f64::from(code & ((1 << self.mantissa_bits) - 1)) / steps;
        if exponent == 0 && self.kind != Kind::Scale {
            fraction * 2_f64.powi(1 - self.bias)
        } else {
            (1.0 + fraction) * 2_f64.powi(exponent - self.bias)
        }
    }

    fn decode(&self, code: u32) -> f64 {
        let magnitude_code = code & (self.sign_bit() - 1);
        let sign = if code & self.sign_bit() == 0 { 1.0 } else { -1.0 };
        match self.kind {
            Kind::Unsigned0 if code == self.sign_bit() => f64::NAN,
            Kind::Ieee if magnitude_code == self.first_special() => sign * f64::INFINITY,
            _ if magnitude_code >= self.first_special() => f64::NAN.copysign(sign),
            _ => sign * self.magnitude(magnitude_code),
        }
    }

    fn encode(&self, value: f32) -> u32 {
        if self.kind == Kind::Scale {
            return self.encode_scale(value);
        }
        let sign = if value.is_sign_negative() { self.sign_bit() } else { 0 };
        let special = self.first_special();
        let code = if value.is_nan() { special } else { self.nearest(f64::from(value.abs())) };
        match self.kind {
            Kind::Unsigned0 if code >= special => self.sign_bit(),
            Kind::Unsigned0 if code == 0 => 0,
            Kind::Ieee if value.is_nan() => sign | self.quiet_nan(),
            _ => sign | code.min(special),
        }
    }

    /// `float8_e5m2` has all mantissa bits set, as in PyTorch; of the others' NaN only the quiet bit is.
    fn quiet_nan(&self) -> u32 {
        let quiet = 1 << (self.mantissa_bits - 1);
        self.first_special() | if self.mantissa_bits == 2 { 0b11 } else { quiet }
    }

    /// The code whose magnitude is nearest, the even one of two. Codes past the last finite one take part as the numbers
    /// that the formula gives, so that rounding up to the first of them is overflow.
    fn nearest(&self, value: f64) -> u32 {
        let (mut low, mut high) = (0, self.first_special());
        if value >= self.magnitude(high) {
            return high;
        }
        while high - low > 1 {
            let middle = (low + high) / 2;
            if value < self.magnitude(middle) { high = middle } else { low = middle }
        }
        // Exact: neighbours have at most 12 significant bits between them.
        let half_way = (self.magnitude(low) + self.magnitude(high)) / 2.0;
        if value < half_way || (value == half_way && low % 2 == 0) { low } else { high }
    }

    /// The power of two that PyTorch's rule gives.
    fn encode_scale(&self, value: f32) -> u32 {
        let value = f64::from(value.abs());
        if !value.is_finite() {
            return self.first_special();
        }
        if value <= self.magnitude(0) {
            return 0;
        }
        // The last power of two that is not larger, then up from half-way on; all above the smallest go up.
        let code = (0..self.first_special()).rev().find(|&code| self.magnitude(code) <= value);
        let code = code.unwrap_or(0);
        let up = code == 0 || value >= 1.5 * self.magnitude(code);
        code + u32::from(up)
    }
}
