/* Device memory by address, and copies in every direction. Two devices. */
#include "check.h"
#include <stdatomic.h>

static char *bytes_of(const void *memory, int32_t device, size_t size) {
    static char host[1 << 20];
    OK(anyaccel_copy(host, ANYACCEL_HOST, memory, device, size, NOW, 0));
    return host;
}

static uint64_t asked, of, left;
static void note(void *data, int32_t device, uint64_t requested, uint64_t total, uint64_t free_bytes) {
    anyaccel_memory_stats stats = {.struct_size = sizeof stats};
    CHECK(data == &asked && device == 0);
    OK(anyaccel_get_memory_stats(device, &stats));
    asked = requested, of = total, left = free_bytes;
}

static void *freed_inside;
static void free_inside(void *data) {
    (void)data;
    OK(anyaccel_free(freed_inside));
}

int main(void) {
    void *a = NULL, *b = NULL, *nothing = (void *)1;
    OK(anyaccel_alloc(HERE, 1000, NOW, &a));
    OK(anyaccel_alloc(1, 1000, NOW, &b));
    CHECK(a != NULL && b != NULL && a != b);
    OK(anyaccel_alloc(0, 0, NOW, &nothing));
    CHECK(nothing == NULL);
    OK(anyaccel_free(NULL));
    OK(anyaccel_record_stream(NULL, NOW));

    /* What lies where. */
    anyaccel_pointer_info info = {.struct_size = sizeof info};
    OK(anyaccel_get_pointer_info((char *)b + 999, &info));
    CHECK(info.kind == ANYACCEL_POINTER_DEVICE && info.device == 1 && info.base == b);
    CHECK(info.size == 1000 && info.capacity >= 1000);
    OK(anyaccel_get_pointer_info((char *)b + 1000, &info));
    CHECK(info.kind == ANYACCEL_POINTER_UNKNOWN && info.device == ANYACCEL_HOST && info.base == NULL);
    OK(anyaccel_get_pointer_info(NULL, &info));
    CHECK(info.kind == ANYACCEL_POINTER_UNKNOWN);

    /* Host to device to device to host, with interior addresses. */
    OK(anyaccel_memset(a, 7, 1000, NOW));
    OK(anyaccel_copy((char *)a + 10, 0, "to be or not", ANYACCEL_HOST, 12, NOW, ANYACCEL_COPY_ASYNC));
    OK(anyaccel_copy((char *)b + 1, 1, (char *)a + 9, 0, 20, NOW, ANYACCEL_COPY_ASYNC));
    OK(anyaccel_synchronize_device(1));
    CHECK(memcmp(bytes_of((char *)b + 1, 1, 20), "\7to be or not\7\7\7\7\7\7\7", 20) == 0);
    void *c;
    OK(anyaccel_alloc(0, 64, NOW, &c));
    OK(anyaccel_copy(c, 0, (char *)a + 10, 0, 12, NOW, 0));
    CHECK(memcmp(bytes_of(c, 0, 12), "to be or not", 12) == 0);
    char from[4] = "abc", to[4];
    OK(anyaccel_copy(to, ANYACCEL_HOST, from, ANYACCEL_HOST, 4, NOW, 0));
    CHECK(strcmp(to, "abc") == 0);
    OK(anyaccel_copy(NULL, 0, NULL, 0, 0, NOW, 0));

    /* A large one from memory that is changed at once. */
    size_t large = 1 << 20;
    char *source = malloc(large);
    void *d;
    OK(anyaccel_alloc(0, large, NOW, &d));
    memset(source, 'x', large);
    OK(anyaccel_copy(d, 0, source, ANYACCEL_HOST, large, NOW, ANYACCEL_COPY_ASYNC));
    memset(source, 'y', large);
    char *seen = bytes_of(d, 0, large);
    CHECK(seen[0] == 'x' && seen[large / 2] == 'x' && seen[large - 1] == 'x');
    free(source);

    /* Patterns. */
    OK(anyaccel_fill((char *)c + 4, 10, "\1\2\3\4", 4, NOW));
    CHECK(memcmp(bytes_of(c, 0, 16), "to b\1\2\3\4\1\2\3\4\1\2", 14) == 0);
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "got 3", anyaccel_fill(c, 9, "abc", 3, NOW));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "got 99", anyaccel_fill(c, 9, "abc", 99, NOW));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "pattern: NULL", anyaccel_fill(c, 9, NULL, 1, NOW));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "64 from", anyaccel_memset(c, 0, 65, NOW));
    OK(anyaccel_fill(c, 0, "a", 1, NOW));

    /* float32 to int64 */
    float floats[3] = {1.5f, -2.0f, 1e6f};
    OK(anyaccel_copy(a, 0, floats, ANYACCEL_HOST, sizeof floats, NOW, 0));
    OK(anyaccel_convert(c, 4, a, 6, 3, NOW));
    int64_t *integers = (int64_t *)bytes_of(c, 0, 24);
    CHECK(integers[0] == 1 && integers[1] == -2 && integers[2] == 1000000);
    REFUSED(ANYACCEL_ERROR_UNSUPPORTED, "dtype 99", anyaccel_convert(c, 99, a, 6, 3, NOW));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "count", anyaccel_convert(c, 4, a, 6, UINT64_MAX / 4, NOW));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "overlap", anyaccel_convert(a, 6, a, 6, 3, NOW));

    /* Wrong input. */
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "memory: NULL", anyaccel_alloc(0, 8, NOW, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "2^60", anyaccel_alloc(0, UINT64_MAX, NOW, &nothing));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_alloc(5, 8, NOW, &nothing));
    REFUSED(ANYACCEL_ERROR_WRONG_DEVICE, "but 0 is needed", anyaccel_alloc(0, 8, ANYACCEL_STREAM(1, 0), &nothing));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "dst: NULL", anyaccel_copy(NULL, 0, a, 0, 8, NOW, 0));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "src: NULL", anyaccel_copy(a, 0, NULL, ANYACCEL_HOST, 8, NOW, 0));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "ANYACCEL_HOST", anyaccel_copy(a, -2, a, 0, 8, NOW, 0));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "flags", anyaccel_copy(a, 0, c, 0, 8, NOW, 32));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "1000 from", anyaccel_copy((char *)a + 995, 0, c, 0, 8, NOW, 0));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "overlap", anyaccel_copy(a, 0, (char *)a + 4, 0, 8, NOW, 0));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live device memory", anyaccel_copy(to, 0, a, 0, 2, NOW, 0));
    REFUSED(ANYACCEL_ERROR_WRONG_DEVICE, "said to lie on device 1", anyaccel_copy(a, 1, c, 0, 8, NOW, 0));
    REFUSED(ANYACCEL_ERROR_WRONG_DEVICE, "is needed", anyaccel_copy(a, 0, c, 0, 8, ANYACCEL_STREAM(1, 0), 0));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live device memory", anyaccel_free((char *)a + 1));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live device memory", anyaccel_free(to));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live device memory", anyaccel_record_stream(to, NOW));

    /* Freed while its work goes on, reused in stream order; freed once. */
    anyaccel_stream one;
    OK(anyaccel_stream_from_pool(0, 0, &one));
    OK(anyaccel_record_stream((char *)a + 5, one));
    OK(anyaccel_memset(a, 1, 1000, one));
    OK(anyaccel_free(a));
    REFUSED(ANYACCEL_ERROR_HANDLE, "freed already", anyaccel_free(a));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live device memory", anyaccel_memset(a, 1, 1, NOW));

    /* In a host function. */
    OK(anyaccel_alloc(0, 5000, one, &freed_inside));
    anyaccel_host_function function = {.struct_size = sizeof function, .call = free_inside};
    OK(anyaccel_stream_host_function(one, &function));
    OK(anyaccel_stream_synchronize(one));
    REFUSED(ANYACCEL_ERROR_HANDLE, "freed already", anyaccel_free(freed_inside));

    /* Out of memory is an answer of its own, and nothing is lost. */
    OK(anyaccel_free(d));
    OK(anyaccel_empty_cache());
    OK(anyaccel_set_memory_budget(0, 32 << 20));
    void *e;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "observer: NULL", anyaccel_observe_out_of_memory(NULL, NULL));
    OK(anyaccel_observe_out_of_memory(note, &asked));
    REFUSED(ANYACCEL_ERROR_OUT_OF_MEMORY, "100.00 MiB were requested on stream 0, ", anyaccel_alloc(0, 100 << 20, NOW, &e));
    CHECK(asked == 100 << 20 && of > 0 && left > 0);
    OK(anyaccel_alloc(0, 1 << 20, NOW, &e));
    OK(anyaccel_free(e));
    OK(anyaccel_set_memory_budget(0, UINT64_MAX));
    OK(anyaccel_alloc(0, 100 << 20, NOW, &e));
    OK(anyaccel_free(e));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "", anyaccel_set_memory_fraction(0, 1.5));
    OK(anyaccel_set_memory_fraction(0, 1.0));

    OK(anyaccel_free(b));
    OK(anyaccel_free(c));
    OK(anyaccel_empty_cache());
    anyaccel_memory_stats stats = {.struct_size = sizeof stats};
    OK(anyaccel_get_memory_stats(0, &stats));
    CHECK(stats.allocated_bytes.all.current == 0 && stats.allocation.all.current == 0);
    return 0;
}
