/* Many threads take, use and give back memory, of one another too, on all devices. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 6, ROUNDS = 400, SLOTS = 64 };
static _Atomic(void *) shared[SLOTS];
static int32_t devices;

static void *work(void *data) {
    uintptr_t random = (uintptr_t)data * 7919 + 1;
    int32_t device = (int32_t)((uintptr_t)data % (uintptr_t)devices);
    anyaccel_stream stream;
    anyaccel_event event;
    OK(anyaccel_set_device(device));
    OK(anyaccel_stream_from_pool(device, 0, &stream));
    OK(anyaccel_stream_set_current(stream));
    OK(anyaccel_event_create(HERE, 0, &event));
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t size = 16 + (random >> 40) % 5000;
        unsigned char *memory, seen[16];
        OK(anyaccel_alloc(device, size, NOW, (void **)&memory));
        OK(anyaccel_memset(memory, (uint8_t)round, size, NOW));
        OK(anyaccel_event_record(event, NOW));
        OK(anyaccel_event_wait(event, ANYACCEL_STREAM(devices - 1 - device, 0)));
        if (round % 4 == 0) {
            OK(anyaccel_copy(seen, ANYACCEL_HOST, memory + size - 16, device, 16, NOW, 0));
            for (int i = 0; i < 16; i++) CHECK(seen[i] == (uint8_t)round);
        }
        /* Another thread, or nobody, gives it back. */
        OK(anyaccel_free(atomic_exchange(&shared[(random >> 20) % SLOTS], memory)));
        char *pinned;
        OK(anyaccel_host_alloc(HERE, 64, (void **)&pinned));
        bool yes = false;
        OK(anyaccel_host_is_pinned(pinned + 63, &yes));
        CHECK(yes);
        OK(anyaccel_host_free(pinned));
        CHECK(anyaccel_set_device(99) == ANYACCEL_ERROR_ARGUMENT && strstr(message(), "99"));
    }
    OK(anyaccel_event_destroy(event));
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    OK(anyaccel_device_count(&devices));
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(anyaccel_last_error(NULL, 0) == 0);
    for (int i = 0; i < SLOTS; i++) OK(anyaccel_free(shared[i]));
    for (int32_t device = 0; device < devices; device++) {
        OK(anyaccel_synchronize_device(device));
        anyaccel_memory_stats stats = {.struct_size = sizeof stats};
        OK(anyaccel_get_memory_stats(device, &stats));
        CHECK(stats.allocation.all.current == 0);
    }
    return 0;
}
