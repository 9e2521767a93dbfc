/* An accelerator in portable C: two devices with memory of their own and queues that are threads. It has the required
 * functions and nothing else; caching of memory, statistics, graphs, random numbers, conversion of element types and copies
 * between devices come from anyaccel. The numbers (H1) are the rules at the top of anyaccel/plugin.h.
 * Read it from the bottom up: the plugin's table, the driver, the device, then how a queue works. */
#include "npu.h"

/* ---- Handles ---------------------------------------------------------------------------------------------------- */

static void free_item(struct item *item)
{
    free(item);
}

uint64_t npu_add(struct anyaccel_driver *driver, struct item *item, void (*end)(struct item *item))
{
    item->id = ++driver->next_id;
    item->end = end;
    item->next = driver->items[item->id % NPU_BUCKETS];
    driver->items[item->id % NPU_BUCKETS] = item;
    return item->id;
}

static struct item **place_of(struct anyaccel_driver *driver, uint64_t id)
{
    struct item **at = &driver->items[id % NPU_BUCKETS];
    while (*at != NULL && (*at)->id != id) {
        at = &(*at)->next;
    }
    return at;
}

struct item *npu_find(struct anyaccel_driver *driver, uint64_t id)
{
    return *place_of(driver, id);
}

struct item *npu_take(struct anyaccel_driver *driver, uint64_t id)
{
    struct item **at = place_of(driver, id);
    struct item *item = *at;
    *at = item->next;
    return item;
}

uint32_t npu_no_memory(anyaccel_fault *fault, const char *api)
{
    return anyaccel_fail(fault, ANYACCEL_OUT_OF_MEMORY, api, 0, "the host has no memory for it");
}

/* ---- Queues ----------------------------------------------------------------------------------------------------- */

/* A point in a stream whose time is kept. */
struct stamp {
    struct item item;
    int64_t nanoseconds;
    int passed;  /* its turn has come */
    int dropped; /* nobody will ask: whoever passes it frees it */
};

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Does an operation, without the lock. Nothing here can fail, so no work ever does (H33). */
static void run(struct op *op)
{
    switch (op->kind) {
    case OP_COPY:
        memmove(op->dst, op->src, op->len);
        break;
    case OP_FILL:
        for (uint64_t at = 0; at < op->len; at += op->pattern) {
            memcpy(op->dst + at, op->bytes, op->pattern);
        }
        break;
    case OP_WRITE:
        memcpy(op->dst, op->bytes, op->len);
        break;
    case OP_HOST_CALL:
        op->function.call(op->function.data, ANYACCEL_HOST_RUN);
        op->function.drop(op->function.data);
        break;
#ifdef NPU_EXTRAS
    case OP_LAUNCH:
        npu_run(op);
        break;
#endif
    default: /* waits, marks and stamps: see work and finish */
        break;
    }
}

/* With the lock held: what an operation leaves behind. */
static void finish(struct stream *stream, struct op *op)
{
    if (op->kind == OP_MARK) {
        stream->done = op->mark;
        pthread_cond_broadcast(&stream->device->driver->ended);
    } else if (op->kind == OP_STAMP) {
        op->stamp->nanoseconds = now();
        op->stamp->passed = 1;
        if (op->stamp->dropped) {
            free(op->stamp);
        }
    }
    stream->first = op->next;
    stream->last = op->next != NULL ? stream->last : &stream->first;
    free(op);
}

/* With the lock held, which it gives back: one owner less. */
static void leave(struct anyaccel_driver *driver)
{
    unsigned left = --driver->owners;
    pthread_mutex_unlock(&driver->lock);
    if (left > 0) {
        return;
    }
    for (size_t bucket = 0; bucket < NPU_BUCKETS; bucket++) {
        while (driver->items[bucket] != NULL) {
            struct item *item = driver->items[bucket];
            driver->items[bucket] = item->next;
            item->end(item);
        }
    }
    pthread_cond_destroy(&driver->ended);
    pthread_mutex_destroy(&driver->lock);
    free(driver);
}

