/* A plugin that is as small as can be, for tests: everything is done at once, on the thread that calls. Right in what tests
 * with one stream can tell, and wrong in one way each when built with one of:
 *
 *   NAME="x", KIND=n, MAJOR=n, MINOR=n    other than npu, ANYACCEL_KIND_PRIVATE, this header's
 *   FLAGS=n                               other than fork-safe and restartable
 *   DECLINES, NO_ENTRY                    the entry returns NULL, or has another name
 *   NO_DRIVER, NO_DEVICE                  a table is NULL
 *   NO_FUNCTION=f                         that function of the device is NULL
 *   DATA_FOR_CODE                         the device's alloc points to data
 *   DEVICE_SIZE=n                         what the device's table says of its size
 *   DEVICES=n                             how many devices it has
 *   PLACES=n                              what places in kernel arguments are multiples of
 *   ERRORS                                every call fails, with STARTS every one behind the start
 *   GARBAGE                               handles, addresses, marks and numbers are nonsense
 *   NO_DRIVERS                            create fails
 *   CRASHES, CRASHES_IN_STAMP             alloc takes the process down, or only stamp does
 *   CRASHES_AT_EXIT                       the end of the process does
 *   NOISY                                 create prints to standard output
 *   EXITS_IN_CREATE, EXITS_IN_ALLOC       that ends the process as if all were well
 *   HANGS                                 probe does not return
 */
#ifdef HANGS
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>
#endif
#include <anyaccel/plugin.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef NAME
#define NAME "npu"
#endif
#ifndef KIND
#define KIND ANYACCEL_KIND_PRIVATE
#endif
#ifndef MAJOR
#define MAJOR ANYACCEL_ABI_MAJOR
#endif
#ifndef MINOR
#define MINOR ANYACCEL_ABI_MINOR
#endif
#ifndef FLAGS
#define FLAGS (ANYACCEL_FORK_SAFE_PROBE | ANYACCEL_RESTARTABLE)
#endif
#ifndef DEVICES
#define DEVICES 2
#endif
static const uint32_t devices = DEVICES;
#ifndef PLACES
#define PLACES 1
#endif
#ifndef DEVICE_SIZE
#define DEVICE_SIZE sizeof(anyaccel_device_table)
#endif

#ifdef ERRORS
#define MAY_FAIL(api) return anyaccel_fail(fault, ANYACCEL_DRIVER, "npu_" api, -5, "it is broken")
#else
#define MAY_FAIL(api) (void)fault
#endif

struct anyaccel_driver {
    int started;
};

struct anyaccel_device {
    uint32_t ordinal;
};

#ifndef GARBAGE
static atomic_uint_fast64_t next_stream = 1;
static atomic_uint_fast64_t next_mark = 1;
#endif

static uint32_t create(anyaccel_driver **driver, anyaccel_fault *fault)
{
#ifdef EXITS_IN_CREATE
    exit(0);
#endif
#ifdef NOISY
    printf("a driver \xff is made\n{\n");
    fflush(stdout);
#endif
#ifdef CRASHES_AT_EXIT
    static atomic_flag registered = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&registered)) {
        atexit(abort);
    }
#endif
#ifdef NO_DRIVERS
    (void)driver;
    return anyaccel_fail(fault, ANYACCEL_DRIVER, "npu_create", 3, "no firmware");
#else
    (void)fault;
    *driver = calloc(1, sizeof **driver);
    return *driver != NULL ? ANYACCEL_OK : ANYACCEL_OUT_OF_MEMORY;
#endif
}

static void destroy(anyaccel_driver *driver)
{
    free(driver);
}

static void probe(anyaccel_driver *driver, anyaccel_probe *found)
{
    (void)driver;
#ifdef HANGS
    for (volatile int forever = 1; forever;) {
        sleep(1);
    }
#endif
    found->visible = devices;
    found->present = devices;
    found->present_known = 1;
}

static void fill_info(anyaccel_device_info *info)
{
    anyaccel_put_text(&info->name, "Small NPU");
    anyaccel_put_text(&info->vendor, "Nobody");
    anyaccel_put_text(&info->driver, "1.2.3");
    info->flags = ANYACCEL_INFO_HOST_ENDS;
    info->memory = 64u << 20;
    info->max_alloc = 64u << 20;
    info->alignment = 16;
    info->place_alignment = PLACES;
    info->stamp_ns = 1;
    info->fill_patterns = ANYACCEL_FILL_1 | ANYACCEL_FILL_2 | ANYACCEL_FILL_4 | ANYACCEL_FILL_8 | ANYACCEL_FILL_16;
}

static uint32_t describe(anyaccel_driver *driver, uint32_t ordinal, anyaccel_device_info *info)
{
    (void)driver;
    fill_info(info);
    return ordinal < devices;
}

