/* Events. Two devices. */
#include "check.h"
#include <stdatomic.h>

static atomic_int gate;

static void wait_for_gate(void *data) {
    (void)data;
    while (!gate) {
    }
}

static void open_gate(void *data) {
    (void)data;
    gate = 1;
}

int main(void) {
    anyaccel_event start, end, plain;
    OK(anyaccel_event_create(HERE, ANYACCEL_EVENT_TIMING, &start));
    OK(anyaccel_event_create(HERE, ANYACCEL_EVENT_TIMING | ANYACCEL_EVENT_BLOCKING, &end));
    OK(anyaccel_event_create(HERE, 0, &plain));
    CHECK(start != 0 && start != end && !anyaccel_is_started());

    /* Never recorded: no reason to wait. */
    bool ended = false;
    int32_t device = 0;
    OK(anyaccel_event_query(plain, &ended));
    CHECK(ended);
    OK(anyaccel_event_synchronize(plain));
    OK(anyaccel_event_wait(plain, NOW));
    OK(anyaccel_event_device(plain, &device));
    CHECK(device == -1);
    double ms = -1;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "recorded before", anyaccel_event_elapsed(start, end, &ms));

    /* An event holds another stream back. */
    anyaccel_stream one, two;
    OK(anyaccel_stream_from_pool(0, 0, &one));
    OK(anyaccel_stream_from_pool(0, 0, &two));
    anyaccel_host_function wait = {.struct_size = sizeof wait, .call = wait_for_gate};
    OK(anyaccel_event_record(start, one));
    OK(anyaccel_stream_host_function(one, &wait));
    OK(anyaccel_event_record(end, one));
    OK(anyaccel_event_wait(end, two));
    OK(anyaccel_event_record(plain, two));
    OK(anyaccel_event_query(plain, &ended));
    CHECK(!ended);
    REFUSED(ANYACCEL_ERROR_STATE, "completed", anyaccel_event_elapsed(start, end, &ms));
    anyaccel_host_function open = {.struct_size = sizeof open, .call = open_gate};
    OK(anyaccel_stream_host_function(ANYACCEL_STREAM(1, 0), &open));
    OK(anyaccel_event_synchronize(plain));
    OK(anyaccel_event_query(end, &ended));
    CHECK(ended);
    OK(anyaccel_event_elapsed(start, end, &ms));
    CHECK(ms >= 0);
    OK(anyaccel_event_device(end, &device));
    CHECK(device == 0);

    REFUSED(ANYACCEL_ERROR_ARGUMENT, "enable_timing", anyaccel_event_elapsed(start, plain, &ms));
    REFUSED(ANYACCEL_ERROR_WRONG_DEVICE, "does not match", anyaccel_event_record(end, ANYACCEL_STREAM(1, 0)));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "flags", anyaccel_event_create(HERE, 64, &plain));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "event: NULL", anyaccel_event_create(HERE, 0, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_event_create(9, 0, &plain));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "ended: NULL", anyaccel_event_query(plain, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "milliseconds: NULL", anyaccel_event_elapsed(start, end, NULL));

    /* Destroyed once; a handle that names nothing is refused everywhere. */
    OK(anyaccel_event_destroy(0));
    OK(anyaccel_event_destroy(plain));
    anyaccel_event bad[] = {plain, 0, 1, ~(uint64_t)0, 0x12345678};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (bad[i]) REFUSED(ANYACCEL_ERROR_HANDLE, "no live event", anyaccel_event_destroy(bad[i]));
        REFUSED(ANYACCEL_ERROR_HANDLE, "no live event", anyaccel_event_record(bad[i], NOW));
        REFUSED(ANYACCEL_ERROR_HANDLE, "no live event", anyaccel_event_wait(bad[i], NOW));
        REFUSED(ANYACCEL_ERROR_HANDLE, "no live event", anyaccel_event_query(bad[i], &ended));
        REFUSED(ANYACCEL_ERROR_HANDLE, "no live event", anyaccel_event_synchronize(bad[i]));
        REFUSED(ANYACCEL_ERROR_HANDLE, "no live event", anyaccel_event_elapsed(start, bad[i], &ms));
        REFUSED(ANYACCEL_ERROR_HANDLE, "no live event", anyaccel_event_device(bad[i], &device));
    }

    /* Another event in the place of one that was recorded has nothing of it, but for those that wait for it. */
    OK(anyaccel_event_create(HERE, 0, &plain));
    for (int round = 0; round < 3; round++) {
        anyaccel_event old = plain;
        gate = 0;
        OK(anyaccel_stream_host_function(one, &wait));
        OK(anyaccel_event_record(plain, one));
        OK(anyaccel_event_wait(plain, two));
        OK(anyaccel_event_query(plain, &ended));
        CHECK(!ended);
        OK(anyaccel_event_destroy(plain));
        OK(anyaccel_event_create(HERE, ANYACCEL_EVENT_TIMING, &plain));
        CHECK(plain != old);
        OK(anyaccel_event_query(plain, &ended));
        CHECK(ended);
        OK(anyaccel_event_device(plain, &device));
        CHECK(device == -1);
        REFUSED(ANYACCEL_ERROR_ARGUMENT, "recorded before", anyaccel_event_elapsed(plain, end, &ms));
        REFUSED(ANYACCEL_ERROR_HANDLE, "no live event", anyaccel_event_query(old, &ended));
        OK(anyaccel_stream_query(two, &ended));
        CHECK(!ended);
        gate = 1;
        OK(anyaccel_stream_synchronize(two));
    }
    OK(anyaccel_event_destroy(plain));
    OK(anyaccel_event_destroy(start));
    return 0;
}
