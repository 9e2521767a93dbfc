/* Uniform numbers, and the distributions made of them. */

/* Elements of the float types that are computed in float32. */
FN u64 element_of_f32(const struct random_params *params, u64 bits) {
    switch (params->dtype) {
    case DTYPE_F16: return f16_of_f32((u32)bits);
    case DTYPE_BF16: return bf16_of_f32((u32)bits);
    default: return bits;
    }
}

/* A number from 1 on as an element of those or of an integer type, which ends at its largest value. */
FN u64 element_of_trial(const struct random_params *params, u64 bits) {
    u32 is_signed = 0;
    switch (params->dtype) {
    case DTYPE_F16: case DTYPE_BF16: case DTYPE_F32: return element_of_f32(params, bits);
    case DTYPE_I8: case DTYPE_I16: case DTYPE_I32: case DTYPE_I64: is_signed = 1;
    }
    u64 most = ~0ul >> (64 - 8 * size_of(params->dtype)) >> is_signed;
    f32 trial = F32_OF_BITS(bits);
    u64 whole = trial >= 18446744073709551616.0f ? most : (u64)trial;
    return whole < most ? whole : most;
}

/* A constant is exactly a float32 where that is what is computed in. */
FN f32 constant_f32(u64 bits) {
    return F32_OF_BITS(f32_of_f64(bits));
}

FN struct numbers uniform_f32(const struct random_params *params, struct words words) {
    struct numbers numbers;
    u32 from_bits = f32_of_f64(params->a), to_bits = f32_of_f64(params->b);
    f32 from = F32_OF_BITS(from_bits), to = F32_OF_BITS(to_bits), range = constant_f32(params->c);
    u32 narrow = size_of(params->dtype) == 2 ? 1 : 0;
    u32 to_code = narrow != 0 ? (u32)element_of_f32(params, to_bits) : 0;
    for (u32 k = 0; k < 4; k++) {
        f32 value = FMA_F32(unit_f32(words.w[k]), range, from);
        u32 at_end = value == to ? 1 : 0;
        if (narrow != 0) {
            /* It is the rounded number that may not be the upper bound. 0 and -0 are equal. */
            u32 code = (u32)element_of_f32(params, BITS_OF_F32(value));
            at_end = code == to_code || ((code | to_code) & 0x7fff) == 0 ? 1 : 0;
        }
        numbers.n[k] = at_end != 0 ? from_bits : BITS_OF_F32(value);
    }
    return numbers;
}

FN struct numbers exponential_f32(const struct random_params *params, struct words words) {
    struct numbers numbers;
    f32 factor = constant_f32(params->a);
    for (u32 k = 0; k < 4; k++) {
        f32 u = unit_f32(words.w[k]);
        /* The logarithm is kept away from 0. */
        f32 log = log_f32(u);
        numbers.n[k] = BITS_OF_F32((u >= 0.99999994f ? -5.9604645e-08f : log) * factor);
    }
    return numbers;
}

FN struct numbers geometric_f32(const struct random_params *params, struct words words) {
    struct numbers numbers;
    f32 factor = constant_f32(params->a);
    for (u32 k = 0; k < 4; k++) {
        f32 u = unit_f32(words.w[k]);
        f32 trial = CEIL_F32(log_f32(u) * factor);
        numbers.n[k] = BITS_OF_F32(trial < 1.0f ? 1.0f : trial);
    }
    return numbers;
}

FN struct numbers normal_f32(const struct random_params *params, struct words words) {
    struct numbers numbers;
    f32 mean = constant_f32(params->a), std = constant_f32(params->b);
    for (u32 k = 0; k < 4; k += 2) {
        f32 radius = sqrt_f32(-2.0f * log_f32(unit_f32(words.w[k])));
        struct sin_cos_f32 angle = sin_cos_f32(words.w[k + 1]);
        numbers.n[k] = BITS_OF_F32(FMA_F32(radius * angle.sin, std, mean));
        numbers.n[k + 1] = BITS_OF_F32(FMA_F32(radius * angle.cos, std, mean));
    }
    return numbers;
}

