/* Graphs, and pools of memory. Two devices. */
#include "check.h"
#include <stdatomic.h>
#include <unistd.h>

static const anyaccel_pool_id OWN = {0, 0};
static atomic_int calls, destroyed;

static void count_call(void *data) {
    (void)data;
    calls++;
}

static void count_destroyed(void *data) {
    (void)data;
    destroyed++;
}

int main(void) {
    anyaccel_stream stream, side;
    OK(anyaccel_stream_from_pool(0, 0, &stream));
    OK(anyaccel_stream_from_pool(0, 0, &side));
    OK(anyaccel_stream_set_current(stream));
    unsigned char *memory, *pinned, host[64];
    OK(anyaccel_alloc(0, 64, NOW, (void **)&memory));
    OK(anyaccel_host_alloc(0, 64, (void **)&pinned));
    OK(anyaccel_memset(memory, 0, 64, NOW));

    anyaccel_graph graph;
    OK(anyaccel_graph_create(0, &graph));
    REFUSED(ANYACCEL_ERROR_CAPTURE, "", anyaccel_graph_replay(graph));
    REFUSED(ANYACCEL_ERROR_CAPTURE, "", anyaccel_graph_end(graph));
    anyaccel_pool_id pool = {1, 1};
    OK(anyaccel_graph_pool(graph, &pool));
    CHECK(pool.first == 0 && pool.second == 0);

    /* Recorded, not run: fills, memory of the graph's pool, another stream, pinned memory, a host function. */
    anyaccel_event fork, join;
    OK(anyaccel_event_create(HERE, 0, &fork));
    OK(anyaccel_event_create(HERE, 0, &join));
    OK(anyaccel_graph_begin(graph, OWN, ANYACCEL_CAPTURE_DEFAULT));
    bool capturing = false;
    OK(anyaccel_stream_is_capturing(NOW, &capturing));
    CHECK(capturing);
    void *scratch;
    OK(anyaccel_alloc(0, 64, NOW, &scratch));
    OK(anyaccel_copy(scratch, 0, memory, 0, 64, NOW, ANYACCEL_COPY_ASYNC));
    OK(anyaccel_event_record(fork, stream));
    OK(anyaccel_event_wait(fork, side));
    OK(anyaccel_memset(memory + 8, 5, 8, side));
    OK(anyaccel_event_record(join, side));
    OK(anyaccel_event_wait(join, stream));
    OK(anyaccel_copy(memory, 0, "abcd", ANYACCEL_HOST, 4, NOW, 0));
    OK(anyaccel_copy(pinned, ANYACCEL_HOST, memory, 0, 64, NOW, ANYACCEL_COPY_ASYNC));
    OK(anyaccel_free(scratch));
    anyaccel_host_function function = {.struct_size = sizeof function, .call = count_call, .destroy = count_destroyed};
    OK(anyaccel_stream_host_function(NOW, &function));
    /* What a capture forbids is refused by name, and it goes on. */
    REFUSED(ANYACCEL_ERROR_CAPTURE, "Stream.synchronize", anyaccel_stream_synchronize(NOW));
    REFUSED(ANYACCEL_ERROR_CAPTURE, "", anyaccel_synchronize_device(0));
    REFUSED(ANYACCEL_ERROR_CAPTURE, "", anyaccel_copy(host, ANYACCEL_HOST, memory, 0, 8, NOW, 0));
    REFUSED(ANYACCEL_ERROR_CAPTURE, "", anyaccel_stream_query(NOW, &capturing));
    REFUSED(ANYACCEL_ERROR_CAPTURE, "", anyaccel_event_query(fork, &capturing));
    REFUSED(ANYACCEL_ERROR_CAPTURE, "", anyaccel_graph_begin(graph, OWN, ANYACCEL_CAPTURE_DEFAULT));
    REFUSED(ANYACCEL_ERROR_CAPTURE, "", anyaccel_graph_replay(graph));
    OK(anyaccel_stream_set_current(side));
    REFUSED(ANYACCEL_ERROR_CAPTURE, "", anyaccel_graph_end(graph));
    OK(anyaccel_stream_set_current(stream));
    OK(anyaccel_graph_end(graph));
    CHECK(calls == 0 && destroyed == 0);
    OK(anyaccel_copy(host, ANYACCEL_HOST, memory, 0, 64, NOW, 0));
    CHECK(host[0] == 0 && host[8] == 0);

    /* Replayed. The graph keeps what it uses. */
    OK(anyaccel_graph_instantiate(graph));
    for (int i = 0; i < 3; i++) OK(anyaccel_graph_replay(graph));
    OK(anyaccel_stream_synchronize(NOW));
    CHECK(calls == 3 && memcmp(pinned, "abcd\0\0\0\0\5\5", 10) == 0);
    OK(anyaccel_graph_pool(graph, &pool));
    CHECK(pool.first != 0 || pool.second != 0);
    OK(anyaccel_host_free(pinned));
    OK(anyaccel_graph_replay(graph));
    OK(anyaccel_stream_synchronize(NOW));
    CHECK(calls == 4 && destroyed == 0);

    /* A picture of it. */
    char path[64];
    snprintf(path, sizeof path, "/tmp/anyaccel-graphs-%d.dot", (int)getpid());
    REFUSED(ANYACCEL_ERROR_CAPTURE, "", anyaccel_graph_debug_dump(graph, path));
    OK(anyaccel_graph_enable_debug(graph));
    OK(anyaccel_graph_debug_dump(graph, path));
    CHECK(remove(path) == 0);
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "path: NULL", anyaccel_graph_debug_dump(graph, NULL));

    /* Random numbers move on at each replay. */
    anyaccel_graph random;
    OK(anyaccel_graph_create(ANYACCEL_GRAPH_KEEP, &random));
    OK(anyaccel_generator_set(ANYACCEL_DEFAULT_GENERATOR(0), 1, 0));
    OK(anyaccel_graph_begin(random, pool, ANYACCEL_CAPTURE_RELAXED));
    anyaccel_random bits = {.struct_size = sizeof bits, .distribution = ANYACCEL_RANDOM_BITS, .dtype = 3};
    OK(anyaccel_fill_random(memory, 16, &bits, 0, NOW));
    OK(anyaccel_graph_end(random));
    uint64_t offset = 0;
    for (int i = 1; i <= 3; i++) {
        OK(anyaccel_graph_replay(random));
        OK(anyaccel_generator_get(ANYACCEL_DEFAULT_GENERATOR(0), NULL, &offset));
        CHECK(offset == (uint64_t)i * 16);
    }
    OK(anyaccel_copy(host, ANYACCEL_HOST, memory, 0, 64, NOW, 0));

    /* An abandoned capture leaves nothing behind. */
    OK(anyaccel_graph_reset(random));
    OK(anyaccel_graph_begin(random, OWN, ANYACCEL_CAPTURE_THREAD_LOCAL));
    OK(anyaccel_memset(memory, 1, 8, NOW));
    OK(anyaccel_graph_reset(random));
    OK(anyaccel_stream_synchronize(NOW));
    OK(anyaccel_graph_begin(random, OWN, ANYACCEL_CAPTURE_GLOBAL));
    OK(anyaccel_graph_destroy(random));
    OK(anyaccel_stream_synchronize(NOW));

    REFUSED(ANYACCEL_ERROR_HANDLE, "no live graph", anyaccel_graph_begin(random, OWN, 0));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live graph", anyaccel_graph_end(random));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live graph", anyaccel_graph_instantiate(random));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live graph", anyaccel_graph_replay(random));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live graph", anyaccel_graph_reset(random));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live graph", anyaccel_graph_pool(random, &pool));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live graph", anyaccel_graph_enable_debug(random));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live graph", anyaccel_graph_debug_dump(random, path));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live graph", anyaccel_graph_destroy(random));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "flags", anyaccel_graph_create(8, &random));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "graph: NULL", anyaccel_graph_create(0, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "pool: NULL", anyaccel_graph_pool(graph, NULL));
    OK(anyaccel_graph_reset(graph));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "mode 9", anyaccel_graph_begin(graph, OWN, 9));
    const anyaccel_pool_id nobody = {77, 78};
    REFUSED(ANYACCEL_ERROR_STATE, "", anyaccel_graph_begin(graph, nobody, 0));
    OK(anyaccel_graph_destroy(graph));
    OK(anyaccel_graph_destroy(0));
    OK(anyaccel_synchronize_device(0));

    /* Pools. */
    anyaccel_pool_id mine;
    OK(anyaccel_pool_create(0, &mine));
    OK(anyaccel_pool_begin(mine));
    REFUSED(ANYACCEL_ERROR_STATE, "", anyaccel_pool_begin(mine));
    void *inside, *outside;
    OK(anyaccel_alloc(0, 2 << 20, NOW, &inside));
    OK(anyaccel_pool_end(mine));
    REFUSED(ANYACCEL_ERROR_STATE, "", anyaccel_pool_end(mine));
    OK(anyaccel_free(inside));
    OK(anyaccel_alloc(0, 2 << 20, NOW, &outside));
    CHECK(inside != outside);
    OK(anyaccel_free(outside));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live memory pool", anyaccel_pool_begin(nobody));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live memory pool", anyaccel_pool_end(nobody));
    anyaccel_memory_stats stats = {.struct_size = sizeof stats};
    OK(anyaccel_get_memory_stats(0, &stats));
    int64_t reserved = stats.reserved_bytes.all.current;
    OK(anyaccel_pool_empty_cache(mine));
    OK(anyaccel_pool_empty_cache(nobody));
    OK(anyaccel_get_memory_stats(0, &stats));
    CHECK(stats.reserved_bytes.all.current == reserved - (20 << 20));
    OK(anyaccel_pool_empty_cache(OWN));
    OK(anyaccel_pool_destroy(mine));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live memory pool", anyaccel_pool_destroy(mine));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "pool: NULL", anyaccel_pool_create(0, NULL));

    OK(anyaccel_free(memory));
    OK(anyaccel_event_destroy(fork));
    OK(anyaccel_event_destroy(join));
    return 0;
}
