/* Numbers, and how they are written as elements of a type.

   It is arithmetic on integers: no device's way with subnormal numbers, rounding or missing double precision makes a
   difference, and a NaN is handled as it is written here. */

#define DTYPE_BOOL 11
#define DTYPE_U8 0
#define DTYPE_I8 1
#define DTYPE_I16 2
#define DTYPE_I32 3
#define DTYPE_I64 4
#define DTYPE_F16 5
#define DTYPE_F32 6
#define DTYPE_F64 7
#define DTYPE_C32 8
#define DTYPE_C64 9
#define DTYPE_C128 10
#define DTYPE_BF16 15
#define DTYPE_F8_E5M2 23
#define DTYPE_F8_E4M3FN 24
#define DTYPE_F8_E5M2FNUZ 25
#define DTYPE_F8_E4M3FNUZ 26
#define DTYPE_U16 27
#define DTYPE_U32 28
#define DTYPE_U64 29
#define DTYPE_F8_E8M0FNU 44

#define F32_MANTISSA 23
#define F32_INFINITY 0x7f800000u
#define F32_NAN 0x7fc00000u
#define F64_MANTISSA 52
#define F64_INFINITY 0x7ff0000000000000ul

/* Bytes of an element. */
FN u32 size_of(u32 dtype) {
    switch (dtype) {
    case DTYPE_BOOL: case DTYPE_U8: case DTYPE_I8:
    case DTYPE_F8_E5M2: case DTYPE_F8_E4M3FN: case DTYPE_F8_E5M2FNUZ: case DTYPE_F8_E4M3FNUZ: case DTYPE_F8_E8M0FNU: return 1;
    case DTYPE_U16: case DTYPE_I16: case DTYPE_F16: case DTYPE_BF16: return 2;
    case DTYPE_U32: case DTYPE_I32: case DTYPE_F32: case DTYPE_C32: return 4;
    case DTYPE_C128: return 16;
    default: return 8;
    }
}

/* Drops the lowest bits, from 1 to 63 of them, rounding to nearest, ties to even. */
FN u64 drop_64(u64 x, u32 bits) {
    u64 kept = x >> bits;
    u64 rest = x << (64 - bits);
    u64 middle = 1ul << 63;
    return kept + (rest > middle || (rest == middle && (kept & 1) != 0) ? 1 : 0);
}

/* As drop_64, from 1 to 31 of them. */
FN u32 drop_32(u32 x, u32 bits) {
    u32 kept = x >> bits;
    u32 rest = x << (32 - bits);
    u32 middle = 1u << 31;
    return kept + (rest > middle || (rest == middle && (kept & 1) != 0) ? 1 : 0);
}

/* ---- float32 and float64 ---- */

FN u32 f32_of_f64(u64 x) {
    u32 sign = (u32)(x >> 32) & 0x80000000u;
    u64 magnitude = x & 0x7ffffffffffffffful;
    u32 dropped = F64_MANTISSA - F32_MANTISSA;
    u32 least = 1023 - 126;
    u32 exponent = (u32)(magnitude >> F64_MANTISSA);
    if (magnitude > F64_INFINITY) {
        return sign | F32_NAN | ((u32)(magnitude >> dropped) & 0x007fffffu);
    }
    if (exponent >= 1023 + 128) {
        return sign | F32_INFINITY;
    }
    if (exponent >= least) {
        /* Rounding up carries into the exponent, and from the largest number into infinity. */
        return sign | (u32)drop_64(magnitude - ((u64)(least - 1) << F64_MANTISSA), dropped);
    }
    u64 mantissa = (magnitude & ((1ul << F64_MANTISSA) - 1)) | 1ul << F64_MANTISSA;
    u32 shift = dropped + least - exponent;
    return sign | (u32)drop_64(mantissa, shift < 63 ? shift : 63);
}

/* ---- Formats narrower than float32, by mantissa bits and bias ---- */

/* The code nearest to the bits of a float32 without sign, ties to even, by the formula alone: it means something below the
   magnitude that the first unusable power of two has. */
FN u32 narrow(u32 magnitude, u32 mantissa, u32 bias) {
    u32 dropped = F32_MANTISSA - mantissa;
    u32 least = 128 - bias;
    u32 exponent = magnitude >> F32_MANTISSA;
    if (exponent >= least) {
        return drop_32(magnitude, dropped) - ((least - 1) << mantissa);
    }
    u32 first = exponent > 0 ? exponent : 1;
    u32 steps = exponent > 0 ? (magnitude & 0x007fffffu) | 0x00800000u : magnitude;
    u32 shift = dropped + least - first;
    return drop_32(steps, shift < 31 ? shift : 31);
}

/* A type with infinities from the code `infinity` on. */
FN u32 narrow_ieee(u32 magnitude, u32 mantissa, u32 bias, u32 infinity, u32 nan) {
    if (magnitude > F32_INFINITY) {
        return nan;
    }
    u32 limit = ((infinity >> mantissa) + 127 - bias) << F32_MANTISSA;
    return magnitude >= limit ? infinity : narrow(magnitude, mantissa, bias);
}

FN u32 f16_of_f32(u32 x) {
    return (x & 0x80000000u) >> 16 | narrow_ieee(x & 0x7fffffffu, 10, 15, 0x7c00, 0x7e00);
}

/* The exponent is that of float32: rounding the bits rounds subnormal numbers and carries into infinity as well. */
FN u32 bf16_of_f32(u32 x) {
    u32 magnitude = x & 0x7fffffffu;
    return (x & 0x80000000u) >> 16 | (magnitude > F32_INFINITY ? F32_NAN >> 16 : drop_32(magnitude, 16));
}

/* ---- Memory ---- */

/* Reads an element of 1, 2, 4 or 8 bytes at any address. */
FN u64 read_element(GLOBAL const u8 *place, u32 size) {
    if ((ADDRESS(place) & (size - 1)) == 0) {
        switch (size) {
        case 1: return *place;
        case 2: return LOAD(u16, place);
        case 4: return LOAD(u32, place);
        default: return LOAD(u64, place);
        }
    }
    u64 bytes = 0;
    for (u32 i = 0; i < size; i++) {
        bytes |= (u64)place[i] << 8 * i;
    }
    return bytes;
}

/* Writes the low bytes. */
FN void write_element(GLOBAL u8 *place, u32 size, u64 bytes) {
    if ((ADDRESS(place) & (size - 1)) == 0) {
        switch (size) {
        case 1: *place = (u8)bytes; break;
        case 2: STORE(u16, place, bytes); break;
        case 4: STORE(u32, place, bytes); break;
        default: STORE(u64, place, bytes); break;
        }
        return;
    }
    #pragma unroll 1
    for (u32 i = 0; i < size; i++) {
        place[i] = (u8)(bytes >> 8 * i);
    }
}
