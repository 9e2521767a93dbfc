/* Converts elements from one type to another.

   An element is read as a number of one of four kinds, and the number is written as the other element. */

struct convert_params {
    u64 count;
    u32 src;
    u32 dst;
};

/* What the 64 bits of a number are. */
#define KIND_UNSIGNED 0
#define KIND_SIGNED 1
/* The bits of a float32, and those of a float64. */
#define KIND_SINGLE 2
#define KIND_DOUBLE 3

#define F64_QUIET 0x0008000000000000ul

/* ---- Integers, float32 and float64 ---- */

FN u32 f32_of_u64(u64 x) {
    if (x == 0) {
        return 0;
    }
    /* The leading one of the mantissa adds 1 to the exponent. */
    u32 lead = 63 - CLZ_64(x);
    u32 exponent = (lead + 126) << F32_MANTISSA;
    return exponent + (lead <= F32_MANTISSA ? (u32)x << (F32_MANTISSA - lead) : (u32)drop_64(x, lead - F32_MANTISSA));
}

FN u64 f64_of_u64(u64 x) {
    if (x == 0) {
        return 0;
    }
    u32 lead = 63 - CLZ_64(x);
    u64 exponent = (u64)(lead + 1022) << F64_MANTISSA;
    return exponent + (lead <= F64_MANTISSA ? x << (F64_MANTISSA - lead) : drop_64(x, lead - F64_MANTISSA));
}

FN u64 f64_of_f32(u32 x) {
    u64 sign = (u64)(x & 0x80000000u) << 32;
    u32 magnitude = x & 0x7fffffffu;
    u32 dropped = F64_MANTISSA - F32_MANTISSA;
    if (magnitude >= F32_INFINITY) {
        u64 payload = (u64)(magnitude - F32_INFINITY) << dropped;
        return sign | F64_INFINITY | payload | (payload != 0 ? F64_QUIET : 0);
    }
    u64 mantissa = magnitude;
    u64 exponent = 1023 - 127;
    if (magnitude == 0) {
        return sign;
    }
    if (magnitude < 1u << F32_MANTISSA) {
        /* A subnormal number: its leading one moves to where that of a normal number is. */
        u32 shift = CLZ_32(magnitude) - (31 - F32_MANTISSA);
        mantissa <<= shift;
        exponent -= shift;
    }
    return sign | ((mantissa << dropped) + (exponent << F64_MANTISSA));
}

/* A float64 as an integer of `bits` bits: truncated, the nearest value where it is out of range, 0 for NaN. */
FN u64 integer_of_f64(u64 x, u32 bits, u32 is_signed) {
    u32 negative = (u32)(x >> 63);
    u64 magnitude = x & 0x7ffffffffffffffful;
    u32 exponent = (u32)(magnitude >> F64_MANTISSA);
    if (magnitude > F64_INFINITY || exponent < 1023 || (negative != 0 && is_signed == 0)) {
        return 0;
    }
    u64 mantissa = (magnitude & ((1ul << F64_MANTISSA) - 1)) | 1ul << F64_MANTISSA;
    u64 whole = ~0ul;
    if (exponent < 1023 + 64) {
        whole = exponent <= 1023 + F64_MANTISSA ? mantissa >> (1023 + F64_MANTISSA - exponent)
                                                : mantissa << (exponent - 1023 - F64_MANTISSA);
    }
    u64 most = ~0ul >> (64 - bits);
    if (is_signed != 0) {
        most = (most >> 1) + negative;
    }
    whole = whole < most ? whole : most;
    return negative != 0 ? 0 - whole : whole;
}

/* ---- Formats narrower than float32 ---- */

/* The bits of the float32 that a code without sign stands for, by the formula alone: codes for infinity or NaN come out as the
   number that they would be otherwise. */
FN u32 widen(u32 code, u32 mantissa, u32 bias) {
    if (code >> mantissa != 0) {
        return (code << (F32_MANTISSA - mantissa)) + ((127 - bias) << F32_MANTISSA);
    }
    if (code == 0) {
        return 0;
    }
    /* Steps from 0: the leading one moves to where that of a normal number is. */
    u32 lead = 31 - CLZ_32(code);
    return (code << (F32_MANTISSA - lead)) + ((127 - bias + lead - mantissa) << F32_MANTISSA);
}

