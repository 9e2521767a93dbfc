/* Stacks of another language in memory histories: what is captured, kept, resolved and forgotten, and by whom. One device. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/* The language: a thread's calls are a list of function and line. */
static _Thread_local anyaccel_frame calls[400];
static _Thread_local size_t depth;

#define CALL(function, line) (calls[depth++] = (anyaccel_frame){(function), (line)})
#define RETURN() (depth--)

/* Held by whoever runs the language, as the lock of an interpreter is. */
static pthread_mutex_t interpreter = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int has_interpreter;
static atomic_int captures, resolves, kept[64];

static void enter(void) {
    if (has_interpreter++ == 0) {
        pthread_mutex_lock(&interpreter);
    }
}

static void leave(void) {
    if (--has_interpreter == 0) {
        pthread_mutex_unlock(&interpreter);
    }
}

static size_t capture(void *data, anyaccel_frame *frames, size_t most) {
    CHECK(data == kept);
    CHECK(most == 256);
    captures++;
    enter();
    size_t count = 0;
    while (count < depth && count < most) {
        frames[count] = calls[depth - 1 - count];
        count++;
    }
    leave();
    return count;
}

static void keep(void *data, anyaccel_frame frame) {
    enter();
    ((atomic_int *)data)[frame.code]++;
    leave();
}

static void forget(void *data, anyaccel_frame frame) {
    enter();
    CHECK(((atomic_int *)data)[frame.code]-- > 0);
    leave();
}

static void resolve(void *data, const anyaccel_frame *frames, size_t count, anyaccel_tell_frame tell, void *to) {
    resolves++;
    enter();
    for (size_t at = 0; at < count; at++) {
        char name[32];
        CHECK(((atomic_int *)data)[frames[at].code] > 0);
        snprintf(name, sizeof name, "function_%d", (int)frames[at].code);
        switch (frames[at].code) {
        case 7: /* inlined into another */
            tell(to, at, "inlined", "a.language", 70);
            tell(to, at, "around", "a.language", 71);
            break;
        case 8: /* nothing is known of it */
            break;
        case 9:
            tell(to, at, NULL, NULL, 0);
            break;
        default:
            tell(to, at, name, "\"quoted\".language", (uint32_t)frames[at].at);
        }
    }
    tell(to, count, "beyond", NULL, 1);
    tell(to, SIZE_MAX, "beyond", NULL, 1);
    leave();
}

static anyaccel_stack_source source = {
    .struct_size = sizeof source, .data = kept, .capture = capture, .keep = keep, .forget = forget, .resolve = resolve};

static anyaccel_history_options all(void) {
    return (anyaccel_history_options){.struct_size = sizeof(anyaccel_history_options),
                                      .enabled = ANYACCEL_HISTORY_ALL,
                                      .pinned = 1,
                                      .stacks = ANYACCEL_STACKS_SOURCE,
                                      .source = &source};
}

static void record(anyaccel_history_options options) {
    OK(anyaccel_record_memory_history(&options));
}

static void stop(void) {
    record((anyaccel_history_options){.struct_size = sizeof(anyaccel_history_options)});
    for (size_t code = 0; code < 64; code++) {
        CHECK(kept[code] == 0);
    }
}

static char *snapshot(void) {
    struct text json = {0};
    OK(anyaccel_memory_snapshot_json(append, &json));
    return json.bytes;
}

static int holds(const char *words) {
    char *json = snapshot();
    int found = strstr(json, words) != NULL;
    free(json);
    return found;
}

static void use(uint64_t size) {
    void *memory;
    OK(anyaccel_alloc(0, size, NOW, &memory));
    OK(anyaccel_free(memory));
}

static void what_is_captured(void) {
    record(all());
    CHECK(!anyaccel_is_started());
    void *memory, *pinned;
    CALL(1, 10);
    CALL(2, 20);
    OK(anyaccel_alloc(0, 1000, NOW, &memory));
    CHECK(captures == 1 && resolves == 0 && kept[1] == 1 && kept[2] == 1);
    RETURN();
    CALL(3, 30);
    OK(anyaccel_free(memory));
    CHECK(captures == 2 && kept[1] == 1 && kept[3] == 1);
    CHECK(holds("\"name\":\"function_2\"") && holds("\"filename\":\"\\\"quoted\\\".language\",\"line\":20"));
    CHECK(holds("\"name\":\"function_3\"") && holds("\"line\":30"));
    CHECK(resolves == 1); /* once for all of them */
    RETURN();
    OK(anyaccel_host_alloc(0, 100, &pinned));
    OK(anyaccel_host_free(pinned));
    CHECK(captures == 4);
    for (uint64_t code = 7; code <= 9; code++) {
        CALL(code, 0);
        use(100);
        RETURN();
    }
    CHECK(holds("\"inlined\"") && holds("\"around\"") && !holds("beyond"));
    CHECK(resolves == 2);
    OK(anyaccel_empty_cache()); /* shows as a frame of the library */
    CHECK(holds("\"name\":\"empty_cache\""));
    /* Deeper than what is kept. */
    RETURN();
    for (uint64_t at = 0; at < 400; at++) {
        CALL(5, at);
    }
    use(100);
    CHECK(holds("\"line\":399") && holds("\"line\":144") && !holds("\"line\":143"));
    CHECK(kept[5] == 256);
    depth = 0;
    stop();
    CHECK(!holds("function_"));
}

