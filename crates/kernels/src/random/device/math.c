/* The elementary functions of random numbers, those of the host to the bit.

   Nothing but additions, multiplications and `fma` in the order written here, each rounded to nearest, and operations on
   bits and integers. The host's code says what each does. */

FN f32 log_polynomial_f32(f32 x) {
    f32 sum = 0.06971612f;
    sum = FMA_F32(sum, x, -0.11479734f);
    sum = FMA_F32(sum, x, 0.1168542f);
    sum = FMA_F32(sum, x, -0.12425687f);
    sum = FMA_F32(sum, x, 0.14249058f);
    sum = FMA_F32(sum, x, -0.16667803f);
    sum = FMA_F32(sum, x, 0.20000716f);
    sum = FMA_F32(sum, x, -0.24999997f);
    sum = FMA_F32(sum, x, 0.3333333f);
    return sum;
}

FN f32 sin_polynomial_f32(f32 x) {
    f32 sum = 2.7249896e-06f;
    sum = FMA_F32(sum, x, -0.00019840087f);
    sum = FMA_F32(sum, x, 0.008333332f);
    sum = FMA_F32(sum, x, -0.16666667f);
    return sum;
}

FN f32 cos_polynomial_f32(f32 x) {
    f32 sum = -2.7300933e-07f;
    sum = FMA_F32(sum, x, 2.48006e-05f);
    sum = FMA_F32(sum, x, -0.0013888888f);
    sum = FMA_F32(sum, x, 0.041666668f);
    return sum;
}

FN f32 exp_polynomial_f32(f32 x) {
    f32 sum = 0.001392625f;
    sum = FMA_F32(sum, x, 0.008363233f);
    sum = FMA_F32(sum, x, 0.041666552f);
    sum = FMA_F32(sum, x, 0.16666576f);
    sum = FMA_F32(sum, x, 0.5f);
    return sum;
}

/* The natural logarithm of a positive normal number. */
FN f32 log_f32(f32 x) {
    u32 bits = BITS_OF_F32(x);
    i32 exponent = (i32)(bits - 0x3f3504f3u) >> 23;
    f32 f = F32_OF_BITS(bits - ((u32)exponent << 23)) - 1.0f;
    f32 scale = F32_OF_I32(exponent);
    f32 square = f * f;
    f32 tail = FMA_F32(square * f, log_polynomial_f32(f), square * -0.5f);
    f32 sum = FMA_F32(scale, -0.00021219444f, tail) + f;
    return FMA_F32(scale, 0.6933594f, sum);
}

/* The square root of 0, -0 or a positive normal number. */
FN f32 sqrt_f32(f32 x) {
    f32 half_x = x * 0.5f;
    f32 y = F32_OF_BITS(0x5f3759dfu - ((BITS_OF_F32(x) & 0x7fffffffu) >> 1));
    for (u32 step = 0; step < 2; step++) {
        y *= FMA_F32(-half_x * y, y, 1.5f);
    }
    f32 root = x * y;
    return FMA_F32(FMA_F32(-root, root, x), 0.5f * y, root);
}

/* 2 to a power within the exponents of normal numbers. */
FN f32 power_of_2_f32(i32 exponent) {
    return F32_OF_BITS((u32)(exponent + 127) << 23);
}

/* The exponential of any number: 0 or infinity where it leaves the type, subnormal before it does. */
FN f32 exp_f32(f32 x) {
    x = x < -105.0f ? -105.0f : x;
    x = x > 89.0f ? 89.0f : x;
    f32 shifted = FMA_F32(x, 1.442695f, 12582912.0f);
    i32 exponent = (i32)(BITS_OF_F32(shifted) - BITS_OF_F32(12582912.0f));
    f32 whole = shifted - 12582912.0f;
    f32 r = FMA_F32(whole, 0.00021219444f, FMA_F32(whole, -0.6933594f, x));
    f32 value = FMA_F32(r * r, exp_polynomial_f32(r), r) + 1.0f;
    i32 first = exponent >> 1;
    return value * power_of_2_f32(first) * power_of_2_f32(exponent - first);
}

struct sin_cos_f32 {
    f32 sin, cos;
};