/* A stream's thread: one operation after the other (H6). When the driver is destroyed it does what is left and ends. */
static void *work(void *argument)
{
    struct stream *stream = argument;
    struct anyaccel_driver *driver = stream->device->driver;
    pthread_mutex_lock(&driver->lock);
    for (;;) {
        while (stream->first == NULL && !stream->closed && !driver->closing) {
            pthread_cond_wait(&stream->work, &driver->lock);
        }
        struct op *op = stream->first;
        if (op == NULL) {
            break;
        }
        if (op->kind == OP_WAIT) {
            while (op->of->done < op->mark) {
                pthread_cond_wait(&driver->ended, &driver->lock);
            }
        } else {
            pthread_mutex_unlock(&driver->lock);
            run(op);
            pthread_mutex_lock(&driver->lock);
        }
        finish(stream, op);
    }
    pthread_cond_destroy(&stream->work);
    leave(driver);
    return NULL;
}

/* With the lock held: puts a copy of an operation at the end of a stream. 0 if the host has no memory for it. */
static int push(struct stream *stream, const struct op *op)
{
    struct op *copy = malloc(sizeof *copy);
    if (copy == NULL) {
        return 0;
    }
    *copy = *op;
    copy->next = NULL;
    *stream->last = copy;
    stream->last = &copy->next;
    pthread_cond_signal(&stream->work);
    return 1;
}

uint32_t npu_enqueue(struct anyaccel_device *device, anyaccel_stream stream, struct op op, const char *api,
                     anyaccel_fault *fault)
{
    pthread_mutex_lock(&device->driver->lock);
    int done = push((struct stream *)npu_find(device->driver, stream), &op);
    pthread_mutex_unlock(&device->driver->lock);
    return done ? ANYACCEL_OK : npu_no_memory(fault, api);
}

uint8_t *npu_pointer(struct anyaccel_driver *driver, anyaccel_place place)
{
    pthread_mutex_lock(&driver->lock);
    uint8_t *base = ((struct block *)npu_find(driver, place.mem))->base;
    pthread_mutex_unlock(&driver->lock);
    return base + place.offset;
}

/* With the lock held: the next mark, 0 without memory. Where nothing is enqueued before it, it has ended at once. */
static uint64_t next_mark(struct stream *stream)
{
    uint64_t mark = stream->marked + 1;
    if (stream->first == NULL) {
        stream->done = mark;
    } else if (!push(stream, &(struct op){.kind = OP_MARK, .mark = mark})) {
        return 0;
    }
    return stream->marked = mark;
}

/* ---- Work ------------------------------------------------------------------------------------------------------- */

static uint32_t npu_copy(anyaccel_device *device, anyaccel_stream stream, const anyaccel_end *dst, const anyaccel_end *src,
                         uint64_t len, anyaccel_fault *fault)
{
    if (dst->kind != ANYACCEL_END_DEVICE && src->kind != ANYACCEL_END_DEVICE) {
        return anyaccel_fail(fault, ANYACCEL_INVALID, "copy", 0, "both ends are memory of the host");
    }
    struct op op = {.kind = OP_COPY, .len = len};
    op.dst = dst->kind == ANYACCEL_END_HOST ? dst->data.host : npu_pointer(device->driver, dst->data.place);
    op.src = src->kind == ANYACCEL_END_HOST ? src->data.host : npu_pointer(device->driver, src->data.place);
    return npu_enqueue(device, stream, op, "copy", fault);
}

static uint32_t npu_fill(anyaccel_device *device, anyaccel_stream stream, anyaccel_place dst, const void *pattern,
                         uint32_t pattern_len, uint64_t len, anyaccel_fault *fault)
{
    if (pattern_len == 0 || pattern_len > 16 || (pattern_len & (pattern_len - 1)) != 0) {
        return anyaccel_fail(fault, ANYACCEL_UNSUPPORTED, "fill", pattern_len, "patterns have 1, 2, 4, 8 or 16 bytes");
    }
    struct op op = {.kind = OP_FILL, .dst = npu_pointer(device->driver, dst), .len = len, .pattern = pattern_len};
    memcpy(op.bytes, pattern, pattern_len);
    return npu_enqueue(device, stream, op, "fill", fault);
}