/* A type with infinities from the code `infinity` on. */
FN u32 widen_ieee(u32 code, u32 sign, u32 mantissa, u32 bias, u32 infinity) {
    if (code >= infinity) {
        return sign | F32_INFINITY | (code - infinity) << (F32_MANTISSA - mantissa);
    }
    return sign | widen(code, mantissa, bias);
}

/* A type without infinities or negative zero, whose one NaN is 0x80. */
FN u32 widen_fnuz(u32 code, u32 mantissa, u32 bias) {
    return code == 0x80 ? F32_NAN : (code & 0x80) << 24 | widen(code & 0x7f, mantissa, bias);
}

/* The bits of the float32 that a code of a narrow type stands for. */
FN u32 f32_of_narrow(u32 dtype, u32 code) {
    u32 sign_8 = (code & 0x80) << 24;
    switch (dtype) {
    case DTYPE_F16: return widen_ieee(code & 0x7fff, (code & 0x8000) << 16, 10, 15, 0x7c00);
    case DTYPE_BF16: return code << 16;
    case DTYPE_F8_E5M2: return widen_ieee(code & 0x7f, sign_8, 2, 15, 0x7c);
    case DTYPE_F8_E4M3FN: return (code & 0x7f) == 0x7f ? sign_8 | F32_NAN : sign_8 | widen(code & 0x7f, 3, 7);
    case DTYPE_F8_E5M2FNUZ: return widen_fnuz(code, 2, 16);
    case DTYPE_F8_E4M3FNUZ: return widen_fnuz(code, 3, 8);
    /* float8_e8m0fnu. 2^-127 is subnormal in float32: the one code whose bits are not just the exponent. */
    default: return code == 0xff ? F32_NAN : code == 0 ? 1u << (F32_MANTISSA - 1) : code << F32_MANTISSA;
    }
}

/* A type without infinities or negative zero, whose one NaN is 0x80. */
FN u32 narrow_fnuz(u32 magnitude, u32 sign, u32 mantissa, u32 bias) {
    u32 limit = ((0x80u >> mantissa) + 127 - bias) << F32_MANTISSA;
    u32 code = magnitude >= limit ? 0x80 : narrow(magnitude, mantissa, bias);
    return code == 0 || code >= 0x80 ? code & 0x80 : code | sign >> 24;
}

/* The code of a type narrower than float32. */
FN u32 narrow_of_f32(u32 dtype, u32 x) {
    u32 magnitude = x & 0x7fffffffu;
    u32 sign = x & 0x80000000u;
    switch (dtype) {
    case DTYPE_F16: return f16_of_f32(x);
    case DTYPE_BF16: return bf16_of_f32(x);
    case DTYPE_F8_E5M2: return sign >> 24 | narrow_ieee(magnitude, 2, 15, 0x7c, 0x7f);
    /* 480 is the number that the code of NaN would be; what rounds there carries into that code by itself. */
    case DTYPE_F8_E4M3FN: return sign >> 24 | (magnitude >= 0x43f00000u ? 0x7f : narrow(magnitude, 3, 7));
    case DTYPE_F8_E5M2FNUZ: return narrow_fnuz(magnitude, sign, 2, 16);
    case DTYPE_F8_E4M3FNUZ: return narrow_fnuz(magnitude, sign, 3, 8);
    default: {
        /* float8_e8m0fnu. The half-way point belongs to the larger power, except below 2^-126, where it would be 2^-127. */
        u32 exponent = magnitude >> F32_MANTISSA;
        u32 middle = (1u << (F32_MANTISSA - 1)) + (exponent == 0 ? 1 : 0);
        return exponent == 0xff ? 0xff : exponent + ((magnitude & 0x007fffffu) >= middle ? 1 : 0);
    }
    }
}

/* ---- Numbers of any type ---- */

/* What kind of number elements of a real type are read as. */
FN u32 kind_of(u32 dtype) {
    switch (dtype) {
    case DTYPE_BOOL: case DTYPE_U8: case DTYPE_U16: case DTYPE_U32: case DTYPE_U64: return KIND_UNSIGNED;
    case DTYPE_I8: case DTYPE_I16: case DTYPE_I32: case DTYPE_I64: return KIND_SIGNED;
    case DTYPE_F64: return KIND_DOUBLE;
    default: return KIND_SINGLE;
    }
}

