/* Pi by throwing darts, on whatever device there is: a tour of the C API.
 *
 *     make && ANYACCEL_BACKEND=host ./pi
 *
 * It draws random points on the device, in a graph that is replayed, while the host counts those of the round before: two
 * buffers, two streams, events between them. Everything is given back without a wait in between.
 */
#include <anyaccel/anyaccel.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 1 << 16, ROUNDS = 16, FLOAT32 = 6 /* as c10::ScalarType has it */ };

/* 1. Every function returns a code; the words are kept for the thread. */
static void must(anyaccel_result result, const char *what) {
    if (result == ANYACCEL_OK) return;
    char words[1024];
    anyaccel_last_error(words, sizeof words);
    fprintf(stderr, "%s: %s\n%s\n", what, anyaccel_result_name(result), words);
    exit(1);
}
#define MUST(call) must((call), #call)

/* 2. Text comes through a function of ours. */
static void print(void *data, const char *text, size_t len) {
    fwrite(text, 1, len, data);
}

struct round {
    void *device;         /* POINTS pairs of floats */
    float *host;          /* the same, pinned */
    anyaccel_graph graph; /* draws them and brings them here */
    anyaccel_event drawn;
};

/* 3. A host function runs in the order of a stream; here on one that does nothing else. */
struct count {
    const float *points;
    long *inside;
};

static void count_inside(void *data) {
    const struct count *count = data;
    for (size_t i = 0; i < POINTS; i++) {
        float x = count->points[2 * i], y = count->points[2 * i + 1];
        *count->inside += x * x + y * y < 1;
    }
}

int main(void) {
    if (anyaccel_api_version() >> 16 != ANYACCEL_API_MAJOR) {
        fprintf(stderr, "libanyaccel has another major version than anyaccel.h\n");
        return 1;
    }
    /* 4. The first call that needs a device starts the runtime. */
    MUST(anyaccel_init());
    anyaccel_device_info info = {.struct_size = sizeof info};
    MUST(anyaccel_get_device_info(0, &info));
    printf("On ");
    MUST(anyaccel_kind(print, stdout));
    printf(":0, %s, %.1f GiB\n", info.name, (double)info.memory / (1 << 30));

    /* 5. Streams are numbers. This thread's current one is what ANYACCEL_CURRENT_STREAM names. */
    anyaccel_stream drawing, counting;
    MUST(anyaccel_stream_from_pool(0, 0, &drawing));
    MUST(anyaccel_stream_from_pool(0, 0, &counting));
    MUST(anyaccel_stream_set_current(drawing));
    MUST(anyaccel_generator_set(ANYACCEL_DEFAULT_GENERATOR(0), 42, 0));

    const size_t size = 2 * POINTS * sizeof(float);
    struct round rounds[2];
    for (int i = 0; i < 2; i++) {
        struct round *round = &rounds[i];
        MUST(anyaccel_alloc(0, size, ANYACCEL_CURRENT_STREAM, &round->device));
        MUST(anyaccel_host_alloc(0, size, (void **)&round->host));
        MUST(anyaccel_event_create(ANYACCEL_CURRENT_DEVICE, 0, &round->drawn));

        /* 6. Between begin and end the current stream's work is recorded instead of run. */
        MUST(anyaccel_graph_create(0, &round->graph));
        const anyaccel_pool_id own = {0, 0};
        MUST(anyaccel_graph_begin(round->graph, own, ANYACCEL_CAPTURE_DEFAULT));
        anyaccel_random uniform = {.struct_size = sizeof uniform,
                                   .distribution = ANYACCEL_RANDOM_UNIFORM,
                                   .dtype = FLOAT32,
                                   .a = 0,
                                   .b = 1};
        MUST(anyaccel_fill_random(round->device, 2 * POINTS, &uniform, 0, ANYACCEL_CURRENT_STREAM));
        MUST(anyaccel_copy(round->host, ANYACCEL_HOST, round->device, 0, size, ANYACCEL_CURRENT_STREAM, ANYACCEL_COPY_ASYNC));
        MUST(anyaccel_graph_end(round->graph));
    }

    long inside[2] = {0, 0};
    struct count counts[2] = {{rounds[0].host, &inside[0]}, {rounds[1].host, &inside[1]}};
    for (int i = 0; i < ROUNDS; i++) {
        struct round *round = &rounds[i % 2];
        /* 7. Each replay draws new numbers, once those of two rounds ago were counted. */
        MUST(anyaccel_event_wait(round->drawn, ANYACCEL_CURRENT_STREAM));
        MUST(anyaccel_graph_replay(round->graph));
        MUST(anyaccel_event_record(round->drawn, ANYACCEL_CURRENT_STREAM));
        MUST(anyaccel_event_wait(round->drawn, counting));
        anyaccel_host_function function = {.struct_size = sizeof function, .call = count_inside, .data = &counts[i % 2]};
        MUST(anyaccel_stream_host_function(counting, &function));
        MUST(anyaccel_event_record(round->drawn, counting));
    }
    MUST(anyaccel_stream_synchronize(counting));
    double pi = 4.0 * (double)(inside[0] + inside[1]) / ((double)POINTS * ROUNDS);
    printf("pi is about %.4f\n", pi);

    /* 8. Memory is given back by its address; work that uses it goes on. */
    for (int i = 0; i < 2; i++) {
        MUST(anyaccel_free(rounds[i].device));
        MUST(anyaccel_host_free(rounds[i].host));
        MUST(anyaccel_graph_destroy(rounds[i].graph));
        MUST(anyaccel_event_destroy(rounds[i].drawn));
    }

    /* 9. Running out of memory is an answer: set a budget and see. */
    void *much;
    MUST(anyaccel_set_memory_budget(0, 64 << 20));
    if (anyaccel_alloc(0, UINT64_C(1) << 30, ANYACCEL_CURRENT_STREAM, &much) == ANYACCEL_ERROR_OUT_OF_MEMORY)
        printf("1 GiB within a budget of 64 MiB: refused, and nothing is lost\n");

    anyaccel_memory_stats stats = {.struct_size = sizeof stats};
    MUST(anyaccel_get_memory_stats(0, &stats));
    printf("At most %.1f MiB were in use.\n", (double)stats.allocated_bytes.all.peak / (1 << 20));
    return pi > 3.1 && pi < 3.2 ? 0 : 1;
}