static uint32_t npu_write(anyaccel_device *device, anyaccel_stream stream, anyaccel_place dst, const void *bytes,
                          uint32_t len, anyaccel_fault *fault)
{
    struct op op = {.kind = OP_WRITE, .dst = npu_pointer(device->driver, dst), .len = len};
    if (len > sizeof op.bytes) {
        return anyaccel_fail(fault, ANYACCEL_INVALID, "write", len, "more than 64 bytes");
    }
    memcpy(op.bytes, bytes, len); /* taken before this returns (H12) */
    return npu_enqueue(device, stream, op, "write", fault);
}

static uint32_t npu_host_call(anyaccel_device *device, anyaccel_stream stream, const anyaccel_host_fn *function,
                              anyaccel_fault *fault)
{
    struct op op = {.kind = OP_HOST_CALL, .function = *function};
    uint32_t result = npu_enqueue(device, stream, op, "host_call", fault);
    if (result != ANYACCEL_OK) {
        function->drop(function->data); /* ours from the call on, also if that fails */
    }
    return result;
}

/* ---- Order and time --------------------------------------------------------------------------------------------- */

static uint32_t npu_mark(anyaccel_device *device, anyaccel_stream stream, anyaccel_mark *mark, anyaccel_fault *fault)
{
    pthread_mutex_lock(&device->driver->lock);
    mark->value = next_mark((struct stream *)npu_find(device->driver, stream));
    pthread_mutex_unlock(&device->driver->lock);
    mark->captured = 0;
    return mark->value != 0 ? ANYACCEL_OK : npu_no_memory(fault, "mark");
}

/* The stream waits, never the caller (H8). */
static uint32_t npu_wait(anyaccel_device *device, anyaccel_stream stream, anyaccel_stream of, anyaccel_mark mark,
                         anyaccel_fault *fault)
{
    struct op op = {.kind = OP_WAIT, .mark = mark.value};
    pthread_mutex_lock(&device->driver->lock);
    op.of = (struct stream *)npu_find(device->driver, of);
    pthread_mutex_unlock(&device->driver->lock);
    return npu_enqueue(device, stream, op, "wait", fault);
}

/* Condition variables wait until a time of the clock that they were made with. */
static int make_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    int failed = pthread_condattr_init(&attributes) || pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        || pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return failed;
}

static uint32_t npu_wait_host(anyaccel_device *device, anyaccel_stream id, uint64_t mark, uint64_t nanoseconds, uint32_t mode,
                              anyaccel_fault *fault)
{
    (void)mode; /* this thread sleeps either way */
    int64_t begin = now();
    struct timespec until = {0, 0};
    int forever = nanoseconds > (uint64_t)(INT64_MAX - begin); /* ANYACCEL_FOREVER, and what comes to the same */
    if (!forever) {
        until.tv_sec = (time_t)((begin + (int64_t)nanoseconds) / 1000000000);
        until.tv_nsec = (long)((begin + (int64_t)nanoseconds) % 1000000000);
    }
    pthread_mutex_lock(&device->driver->lock);
    struct stream *stream = (struct stream *)npu_find(device->driver, id);
    if (mark == ANYACCEL_NOW) {
        mark = next_mark(stream);
    }
    int failed = 0;
    while (stream->done < mark && failed == 0) {
        failed = forever ? pthread_cond_wait(&device->driver->ended, &device->driver->lock)
                         : pthread_cond_timedwait(&device->driver->ended, &device->driver->lock, &until);
    }
    int ended = stream->done >= mark;
    pthread_mutex_unlock(&device->driver->lock);
    return mark == 0 ? npu_no_memory(fault, "wait_host") : ended ? ANYACCEL_OK : ANYACCEL_TIMED_OUT;
}

