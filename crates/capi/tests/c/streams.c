/* Streams as numbers, and host functions. Two devices. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

static atomic_int calls, destroyed;

static void count_call(void *data) {
    (void)data;
    calls++;
}

static void count_destroyed(void *data) {
    (void)data;
    destroyed++;
}

static anyaccel_result inside[4];
static void call_back(void *data) {
    anyaccel_stream stream;
    inside[0] = anyaccel_synchronize_device(0);
    inside[1] = anyaccel_stream_current(0, &stream);
    inside[2] = anyaccel_stream_query(NOW, data);
    inside[3] = anyaccel_stream_query(0, data);
}

/* What is current is a thread's own. */
static void *elsewhere(void *data) {
    anyaccel_stream current = 1;
    OK(anyaccel_stream_current(0, &current));
    CHECK(current == ANYACCEL_STREAM(0, 0));
    OK(anyaccel_stream_exchange(*(anyaccel_stream *)data, &current));
    CHECK(current == ANYACCEL_STREAM(0, 0));
    OK(anyaccel_stream_current(HERE, &current));
    CHECK(current == *(anyaccel_stream *)data);
    return NULL;
}

int main(void) {
    anyaccel_stream main_stream, one, two, other, before;
    OK(anyaccel_stream_current(HERE, &main_stream));
    CHECK(main_stream == ANYACCEL_STREAM(0, 0));
    OK(anyaccel_stream_default(1, &other));
    CHECK(other == ANYACCEL_STREAM(1, 0) && ANYACCEL_STREAM_DEVICE(other) == 1 && ANYACCEL_STREAM_ID(other) == 0);
    OK(anyaccel_stream_from_pool(0, 0, &one));
    OK(anyaccel_stream_create(HERE, 0, 0, &two));
    CHECK(one != two && one != main_stream);

    /* The parts, and back. */
    uint64_t id = 0;
    int32_t device = -1, priority = 1;
    OK(anyaccel_stream_id(one, &id, &device, &priority));
    CHECK(id == ANYACCEL_STREAM_ID(one) && device == 0 && priority == 0);
    OK(anyaccel_stream_id(one, NULL, NULL, NULL));
    OK(anyaccel_stream_from_id(device, id, &before));
    CHECK(before == one);
    REFUSED(ANYACCEL_ERROR_HANDLE, "no stream with id 999999", anyaccel_stream_from_id(0, 999999, &before));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no stream", anyaccel_stream_synchronize(ANYACCEL_STREAM(0, 123456)));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_stream_synchronize(ANYACCEL_STREAM(7, 0)));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "stream: NULL", anyaccel_stream_from_pool(0, 0, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "flags 0x80", anyaccel_stream_create(0, 0, 0x80, &before));

    /* The pool goes round. */
    anyaccel_stream last = 0;
    for (int i = 0; i < 32; i++) OK(anyaccel_stream_from_pool(0, 0, &last));
    CHECK(last == two);

    /* What is current. */
    OK(anyaccel_stream_set_current(other));
    OK(anyaccel_current_device(&device));
    CHECK(device == 1);
    OK(anyaccel_stream_exchange(one, &before));
    CHECK(before == main_stream);
    OK(anyaccel_current_device(&device));
    CHECK(device == 1); /* left alone */
    OK(anyaccel_stream_current(0, &before));
    CHECK(before == one);
    OK(anyaccel_stream_exchange(main_stream, NULL));
    OK(anyaccel_set_device(0));

    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, elsewhere, &two) == 0 && pthread_join(thread, NULL) == 0);
    OK(anyaccel_stream_current(HERE, &before));
    CHECK(before == main_stream);
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_stream_current(7, &before));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "stream: NULL", anyaccel_stream_current(0, NULL));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no stream", anyaccel_stream_exchange(ANYACCEL_STREAM(0, 123456), &before));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no stream", anyaccel_stream_set_current(ANYACCEL_STREAM(0, 123456)));
    OK(anyaccel_stream_current(0, &before));
    CHECK(before == main_stream);

    /* A reserved stream can be current, and stays so, for this thread alone, when it is destroyed. */
    anyaccel_stream reserved;
    anyaccel_event event;
    bool flag = true;
    OK(anyaccel_stream_create(0, 0, ANYACCEL_STREAM_RESERVED, &reserved));
    OK(anyaccel_event_create(HERE, 0, &event));
    OK(anyaccel_stream_set_current(reserved));
    OK(anyaccel_stream_current(HERE, &before));
    CHECK(before == reserved);
    OK(anyaccel_event_record(event, NOW));
    OK(anyaccel_stream_destroy(reserved));
    OK(anyaccel_event_record(event, NOW));
    OK(anyaccel_stream_synchronize(NOW));
    OK(anyaccel_event_query(event, &flag));
    CHECK(flag);
    OK(anyaccel_stream_exchange(main_stream, &before));
    CHECK(before == reserved);
    OK(anyaccel_event_destroy(event)); /* which has the stream that it was recorded on */
    REFUSED(ANYACCEL_ERROR_HANDLE, "no stream", anyaccel_stream_exchange(reserved, &before));

    /* A reserved stream ends when it is destroyed; a pooled one stays. */
    OK(anyaccel_stream_create(0, 0, ANYACCEL_STREAM_RESERVED, &reserved));
    OK(anyaccel_stream_synchronize(reserved));
    OK(anyaccel_stream_destroy(reserved));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no stream", anyaccel_stream_synchronize(reserved));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no stream", anyaccel_stream_destroy(reserved));
    OK(anyaccel_stream_destroy(one));
    OK(anyaccel_stream_synchronize(one));
    if (strcmp(getenv("ANYACCEL_BACKEND"), "host") == 0)
        REFUSED(ANYACCEL_ERROR_UNSUPPORTED, "", anyaccel_stream_import(0, 1234, &reserved));

    uint64_t native = 1;
    OK(anyaccel_stream_is_capturing(one, &flag));
    CHECK(!flag);
    OK(anyaccel_stream_native(one, &native));
    OK(anyaccel_stream_wait_stream(two, one));
    OK(anyaccel_stream_wait_stream(two, other));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "ended: NULL", anyaccel_stream_query(one, NULL));

    /* Host functions in order; their data is destroyed once, whatever happens. */
    anyaccel_host_function function = {.struct_size = sizeof function, .call = count_call, .destroy = count_destroyed};
    for (int i = 0; i < 10; i++) OK(anyaccel_stream_host_function(one, &function));
    OK(anyaccel_stream_synchronize(one));
    CHECK(calls == 10);
    OK(anyaccel_stream_query(one, &flag));
    CHECK(flag);
    CHECK(destroyed == 10);
    REFUSED(ANYACCEL_ERROR_HANDLE, "no stream", anyaccel_stream_host_function(ANYACCEL_STREAM(0, 123456), &function));
    CHECK(destroyed == 11);
    function.call = NULL;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "function.call: NULL", anyaccel_stream_host_function(one, &function));
    CHECK(destroyed == 12 && calls == 10);
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "function: NULL", anyaccel_stream_host_function(one, NULL));

    /* A wait inside is refused. */
    anyaccel_host_function again = {.struct_size = sizeof again, .call = call_back, .data = &flag};
    OK(anyaccel_stream_host_function(NOW, &again));
    OK(anyaccel_stream_synchronize(NOW));
    for (int i = 0; i < 4; i++) CHECK(inside[i] == ANYACCEL_ERROR_IN_HOST_FUNCTION);
    return 0;
}
