/* A child of fork: of a process that has not started the runtime, and of one that has. FORK says what the kind can. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

static void in_child(void (*body)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        body();
        fflush(NULL);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *memory, *pinned;
static anyaccel_event event;
static anyaccel_graph graph;
static anyaccel_generator generator;

static anyaccel_stream pooled;

static void use(void) {
    void *own;
    OK(anyaccel_alloc(0, 100, NOW, &own));
    OK(anyaccel_memset(own, 1, 100, NOW));
    OK(anyaccel_stream_synchronize(NOW));
    OK(anyaccel_free(own));
}

static void after_start(void) {
    if (strcmp(getenv("FORK"), "restarts") == 0) {
        CHECK(!anyaccel_is_started());
        /* What was current is the parent's; a number names the child's own stream. */
        anyaccel_stream current, before;
        OK(anyaccel_stream_current(HERE, &current));
        CHECK(current == ANYACCEL_STREAM(0, 0));
        OK(anyaccel_stream_exchange(pooled, &before));
        CHECK(before == current);
        OK(anyaccel_stream_current(0, &current));
        CHECK(current == pooled);
        use();
    } else {
        void *own;
        REFUSED(ANYACCEL_ERROR_FORKED, "Cannot re-initialize", anyaccel_alloc(0, 100, NOW, &own));
        REFUSED(ANYACCEL_ERROR_FORKED, "'spawn'", anyaccel_init());
        anyaccel_stream current;
        REFUSED(ANYACCEL_ERROR_FORKED, "'spawn'", anyaccel_stream_current(0, &current));
        REFUSED(ANYACCEL_ERROR_FORKED, "'spawn'", anyaccel_stream_exchange(pooled, &current));
        REFUSED(ANYACCEL_ERROR_FORKED, "'spawn'", anyaccel_stream_synchronize(NOW));
        OK(anyaccel_synchronize_device(0));
    }
    /* What the parent has is refused, and nothing hangs. */
    REFUSED(ANYACCEL_ERROR_HANDLE, "", anyaccel_free(memory));
    REFUSED(ANYACCEL_ERROR_HANDLE, "", anyaccel_host_free(pinned));
    REFUSED(ANYACCEL_ERROR_STALE, "from before this process was forked: make a new event", anyaccel_event_synchronize(event));
    REFUSED(ANYACCEL_ERROR_STALE, "from before this process was forked: make a new graph", anyaccel_graph_replay(graph));
    /* It names nothing that this process made, either. */
    anyaccel_event own_event;
    anyaccel_graph own_graph;
    anyaccel_generator own_generator;
    uint64_t seed, offset;
    bool ended;
    OK(anyaccel_event_create(HERE, 0, &own_event));
    OK(anyaccel_graph_create(0, &own_graph));
    OK(anyaccel_generator_create(5, &own_generator));
    CHECK(own_event != event && own_graph != graph && own_generator != generator);
    REFUSED(ANYACCEL_ERROR_STALE, "", anyaccel_event_query(event, &ended));
    REFUSED(ANYACCEL_ERROR_STALE, "", anyaccel_event_destroy(event));
    REFUSED(ANYACCEL_ERROR_STALE, "", anyaccel_graph_destroy(graph));
    REFUSED(ANYACCEL_ERROR_STALE, "", anyaccel_generator_get(generator, &seed, &offset));
    REFUSED(ANYACCEL_ERROR_STALE, "", anyaccel_generator_destroy(generator));
    OK(anyaccel_event_query(own_event, &ended));
    OK(anyaccel_generator_get(own_generator, &seed, &offset));
    CHECK(seed == 5);
    OK(anyaccel_event_destroy(own_event));
    OK(anyaccel_graph_destroy(own_graph));
    OK(anyaccel_generator_destroy(own_generator));
}

int main(void) {
    int32_t count;
    OK(anyaccel_device_count(&count));
    OK(anyaccel_event_create(HERE, 0, &event));
    in_child(use);

    OK(anyaccel_alloc(0, 100, NOW, &memory));
    OK(anyaccel_host_alloc(0, 100, &pinned));
    OK(anyaccel_graph_create(0, &graph));
    OK(anyaccel_generator_create(4, &generator));
    OK(anyaccel_event_record(event, NOW));
    OK(anyaccel_stream_from_pool(0, 0, &pooled));
    OK(anyaccel_stream_exchange(pooled, NULL));
    in_child(after_start);
    use();
    OK(anyaccel_event_synchronize(event));
    OK(anyaccel_free(memory));
    return 0;
}
