/* Events of several processes, opened here as another process would. Without SHARES the device has none. */
#include "check.h"
#include <stdatomic.h>

static atomic_int gate;
static atomic_int reached;

static void wait_for_gate(void *data) {
    (void)data;
    while (!gate) {
    }
}

static void note(void *data) {
    (void)data;
    reached = 1;
}

int main(void) {
    anyaccel_event event, plain, same;
    size_t size = 0;
    OK(anyaccel_event_create(HERE, 0, &plain));
    if (getenv("SHARES") == NULL) {
        REFUSED(ANYACCEL_ERROR_UNSUPPORTED, "interprocess", anyaccel_event_ipc_handle(plain, NULL, 0, &size));
        REFUSED(ANYACCEL_ERROR_UNSUPPORTED, "interprocess", anyaccel_event_from_ipc_handle(HERE, "", 0, &same));
        REFUSED(ANYACCEL_ERROR_UNSUPPORTED, "interprocess",
                anyaccel_event_create(HERE, ANYACCEL_EVENT_INTERPROCESS, &event));
        return 0;
    }
    OK(anyaccel_event_create(HERE, ANYACCEL_EVENT_INTERPROCESS, &event));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "interprocess", anyaccel_event_ipc_handle(plain, NULL, 0, &size));
    OK(anyaccel_event_ipc_handle(event, NULL, 0, &size));
    CHECK(size == 64);
    unsigned char handle[64] = {0}, nothing[64] = {0};
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "63 bytes", anyaccel_event_ipc_handle(event, handle, 63, &size));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "size: NULL", anyaccel_event_ipc_handle(event, handle, 64, NULL));
    CHECK(memcmp(handle, nothing, sizeof handle) == 0);
    OK(anyaccel_event_ipc_handle(event, handle, sizeof handle, &size));
    CHECK(memcmp(handle, nothing, sizeof handle) != 0);
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "63 bytes", anyaccel_event_from_ipc_handle(HERE, handle, 63, &same));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "handle: NULL", anyaccel_event_from_ipc_handle(HERE, NULL, 64, &same));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "event: NULL", anyaccel_event_from_ipc_handle(HERE, handle, 64, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_event_from_ipc_handle(9, handle, 64, &same));
    OK(anyaccel_event_from_ipc_handle(0, handle, sizeof handle, &same));

    anyaccel_stream one, two;
    OK(anyaccel_stream_from_pool(0, 0, &one));
    OK(anyaccel_stream_from_pool(0, 0, &two));
    anyaccel_host_function wait = {.struct_size = sizeof wait, .call = wait_for_gate};
    anyaccel_host_function done = {.struct_size = sizeof done, .call = note};
    OK(anyaccel_stream_host_function(one, &wait));
    OK(anyaccel_event_record(event, one));
    OK(anyaccel_event_wait(same, two));
    OK(anyaccel_stream_host_function(two, &done));
    bool ended = true;
    OK(anyaccel_event_query(same, &ended));
    CHECK(!ended && !reached);
    gate = 1;
    OK(anyaccel_event_synchronize(same));
    OK(anyaccel_stream_synchronize(two));
    CHECK(reached);
    for (ended = false; !ended;) OK(anyaccel_event_query(same, &ended));

    /* The place of one that was shared makes one that is not. */
    OK(anyaccel_event_destroy(event));
    OK(anyaccel_event_create(HERE, 0, &event));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "interprocess", anyaccel_event_ipc_handle(event, handle, 64, &size));
    OK(anyaccel_event_record(same, two));
    OK(anyaccel_event_synchronize(same));
    OK(anyaccel_event_destroy(event));
    OK(anyaccel_event_destroy(same));
    OK(anyaccel_event_destroy(plain));
    return 0;
}
