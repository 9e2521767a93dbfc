/* What streams, events and graphs promise of order, for many threads at once. Both sides of every promise read and write with plain
 * accesses: under ThreadSanitizer one that isn't kept shows even where the values come out right. Gates hold work back, so that it
 * is still to be done when what it uses is given back. Two devices. */
#include "check.h"
#include <pthread.h>
#include <sched.h>

enum { THREADS = 4, SIZE = 600 };
static int rounds = 12;

struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool open;
};

static void open_gate(void *data) {
    struct gate *gate = data;
    pthread_mutex_lock(&gate->mutex);
    gate->open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}

static void hold(void *data) {
    struct gate *gate = data;
    pthread_mutex_lock(&gate->mutex);
    while (!gate->open) pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

static void shut(struct gate *gate, anyaccel_stream stream) {
    pthread_mutex_init(&gate->mutex, NULL);
    pthread_cond_init(&gate->changed, NULL);
    gate->open = false;
    anyaccel_host_function function = {.struct_size = sizeof function, .call = hold, .data = gate};
    OK(anyaccel_stream_host_function(stream, &function));
}

static void call(anyaccel_stream stream, void (*what)(void *), void *data, void (*destroy)(void *)) {
    anyaccel_host_function function = {.struct_size = sizeof function, .call = what, .data = data, .destroy = destroy};
    OK(anyaccel_stream_host_function(stream, &function));
}

static anyaccel_event mark(anyaccel_stream stream) {
    anyaccel_event event;
    OK(anyaccel_event_create(HERE, 0, &event));
    OK(anyaccel_event_record(event, stream));
    return event;
}

/* Later work of a stream after what another has by now; the event goes before either. */
static void after(anyaccel_stream later, anyaccel_stream earlier) {
    anyaccel_event event = mark(earlier);
    OK(anyaccel_event_wait(event, later));
    OK(anyaccel_event_destroy(event));
}

static unsigned char *pinned(int value) {
    unsigned char *memory;
    OK(anyaccel_host_alloc(HERE, SIZE, (void **)&memory));
    memset(memory, value, SIZE);
    return memory;
}

static void *device_memory(int32_t device, anyaccel_stream stream) {
    void *memory;
    OK(anyaccel_alloc(device, SIZE, stream, &memory));
    return memory;
}

static void copy(void *to, int32_t to_device, const void *from, int32_t from_device, anyaccel_stream stream) {
    OK(anyaccel_copy(to, to_device, from, from_device, SIZE, stream, ANYACCEL_COPY_ASYNC));
}

/* Which streams a thread has: two of its device and the default one, which it shares, and one of the other device. */
struct place {
    int32_t device, other;
    anyaccel_stream a, b, home, far;
};

struct seen {
    unsigned char *memory;
    int first, last, calls;
};

static void look(void *data) {
    struct seen *seen = data;
    seen->first = seen->memory[0];
    seen->last = seen->memory[SIZE - 1];
    seen->calls++;
    memset(seen->memory, 0xee, SIZE);
}

/* Everything is given back, and its successors are written, before the work that uses it has begun. */
static void freed_early(const struct place *at, int value) {
    struct gate gate;
    shut(&gate, at->a);
    unsigned char *from = pinned(value), *to = pinned(0);
    void *x = device_memory(at->device, at->a), *y = device_memory(at->device, at->b);
    copy(x, at->device, from, ANYACCEL_HOST, at->a);
    OK(anyaccel_host_free(from));
    after(at->b, at->a);
    copy(y, at->device, x, at->device, at->b);
    OK(anyaccel_free(x));
    copy(to, ANYACCEL_HOST, y, at->device, at->b);
    OK(anyaccel_free(y));
    struct seen seen = {.memory = to};
    call(at->b, look, &seen, NULL);
    unsigned char *noise = pinned(0xdd);
    void *others[3];
    for (int i = 0; i < 3; i++) {
        others[i] = device_memory(at->device, at->home);
        copy(others[i], at->device, noise, ANYACCEL_HOST, at->home);
    }
    anyaccel_event end = mark(at->b);
    open_gate(&gate);
    OK(anyaccel_event_synchronize(end));
    CHECK(seen.calls == 1 && seen.first == value && seen.last == value && to[7] == 0xee);
    OK(anyaccel_event_destroy(end));
    for (int i = 0; i < 3; i++) OK(anyaccel_free(others[i]));
    OK(anyaccel_host_free(noise));
    OK(anyaccel_host_free(to));
    OK(anyaccel_stream_synchronize(at->a));
}

/* A use that only record_stream() tells of: a function of the host, which must find the memory still its own. */
static void recorded_use(const struct place *at, int value) {
    struct gate gate;
    unsigned char *to = pinned(0);
    void *x = device_memory(at->device, at->a);
    OK(anyaccel_memset(x, (uint8_t)value, SIZE, at->a));
    after(at->b, at->a);
    shut(&gate, at->b);
    copy(to, ANYACCEL_HOST, x, at->device, at->b);
    OK(anyaccel_record_stream(x, at->b));
    OK(anyaccel_free(x));
    void *next = device_memory(at->device, at->a);
    CHECK(next != x);
    OK(anyaccel_memset(next, 0xcc, SIZE, at->a));
    OK(anyaccel_stream_synchronize(at->a));
    open_gate(&gate);
    OK(anyaccel_stream_synchronize(at->b));
    CHECK(to[0] == value && to[SIZE - 1] == value);
    OK(anyaccel_free(next));
    OK(anyaccel_host_free(to));
}

static void count(void *data) {
    ++*(int *)data;
}

/* A plain counter goes round three streams and two devices, and comes back. */
static void around(const struct place *at) {
    int counter = 0;
    anyaccel_stream streams[] = {at->a, at->b, at->far};
    for (int i = 0; i < 9; i++) {
        call(streams[i % 3], count, &counter, NULL);
        after(streams[(i + 1) % 3], streams[i % 3]);
    }
    call(at->a, count, &counter, NULL);
    OK(anyaccel_stream_synchronize(at->a));
    CHECK(counter == 10);
    /* And between the streams of another thread, by waiting for whole streams. */
    counter++;
    call(at->far, count, &counter, NULL);
    OK(anyaccel_stream_wait_stream(at->b, at->far));
    call(at->b, count, &counter, NULL);
    OK(anyaccel_synchronize_device(at->device));
    CHECK(counter == 13);
}

/* Waits are for the recording of then: a later one, and the end of the event, change nothing. */
static void recorded_again(const struct place *at) {
    struct gate gate;
    int counter = 0;
    shut(&gate, at->a);
    call(at->a, count, &counter, NULL);
    anyaccel_event event = mark(at->a);
    OK(anyaccel_event_wait(event, at->b));
    OK(anyaccel_event_record(event, at->home));
    OK(anyaccel_event_synchronize(event));
    OK(anyaccel_event_destroy(event));
    call(at->b, count, &counter, NULL);
    bool ended = true;
    OK(anyaccel_stream_query(at->b, &ended));
    CHECK(!ended);
    open_gate(&gate);
    OK(anyaccel_stream_synchronize(at->b));
    CHECK(counter == 2);
}

struct owned {
    void *device, *pinned;
};

/* Ends on a thread of the runtime: gives back what the function had. */
static void give_back(void *data) {
    struct owned *owned = data;
    OK(anyaccel_free(owned->device));
    OK(anyaccel_host_free(owned->pinned));
    free(owned);
}

static void touch(void *data) {
    struct owned *owned = data;
    memset(owned->pinned, 1, SIZE);
}

/* Graphs with functions of the host, two streams and memory of their own; dropped while they still run. */
static void graphs(const struct place *at, int value) {
    anyaccel_graph graph;
    int calls = 0;
    unsigned char *from = pinned(value), *to = pinned(0);
    void *x = device_memory(at->device, at->a), *own = device_memory(at->device, at->a);
    struct owned *owned = malloc(sizeof *owned);
    CHECK(owned != NULL);
    *owned = (struct owned){own, pinned(0)};
    OK(anyaccel_memset(own, 0, SIZE, at->a));
    OK(anyaccel_stream_synchronize(at->a));
    OK(anyaccel_graph_create(0, &graph));
    OK(anyaccel_stream_set_current(at->a));
    OK(anyaccel_graph_begin(graph, (anyaccel_pool_id){0, 0}, ANYACCEL_CAPTURE_THREAD_LOCAL));
    void *scratch = device_memory(at->device, at->a);
    copy(scratch, at->device, from, ANYACCEL_HOST, at->a);
    after(at->b, at->a);
    copy(x, at->device, scratch, at->device, at->b);
    call(at->a, count, &calls, NULL);
    call(at->a, touch, owned, give_back);
    after(at->a, at->b);
    copy(to, ANYACCEL_HOST, x, at->device, at->a);
    OK(anyaccel_free(scratch));
    OK(anyaccel_graph_end(graph));
    for (int i = 1; i <= 3; i++) {
        memset(from, value + i, SIZE);
        OK(anyaccel_graph_replay(graph));
        OK(anyaccel_stream_synchronize(at->a));
        CHECK(calls == i && to[0] == value + i && to[SIZE - 1] == value + i);
    }
    /* Replays on two streams never overlap; nothing is left of the graph but what is still to be done. */
    struct gate gate;
    shut(&gate, at->a);
    OK(anyaccel_graph_replay(graph));
    OK(anyaccel_stream_set_current(at->b));
    OK(anyaccel_graph_replay(graph));
    OK(anyaccel_graph_destroy(graph));
    OK(anyaccel_host_free(from));
    OK(anyaccel_free(x));
    void *next = device_memory(at->device, at->home);
    OK(anyaccel_memset(next, 0xbb, SIZE, at->home));
    unsigned char *other = pinned(0xaa);
    open_gate(&gate);
    OK(anyaccel_stream_synchronize(at->b));
    CHECK(calls == 5 && to[0] == value + 3 && to[SIZE - 1] == value + 3 && other[0] == 0xaa);
    OK(anyaccel_stream_synchronize(at->a));
    OK(anyaccel_free(next));
    OK(anyaccel_host_free(other));
    OK(anyaccel_host_free(to));
}

/* A stream of one's own is given back with work to do. */
static void streams_that_go(const struct place *at) {
    struct gate gate;
    int counter = 0;
    anyaccel_stream own;
    OK(anyaccel_stream_create(at->device, 0, ANYACCEL_STREAM_RESERVED, &own));
    shut(&gate, own);
    call(own, count, &counter, NULL);
    after(at->b, own);
    OK(anyaccel_stream_destroy(own));
    call(at->b, count, &counter, NULL);
    open_gate(&gate);
    OK(anyaccel_stream_synchronize(at->b));
    CHECK(counter == 2);
}

/* Between threads: a stream that all enqueue on, a plain counter that only the stream's order protects, and events that one
 * thread records and another waits for. */
static anyaccel_stream common;
static int common_calls;
static anyaccel_event posted[THREADS];
static unsigned char *mail[THREADS];
static pthread_barrier_t barrier;

static void shared(const struct place *at, int self, int value) {
    for (int i = 0; i < 5; i++) call(common, count, &common_calls, NULL);
    mail[self] = pinned(0);
    void *x = device_memory(at->device, at->a);
    OK(anyaccel_memset(x, (uint8_t)value, SIZE, at->a));
    copy(mail[self], ANYACCEL_HOST, x, at->device, at->a);
    OK(anyaccel_free(x));
    OK(anyaccel_event_record(posted[self], at->a));
    pthread_barrier_wait(&barrier);
    const int next = (self + 1) % THREADS;
    struct seen seen = {.memory = mail[next]};
    OK(anyaccel_event_wait(posted[next], at->b));
    call(at->b, look, &seen, NULL);
    /* Two threads wait for one event and ask for it, while a third waits on the device. */
    bool ended = false;
    while (!ended) {
        OK(anyaccel_event_query(posted[(self + 2) % THREADS], &ended));
        if (!ended) sched_yield();
    }
    OK(anyaccel_stream_synchronize(at->b));
    CHECK(seen.calls == 1 && seen.first == value && seen.last == value);
    pthread_barrier_wait(&barrier);
    OK(anyaccel_host_free(mail[self]));
}

static void *work(void *data) {
    const int self = (int)(intptr_t)data;
    struct place at = {.device = self % 2, .other = 1 - self % 2, .home = ANYACCEL_STREAM(self % 2, 0)};
    OK(anyaccel_set_device(at.device));
    OK(anyaccel_stream_from_pool(at.device, 0, &at.a));
    OK(anyaccel_stream_from_pool(at.device, 0, &at.b));
    OK(anyaccel_stream_from_pool(at.other, 0, &at.far));
    for (int round = 0; round < rounds; round++) {
        freed_early(&at, 1 + (round + self) % 200);
        recorded_use(&at, 1 + round % 200);
        around(&at);
        recorded_again(&at);
        graphs(&at, 1 + round % 100);
        streams_that_go(&at);
        shared(&at, self, round % 200);
    }
    OK(anyaccel_synchronize_device(at.device));
    OK(anyaccel_synchronize_device(at.other));
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) rounds = atoi(argv[1]);
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    OK(anyaccel_stream_from_pool(0, 0, &common));
    for (int i = 0; i < THREADS; i++) OK(anyaccel_event_create(HERE, 0, &posted[i]));
    for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    OK(anyaccel_stream_synchronize(common));
    CHECK(common_calls == THREADS * rounds * 5);
    for (int i = 0; i < THREADS; i++) OK(anyaccel_event_destroy(posted[i]));
    for (int32_t device = 0; device < 2; device++) {
        OK(anyaccel_synchronize_device(device));
        OK(anyaccel_empty_cache());
        anyaccel_memory_stats stats = {.struct_size = sizeof stats};
        OK(anyaccel_get_memory_stats(device, &stats));
        CHECK(stats.allocation.all.current == 0 && stats.reserved_bytes.all.current == 0);
    }
    return 0;
}