static uint32_t start(anyaccel_driver *driver, uint32_t *count, anyaccel_fault *fault)
{
#ifndef STARTS
    MAY_FAIL("start");
#endif
    (void)fault;
    driver->started = 1;
    *count = devices;
    return ANYACCEL_OK;
}

static uint32_t open_device(anyaccel_driver *driver, uint32_t ordinal, anyaccel_device **device, anyaccel_fault *fault)
{
    (void)driver;
    if (ordinal >= devices) {
        return anyaccel_fail(fault, ANYACCEL_INVALID, "open", 0, "no such device");
    }
    *device = calloc(1, sizeof **device);
    (*device)->ordinal = ordinal;
    return ANYACCEL_OK;
}

static void close_device(anyaccel_device *device)
{
    free(device);
}

static uint32_t info(anyaccel_device *device, anyaccel_device_info *info, anyaccel_fault *fault)
{
    (void)device;
    (void)fault;
    fill_info(info);
    return ANYACCEL_OK;
}

static uint32_t memory_info(anyaccel_device *device, anyaccel_memory_info *info, anyaccel_fault *fault)
{
    (void)device;
    MAY_FAIL("memory_info");
    info->free_known = 1;
    info->free = 32u << 20;
    info->total = 64u << 20;
    return ANYACCEL_OK;
}

static uint32_t alloc(anyaccel_device *device, uint64_t len, anyaccel_segment *segment, anyaccel_fault *fault)
{
    (void)device;
    MAY_FAIL("alloc");
#ifdef CRASHES
    abort();
#endif
#ifdef EXITS_IN_ALLOC
    _Exit(0);
#endif
#ifdef GARBAGE
    segment->mem = UINT64_MAX;
    segment->addr = UINT64_MAX - 3;
    segment->len = len / 2;
#else
    void *memory = malloc(len);
    if (memory == NULL) {
        return ANYACCEL_OUT_OF_MEMORY;
    }
    segment->mem = (uint64_t)(uintptr_t)memory;
    segment->addr = segment->mem;
    segment->len = len;
#endif
    return ANYACCEL_OK;
}

static uint32_t free_memory(anyaccel_device *device, anyaccel_mem mem, anyaccel_fault *fault)
{
    (void)device;
    (void)fault;
#ifdef GARBAGE
    (void)mem;
#else
    free((void *)(uintptr_t)mem);
#endif
    return ANYACCEL_OK;
}

static uint32_t create_stream(anyaccel_device *device, int32_t priority, anyaccel_stream *stream, anyaccel_fault *fault)
{
    (void)device;
    (void)priority;
    MAY_FAIL("create_stream");
#ifdef GARBAGE
    *stream = UINT64_MAX;
#else
    *stream = atomic_fetch_add(&next_stream, 1);
#endif
    return ANYACCEL_OK;
}

static uint32_t destroy_stream(anyaccel_device *device, anyaccel_stream stream, anyaccel_fault *fault)
{
    (void)device;
    (void)stream;
    (void)fault;
    return ANYACCEL_OK;
}

static uint32_t mark(anyaccel_device *device, anyaccel_stream stream, anyaccel_mark *mark, anyaccel_fault *fault)
{
    (void)device;
    (void)stream;
    MAY_FAIL("mark");
#ifdef GARBAGE
    mark->value = 7;
    mark->captured = 99;
#else
    mark->value = atomic_fetch_add(&next_mark, 1);
#endif
    return ANYACCEL_OK;
}

static uint32_t wait(anyaccel_device *device, anyaccel_stream stream, anyaccel_stream of, anyaccel_mark mark,
                     anyaccel_fault *fault)
{
    (void)device;
    (void)stream;
    (void)of;
    (void)mark;
    MAY_FAIL("wait");
    return ANYACCEL_OK;
}

static uint32_t wait_host(anyaccel_device *device, anyaccel_stream stream, uint64_t mark, uint64_t nanoseconds,
                          uint32_t mode, anyaccel_fault *fault)
{
    (void)device;
    (void)stream;
    (void)mark;
    (void)nanoseconds;
    (void)mode;
    MAY_FAIL("wait_host");
#ifdef GARBAGE
    return 4711;
#else
    return ANYACCEL_OK;
#endif
}

static uint32_t completed(anyaccel_device *device, anyaccel_stream stream, uint64_t *mark, anyaccel_fault *fault)
{
    (void)device;
    (void)stream;
    MAY_FAIL("completed");
#ifdef GARBAGE
    *mark = UINT64_MAX;
#else
    *mark = atomic_load(&next_mark) - 1;
#endif
    return ANYACCEL_OK;
}

static uint32_t stamp(anyaccel_device *device, anyaccel_stream stream, anyaccel_stamp *stamp, anyaccel_fault *fault)
{
#ifdef CRASHES_IN_STAMP
    abort();
#endif
    (void)device;
    (void)stream;
    MAY_FAIL("stamp");
    *stamp = 0;
    return ANYACCEL_OK;
}