/* Sine and cosine of the angle `turn + 1/2`, in units of a whole turn by 2^32. */
FN struct sin_cos_f32 sin_cos_f32(u32 turn) {
    u32 quarter = (turn + (1u << 29)) >> 30;
    i32 rest = (i32)(turn - (quarter << 30));
    f32 a = FMA_F32(F32_OF_I32(rest), 1.4629181e-09f, 7.3145906e-10f);
    f32 square = a * a;
    f32 sin = FMA_F32(square * a, sin_polynomial_f32(square), a);
    f32 cos = FMA_F32(square * square, cos_polynomial_f32(square), FMA_F32(square, -0.5f, 1.0f));
    f32 x = (quarter & 1) != 0 ? cos : sin;
    f32 y = (quarter & 1) != 0 ? sin : cos;
    struct sin_cos_f32 both;
    both.sin = F32_OF_BITS(BITS_OF_F32(x) ^ (quarter & 2) << 30);
    both.cos = F32_OF_BITS(BITS_OF_F32(y) ^ ((quarter + 1) & 2) << 30);
    return both;
}

#ifdef ANYACCEL_F64

FN f64 log_polynomial_f64(f64 x) {
    f64 sum = -0.02163707074370185;
    sum = FMA_F64(sum, x, 0.0514568607669441);
    sum = FMA_F64(sum, x, -0.057264502758265015);
    sum = FMA_F64(sum, x, 0.04931432109322028);
    sum = FMA_F64(sum, x, -0.047929379856894314);
    sum = FMA_F64(sum, x, 0.051979802601619045);
    sum = FMA_F64(sum, x, -0.05572610028285413);
    sum = FMA_F64(sum, x, 0.058908107429987304);
    sum = FMA_F64(sum, x, -0.062493683330542255);
    sum = FMA_F64(sum, x, 0.0666607399972828);
    sum = FMA_F64(sum, x, -0.07142856773736442);
    sum = FMA_F64(sum, x, 0.07692332367644233);
    sum = FMA_F64(sum, x, -0.08333334219778231);
    sum = FMA_F64(sum, x, 0.0909090847442931);
    sum = FMA_F64(sum, x, -0.09999999968981615);
    sum = FMA_F64(sum, x, 0.11111111119953218);
    sum = FMA_F64(sum, x, -0.12500000000449604);
    sum = FMA_F64(sum, x, 0.14285714285649315);
    sum = FMA_F64(sum, x, -0.1666666666666401);
    sum = FMA_F64(sum, x, 0.20000000000000187);
    sum = FMA_F64(sum, x, -0.25000000000000006);
    sum = FMA_F64(sum, x, 0.3333333333333333);
    return sum;
}

FN f64 sin_polynomial_f64(f64 x) {
    f64 sum = 2.791242229090309e-15;
    sum = FMA_F64(sum, x, -7.646961311710078e-13);
    sum = FMA_F64(sum, x, 1.605904278076985e-10);
    sum = FMA_F64(sum, x, -2.5052108382388815e-08);
    sum = FMA_F64(sum, x, 2.75573192239811e-06);
    sum = FMA_F64(sum, x, -0.00019841269841269839);
    sum = FMA_F64(sum, x, 0.008333333333333333);
    sum = FMA_F64(sum, x, -0.16666666666666666);
    return sum;
}

FN f64 cos_polynomial_f64(f64 x) {
    f64 sum = -1.5518099807987152e-16;
    sum = FMA_F64(sum, x, 4.7793760797086676e-14);
    sum = FMA_F64(sum, x, -1.1470745069454793e-11);
    sum = FMA_F64(sum, x, 2.0876756986340885e-09);
    sum = FMA_F64(sum, x, -2.7557319223983495e-07);
    sum = FMA_F64(sum, x, 2.4801587301587298e-05);
    sum = FMA_F64(sum, x, -0.001388888888888889);
    sum = FMA_F64(sum, x, 0.041666666666666664);
    return sum;
}