static void the_same_is_kept_once(void) {
    record(all());
    CALL(1, 10);
    for (int turn = 0; turn < 1000; turn++) {
        use(1000);
    }
    CHECK(kept[1] == 1);
    /* Other options, the same source: the events stay. */
    anyaccel_history_options other = all();
    other.max_entries = 100;
    other.context = ANYACCEL_CONTEXT_ALLOC;
    record(other);
    CHECK(kept[1] == 1 && holds("\"name\":\"function_1\""));
    /* Another source: they begin anew. */
    anyaccel_stack_source copy = source;
    copy.forget = NULL;
    other.source = &copy;
    record(other);
    CHECK(kept[1] == 0 && !holds("\"name\":\"function_1\""));
    use(1000);
    CHECK(kept[1] == 1 && holds("\"name\":\"function_1\""));
    kept[1] = 0; /* nobody forgets it for us */
    RETURN();
    stop();
}

static void contexts(void) {
    const struct {
        uint32_t context;
        int captured, block, event;
    } expected[] = {{ANYACCEL_CONTEXT_ALL, 2, 1, 1},
                    {ANYACCEL_CONTEXT_ALLOC, 1, 1, 1},
                    {ANYACCEL_CONTEXT_STATE, 1, 1, 0},
                    {ANYACCEL_CONTEXT_NONE, 0, 0, 0}};
    CALL(4, 40);
    for (size_t at = 0; at < sizeof expected / sizeof *expected; at++) {
        anyaccel_history_options options = all();
        options.context = expected[at].context;
        options.clear = 1;
        options.skip = 8 | 16; /* segment_alloc and segment_free, which come and go */
        record(options);
        int before = captures;
        void *memory;
        OK(anyaccel_alloc(0, 1000, NOW, &memory));
        char *json = snapshot();
        char *segments = strstr(json, "\"segments\":["); /* behind the traces */
        CHECK(segments != NULL);
        CHECK((strstr(segments, "function_4") != NULL) == expected[at].block);
        *segments = 0;
        CHECK((strstr(json, "function_4") != NULL) == expected[at].event);
        CHECK(strstr(json, "\"segment_alloc\"") == NULL);
        free(json);
        OK(anyaccel_free(memory));
        CHECK(captures - before == expected[at].captured);
    }
    RETURN();
    stop();
    int before = captures;
    use(1000);
    CHECK(captures == before); /* nothing is asked while nothing is recorded */
}

/* Threads that take and give back memory with the interpreter, without it, and without ever having run the language, while
 * others switch the recording and take snapshots: whoever has the interpreter waits for the library's locks. */
static atomic_bool over;
static atomic_int rounds[3];

static void *with_the_interpreter(void *unused) {
    while (!over) {
        enter();
        CALL(10, 1);
        use(5000);
        RETURN();
        leave();
        rounds[0]++;
    }
    return unused;
}

static void *without_the_interpreter(void *unused) {
    for (uint64_t turn = 0; !over; turn++) {
        CALL(11, turn % 64);
        use(1 << 21);
        RETURN();
        rounds[1]++;
    }
    return unused;
}

static void *without_a_stack(void *unused) {
    while (!over) {
        use(300);
        rounds[2]++;
    }
    return unused;
}

static void several_threads(void) {
    pthread_t threads[6];
    void *(*const bodies[])(void *) = {with_the_interpreter, without_the_interpreter, without_a_stack};
    over = false;
    for (size_t at = 0; at < 6; at++) {
        CHECK(pthread_create(&threads[at], NULL, bodies[at % 3], NULL) == 0);
    }
    for (int turn = 0; turn < 100 || rounds[0] < 1000 || rounds[1] < 1000 || rounds[2] < 1000; turn++) {
        anyaccel_history_options options = all();
        options.max_entries = 1000;
        options.enabled = turn % 3 == 2 ? ANYACCEL_HISTORY_OFF : ANYACCEL_HISTORY_ALL;
        options.clear = turn % 5 == 4;
        if (turn % 2 == 0) {
            enter();
        }
        record(options);
        free(snapshot());
        if (turn % 2 == 0) {
            leave();
        }
        OK(anyaccel_empty_cache());
    }
    over = true;
    for (size_t at = 0; at < 6; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
    stop();
}

/* A child of fork records nothing until it asks, and then what it does itself. */
static void in_a_child(void) {
    record(all());
    CALL(6, 60);
    use(1000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int before = captures;
        use(1000);
        CHECK(captures == before && !holds("function_6"));
        record(all());
        CALL(12, 120);
        use(1000);
        CHECK(captures > before && holds("function_12"));
        record((anyaccel_history_options){.struct_size = sizeof(anyaccel_history_options)});
        CHECK(kept[12] == 0);
        fflush(NULL);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(holds("function_6"));
    RETURN();
    stop();
}

static void refusals(void) {
    anyaccel_history_options options = all();
    options.source = NULL;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "source: NULL", anyaccel_record_memory_history(&options));
    anyaccel_stack_source broken = source;
    options.source = &broken;
    broken.capture = NULL;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "source.capture: NULL", anyaccel_record_memory_history(&options));
    broken = source;
    broken.resolve = NULL;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "source.resolve: NULL", anyaccel_record_memory_history(&options));
    broken = source;
    broken.struct_size = 8;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "struct_size is 8", anyaccel_record_memory_history(&options));
    options = all();
    options.stacks = 3;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "stacks 3", anyaccel_record_memory_history(&options));
    options = all();
    options.context = 4;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "context 4", anyaccel_record_memory_history(&options));
    options = all();
    options.skip = 1 << 10;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "skip 0x400", anyaccel_record_memory_history(&options));
    /* A caller of the first minor, whose struct ended before them. */
    options.struct_size = offsetof(anyaccel_history_options, context);
    options.stacks = 3;
    OK(anyaccel_record_memory_history(&options));
    stop();
}

int main(void) {
    what_is_captured();
    the_same_is_kept_once();
    contexts();
    refusals();
    several_threads();
    in_a_child();
    /* What is recorded at exit asks nobody any more. */
    record(all());
    use(1000);
    return 0;
}
