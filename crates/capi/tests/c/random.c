/* Generators and random fills. Two devices. */
#include "check.h"

static void read_back(void *to, const void *from, size_t size) {
    OK(anyaccel_copy(to, ANYACCEL_HOST, from, 0, size, NOW, 0));
}

int main(void) {
    enum { COUNT = 1000 };
    static float one[COUNT], two[COUNT];
    uint64_t seed = 0, offset = 1;

    /* Before the start a state is kept for it. */
    OK(anyaccel_manual_seed_all(5));
    OK(anyaccel_generator_set(ANYACCEL_DEFAULT_GENERATOR(1), 9, 8));
    CHECK(!anyaccel_is_started());
    OK(anyaccel_generator_get(ANYACCEL_DEFAULT_GENERATOR(1), &seed, &offset));
    CHECK(seed == 9 && offset == 8);
    OK(anyaccel_generator_get(ANYACCEL_DEFAULT_GENERATOR(0), &seed, &offset));
    CHECK(seed == 5 && offset == 0);
    OK(anyaccel_generator_get(ANYACCEL_DEFAULT_GENERATOR(0), NULL, NULL));

    /* The default generator moves on; the same seed gives the same numbers, whichever generator has it. */
    void *memory;
    OK(anyaccel_alloc(0, sizeof one, NOW, &memory));
    anyaccel_random uniform = {.struct_size = sizeof uniform, .distribution = ANYACCEL_RANDOM_UNIFORM, .dtype = 6, .a = -1, .b = 3};
    OK(anyaccel_fill_random(memory, COUNT, &uniform, 0, NOW));
    read_back(one, memory, sizeof one);
    double mean = 0;
    for (int i = 0; i < COUNT; i++) {
        CHECK(one[i] >= -1 && one[i] < 3);
        mean += one[i] / COUNT;
    }
    CHECK(mean > 0.7 && mean < 1.3);
    OK(anyaccel_generator_get(ANYACCEL_DEFAULT_GENERATOR(0), &seed, &offset));
    CHECK(seed == 5 && offset == COUNT);
    anyaccel_generator own;
    OK(anyaccel_generator_create(5, &own));
    OK(anyaccel_fill_random(memory, COUNT, &uniform, own, NOW));
    read_back(two, memory, sizeof two);
    CHECK(memcmp(one, two, sizeof one) == 0);
    OK(anyaccel_fill_random(memory, COUNT, &uniform, own, NOW));
    read_back(two, memory, sizeof two);
    CHECK(memcmp(one, two, sizeof one) != 0);

    /* A part is taken in one step. */
    OK(anyaccel_generator_set(own, 7, 40));
    OK(anyaccel_generator_take(own, 5, &seed, &offset));
    CHECK(seed == 7 && offset == 40);
    OK(anyaccel_generator_get(own, &seed, &offset));
    CHECK(offset == 48);
    OK(anyaccel_generator_take(ANYACCEL_DEFAULT_GENERATOR(0), 4, NULL, NULL));
    OK(anyaccel_generator_get(ANYACCEL_DEFAULT_GENERATOR(0), NULL, &offset));
    CHECK(offset == COUNT + 4);
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "", anyaccel_generator_take(own, UINT64_MAX, NULL, NULL));
    OK(anyaccel_generator_seed(own, &seed));
    OK(anyaccel_generator_get(own, &offset, NULL));
    CHECK(seed == offset);
    OK(anyaccel_generator_seed(ANYACCEL_DEFAULT_GENERATOR(1), &seed));
    OK(anyaccel_generator_get(ANYACCEL_DEFAULT_GENERATOR(1), &offset, NULL));
    CHECK(seed == offset);

    /* Every distribution, and CUDA's layout. */
    for (uint32_t kind = ANYACCEL_RANDOM_BITS; kind <= ANYACCEL_RANDOM_PERMUTATION; kind++) {
        bool integer = kind == ANYACCEL_RANDOM_BITS || kind >= ANYACCEL_RANDOM_INTEGERS;
        anyaccel_random fill = {.struct_size = sizeof fill, .distribution = kind, .dtype = integer ? 3 : 6, .a = 0.5, .b = 1, .from = -4, .count = 10};
        OK(anyaccel_fill_random(memory, 100, &fill, own, NOW));
        int32_t values[100];
        read_back(values, memory, sizeof values);
        int sum = 0;
        for (int i = 0; i < 100; i++) {
            if (kind == ANYACCEL_RANDOM_INTEGERS) CHECK(values[i] >= -4 && values[i] < 6);
            if (kind == ANYACCEL_RANDOM_PERMUTATION) sum += values[i];
        }
        if (kind == ANYACCEL_RANDOM_PERMUTATION) CHECK(sum == 99 * 100 / 2);
    }
    anyaccel_random cuda = {.struct_size = sizeof cuda, .distribution = ANYACCEL_RANDOM_NORMAL, .dtype = 6, .a = 0, .b = 1,
                            .layout = ANYACCEL_LAYOUT_TORCH_CUDA, .multiprocessors = 108, .threads_per_multiprocessor = 2048};
    OK(anyaccel_fill_random(memory, COUNT, &cuda, own, NOW));
    anyaccel_random all = {.struct_size = sizeof all, .distribution = ANYACCEL_RANDOM_INTEGERS, .dtype = 4, .from = INT64_MIN};
    OK(anyaccel_fill_random(memory, 100, &all, own, NOW));

    /* Wrong input. */
    anyaccel_random bad = uniform;
    bad.distribution = 77;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "distribution 77", anyaccel_fill_random(memory, 1, &bad, 0, NOW));
    bad = uniform, bad.layout = 5;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "layout 5", anyaccel_fill_random(memory, 1, &bad, 0, NOW));
    bad = uniform, bad.a = 4;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "", anyaccel_fill_random(memory, 1, &bad, 0, NOW));
    bad = uniform, bad.dtype = 12;
    REFUSED(ANYACCEL_ERROR_UNSUPPORTED, "dtype 12", anyaccel_fill_random(memory, 1, &bad, 0, NOW));
    bad = uniform, bad.dtype = 3;
    REFUSED(ANYACCEL_ERROR_UNSUPPORTED, "", anyaccel_fill_random(memory, 1, &bad, 0, NOW));
    bad = uniform, bad.struct_size = 20;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "struct_size is 20", anyaccel_fill_random(memory, 1, &bad, 0, NOW));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "fill: NULL", anyaccel_fill_random(memory, 1, NULL, 0, NOW));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "only", anyaccel_fill_random(memory, COUNT + 1, &uniform, 0, NOW));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "count", anyaccel_fill_random(memory, UINT64_MAX / 2, &uniform, 0, NOW));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live generator", anyaccel_fill_random(memory, 1, &uniform, 12345, NOW));
    REFUSED(ANYACCEL_ERROR_WRONG_DEVICE, "default generator of device 1",
            anyaccel_fill_random(memory, 1, &uniform, ANYACCEL_DEFAULT_GENERATOR(1), NOW));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "multiple of 4", anyaccel_generator_set(own, 1, 3));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_generator_set(ANYACCEL_DEFAULT_GENERATOR(8), 1, 0));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "generator: NULL", anyaccel_generator_create(1, NULL));
    OK(anyaccel_generator_destroy(0));
    OK(anyaccel_generator_destroy(ANYACCEL_DEFAULT_GENERATOR(0)));
    OK(anyaccel_generator_destroy(own));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live generator", anyaccel_generator_destroy(own));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live generator", anyaccel_generator_get(own, &seed, &offset));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live generator", anyaccel_generator_set(own, 1, 0));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live generator", anyaccel_generator_seed(own, NULL));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live generator", anyaccel_generator_take(own, 1, NULL, NULL));
    OK(anyaccel_free(memory));
    return 0;
}
