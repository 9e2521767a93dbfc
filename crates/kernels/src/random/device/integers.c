/* Bits, Bernoulli trials and integers of a range. */

FN struct numbers each_word(struct words words) {
    struct numbers numbers;
    for (u32 k = 0; k < 4; k++) {
        numbers.n[k] = words.w[k];
    }
    return numbers;
}

FN struct numbers each_two(struct words words) {
    struct numbers numbers;
    numbers.n[0] = join_64(words.w[0], words.w[1]);
    numbers.n[1] = join_64(words.w[2], words.w[3]);
    numbers.n[2] = 0;
    numbers.n[3] = 0;
    return numbers;
}

FN struct numbers bits_of_words(const struct random_params *params, struct words words) {
    return each_word(words);
}

FN struct numbers bits_of_pairs(const struct random_params *params, struct words words) {
    return each_two(words);
}

RANDOM(random_bits) {
    if (size_of(params.dtype) == 8) {
        FILL(bits_of_pairs, element_as_is, 2);
    } else {
        FILL(bits_of_words, element_as_is, 4);
    }
}

/* 1 as an element. */
FN u64 one_of(u32 dtype) {
    switch (dtype) {
    case DTYPE_F16: return 0x3c00;
    case DTYPE_BF16: return 0x3f80;
    case DTYPE_F32: return 0x3f800000;
    case DTYPE_F64: return 0x3ff0000000000000ul;
    default: return 1;
    }
}

FN struct numbers trials_of_words(const struct random_params *params, struct words words) {
    struct numbers numbers;
    u64 one = one_of(params->dtype);
    for (u32 k = 0; k < 4; k++) {
        numbers.n[k] = words.w[k] < params->a ? one : 0;
    }
    return numbers;
}

FN struct numbers trials_of_pairs(const struct random_params *params, struct words words) {
    struct numbers numbers = each_two(words);
    u64 one = one_of(params->dtype);
    numbers.n[0] = join_53(words.w[0], words.w[1]) < params->a ? one : 0;
    numbers.n[1] = join_53(words.w[2], words.w[3]) < params->a ? one : 0;
    return numbers;
}

RANDOM(random_bernoulli) {
    if (params.dtype == DTYPE_F64) {
        FILL(trials_of_pairs, element_as_is, 2);
    } else {
        FILL(trials_of_words, element_as_is, 4);
    }
}

/* A 64-bit integer with sign as an element. */
FN u64 element_of_integer(const struct random_params *params, u64 number) {
    switch (params->dtype) {
    case DTYPE_BOOL: return number != 0 ? 1 : 0;
    case DTYPE_F16: return f16_of_f32(BITS_OF_F32(F32_OF_I64(number)));
    case DTYPE_BF16: return bf16_of_f32(BITS_OF_F32(F32_OF_I64(number)));
    case DTYPE_F32: return BITS_OF_F32(F32_OF_I64(number));
#ifdef ANYACCEL_F64
    case DTYPE_F64: return BITS_OF_F64(F64_OF_I64(number));
#endif
    default: return number;
    }
}

/* A range of 0 stands for 2^64. */
FN struct numbers products(const struct random_params *params, struct words words) {
    struct numbers numbers = each_two(words);
    for (u32 k = 0; k < 2; k++) {
        u64 z = numbers.n[k];
        numbers.n[k] = (params->a == 0 ? z : MUL_HIGH(z, params->a)) + params->b;
    }
    return numbers;
}

FN struct numbers remainders_of_pairs(const struct random_params *params, struct words words) {
    struct numbers numbers = each_two(words);
    for (u32 k = 0; k < 2; k++) {
        u64 z = numbers.n[k];
        numbers.n[k] = (params->a == 0 ? z : z % params->a) + params->b;
    }
    return numbers;
}

FN struct numbers remainders_of_words(const struct random_params *params, struct words words) {
    struct numbers numbers = each_word(words);
    u32 range = (u32)params->a;
    for (u32 k = 0; k < 4; k++) {
        u32 x = words.w[k];
        numbers.n[k] = (range == 0 || range != params->a ? x : x % range) + params->b;
    }
    return numbers;
}

RANDOM(random_integers) {
    switch (params.reduction) {
    case 0: FILL(products, element_of_integer, 2); break;
    case 1: FILL(remainders_of_pairs, element_of_integer, 2); break;
    default: FILL(remainders_of_words, element_of_integer, 4); break;
    }
}