static uint32_t npu_completed(anyaccel_device *device, anyaccel_stream id, uint64_t *mark, anyaccel_fault *fault)
{
    (void)fault;
    pthread_mutex_lock(&device->driver->lock);
    *mark = ((struct stream *)npu_find(device->driver, id))->done;
    pthread_mutex_unlock(&device->driver->lock);
    return ANYACCEL_OK;
}

static uint32_t npu_stamp(anyaccel_device *device, anyaccel_stream stream, anyaccel_stamp *handle, anyaccel_fault *fault)
{
    struct stamp *stamp = calloc(1, sizeof *stamp);
    if (stamp == NULL) {
        return npu_no_memory(fault, "stamp");
    }
    pthread_mutex_lock(&device->driver->lock);
    int done = push((struct stream *)npu_find(device->driver, stream), &(struct op){.kind = OP_STAMP, .stamp = stamp});
    *handle = done ? npu_add(device->driver, &stamp->item, free_item) : 0;
    pthread_mutex_unlock(&device->driver->lock);
    if (done) {
        return ANYACCEL_OK;
    }
    free(stamp);
    return npu_no_memory(fault, "stamp");
}

static uint32_t npu_elapsed_ns(anyaccel_device *device, anyaccel_stamp from, anyaccel_stamp to, int64_t *nanoseconds,
                               anyaccel_fault *fault)
{
    pthread_mutex_lock(&device->driver->lock);
    struct stamp *first = (struct stamp *)npu_find(device->driver, from);
    struct stamp *last = (struct stamp *)npu_find(device->driver, to);
    int passed = first->passed && last->passed;
    *nanoseconds = passed ? last->nanoseconds - first->nanoseconds : 0;
    pthread_mutex_unlock(&device->driver->lock);
    return passed ? ANYACCEL_OK : anyaccel_fail(fault, ANYACCEL_NOT_READY, "elapsed_ns", 0, NULL);
}

static void npu_drop_stamp(anyaccel_device *device, anyaccel_stamp id)
{
    pthread_mutex_lock(&device->driver->lock);
    struct stamp *stamp = (struct stamp *)npu_take(device->driver, id);
    if (stamp->passed) {
        free(stamp);
    } else {
        stamp->dropped = 1;
    }
    pthread_mutex_unlock(&device->driver->lock);
}

/* ---- Streams and memory ----------------------------------------------------------------------------------------- */

static uint32_t npu_create_stream(anyaccel_device *device, int32_t priority, anyaccel_stream *handle, anyaccel_fault *fault)
{
    (void)priority; /* there is only 0 */
    struct stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL || make_condition(&stream->work)) {
        free(stream);
        return npu_no_memory(fault, "create_stream");
    }
    stream->device = device;
    stream->last = &stream->first;
    struct anyaccel_driver *driver = device->driver;
    pthread_t thread;
    pthread_mutex_lock(&driver->lock);
    int failed = pthread_create(&thread, NULL, work, stream);
    if (failed == 0) {
        pthread_detach(thread);
        driver->owners++;
        *handle = npu_add(driver, &stream->item, free_item);
        stream->next = driver->streams;
        driver->streams = stream;
    }
    pthread_mutex_unlock(&driver->lock);
    if (failed != 0) {
        pthread_cond_destroy(&stream->work);
        free(stream);
        return anyaccel_fail(fault, ANYACCEL_OUT_OF_MEMORY, "pthread_create", failed, NULL);
    }
    return ANYACCEL_OK;
}

static uint32_t npu_destroy_stream(anyaccel_device *device, anyaccel_stream id, anyaccel_fault *fault)
{
    (void)fault;
    pthread_mutex_lock(&device->driver->lock);
    struct stream *stream = (struct stream *)npu_find(device->driver, id);
    stream->closed = 1;
    pthread_cond_signal(&stream->work);
    /* The struct stays until the driver ends: waits for its marks may still be enqueued elsewhere. */
    pthread_mutex_unlock(&device->driver->lock);
    return ANYACCEL_OK;
}

