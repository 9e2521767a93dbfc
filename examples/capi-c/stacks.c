/* Whose line took the memory, for programs in a language of ten lines: stacks of another language in a memory history.
 *
 *     make && ANYACCEL_BACKEND=host ./stacks memory.pickle && anyaccel memory memory.pickle
 *
 * A program is an array of words: a number takes so many KiB of device memory, a name calls a function.
 */
#include <anyaccel/anyaccel.h>
#include <stdio.h>
#include <stdlib.h>

static void must(anyaccel_result result, const char *what) {
    if (result == ANYACCEL_OK) return;
    char words[1024];
    anyaccel_last_error(words, sizeof words);
    fprintf(stderr, "%s: %s\n%s\n", what, anyaccel_result_name(result), words);
    exit(1);
}
#define MUST(call) must((call), #call)

/* 1. The language: each word is a line, and each thread has a stack of running functions. */
struct function {
    const char *name;
    struct word {
        int kib;
        const struct function *call;
    } words[4];
};
static _Thread_local struct running {
    const struct function *function;
    unsigned line;
    struct running *caller;
} *running;

static const struct function buffers = {"buffers", {{64, NULL}, {256, NULL}}};
static const struct function program = {"program", {{4, NULL}, {0, &buffers}, {8, NULL}}};

static void run(const struct function *function) {
    struct running here = {function, 0, running};
    running = &here;
    for (const struct word *word = function->words; word->kib || word->call; word++) {
        here.line++;
        if (word->call) {
            run(word->call);
        } else {
            void *memory;
            MUST(anyaccel_alloc(0, (uint64_t)word->kib << 10, ANYACCEL_CURRENT_STREAM, &memory));
        }
    }
    running = here.caller;
}

/* 2. Called at each allocation, so it only writes down what is at hand: function and line, innermost first. */
static size_t capture(void *data, anyaccel_frame *frames, size_t most) {
    (void)data;
    size_t count = 0;
    for (const struct running *at = running; at && count < most; at = at->caller) {
        frames[count++] = (anyaccel_frame){(uintptr_t)at->function, at->line};
    }
    return count;
}

/* 3. Called when a snapshot is taken, once for each line that was seen. Functions of this language never go, so that there is
 * nothing to keep; one that counts references would count here, in `keep` and `forget`. */
static void resolve(void *data, const anyaccel_frame *frames, size_t count, anyaccel_tell_frame tell, void *to) {
    for (size_t i = 0; i < count; i++) {
        const struct function *function = (const struct function *)(uintptr_t)frames[i].code;
        tell(to, i, function->name, data, (uint32_t)frames[i].at);
    }
}

int main(int argc, char **argv) {
    const anyaccel_stack_source source = {
        .struct_size = sizeof source, .data = "program.ten", .capture = capture, .resolve = resolve};
    const anyaccel_history_options options = {.struct_size = sizeof options,
                                              .enabled = ANYACCEL_HISTORY_ALL,
                                              .stacks = ANYACCEL_STACKS_SOURCE,
                                              .source = &source};
    MUST(anyaccel_record_memory_history(&options));
    run(&program);
    const char *path = argc > 1 ? argv[1] : "memory.pickle";
    MUST(anyaccel_dump_memory_snapshot(path));
    printf("who holds the memory: anyaccel memory %s\n", path);
    return 0;
}