/* The number that an element stands for, given as its bytes. */
FN u64 number_of_element(u32 dtype, u64 bytes) {
    switch (dtype) {
    /* Bytes other than 0 and 1 in a bool are true. */
    case DTYPE_BOOL: return bytes != 0 ? 1 : 0;
    case DTYPE_I8: return (u64)(i64)(signed char)bytes;
    case DTYPE_I16: return (u64)(i64)(short)bytes;
    case DTYPE_I32: return (u64)(i64)(i32)bytes;
    case DTYPE_U8: case DTYPE_U16: case DTYPE_U32: case DTYPE_U64: case DTYPE_I64: case DTYPE_F32: case DTYPE_F64: return bytes;
    default: return f32_of_narrow(dtype, (u32)bytes);
    }
}

FN u32 is_nonzero(u32 kind, u64 number) {
    /* Zeros have a sign in floating-point types alone. */
    u64 sign = kind == KIND_SINGLE ? 0x80000000ul : kind == KIND_DOUBLE ? 1ul << 63 : 0;
    return (number & ~sign) != 0 ? 1 : 0;
}

FN u32 f32_of_number(u32 kind, u64 number) {
    if (kind == KIND_SINGLE) {
        return (u32)number;
    }
    if (kind == KIND_DOUBLE) {
        return f32_of_f64(number);
    }
    u32 negative = kind == KIND_SIGNED ? (u32)(number >> 63) : 0;
    return negative << 31 | f32_of_u64(negative != 0 ? 0 - number : number);
}

FN u64 f64_of_number(u32 kind, u64 number) {
    if (kind == KIND_SINGLE) {
        return f64_of_f32((u32)number);
    }
    if (kind == KIND_DOUBLE) {
        return number;
    }
    u64 negative = kind == KIND_SIGNED ? number >> 63 : 0;
    return negative << 63 | f64_of_u64(negative != 0 ? 0 - number : number);
}

/* The bytes of the element of a real type that a number becomes, in the low bits. */
FN u64 element_of_number(u32 dtype, u32 kind, u64 number) {
    switch (dtype) {
    case DTYPE_BOOL: return is_nonzero(kind, number);
    case DTYPE_U8: case DTYPE_U16: case DTYPE_U32: case DTYPE_U64:
    case DTYPE_I8: case DTYPE_I16: case DTYPE_I32: case DTYPE_I64:
        if (kind == KIND_UNSIGNED || kind == KIND_SIGNED) {
            return number;
        }
        return integer_of_f64(f64_of_number(kind, number), 8 * size_of(dtype), kind_of(dtype));
    case DTYPE_F32: return f32_of_number(kind, number);
    case DTYPE_F64: return f64_of_number(kind, number);
    default: return narrow_of_f32(dtype, f32_of_number(kind, number));
    }
}

/* ---- The kernel ---- */

/* The type of the two parts of a complex type; else the type itself. */
FN u32 part_of(u32 dtype) {
    return dtype == DTYPE_C32 ? DTYPE_F16 : dtype == DTYPE_C64 ? DTYPE_F32 : dtype == DTYPE_C128 ? DTYPE_F64 : dtype;
}

/* The whole conversion for a pair of real types that is asked for often, between addresses that are multiples of the elements'
   sizes: as the general way, with all choices made by the compiler. `value` makes the bytes of an element from those of `x`. */
#define PAIR(src_dtype, src_type, dst_dtype, dst_type, value)                                                         \
    case (src_dtype) << 8 | (dst_dtype):                                                                              \
        for (u64 i = THREAD_OF_ALL; i < params.count; i += ALL_THREADS) {                                             \
            src_type x = LOAD(src_type, from + i * sizeof(src_type));                                                 \
            STORE(dst_type, to + i * sizeof(dst_type), (value));                                                      \
        }                                                                                                             \
        return;

