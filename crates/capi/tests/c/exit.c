/* At exit things are given back late, in any order, from destructors of threads and of the process. */
#include "check.h"
#include <pthread.h>

static void *memory, *pinned;
static anyaccel_event event;
static pthread_key_t key;

static void late(void) {
    anyaccel_result results[] = {anyaccel_free(memory), anyaccel_host_free(pinned), anyaccel_event_destroy(event)};
    for (int i = 0; i < 3; i++) {
        if (results[i] != ANYACCEL_OK && results[i] != ANYACCEL_ERROR_EXITING) {
            fprintf(stderr, "%d: %s\n", i, anyaccel_result_name(results[i]));
            _Exit(2);
        }
    }
    if (anyaccel_init() == ANYACCEL_OK && !anyaccel_is_started()) _Exit(3);
}

__attribute__((destructor)) static void last(void) {
    late();
}

static void end_of_thread(void *data) {
    OK(anyaccel_free(data));
}

static void *thread(void *data) {
    (void)data;
    void *own;
    OK(anyaccel_alloc(0, 100, NOW, &own));
    pthread_setspecific(key, own);
    return NULL;
}

int main(void) {
    OK(anyaccel_alloc(0, 1000, NOW, &memory));
    OK(anyaccel_host_alloc(0, 1000, &pinned));
    OK(anyaccel_event_create(HERE, 0, &event));
    OK(anyaccel_event_record(event, NOW));
    CHECK(pthread_key_create(&key, end_of_thread) == 0);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, thread, NULL) == 0 && pthread_join(other, NULL) == 0);
    return 0;
}