void npu_end_block(struct item *item)
{
    free(((struct block *)item)->base);
    free(item);
}

static uint32_t npu_alloc(anyaccel_device *device, uint64_t len, anyaccel_segment *segment, anyaccel_fault *fault)
{
    if (len == 0 || len > NPU_MEMORY) {
        return anyaccel_fail(fault, ANYACCEL_INVALID, "alloc", 0, len == 0 ? "no bytes" : "more than max_alloc");
    }
    uint64_t size = (len + NPU_ALIGNMENT - 1) / NPU_ALIGNMENT * NPU_ALIGNMENT;
    struct block *block = calloc(1, sizeof *block);
    if (block == NULL) {
        return npu_no_memory(fault, "alloc");
    }
    pthread_mutex_lock(&device->driver->lock);
    int fits = size <= NPU_MEMORY - device->used;
    device->used += fits ? size : 0;
    pthread_mutex_unlock(&device->driver->lock);
    block->base = fits ? aligned_alloc(NPU_ALIGNMENT, size) : NULL;
    block->len = size;
    pthread_mutex_lock(&device->driver->lock);
    if (block->base != NULL) {
        segment->mem = npu_add(device->driver, &block->item, npu_end_block);
    } else {
        device->used -= fits ? size : 0;
    }
    pthread_mutex_unlock(&device->driver->lock);
    if (block->base == NULL) {
        free(block);
        return anyaccel_fail(fault, ANYACCEL_OUT_OF_MEMORY, "alloc", 0, NULL);
    }
    segment->addr = (uint64_t)(uintptr_t)block->base;
    segment->len = size;
    return ANYACCEL_OK;
}

static uint32_t npu_free(anyaccel_device *device, anyaccel_mem mem, anyaccel_fault *fault)
{
    (void)fault;
    pthread_mutex_lock(&device->driver->lock);
    struct item *block = npu_take(device->driver, mem);
    device->used -= ((struct block *)block)->len;
    pthread_mutex_unlock(&device->driver->lock);
    npu_end_block(block);
    return ANYACCEL_OK;
}

/* ---- The device and the driver ---------------------------------------------------------------------------------- */

static uint32_t npu_describe(anyaccel_driver *driver, uint32_t ordinal, anyaccel_device_info *info)
{
    (void)driver;
    info->flags = ANYACCEL_INFO_UUID | ANYACCEL_INFO_HOST_ENDS | ANYACCEL_INFO_INTEGRATED_KNOWN | ANYACCEL_INFO_INTEGRATED;
    anyaccel_put_text(&info->name, "Example NPU");
    anyaccel_put_text(&info->vendor, "Example");
    anyaccel_put_text(&info->driver, "1.0");
    info->uuid[0] = 'n';
    info->uuid[15] = (uint8_t)ordinal;
    info->memory = NPU_MEMORY;
    info->max_alloc = NPU_MEMORY;
    info->alignment = NPU_ALIGNMENT;
    info->place_alignment = 1;
    info->stamp_ns = 1;
    info->fill_patterns = ANYACCEL_FILL_1 | ANYACCEL_FILL_2 | ANYACCEL_FILL_4 | ANYACCEL_FILL_8 | ANYACCEL_FILL_16;
    info->cores = 1;
    return ordinal < NPU_DEVICES;
}

static uint32_t npu_info(anyaccel_device *device, anyaccel_device_info *info, anyaccel_fault *fault)
{
    (void)fault;
    npu_describe(device->driver, device->ordinal, info);
    return ANYACCEL_OK;
}

static uint32_t npu_memory_info(anyaccel_device *device, anyaccel_memory_info *info, anyaccel_fault *fault)
{
    (void)fault;
    pthread_mutex_lock(&device->driver->lock);
    info->free_known = 1;
    info->free = NPU_MEMORY - device->used;
    info->total = NPU_MEMORY;
    pthread_mutex_unlock(&device->driver->lock);
    return ANYACCEL_OK;
}