KERNEL convert(
    GLOBAL u8 *dst, u64 dst_offset, GLOBAL const u8 *src, u64 src_offset, struct convert_params params
) {
    GLOBAL u8 *to = dst + dst_offset;
    GLOBAL const u8 *from = src + src_offset;
    u32 src_part = part_of(params.src), dst_part = part_of(params.dst);
    u32 src_complex = src_part != params.src ? 1 : 0, dst_complex = dst_part != params.dst ? 1 : 0;
    u64 count = params.count;
    if (src_complex != 0 && dst_complex != 0) {
        /* Part by part. */
        count *= 2;
        src_complex = 0;
        dst_complex = 0;
    }
    u32 src_size = size_of(src_part), dst_size = size_of(dst_part);
    u32 src_step = src_size << src_complex, dst_step = dst_size << dst_complex;

    u32 aligned = ((ADDRESS(to) & (dst_size - 1)) | (ADDRESS(from) & (src_size - 1))) == 0 ? 1 : 0;
    switch (aligned != 0 ? params.src << 8 | params.dst : ~0u) {
        PAIR(DTYPE_F32, u32, DTYPE_F16, u16, f16_of_f32(x))
        PAIR(DTYPE_F32, u32, DTYPE_BF16, u16, bf16_of_f32(x))
        PAIR(DTYPE_F32, u32, DTYPE_F64, u64, f64_of_f32(x))
        PAIR(DTYPE_F32, u32, DTYPE_F8_E4M3FN, u8, narrow_of_f32(DTYPE_F8_E4M3FN, x))
        PAIR(DTYPE_F32, u32, DTYPE_F8_E5M2, u8, narrow_of_f32(DTYPE_F8_E5M2, x))
        PAIR(DTYPE_F16, u16, DTYPE_F32, u32, f32_of_narrow(DTYPE_F16, x))
        PAIR(DTYPE_F16, u16, DTYPE_BF16, u16, bf16_of_f32(f32_of_narrow(DTYPE_F16, x)))
        PAIR(DTYPE_BF16, u16, DTYPE_F32, u32, (u32)x << 16)
        PAIR(DTYPE_BF16, u16, DTYPE_F16, u16, f16_of_f32((u32)x << 16))
        PAIR(DTYPE_BF16, u16, DTYPE_F8_E4M3FN, u8, narrow_of_f32(DTYPE_F8_E4M3FN, (u32)x << 16))
        PAIR(DTYPE_F8_E4M3FN, u8, DTYPE_F32, u32, f32_of_narrow(DTYPE_F8_E4M3FN, x))
        PAIR(DTYPE_F8_E4M3FN, u8, DTYPE_BF16, u16, bf16_of_f32(f32_of_narrow(DTYPE_F8_E4M3FN, x)))
        PAIR(DTYPE_F8_E5M2, u8, DTYPE_F32, u32, f32_of_narrow(DTYPE_F8_E5M2, x))
        PAIR(DTYPE_F64, u64, DTYPE_F32, u32, f32_of_f64(x))
        PAIR(DTYPE_I32, u32, DTYPE_I64, u64, (i64)(i32)x)
        PAIR(DTYPE_I32, u32, DTYPE_F32, u32, BITS_OF_F32(F32_OF_I32(x)))
        PAIR(DTYPE_I64, u64, DTYPE_I32, u32, x)
        PAIR(DTYPE_I64, u64, DTYPE_F32, u32, BITS_OF_F32(F32_OF_I64(x)))
        PAIR(DTYPE_U8, u8, DTYPE_F32, u32, BITS_OF_F32(F32_OF_U32(x)))
        PAIR(DTYPE_BOOL, u8, DTYPE_F32, u32, x != 0 ? 0x3f800000u : 0)
    }

    u32 kind = kind_of(src_part);
    for (u64 i = THREAD_OF_ALL; i < count; i += ALL_THREADS) {
        GLOBAL const u8 *in = from + i * src_step;
        GLOBAL u8 *out = to + i * dst_step;
        u64 bytes = read_element(in, src_size);
        u64 number = number_of_element(src_part, bytes);
        if (src_complex != 0 && dst_part == DTYPE_BOOL) {
            u64 imaginary = number_of_element(src_part, read_element(in + src_size, src_size));
            *out = (u8)(is_nonzero(kind, number) | is_nonzero(kind, imaginary));
            continue;
        }
        write_element(out, dst_size, src_part == dst_part ? bytes : element_of_number(dst_part, kind, number));
        if (dst_complex != 0) {
            write_element(out + dst_size, dst_size, 0);
        }
    }
}