static uint32_t elapsed_ns(anyaccel_device *device, anyaccel_stamp from, anyaccel_stamp to, int64_t *nanoseconds,
                           anyaccel_fault *fault)
{
    (void)device;
    (void)from;
    (void)to;
    MAY_FAIL("elapsed_ns");
    *nanoseconds = INT64_MIN;
    return ANYACCEL_OK;
}

static void drop_stamp(anyaccel_device *device, anyaccel_stamp stamp)
{
    (void)device;
    (void)stamp;
}

#ifndef GARBAGE
static char *at(const anyaccel_end *end)
{
    return end->kind == ANYACCEL_END_HOST ? end->data.host : (char *)(uintptr_t)end->data.place.mem + end->data.place.offset;
}
#endif

static uint32_t copy(anyaccel_device *device, anyaccel_stream stream, const anyaccel_end *dst, const anyaccel_end *src,
                     uint64_t len, anyaccel_fault *fault)
{
    (void)device;
    (void)stream;
    MAY_FAIL("copy");
#ifdef GARBAGE
    (void)dst;
    (void)src;
    (void)len;
#else
    memmove(at(dst), at(src), len);
#endif
    return ANYACCEL_OK;
}

static uint32_t fill(anyaccel_device *device, anyaccel_stream stream, anyaccel_place dst, const void *pattern,
                     uint32_t pattern_len, uint64_t len, anyaccel_fault *fault)
{
    (void)device;
    (void)stream;
    MAY_FAIL("fill");
#ifdef GARBAGE
    (void)dst;
    (void)pattern;
    (void)pattern_len;
    (void)len;
#else
    for (uint64_t done = 0; done < len; done += pattern_len) {
        memcpy((char *)(uintptr_t)dst.mem + dst.offset + done, pattern, pattern_len);
    }
#endif
    return ANYACCEL_OK;
}

static uint32_t write_bytes(anyaccel_device *device, anyaccel_stream stream, anyaccel_place dst, const void *bytes,
                            uint32_t len, anyaccel_fault *fault)
{
    (void)device;
    (void)stream;
    MAY_FAIL("write");
#ifdef GARBAGE
    (void)dst;
    (void)bytes;
    (void)len;
#else
    memcpy((char *)(uintptr_t)dst.mem + dst.offset, bytes, len);
#endif
    return ANYACCEL_OK;
}

static uint32_t host_call(anyaccel_device *device, anyaccel_stream stream, const anyaccel_host_fn *function,
                          anyaccel_fault *fault)
{
    (void)device;
    (void)stream;
    (void)fault;
#ifdef ERRORS
    function->drop(function->data);
    MAY_FAIL("host_call");
#else
    function->call(function->data, ANYACCEL_HOST_RUN);
    function->drop(function->data);
    return ANYACCEL_OK;
#endif
}

#ifdef DATA_FOR_CODE
static uint64_t data = 7;
#endif

static anyaccel_driver_table driver_table = {
    .struct_size = sizeof(anyaccel_driver_table),
    .create = create,
    .destroy = destroy,
    .probe = probe,
    .describe = describe,
    .start = start,
    .open = open_device,
    .close = close_device,
};

static anyaccel_device_table device_table = {
    .struct_size = DEVICE_SIZE,
    .info = info,
    .memory_info = memory_info,
    .alloc = alloc,
    .free = free_memory,
    .create_stream = create_stream,
    .destroy_stream = destroy_stream,
    .mark = mark,
    .wait = wait,
    .wait_host = wait_host,
    .completed = completed,
    .stamp = stamp,
    .elapsed_ns = elapsed_ns,
    .drop_stamp = drop_stamp,
    .copy = copy,
    .fill = fill,
    .write = write_bytes,
    .host_call = host_call,
};

static anyaccel_plugin plugin = {
    .struct_size = sizeof(anyaccel_plugin),
    .abi_major = MAJOR,
    .abi_minor = MINOR,
    .kind = KIND,
    .name = NAME,
    .version = "small 1.0",
    .flags = FLAGS,
    .driver = &driver_table,
    .device = &device_table,
};

#ifdef NO_ENTRY
ANYACCEL_EXPORT const anyaccel_plugin *another_name(const anyaccel_host *host);
#define anyaccel_plugin_entry another_name
#endif

const anyaccel_plugin *anyaccel_plugin_entry(const anyaccel_host *host)
{
    (void)host;
#ifdef DECLINES
    return NULL;
#endif
#ifdef NO_DRIVER
    plugin.driver = NULL;
#endif
#ifdef NO_DEVICE
    plugin.device = NULL;
#endif
#ifdef NO_FUNCTION
    device_table.NO_FUNCTION = NULL;
#endif
#ifdef DATA_FOR_CODE
    memcpy(&device_table.alloc, &(uint64_t *){&data}, sizeof device_table.alloc);
#endif
    return &plugin;
}