/* Called in a forked child too: it takes no lock that a thread of the parent could have held (H24). */
static uint32_t npu_create(anyaccel_driver **handle, anyaccel_fault *fault)
{
    struct anyaccel_driver *driver = calloc(1, sizeof *driver);
    if (driver == NULL || pthread_mutex_init(&driver->lock, NULL) != 0 || make_condition(&driver->ended)) {
        free(driver);
        return npu_no_memory(fault, "create");
    }
    driver->owners = 1;
    for (uint32_t ordinal = 0; ordinal < NPU_DEVICES; ordinal++) {
        driver->devices[ordinal].driver = driver;
        driver->devices[ordinal].ordinal = ordinal;
    }
    *handle = driver;
    return ANYACCEL_OK;
}

/* Waits for nobody and may be called by a function of the host, on one of our threads (H25). */
static void npu_destroy(anyaccel_driver *driver)
{
    pthread_mutex_lock(&driver->lock);
    driver->closing = 1;
    for (struct stream *stream = driver->streams; stream != NULL; stream = stream->next) {
        if (!stream->closed) {
            pthread_cond_signal(&stream->work);
        }
    }
    leave(driver);
}

static void npu_probe(anyaccel_driver *driver, anyaccel_probe *probe)
{
    (void)driver;
    probe->visible = NPU_DEVICES;
    probe->present = NPU_DEVICES;
    probe->present_known = 1;
}

static uint32_t npu_start(anyaccel_driver *driver, uint32_t *count, anyaccel_fault *fault)
{
    (void)driver;
    (void)fault;
    *count = NPU_DEVICES;
    return ANYACCEL_OK;
}

static uint32_t npu_open(anyaccel_driver *driver, uint32_t ordinal, anyaccel_device **device, anyaccel_fault *fault)
{
    if (ordinal >= NPU_DEVICES) {
        return anyaccel_fail(fault, ANYACCEL_INVALID, "open", ordinal, "there is no such device");
    }
    *device = &driver->devices[ordinal];
    return ANYACCEL_OK;
}

static void npu_close(anyaccel_device *device)
{
    (void)device; /* it lives as long as its driver */
}

static const anyaccel_driver_table driver_table = {
    .struct_size = sizeof(anyaccel_driver_table),
    .create = npu_create,
    .destroy = npu_destroy,
    .probe = npu_probe,
    .describe = npu_describe,
    .start = npu_start,
    .open = npu_open,
    .close = npu_close,
};

static const anyaccel_device_table device_table = {
    .struct_size = sizeof(anyaccel_device_table),
    .info = npu_info,
    .memory_info = npu_memory_info,
    .alloc = npu_alloc,
    .free = npu_free,
    .create_stream = npu_create_stream,
    .destroy_stream = npu_destroy_stream,
    .mark = npu_mark,
    .wait = npu_wait,
    .wait_host = npu_wait_host,
    .completed = npu_completed,
    .stamp = npu_stamp,
    .elapsed_ns = npu_elapsed_ns,
    .drop_stamp = npu_drop_stamp,
    .copy = npu_copy,
    .fill = npu_fill,
    .write = npu_write,
    .host_call = npu_host_call,
#ifdef NPU_EXTRAS
    .launch = npu_launch,
    .pinned = &npu_pinned,
    .kernels = &npu_kernels,
#endif
};

static const anyaccel_plugin plugin = {
    .struct_size = sizeof(anyaccel_plugin),
    .abi_major = ANYACCEL_ABI_MAJOR,
    .abi_minor = ANYACCEL_ABI_MINOR,
    .kind = ANYACCEL_KIND_PRIVATE,
    .name = "npu",
    .version = "1.0",
    .flags = ANYACCEL_FORK_SAFE_PROBE | ANYACCEL_RESTARTABLE,
    .driver = &driver_table,
    .device = &device_table,
};

ANYACCEL_EXPORT const anyaccel_plugin *anyaccel_plugin_entry(const anyaccel_host *host)
{
    (void)host;
    return &plugin;
}