FN f64 exp_polynomial_f64(f64 x) {
    f64 sum = 2.09147553258932e-09;
    sum = FMA_F64(sum, x, 2.5105312729622103e-08);
    sum = FMA_F64(sum, x, 2.755727347871858e-07);
    sum = FMA_F64(sum, x, 2.755725517000089e-06);
    sum = FMA_F64(sum, x, 2.480158732567746e-05);
    sum = FMA_F64(sum, x, 0.0001984126987500228);
    sum = FMA_F64(sum, x, 0.0013888888888883711);
    sum = FMA_F64(sum, x, 0.008333333333326084);
    sum = FMA_F64(sum, x, 0.04166666666666667);
    sum = FMA_F64(sum, x, 0.1666666666666667);
    sum = FMA_F64(sum, x, 0.5);
    return sum;
}

/* The natural logarithm of a positive normal number. */
FN f64 log_f64(f64 x) {
    u64 bits = BITS_OF_F64(x);
    i64 exponent = (i64)(bits - 0x3fe6a09e667f3bcdul) >> 52;
    f64 f = F64_OF_BITS(bits - ((u64)exponent << 52)) - 1.0;
    f64 scale = F64_OF_I64(exponent);
    f64 square = f * f;
    f64 tail = FMA_F64(square * f, log_polynomial_f64(f), square * -0.5);
    f64 sum = FMA_F64(scale, 1.9082149292705877e-10, tail) + f;
    return FMA_F64(scale, 0.6931471803691238, sum);
}

/* The square root of 0, -0 or a positive normal number. */
FN f64 sqrt_f64(f64 x) {
    f64 half_x = x * 0.5;
    f64 y = F64_OF_BITS(0x5fe6eb50c7b537a9ul - ((BITS_OF_F64(x) & 0x7ffffffffffffffful) >> 1));
    for (u32 step = 0; step < 3; step++) {
        y *= FMA_F64(-half_x * y, y, 1.5);
    }
    f64 root = x * y;
    return FMA_F64(FMA_F64(-root, root, x), 0.5 * y, root);
}

/* 2 to a power within the exponents of normal numbers. */
FN f64 power_of_2_f64(i64 exponent) {
    return F64_OF_BITS((u64)(exponent + 1023) << 52);
}

/* The exponential of any number: 0 or infinity where it leaves the type, subnormal before it does. */
FN f64 exp_f64(f64 x) {
    x = x < -750.0 ? -750.0 : x;
    x = x > 710.0 ? 710.0 : x;
    f64 shifted = FMA_F64(x, 1.4426950408889634, 6755399441055744.0);
    i64 exponent = (i64)(BITS_OF_F64(shifted) - BITS_OF_F64(6755399441055744.0));
    f64 whole = shifted - 6755399441055744.0;
    f64 r = FMA_F64(whole, -1.9082149292705877e-10, FMA_F64(whole, -0.6931471803691238, x));
    f64 value = FMA_F64(r * r, exp_polynomial_f64(r), r) + 1.0;
    i64 first = exponent >> 1;
    return value * power_of_2_f64(first) * power_of_2_f64(exponent - first);
}

struct sin_cos_f64 {
    f64 sin, cos;
};

/* Sine and cosine of the angle `turn + 1/2`, in units of a whole turn by 2^53. */
FN struct sin_cos_f64 sin_cos_f64(u64 turn) {
    u64 quarter = (turn + (1ul << 50)) >> 51;
    i64 rest = (i64)(turn - (quarter << 51));
    f64 a = FMA_F64(F64_OF_I64(rest), 6.975736996017264e-16, 3.487868498008632e-16);
    f64 square = a * a;
    f64 sin = FMA_F64(square * a, sin_polynomial_f64(square), a);
    f64 cos = FMA_F64(square * square, cos_polynomial_f64(square), FMA_F64(square, -0.5, 1.0));
    f64 x = (quarter & 1) != 0 ? cos : sin;
    f64 y = (quarter & 1) != 0 ? sin : cos;
    struct sin_cos_f64 both;
    both.sin = F64_OF_BITS(BITS_OF_F64(x) ^ (quarter & 2) << 62);
    both.cos = F64_OF_BITS(BITS_OF_F64(y) ^ ((quarter + 1) & 2) << 62);
    return both;
}

#endif
