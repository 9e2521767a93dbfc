/* Which words an element takes, and what is common to all fills. */

struct random_params {
    u64 count;
    u64 seed;
    u64 offset;
    u32 source;
    u32 layout;
    u32 dtype;
    u32 reduction;
    u64 a;
    u64 b;
    u64 c;
};

/* The seed and a quarter of the offset. */
struct random_start {
    u64 seed;
    u64 call;
};

FN struct random_start random_start(const struct random_params *params, GLOBAL const u8 *cell) {
    struct random_start start;
    start.seed = params->seed;
    start.call = params->offset / 4;
    if (params->source != 0) {
        start.seed = read_element(cell, 8);
        start.call = (read_element(cell + 8, 8) + params->offset) / 4;
    }
    return start;
}

/* The calls of a fill, numbered from 0 on, `per_call` elements each. */
struct random_calls {
    u64 count;
    /* Calls that share a lower half of the counter; elements of a call are as far apart. */
    u64 threads;
};

FN struct random_calls random_calls(const struct random_params *params, u32 per_call) {
    struct random_calls calls;
    if (params->layout == 0) {
        calls.threads = 1;
        calls.count = params->count / per_call + (params->count % per_call != 0 ? 1 : 0);
        return calls;
    }
    calls.threads = 256ul * params->layout;
    u64 pass = calls.threads * per_call;
    u64 rest = params->count % pass;
    calls.count = params->count / pass * calls.threads + (rest < calls.threads ? rest : calls.threads);
    return calls;
}

/* A call: its words, its first element and the way to the next one. */
struct random_call {
    struct words words;
    u64 first;
    u64 step;
};

FN struct random_call random_call(struct random_start start, struct random_calls calls, u32 per_call, u64 index) {
    struct random_call call;
    u64 pass = calls.threads == 1 ? index : index / calls.threads;
    u64 thread = index - pass * calls.threads;
    call.words = philox(start.seed, start.call + pass, thread);
    call.first = pass * calls.threads * per_call + thread;
    call.step = calls.threads;
    return call;
}

/* The numbers of a call, each as its kind of number has it. */
struct numbers {
    u64 n[4];
};

FN u64 join_64(u32 x, u32 y) {
    return (u64)x << 32 | y;
}

FN u64 join_53(u32 x, u32 y) {
    return x ^ (u64)y << 21;
}

/* A word as a number in (0, 1]. */
FN f32 unit_f32(u32 x) {
    return FMA_F32(F32_OF_U32(x), 2.3283064e-10f, 1.1641532e-10f);
}

#ifdef ANYACCEL_F64
/* 53 bits as a number in (0, 1]. */
FN f64 unit_f64(u64 x) {
    return FMA_F64(F64_OF_U64(x), 1.1102230246251565e-16, 5.551115123125783e-17);
}
#endif

/* Writes the elements of a call at once: they are neighbours, and their place is a multiple of 16 or of all their bytes. */
FN void write_neighbours(GLOBAL u8 *place, u32 size, const struct numbers *elements, u32 per_call) {
    u64 mask = ~0ul >> (64 - 8 * size);
    u64 x = elements->n[0] & mask, y = elements->n[1] & mask;
    u64 z = per_call == 4 ? elements->n[2] & mask : 0, w = per_call == 4 ? elements->n[3] & mask : 0;
    u64 low = x | y << (8 * size & 63), high = z | w << (8 * size & 63);
    switch (size * per_call) {
    case 2: STORE(u16, place, low); break;
    case 4: STORE(u32, place, size == 2 ? low : low | high << 16); break;
    case 8: STORE(u64, place, size == 4 ? low : low | high << 32); break;
    case 32: STORE_16(place + 16, z, w); STORE_16(place, x, y); break;
    default: STORE_16(place, size == 8 ? x : low, size == 8 ? y : high); break;
    }
}

FN void write_call(
    GLOBAL u8 *to, u32 size, u64 count, const struct random_call *call, const struct numbers *elements, u32 per_call
) {
    GLOBAL u8 *first = to + call->first * size;
    u32 bytes = size * per_call;
    u32 at_once = call->step == 1 && count - call->first >= per_call ? 1 : 0;
    if (at_once != 0 && (ADDRESS(first) & ((bytes < 16 ? bytes : 16) - 1)) == 0) {
        write_neighbours(first, size, elements, per_call);
        return;
    }
    for (u32 k = 0; k < per_call; k++) {
        u64 i = call->first + k * call->step;
        if (i < count) {
            write_element(to + i * size, size, elements->n[k]);
        }
    }
}

/* Writes the elements of one call after the other. `numbers_of` makes the numbers of a call, `per_call` of them, from the
   parameters and its words; `element_of` makes the bytes of an element from the parameters and a number. */
#define FILL(numbers_of, element_of, per_call)                                                                        \
    do {                                                                                                              \
        GLOBAL u8 *to = dst + dst_offset;                                                                             \
        u32 size = size_of(params.dtype);                                                                             \
        struct random_start start = random_start(&params, cell + cell_offset);                                        \
        struct random_calls calls = random_calls(&params, (per_call));                                                \
        for (u64 index = THREAD_OF_ALL; index < calls.count; index += ALL_THREADS) {                                  \
            struct random_call call = random_call(start, calls, (per_call), index);                                   \
            struct numbers numbers = numbers_of(&params, call.words);                                                 \
            for (u32 k = 0; k < (per_call); k++) {                                                                    \
                numbers.n[k] = element_of(&params, numbers.n[k]);                                                     \
            }                                                                                                         \
            write_call(to, size, params.count, &call, &numbers, (per_call));                                          \
        }                                                                                                             \
    } while (0)

/* The number is the element. */
FN u64 element_as_is(const struct random_params *params, u64 number) {
    return number;
}

/* A fill: its kernel has the arguments of all random built-ins. */
#define RANDOM(name)                                                                                                  \
    KERNEL name(                                                                                                      \
        GLOBAL u8 *dst, u64 dst_offset, GLOBAL const u8 *cell, u64 cell_offset, struct random_params params           \
    )