FN struct numbers log_normal_f32(const struct random_params *params, struct words words) {
    struct numbers numbers = normal_f32(params, words);
    for (u32 k = 0; k < 4; k++) {
        numbers.n[k] = BITS_OF_F32(exp_f32(F32_OF_BITS(numbers.n[k])));
    }
    return numbers;
}

#ifdef ANYACCEL_F64

FN struct numbers uniform_f64(const struct random_params *params, struct words words) {
    struct numbers numbers;
    f64 from = F64_OF_BITS(params->a), to = F64_OF_BITS(params->b), range = F64_OF_BITS(params->c);
    for (u32 k = 0; k < 2; k++) {
        f64 u = unit_f64(join_53(words.w[2 * k], words.w[2 * k + 1]));
        f64 value = FMA_F64(u, range, from);
        numbers.n[k] = BITS_OF_F64(value == to ? from : value);
    }
    return numbers;
}

FN struct numbers exponential_f64(const struct random_params *params, struct words words) {
    struct numbers numbers;
    f64 factor = F64_OF_BITS(params->a);
    for (u32 k = 0; k < 2; k++) {
        f64 u = unit_f64(join_53(words.w[2 * k], words.w[2 * k + 1]));
        /* The logarithm is kept away from 0. */
        f64 log = log_f64(u);
        numbers.n[k] = BITS_OF_F64((u >= 0.9999999999999999 ? -1.1102230246251565e-16 : log) * factor);
    }
    return numbers;
}

FN struct numbers geometric_f64(const struct random_params *params, struct words words) {
    struct numbers numbers;
    f64 factor = F64_OF_BITS(params->a);
    for (u32 k = 0; k < 2; k++) {
        f64 u = unit_f64(join_53(words.w[2 * k], words.w[2 * k + 1]));
        f64 trial = CEIL_F64(log_f64(u) * factor);
        numbers.n[k] = BITS_OF_F64(trial < 1.0 ? 1.0 : trial);
    }
    return numbers;
}

FN struct numbers normal_f64(const struct random_params *params, struct words words) {
    struct numbers numbers;
    f64 mean = F64_OF_BITS(params->a), std = F64_OF_BITS(params->b);
    f64 radius = sqrt_f64(-2.0 * log_f64(unit_f64(join_53(words.w[0], words.w[1]))));
    struct sin_cos_f64 angle = sin_cos_f64(join_53(words.w[2], words.w[3]));
    numbers.n[0] = BITS_OF_F64(FMA_F64(radius * angle.sin, std, mean));
    numbers.n[1] = BITS_OF_F64(FMA_F64(radius * angle.cos, std, mean));
    return numbers;
}

FN struct numbers log_normal_f64(const struct random_params *params, struct words words) {
    struct numbers numbers = normal_f64(params, words);
    for (u32 k = 0; k < 2; k++) {
        numbers.n[k] = BITS_OF_F64(exp_f64(F64_OF_BITS(numbers.n[k])));
    }
    return numbers;
}

#define FILL_FLOATS(distribution, element_of)                                                                         \
    do {                                                                                                              \
        if (params.dtype == DTYPE_F64) {                                                                              \
            FILL(distribution##_f64, element_as_is, 2);                                                               \
        } else {                                                                                                      \
            FILL(distribution##_f32, element_of, 4);                                                                  \
        }                                                                                                             \
    } while (0)
#else
/* A launch with float64 does not get here. */
#define FILL_FLOATS(distribution, element_of) FILL(distribution##_f32, element_of, 4)
#endif

RANDOM(random_uniform) {
    FILL_FLOATS(uniform, element_of_f32);
}

RANDOM(random_normal) {
    FILL_FLOATS(normal, element_of_f32);
}

RANDOM(random_log_normal) {
    FILL_FLOATS(log_normal, element_of_f32);
}

RANDOM(random_exponential) {
    FILL_FLOATS(exponential, element_of_f32);
}

RANDOM(random_geometric) {
    FILL_FLOATS(geometric, element_of_trial);
}
