/* The C API of anyaccel: one accelerator runtime for every chip.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Devices, streams, events, memory, graphs and random numbers of the process-wide runtime, with plain handles: for
 * programs in C and for bindings. Link libanyaccel.so or libanyaccel.a. C11 and C++17, 64-bit targets. docs/c-api.md is the
 * guide, examples/capi-c a program.
 *
 * This file is made from crates/capi/src by cbindgen; a test compares them.
 *
 *
 * CALLS
 *
 *   - A function that can fail returns ANYACCEL_OK or ANYACCEL_ERROR_*; then it did nothing, but where it says so, and
 *     anyaccel_last_error() has the words, per thread. What it was to write is not written.
 *   - Any function may be called from any thread at any time. Nothing unwinds out of one.
 *   - The current device and the current streams are a thread's own.
 *   - Naming, counting and asking start nothing; what starts the runtime says so. A function that takes a stream, an
 *     address or an event of a device finds it started.
 *   - In a child of fork the runtime starts anew where the kind can (the host device), else everything that needs it
 *     returns ANYACCEL_ERROR_FORKED. Handles and addresses of the parent are refused; streams are numbers, and name the
 *     child's.
 *   - While the process exits everything returns ANYACCEL_ERROR_EXITING or does nothing.
 *
 * VERSIONS
 *
 * Majors differ in meaning; minors only add. Structs that begin with struct_size may grow at their end: the caller sets it
 * to sizeof, and the library reads and writes no more. Structs without it never change. Fields named reserved are 0.
 *
 * RULES
 *
 *   C1  A pointer argument is valid for what its function reads or writes through it, during the call. Where it may be NULL
 *       its function says so; NULL elsewhere is refused. Text is terminated and UTF-8.
 *   C2  A handle is not destroyed, nor memory freed, while another call uses it: one of another thread, or one that calls a
 *       function of the caller's. Using either afterwards is refused, never undefined: handles and addresses are looked up. An
 *       address can be given out again, as with malloc.
 *   C3  struct_size is at most the size of what the pointer points to.
 *   C4  Functions of the caller can be called from any thread, with their data, and do not unwind: no C++ exception, no
 *       longjmp.
 *   C5  Host memory of a copy stays valid, and is left alone, as long as anyaccel_copy() says.
 */


#ifndef ANYACCEL_ANYACCEL_H
#define ANYACCEL_ANYACCEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef ANYACCEL_PLUGIN_H
#error "anyaccel.h is for users of devices and plugin.h for their makers: one file includes one of them"
#endif

#ifdef __cplusplus
#define ANYACCEL_NOEXCEPT noexcept
#else
#define ANYACCEL_NOEXCEPT
#endif

/** A stream, by the index of its device and its id there (that of c10::Stream); id 0 is the default stream. */
#define ANYACCEL_STREAM(device, id) ((uint64_t)(uint32_t)(device) << 48 | (uint64_t)(id))
/** The index of a stream's device. */
#define ANYACCEL_STREAM_DEVICE(stream) ((int32_t)((stream) >> 48))
/** A stream's id on its device. */
#define ANYACCEL_STREAM_ID(stream) ((uint64_t)(stream) & 0xffffffffffff)
/** The default generator of a device, by its index. */
#define ANYACCEL_DEFAULT_GENERATOR(device) (UINT64_C(1) << 63 | (uint64_t)(uint32_t)(device))


/**
 * The major version of this API. Another major means other meanings: compare it with anyaccel_api_version() >> 16.
 */
#define ANYACCEL_API_MAJOR 1

/**
 * The minor version of this API. Minors only add: functions, numbers, fields at the end of structs with struct_size.
 */
#define ANYACCEL_API_MINOR 1

/**
 * Stands for the host where a function takes a device: ordinary or pinned memory.
 */
#define ANYACCEL_HOST -1

/**
 * Stands for this thread's current device where a function takes a device of its own.
 */
#define ANYACCEL_CURRENT_DEVICE -1

/**
 * A stream with a native queue of its own, or an error, instead of the next one of the pool.
 */
#define ANYACCEL_STREAM_RESERVED 1

/**
 * Keep the time of each recording, for anyaccel_event_elapsed().
 */
#define ANYACCEL_EVENT_TIMING 1

/**
 * Threads that wait for the event sleep instead of spinning.
 */
#define ANYACCEL_EVENT_BLOCKING 2

/**
 * It can be sent to other processes. Refused by devices that have no such events.
 */
#define ANYACCEL_EVENT_INTERPROCESS 4

/**
 * The copy returns at once where it can: see anyaccel_copy().
 */
#define ANYACCEL_COPY_ASYNC 1

/**
 * The host may read and write device memory at its addresses, in stream order: synchronize first.
 */
#define ANYACCEL_DEVICE_HOST_ADDRESSABLE 1

/**
 * The device shares the host's memory.
 */
#define ANYACCEL_DEVICE_INTEGRATED 2

/**
 * Memory really is pinned by anyaccel_host_alloc().
 */
#define ANYACCEL_DEVICE_PINS 4

/**
 * Memory that this API did not give out.
 */
#define ANYACCEL_POINTER_UNKNOWN 0

/**
 * Memory of a device.
 */
#define ANYACCEL_POINTER_DEVICE 1

/**
 * Host memory of anyaccel_host_alloc().
 */
#define ANYACCEL_POINTER_PINNED 2

/**
 * Random bits, for integers.
 */
#define ANYACCEL_RANDOM_BITS 0

/**
 * Uniform numbers from a on and below b, for floats.
 */
#define ANYACCEL_RANDOM_UNIFORM 1

/**
 * Normal numbers with the mean a and the standard deviation b, for floats.
 */
#define ANYACCEL_RANDOM_NORMAL 2

/**
 * Exponentials of normal numbers with the mean a and the standard deviation b, for floats.
 */
#define ANYACCEL_RANDOM_LOG_NORMAL 3

/**
 * Exponentially distributed numbers with the rate a, for floats.
 */
#define ANYACCEL_RANDOM_EXPONENTIAL 4

/**
 * The trial of the first success of probability a, from 1 on, for floats and integers.
 */
#define ANYACCEL_RANDOM_GEOMETRIC 5

/**
 * 1 with the probability a, else 0, for floats, integers and bool.
 */
#define ANYACCEL_RANDOM_BERNOULLI 6

/**
 * One of `count` integers from `from` on (count 0: 2^64 of them), for floats, integers and bool.
 */
#define ANYACCEL_RANDOM_INTEGERS 7

/**
 * Integers from 0 to the largest of an integer type, or to the end of those that a float type holds without a gap.
 */
#define ANYACCEL_RANDOM_WHOLE_NUMBERS 8

/**
 * 0, 1, .. in random order, for integers of 32 and 64 bits, in the portable layout.
 */
#define ANYACCEL_RANDOM_PERMUTATION 9

/**
 * Which element takes which part of a generator's sequence: the same on every device.
 */
#define ANYACCEL_LAYOUT_PORTABLE 0

/**
 * As PyTorch's CUDA kernels have it on a device with so many multiprocessors and threads.
 */
#define ANYACCEL_LAYOUT_TORCH_CUDA 1

/**
 * A capture restricts its own thread; others are free. The default.
 */
#define ANYACCEL_CAPTURE_DEFAULT 0

/**
 * While it goes on no thread may synchronize with a stream or a device.
 */
#define ANYACCEL_CAPTURE_GLOBAL 1

/**
 * A capture restricts its own thread.
 */
#define ANYACCEL_CAPTURE_THREAD_LOCAL 2

/**
 * As ANYACCEL_CAPTURE_THREAD_LOCAL; kept apart for backends that ask their driver.
 */
#define ANYACCEL_CAPTURE_RELAXED 3

/**
 * The graph is made executable when asked or first replayed, instead of when its capture ends.
 */
#define ANYACCEL_GRAPH_KEEP 1

/**
 * Nothing is recorded; what was is forgotten.
 */
#define ANYACCEL_HISTORY_OFF 0

/**
 * Who holds each block, no events.
 */
#define ANYACCEL_HISTORY_STATE 1

/**
 * Every event.
 */
#define ANYACCEL_HISTORY_ALL 2

/**
 * Stacks of calls that take memory and of those that give it back, on blocks and events. The default.
 */
#define ANYACCEL_CONTEXT_ALL 0

/**
 * Stacks of calls that take memory, on blocks and events; the event of a free shows who took the block.
 */
#define ANYACCEL_CONTEXT_ALLOC 1

/**
 * Stacks of calls that take memory, on blocks alone.
 */
#define ANYACCEL_CONTEXT_STATE 2

/**
 * No stacks.
 */
#define ANYACCEL_CONTEXT_NONE 3

/**
 * No stacks: the cheapest recording.
 */
#define ANYACCEL_STACKS_NONE 0

/**
 * Stacks of native code, as far as there is debug information.
 */
#define ANYACCEL_STACKS_NATIVE 1

/**
 * Stacks of another language, which the caller tells: anyaccel_history_options.source.
 */
#define ANYACCEL_STACKS_SOURCE 2

/**
 * What a function returns: ANYACCEL_OK, or why it did nothing. anyaccel_last_error() has the words.
 */
typedef int32_t anyaccel_result;

/**
 * Receives text in one or several pieces, during the call that it was given to.
 */
typedef void (*anyaccel_write_text)(void *data, const char *text, size_t len);

/**
 * What a device is. Set struct_size; text is terminated, and cut where it is too long.
 */
typedef struct {
    /**
     * sizeof(anyaccel_device_info).
     */
    uint32_t struct_size;
    /**
     * ANYACCEL_DEVICE_*.
     */
    uint32_t flags;
    /**
     * Its memory in bytes.
     */
    uint64_t memory;
    /**
     * The largest single allocation in bytes.
     */
    uint64_t max_alloc;
    /**
     * What addresses are multiples of, in bytes.
     */
    uint64_t alignment;
    /**
     * The element types that it has: bit n for the one with PyTorch's number n (c10::ScalarType).
     */
    uint64_t dtypes;
    /**
     * Compute units (multiprocessors, cores); 0 if unknown.
     */
    uint32_t cores;
    /**
     * The highest clock in MHz; 0 if unknown.
     */
    uint32_t clock_mhz;
    /**
     * The least urgent priority of streams.
     */
    int32_t least_priority;
    /**
     * The most urgent priority of streams, at most the least urgent one.
     */
    int32_t greatest_priority;
    /**
     * Its identity, 0 if it has none.
     */
    uint8_t uuid[16];
    /**
     * Its marketing name.
     */
    char name[256];
    /**
     * Who makes it.
     */
    char vendor[128];
    /**
     * The version of the native driver.
     */
    char driver[128];
} anyaccel_device_info;

/**
 * A stream: ANYACCEL_STREAM(device, id), so numbers and c10::Stream convert without a call. Pooled and default streams
 * live as long as the process.
 */
typedef uint64_t anyaccel_stream;

/**
 * A function of the host in the order of a stream. Set struct_size.
 */
typedef struct {
    /**
     * sizeof(anyaccel_host_function).
     */
    uint32_t struct_size;
    /**
     * 0.
     */
    uint32_t flags;
    /**
     * Called when its turn comes, on a thread of the runtime: once, or at each replay of the graph that it was captured
     * into. It may block. Every function of this API that could wait is refused in it (ANYACCEL_ERROR_IN_HOST_FUNCTION);
     * freeing memory is fine. Not NULL.
     */
    void (*call)(void *data);
    /**
     * Called once when it will never be called again: after its call, with its graph, when its turn can't come (the device
     * is lost), and before the function that enqueues it returns an error. May be NULL.
     */
    void (*destroy)(void *data);
    /**
     * For the two.
     */
    void *data;
} anyaccel_host_function;

/**
 * An event, until it is destroyed. Never 0.
 */
typedef uint64_t anyaccel_event;

/**
 * What lies at an address. Set struct_size.
 */
typedef struct {
    /**
     * sizeof(anyaccel_pointer_info).
     */
    uint32_t struct_size;
    /**
     * ANYACCEL_POINTER_*.
     */
    uint32_t kind;
    /**
     * The device that has it, or that it was pinned for; ANYACCEL_HOST if unknown.
     */
    int32_t device;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * Where the memory begins; NULL if unknown.
     */
    void *base;
    /**
     * The bytes that were asked for.
     */
    uint64_t size;
    /**
     * The bytes that are held for it.
     */
    uint64_t capacity;
} anyaccel_pointer_info;

/**
 * A generator of random numbers: ANYACCEL_DEFAULT_GENERATOR(device), or one that was created, until it is destroyed.
 */
typedef uint64_t anyaccel_generator;

/**
 * A random fill. Set struct_size, and all else to 0 that is not needed.
 */
typedef struct {
    /**
     * sizeof(anyaccel_random).
     */
    uint32_t struct_size;
    /**
     * ANYACCEL_RANDOM_*.
     */
    uint32_t distribution;
    /**
     * The element type, by PyTorch's number (c10::ScalarType).
     */
    uint32_t dtype;
    /**
     * ANYACCEL_LAYOUT_*.
     */
    uint32_t layout;
    /**
     * For ANYACCEL_LAYOUT_TORCH_CUDA: the number of multiprocessors.
     */
    uint32_t multiprocessors;
    /**
     * For ANYACCEL_LAYOUT_TORCH_CUDA: the most threads that one runs at a time.
     */
    uint32_t threads_per_multiprocessor;
    /**
     * See ANYACCEL_RANDOM_*.
     */
    double a;
    /**
     * See ANYACCEL_RANDOM_*.
     */
    double b;
    /**
     * See ANYACCEL_RANDOM_INTEGERS.
     */
    int64_t from;
    /**
     * See ANYACCEL_RANDOM_INTEGERS.
     */
    uint64_t count;
} anyaccel_random;

/**
 * A graph, until it is destroyed. Never 0.
 */
typedef uint64_t anyaccel_graph;

/**
 * The name of a private pool of device memory. Both 0: none, which stands for a pool of its own where a capture begins.
 */
typedef struct {
    /**
     * The first half.
     */
    uint64_t first;
    /**
     * The second half.
     */
    uint64_t second;
} anyaccel_pool_id;

/**
 * One quantity.
 */
typedef struct {
    /**
     * Now.
     */
    int64_t current;
    /**
     * The most since the last reset of peaks.
     */
    int64_t peak;
    /**
     * All increases since the last reset of the accumulated numbers.
     */
    int64_t allocated;
    /**
     * All decreases since the last reset of the accumulated numbers.
     */
    int64_t freed;
} anyaccel_stat;

/**
 * One quantity, by the size of the requests.
 */
typedef struct {
    /**
     * All requests.
     */
    anyaccel_stat all;
    /**
     * Those of up to 1 MiB.
     */
    anyaccel_stat small;
    /**
     * Larger ones.
     */
    anyaccel_stat large;
} anyaccel_pool_stat;

/**
 * What the cache of a device's memory counts, as torch.cuda.memory_stats has it. Set struct_size. All 0 before the start.
 */
typedef struct {
    /**
     * sizeof(anyaccel_memory_stats).
     */
    uint32_t struct_size;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * Blocks in the hands of users.
     */
    anyaccel_pool_stat allocation;
    /**
     * Segments taken from the device; growable ones don't count.
     */
    anyaccel_pool_stat segment;
    /**
     * Blocks in the hands of users or still used by a stream.
     */
    anyaccel_pool_stat active;
    /**
     * Free blocks that share their segment with others.
     */
    anyaccel_pool_stat inactive_split;
    /**
     * Bytes of allocation.
     */
    anyaccel_pool_stat allocated_bytes;
    /**
     * Bytes taken from the device, used or not.
     */
    anyaccel_pool_stat reserved_bytes;
    /**
     * Bytes of active.
     */
    anyaccel_pool_stat active_bytes;
    /**
     * Bytes of inactive_split.
     */
    anyaccel_pool_stat inactive_split_bytes;
    /**
     * Bytes that users asked for, of the blocks in active.
     */
    anyaccel_pool_stat requested_bytes;
    /**
     * Blocks of max_split_size or more in the hands of users.
     */
    anyaccel_stat oversize_allocations;
    /**
     * Segments of max_split_size or more.
     */
    anyaccel_stat oversize_segments;
    /**
     * Requests that were tried again after everything unused was given back.
     */
    int64_t num_alloc_retries;
    /**
     * Requests that failed for lack of memory.
     */
    int64_t num_ooms;
    /**
     * How often the cache waited for all streams.
     */
    int64_t num_sync_all_streams;
    /**
     * Segments obtained.
     */
    int64_t num_device_alloc;
    /**
     * Segments given back.
     */
    int64_t num_device_free;
    /**
     * Bytes from which on blocks are not split; -1: unlimited.
     */
    int64_t max_split_size;
} anyaccel_memory_stats;

/**
 * How long calls of one kind took, in microseconds.
 */
typedef struct {
    /**
     * All calls.
     */
    int64_t total;
    /**
     * The longest call.
     */
    int64_t max;
    /**
     * The shortest call.
     */
    int64_t min;
    /**
     * How many calls.
     */
    int64_t count;
} anyaccel_time_stat;

/**
 * What the cache of pinned memory counts, as torch.cuda.host_memory_stats has it. Set struct_size.
 */
typedef struct {
    /**
     * sizeof(anyaccel_host_memory_stats).
     */
    uint32_t struct_size;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * Blocks held, used or not.
     */
    anyaccel_stat allocations;
    /**
     * Bytes of allocations.
     */
    anyaccel_stat allocated_bytes;
    /**
     * Blocks handed out and not yet found to be reusable.
     */
    anyaccel_stat active_requests;
    /**
     * Bytes of active_requests.
     */
    anyaccel_stat active_bytes;
    /**
     * Bytes that users asked for, of active_requests.
     */
    anyaccel_stat requested_bytes;
    /**
     * Time in calls that pinned memory.
     */
    anyaccel_time_stat host_alloc_time;
    /**
     * Time in calls that gave memory back.
     */
    anyaccel_time_stat host_free_time;
    /**
     * Blocks obtained.
     */
    int64_t num_host_alloc;
    /**
     * Blocks given back.
     */
    int64_t num_host_free;
    /**
     * Requests that were tried again after everything unused was given back.
     */
    int64_t num_alloc_retries;
    /**
     * Requests that failed for lack of memory.
     */
    int64_t num_ooms;
} anyaccel_host_memory_stats;

/**
 * Is told of a request for device memory that failed, before its caller gets the error: on that thread, without locks. Bytes
 * that the driver does not tell are UINT64_MAX. Nothing can be allocated in it; statistics and snapshots can be taken.
 */
typedef void (*anyaccel_out_of_memory_observer)(void *data,
                                                int32_t device,
                                                uint64_t requested,
                                                uint64_t total,
                                                uint64_t free);

/**
 * Names a frame of another language: the code and the place in it, say, as numbers that cost nothing to get and mean nothing to
 * the library. Equal where the frame is the same.
 */
typedef struct {
    /**
     * The first number.
     */
    uint64_t code;
    /**
     * The second number.
     */
    uint64_t at;
} anyaccel_frame;

/**
 * Is told, while anyaccel_stack_source.resolve runs, what a frame is.
 *
 * @param to as it was handed to resolve.
 * @param index which of the frames. Told again, for functions that were inlined: the frame of the caller.
 * @param function its name. NULL: "".
 * @param file NULL: unknown.
 * @param line 0: unknown.
 */
typedef void (*anyaccel_tell_frame)(void *to, size_t index, const char *function, const char *file, uint32_t line);

/**
 * How another language tells its stacks while a memory history is recorded. Set struct_size. Its functions, and what data points
 * to, live as long as the process, and call no function of this API. They are called without locks of the library, so they may
 * wait, for the lock of an interpreter say. Each different stack and frame is kept once, until the recording ends; names are
 * asked for late, by snapshots.
 */
typedef struct {
    /**
     * sizeof(anyaccel_stack_source).
     */
    uint32_t struct_size;
    /**
     * 0.
     */
    uint32_t flags;
    /**
     * For the functions.
     */
    void *data;
    /**
     * Writes the frames of the calling thread, innermost first, and returns how many: at most `most`, which is 256, of which
     * further ones are left out at the outer end; 0 for a thread whose stack is not known. Called by whatever thread takes or gives
     * back memory, threads of the library too. Not NULL.
     */
    size_t (*capture)(void *data, anyaccel_frame *frames, size_t most);
    /**
     * A frame that was captured by this thread just now is kept: what it names must not go, nor its numbers come to mean
     * another, until it is forgotten. May be NULL.
     */
    void (*keep)(void *data, anyaccel_frame frame);
    /**
     * A frame is no longer kept: once for each time that it was. Called by any thread. May be NULL.
     */
    void (*forget)(void *data, anyaccel_frame frame);
    /**
     * Says what `count` kept frames are, by calling `tell` for each, with `to`. Called by the thread that takes a snapshot. Not
     * NULL.
     */
    void (*resolve)(void *data, const anyaccel_frame *frames, size_t count, anyaccel_tell_frame tell, void *to);
} anyaccel_stack_source;

/**
 * What a memory history records. Set struct_size, and all else to 0 that is not needed.
 */
typedef struct {
    /**
     * sizeof(anyaccel_history_options).
     */
    uint32_t struct_size;
    /**
     * ANYACCEL_HISTORY_*.
     */
    uint32_t enabled;
    /**
     * Events that are kept of each device; 0: 2^20.
     */
    uint64_t max_entries;
    /**
     * Not 0: pinned memory too.
     */
    uint32_t pinned;
    /**
     * Not 0: forget what was recorded before.
     */
    uint32_t clear;
    /**
     * ANYACCEL_STACKS_*.
     */
    uint32_t stacks;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * ANYACCEL_CONTEXT_*. Since 1.1, as all that follows.
     */
    uint32_t context;
    /**
     * Events that are not kept, a bit for each: 1 alloc, 2 free_requested, 4 free_completed, 8 segment_alloc, 16 segment_free, 32
     * segment_map, 64 segment_unmap, 128 oom, 256 snapshot, 512 annotate.
     */
    uint32_t skip;
    /**
     * For ANYACCEL_STACKS_SOURCE, else NULL. Read during the call. A source that equals the one before goes on with its stacks;
     * with another the history begins anew.
     */
    const anyaccel_stack_source *source;
} anyaccel_history_options;

/**
 * Done.
 */
#define ANYACCEL_OK 0

/**
 * An argument that makes no sense: NULL where a pointer is needed, an index out of range, a length that does not fit.
 */
#define ANYACCEL_ERROR_ARGUMENT 1

/**
 * A handle or an address that names nothing: never given out, destroyed or freed already, of another kind.
 */
#define ANYACCEL_ERROR_HANDLE 2

/**
 * The call can't be made now, for a reason that has no number of its own.
 */
#define ANYACCEL_ERROR_STATE 3

/**
 * Device memory ran out. Nothing changed: free something and try again.
 */
#define ANYACCEL_ERROR_OUT_OF_MEMORY 4

/**
 * Host memory ran out, pinned or ordinary. Nothing changed.
 */
#define ANYACCEL_ERROR_OUT_OF_HOST_MEMORY 5

/**
 * This device can't do that.
 */
#define ANYACCEL_ERROR_UNSUPPORTED 6

/**
 * No kind of accelerator has a device here.
 */
#define ANYACCEL_ERROR_NO_DEVICE 7

/**
 * ANYACCEL_BACKEND names no backend of this build and of the loaded plugins.
 */
#define ANYACCEL_ERROR_UNKNOWN_BACKEND 8

/**
 * An environment variable, allocator settings or a plugin that can't be used.
 */
#define ANYACCEL_ERROR_SETTINGS 9

/**
 * The runtime did not start; the driver's words are in the message.
 */
#define ANYACCEL_ERROR_START 10

/**
 * The native driver refused.
 */
#define ANYACCEL_ERROR_DRIVER 11

/**
 * The device is gone for good.
 */
#define ANYACCEL_ERROR_DEVICE_LOST 12

/**
 * The runtime was started before this process was forked, and its kind can't start again: use 'spawn'.
 */
#define ANYACCEL_ERROR_FORKED 13

/**
 * A handle or an address from before a fork: make a new one in this process.
 */
#define ANYACCEL_ERROR_STALE 14

/**
 * The process is exiting. Nothing was called; what was to be freed goes with the process.
 */
#define ANYACCEL_ERROR_EXITING 15

/**
 * Called from inside a host function, where it could wait for itself.
 */
#define ANYACCEL_ERROR_IN_HOST_FUNCTION 16

/**
 * What a capture forbids, or a graph that is not in the state that the call needs.
 */
#define ANYACCEL_ERROR_CAPTURE 17

/**
 * A host function failed; told once, by the next wait for its stream.
 */
#define ANYACCEL_ERROR_HOST_FUNCTION 18

/**
 * A handle of another device than the call needs.
 */
#define ANYACCEL_ERROR_WRONG_DEVICE 19

/**
 * A defect of this library: the call was left where it stood.
 */
#define ANYACCEL_ERROR_INTERNAL 20

/**
 * Stands for this thread's current stream, of the device that the call is about or else of the current device.
 */
#define ANYACCEL_CURRENT_STREAM 18446744073709551615ull

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The message of this thread's last call that failed. Writes as much of it as fits, terminated, and returns its length
 * without the terminator: call it with NULL and 0 to learn that. Empty if no call failed yet. Calls that succeed leave it.
 *
 * @param buffer len bytes, or NULL for none.
 */
size_t anyaccel_last_error(char *buffer,
                           size_t len)
ANYACCEL_NOEXCEPT;

/**
 * The name of a result code, "ANYACCEL_ERROR_HANDLE" say; "unknown" for any other number. Never NULL; static.
 */
const char *anyaccel_result_name(anyaccel_result result) ANYACCEL_NOEXCEPT;

/**
 * ANYACCEL_API_MAJOR << 16 | ANYACCEL_API_MINOR of the library. Starts nothing, as do all functions that don't say so.
 */
uint32_t anyaccel_api_version(void) ANYACCEL_NOEXCEPT;

/**
 * Starts the runtime unless it has started. Not needed: every function that touches a device does it.
 *
 * ANYACCEL_BACKEND names the backend, else it is the first kind that has a device; ANYACCEL_PLUGINS names vendors' plugins.
 *
 * @return ANYACCEL_ERROR_NO_DEVICE, ANYACCEL_ERROR_UNKNOWN_BACKEND, ANYACCEL_ERROR_SETTINGS, ANYACCEL_ERROR_START or
 * ANYACCEL_ERROR_FORKED. All but the last may be tried again.
 */
anyaccel_result anyaccel_init(void)
ANYACCEL_NOEXCEPT;

/**
 * Whether the runtime has started in this process (not in one that it was forked from).
 */
bool anyaccel_is_started(void) ANYACCEL_NOEXCEPT;

/**
 * The kind of device that is in use or would be: "cuda", "host". Empty where there is none.
 *
 * @param write receives the name, without terminator.
 * @return ANYACCEL_ERROR_UNKNOWN_BACKEND if ANYACCEL_BACKEND names no backend.
 */
anyaccel_result anyaccel_kind(anyaccel_write_text write, void *data) ANYACCEL_NOEXCEPT;

/**
 * Loads a vendor's plugin, as ANYACCEL_PLUGINS does. Before the start, for the runtime to choose from it.
 *
 * @param path an absolute path.
 */
anyaccel_result anyaccel_load_plugin(const char *path) ANYACCEL_NOEXCEPT;

/**
 * How many devices are visible, masks applied; 0 is no error.
 *
 * @return ANYACCEL_ERROR_UNKNOWN_BACKEND if ANYACCEL_BACKEND names no backend; *count is 0 then.
 */
anyaccel_result anyaccel_device_count(int32_t *count) ANYACCEL_NOEXCEPT;

/**
 * This thread's current device; 0 if it never chose one.
 */
anyaccel_result anyaccel_current_device(int32_t *device) ANYACCEL_NOEXCEPT;

/**
 * Makes a device current on this thread. Starts the runtime. A negative index changes nothing and starts nothing.
 */
anyaccel_result anyaccel_set_device(int32_t device) ANYACCEL_NOEXCEPT;

/**
 * The same, with the device that was current before.
 *
 * @param before receives it; may be NULL.
 */
anyaccel_result anyaccel_exchange_device(int32_t device, int32_t *before) ANYACCEL_NOEXCEPT;

/**
 * Waits for all streams of a device. While the runtime has not started: checks the argument and returns.
 *
 * @param device_or_current an index, or ANYACCEL_CURRENT_DEVICE.
 */
anyaccel_result anyaccel_synchronize_device(int32_t device_or_current) ANYACCEL_NOEXCEPT;

/**
 * Free and total bytes of a device, all processes together. Starts the runtime.
 *
 * @param free receives bytes; may be NULL.
 * @param total receives bytes; may be NULL.
 */
anyaccel_result anyaccel_memory_info(int32_t device_or_current, uint64_t *free, uint64_t *total) ANYACCEL_NOEXCEPT;

/**
 * The element types that a device has: bit n for the one with PyTorch's number n (c10::ScalarType). Starts the runtime where
 * its probe can't tell.
 */
anyaccel_result anyaccel_device_capability(int32_t device_or_current,
                                           uint64_t *dtypes)
ANYACCEL_NOEXCEPT;

/**
 * What a device is. Starts the runtime.
 */
anyaccel_result anyaccel_get_device_info(int32_t device_or_current, anyaccel_device_info *info) ANYACCEL_NOEXCEPT;

/**
 * Whether a device reaches the memory of another directly; false for itself. Starts the runtime.
 */
anyaccel_result anyaccel_can_access_peer(int32_t device, int32_t peer, bool *can) ANYACCEL_NOEXCEPT;

/**
 * Makes a stream. Starts the runtime.
 *
 * @param device an index, or ANYACCEL_CURRENT_DEVICE.
 * @param priority lower is more urgent; clamped to the device's range.
 * @param flags 0 for the next stream of the pool, as anyaccel_stream_from_pool(), or ANYACCEL_STREAM_RESERVED for one that
 * anyaccel_stream_destroy() gives back.
 */
anyaccel_result anyaccel_stream_create(int32_t device_or_current,
                                       int32_t priority,
                                       uint32_t flags,
                                       anyaccel_stream *stream)
ANYACCEL_NOEXCEPT;

/**
 * The next stream of a device's pool of 32 of that priority. Pooled streams live as long as the process: nothing has to be
 * destroyed. Starts the runtime.
 */
anyaccel_result anyaccel_stream_from_pool(int32_t device_or_current,
                                          int32_t priority,
                                          anyaccel_stream *stream)
ANYACCEL_NOEXCEPT;

/**
 * A stream that another library made (a CUstream), by its native name: work of both is in one order. It belongs to its maker,
 * who keeps it until anyaccel_stream_destroy() was called and the device was synchronized after that. Starts the runtime.
 *
 * @return ANYACCEL_ERROR_UNSUPPORTED where the backend can't use such streams.
 */
anyaccel_result anyaccel_stream_import(int32_t device_or_current,
                                       uint64_t native,
                                       anyaccel_stream *stream)
ANYACCEL_NOEXCEPT;

/**
 * Gives a reserved or imported stream back, once its work has ended; never waits. Pooled and default streams stay.
 */
anyaccel_result anyaccel_stream_destroy(anyaccel_stream stream) ANYACCEL_NOEXCEPT;

/**
 * The default stream of a device, with id 0. Starts the runtime.
 */
anyaccel_result anyaccel_stream_default(int32_t device_or_current, anyaccel_stream *stream) ANYACCEL_NOEXCEPT;

/**
 * This thread's current stream of a device: the default one until another is set. Starts the runtime.
 */
anyaccel_result anyaccel_stream_current(int32_t device_or_current, anyaccel_stream *stream) ANYACCEL_NOEXCEPT;

/**
 * Makes a stream current on this thread, and its device too.
 */
anyaccel_result anyaccel_stream_set_current(anyaccel_stream stream) ANYACCEL_NOEXCEPT;

/**
 * Makes a stream the current one of its device on this thread, and leaves the current device alone.
 *
 * @param before receives the stream that was the current one of that device; may be NULL.
 */
anyaccel_result anyaccel_stream_exchange(anyaccel_stream stream, anyaccel_stream *before) ANYACCEL_NOEXCEPT;

/**
 * The stream with that id on that device; ANYACCEL_STREAM() does the same without asking whether it exists. Starts the
 * runtime.
 *
 * @return ANYACCEL_ERROR_HANDLE if there is none.
 */
anyaccel_result anyaccel_stream_from_id(int32_t device, uint64_t id, anyaccel_stream *stream) ANYACCEL_NOEXCEPT;

/**
 * The parts of a stream, as c10::Stream has them; the device type is anyaccel_kind(). Each of id, device and priority may be
 * NULL.
 */
anyaccel_result anyaccel_stream_id(anyaccel_stream stream,
                                   uint64_t *id,
                                   int32_t *device,
                                   int32_t *priority)
ANYACCEL_NOEXCEPT;

/**
 * Whether all work enqueued so far has ended.
 */
anyaccel_result anyaccel_stream_query(anyaccel_stream stream, bool *ended) ANYACCEL_NOEXCEPT;

/**
 * Waits for all work enqueued so far.
 */
anyaccel_result anyaccel_stream_synchronize(anyaccel_stream stream) ANYACCEL_NOEXCEPT;

/**
 * Makes later work of a stream wait for what is enqueued on another now. It may be on another device.
 */
anyaccel_result anyaccel_stream_wait_stream(anyaccel_stream stream, anyaccel_stream other) ANYACCEL_NOEXCEPT;

/**
 * The vendor's stream (a CUstream, a cl_command_queue); 0 where there is none. Valid while the stream lives.
 */
anyaccel_result anyaccel_stream_native(anyaccel_stream stream, uint64_t *native) ANYACCEL_NOEXCEPT;

/**
 * Whether a stream is being captured into a graph: what is enqueued is recorded.
 */
anyaccel_result anyaccel_stream_is_capturing(anyaccel_stream stream, bool *capturing) ANYACCEL_NOEXCEPT;

/**
 * Calls a function of the host in stream order: once, or at each replay of the graph that it is captured into. See
 * anyaccel_host_function.
 */
anyaccel_result anyaccel_stream_host_function(anyaccel_stream stream,
                                              const anyaccel_host_function *function)
ANYACCEL_NOEXCEPT;

/**
 * Makes an event. It comes to life when it is first recorded.
 *
 * @param device the device that it will be recorded on, or ANYACCEL_CURRENT_DEVICE for that of its first recording.
 * @param flags ANYACCEL_EVENT_*, or 0.
 */
anyaccel_result anyaccel_event_create(int32_t device, uint32_t flags, anyaccel_event *event) ANYACCEL_NOEXCEPT;

/**
 * Destroys an event. Waits for it stay in force; never waits. 0 is fine.
 */
anyaccel_result anyaccel_event_destroy(anyaccel_event event) ANYACCEL_NOEXCEPT;

/**
 * Records an event on a stream. An earlier recording is forgotten; waits for it stay in force.
 */
anyaccel_result anyaccel_event_record(anyaccel_event event, anyaccel_stream stream) ANYACCEL_NOEXCEPT;

/**
 * Makes later work of a stream wait for the last recording. If the event was never recorded, does nothing. The stream may be
 * on another device.
 */
anyaccel_result anyaccel_event_wait(anyaccel_event event,
                                    anyaccel_stream stream)
ANYACCEL_NOEXCEPT;

/**
 * Whether the work before the last recording has ended; true if it was never recorded.
 */
anyaccel_result anyaccel_event_query(anyaccel_event event, bool *ended) ANYACCEL_NOEXCEPT;

/**
 * Waits on this thread for the work before the last recording.
 */
anyaccel_result anyaccel_event_synchronize(anyaccel_event event) ANYACCEL_NOEXCEPT;

/**
 * Milliseconds from the last recording of one event to that of another. Both need ANYACCEL_EVENT_TIMING, and have to have
 * ended.
 */
anyaccel_result anyaccel_event_elapsed(anyaccel_event start,
                                       anyaccel_event end,
                                       double *milliseconds)
ANYACCEL_NOEXCEPT;

/**
 * The device of an event: the one asked for, or that of its first recording; ANYACCEL_HOST (-1) before that.
 */
anyaccel_result anyaccel_event_device(anyaccel_event event, int32_t *device) ANYACCEL_NOEXCEPT;

/**
 * What another process opens an event with that was made with ANYACCEL_EVENT_INTERPROCESS: both then have one event, which stands
 * for its last recording by any of them. Starts the runtime.
 *
 * @param handle receives it; NULL to ask for its size.
 * @param room bytes at handle.
 * @param size receives its size in bytes.
 * @return ANYACCEL_ERROR_UNSUPPORTED where the device shares no events; ANYACCEL_ERROR_ARGUMENT for an event that was made without
 * the flag, or too little room.
 */
anyaccel_result anyaccel_event_ipc_handle(anyaccel_event event,
                                          void *handle,
                                          size_t room,
                                          size_t *size)
ANYACCEL_NOEXCEPT;

/**
 * Opens an event that another process has on the same device. Starts the runtime. Whether it has ended may be told a moment late.
 *
 * @param handle size bytes from anyaccel_event_ipc_handle().
 */
anyaccel_result anyaccel_event_from_ipc_handle(int32_t device_or_current,
                                               const void *handle,
                                               size_t size,
                                               anyaccel_event *event)
ANYACCEL_NOEXCEPT;

/**
 * Takes device memory from the cache, for a stream: its home. Memory that is given back is reused on its home in stream
 * order, and elsewhere once the work that used it has ended. Inside a capture it comes from the graph's pool. Contents are
 * undefined. Starts the runtime.
 *
 * @param device_or_current an index, or ANYACCEL_CURRENT_DEVICE. The stream has to be one of it.
 * @param size bytes; 0 gives NULL.
 * @param stream ANYACCEL_CURRENT_STREAM: the current stream of that device.
 * @param memory receives the address: of the device, and for the host to touch only if the device is
 * ANYACCEL_DEVICE_HOST_ADDRESSABLE.
 * @return ANYACCEL_ERROR_OUT_OF_MEMORY, with what was asked, what is free and what the cache holds in the message;
 * ANYACCEL_ERROR_UNSUPPORTED for a device whose memory has no addresses.
 */
anyaccel_result anyaccel_alloc(int32_t device_or_current,
                               uint64_t size,
                               anyaccel_stream stream,
                               void **memory)
ANYACCEL_NOEXCEPT;

/**
 * Gives device memory back by its address alone. Never waits: work that was enqueued on it before goes on undisturbed. May be
 * called from any thread, from host functions, and during captures. NULL is fine.
 *
 * @return ANYACCEL_ERROR_HANDLE for an address that anyaccel_alloc() did not give or that was freed already; nothing is
 * touched then. In a forked child ANYACCEL_ERROR_HANDLE too for the parent's memory.
 */
anyaccel_result anyaccel_free(void *memory)
ANYACCEL_NOEXCEPT;

/**
 * Notes that work on a stream, enqueued by other means than this API (a kernel of one's own), uses the memory: when it is
 * freed it waits for what is on that stream by then. Work enqueued by this API is noted by itself.
 *
 * @param memory any address inside.
 */
anyaccel_result anyaccel_record_stream(void *memory,
                                       anyaccel_stream stream)
ANYACCEL_NOEXCEPT;

/**
 * What lies at an address, which may point into the middle of it.
 *
 * @param pointer any address; that of unknown memory gives ANYACCEL_POINTER_UNKNOWN and is no error.
 */
anyaccel_result anyaccel_get_pointer_info(const void *pointer, anyaccel_pointer_info *info) ANYACCEL_NOEXCEPT;

/**
 * Fills device memory with a pattern, over and over from its start; a last, partial repetition is cut.
 *
 * @param memory any address inside.
 * @param size bytes.
 * @param pattern pattern_size bytes, taken before the call returns.
 * @param pattern_size 1, 2, 4, 8 or 16.
 */
anyaccel_result anyaccel_fill(void *memory,
                              uint64_t size,
                              const void *pattern,
                              size_t pattern_size,
                              anyaccel_stream stream)
ANYACCEL_NOEXCEPT;

/**
 * Sets bytes of device memory, as memset does.
 */
anyaccel_result anyaccel_memset(void *memory, uint8_t value, uint64_t size, anyaccel_stream stream) ANYACCEL_NOEXCEPT;

/**
 * Converts elements of one type to another, in device memory.
 *
 * @param dtype the element type, by PyTorch's number (c10::ScalarType).
 * @param count elements.
 */
anyaccel_result anyaccel_convert(void *dst,
                                 uint32_t dst_dtype,
                                 const void *src,
                                 uint32_t src_dtype,
                                 uint64_t count,
                                 anyaccel_stream stream)
ANYACCEL_NOEXCEPT;

/**
 * Gives back device memory that is kept for reuse, after waiting for the work that uses it. While the runtime has not
 * started, and during a capture: nothing. What graphs hold stays.
 */
anyaccel_result anyaccel_empty_cache(void) ANYACCEL_NOEXCEPT;

/**
 * Limits what this process takes from a device to a number of bytes. Before the start it is kept for it.
 *
 * @param bytes UINT64_MAX: no limit.
 */
anyaccel_result anyaccel_set_memory_budget(int32_t device_or_current, uint64_t bytes) ANYACCEL_NOEXCEPT;

/**
 * Limits what this process takes from a device to a fraction of its memory, from 0 to 1; 1 is no limit. Before the start it is
 * kept for it.
 */
anyaccel_result anyaccel_set_memory_fraction(int32_t device_or_current,
                                             double fraction)
ANYACCEL_NOEXCEPT;

/**
 * Copies bytes in the order of a stream: within a device, between devices (directly where they reach each other, else through
 * pinned memory), and from or to the host.
 *
 * Without ANYACCEL_COPY_ASYNC it returns when the copy has ended. With it:
 *
 * - between device memory, and with memory of anyaccel_host_alloc(), it returns at once. Freeing either side needs no wait;
 *   reading or changing pinned memory does.
 * - from other host memory: that may be changed as soon as the call returns.
 * - to other host memory: the call returns when the copy has ended.
 * - from host to host: both sides have to live, and be left alone, until the copy has ended.
 *
 * Inside a capture the copy is recorded; with pinned memory, which is then read or written at each replay and which the graph
 * keeps. Copies to other host memory, and of more than 64 KiB from it, are refused there.
 *
 * @param dst_device the device that dst lies on, or ANYACCEL_HOST.
 * @param src_device the device that src lies on, or ANYACCEL_HOST.
 * @param stream of one of the two devices; ANYACCEL_CURRENT_STREAM: of the destination's, or else of the source's.
 * @param flags ANYACCEL_COPY_ASYNC, or 0.
 * @return ANYACCEL_ERROR_HANDLE for a device address that lies in no memory of this API, ANYACCEL_ERROR_WRONG_DEVICE for one of
 * another device, ANYACCEL_ERROR_ARGUMENT for a range that does not fit.
 */
anyaccel_result anyaccel_copy(void *dst,
                              int32_t dst_device,
                              const void *src,
                              int32_t src_device,
                              uint64_t size,
                              anyaccel_stream stream,
                              uint32_t flags)
ANYACCEL_NOEXCEPT;

/**
 * Takes host memory that a device reaches directly, from a cache: it holds what its last user left. Ordinary memory where the
 * device pins none. Starts the runtime.
 *
 * @param device_or_current the device to pin for.
 * @param size bytes; 0 gives NULL.
 * @return ANYACCEL_ERROR_OUT_OF_HOST_MEMORY.
 */
anyaccel_result anyaccel_host_alloc(int32_t device_or_current,
                                    size_t size,
                                    void **memory)
ANYACCEL_NOEXCEPT;

/**
 * Gives pinned memory back. Never waits: it is reused once the copies that use it have ended. May be called from any thread,
 * and from host functions. NULL is fine.
 *
 * @return ANYACCEL_ERROR_HANDLE for an address that anyaccel_host_alloc() did not give or that was freed already.
 */
anyaccel_result anyaccel_host_free(void *memory)
ANYACCEL_NOEXCEPT;

/**
 * Whether an address lies in memory of anyaccel_host_alloc(). NULL does not.
 *
 * @param pointer any address, also one in the middle.
 */
anyaccel_result anyaccel_host_is_pinned(const void *pointer, bool *pinned) ANYACCEL_NOEXCEPT;

/**
 * Notes that work on a stream, enqueued by other means than this API, uses pinned memory: once freed it is reused when what is
 * on that stream by then has ended.
 *
 * @param memory any address inside.
 */
anyaccel_result anyaccel_host_record_stream(void *memory,
                                            anyaccel_stream stream)
ANYACCEL_NOEXCEPT;

/**
 * Gives back pinned memory that is kept for reuse. While the runtime has not started: nothing.
 */
anyaccel_result anyaccel_empty_host_cache(void) ANYACCEL_NOEXCEPT;

/**
 * Makes a generator of its own, for any device, with a seed. Devices have default generators besides:
 * ANYACCEL_DEFAULT_GENERATOR(device).
 */
anyaccel_result anyaccel_generator_create(uint64_t seed, anyaccel_generator *generator) ANYACCEL_NOEXCEPT;

/**
 * Destroys a generator. Fills that were enqueued, and graphs, keep theirs. 0 and default generators are fine.
 */
anyaccel_result anyaccel_generator_destroy(anyaccel_generator generator) ANYACCEL_NOEXCEPT;

/**
 * Seed and offset of a generator: how far its sequence was drawn, in words of 32 bits, a multiple of 4. Starts the runtime for a
 * default generator.
 *
 * @param seed may be NULL.
 * @param offset may be NULL.
 */
anyaccel_result anyaccel_generator_get(anyaccel_generator generator,
                                       uint64_t *seed,
                                       uint64_t *offset)
ANYACCEL_NOEXCEPT;

/**
 * Sets seed and offset of a generator. Of a default generator before the start: once it has started.
 *
 * @param offset a multiple of 4, at most 2^63 - 4; 0 after a new seed.
 */
anyaccel_result anyaccel_generator_set(anyaccel_generator generator, uint64_t seed, uint64_t offset) ANYACCEL_NOEXCEPT;

/**
 * Seeds a generator with 53 random bits; its offset becomes 0. Starts the runtime for a default generator.
 *
 * @param seed receives them; may be NULL.
 */
anyaccel_result anyaccel_generator_seed(anyaccel_generator generator, uint64_t *seed) ANYACCEL_NOEXCEPT;

/**
 * Takes a part of a generator's sequence for numbers that the caller draws itself: moves its offset on, in one step whatever
 * other threads do.
 *
 * @param words how many words of 32 bits; rounded up to a multiple of 4.
 * @param seed receives the seed; may be NULL.
 * @param offset receives the offset where the part begins; may be NULL.
 */
anyaccel_result anyaccel_generator_take(anyaccel_generator generator,
                                        uint64_t words,
                                        uint64_t *seed,
                                        uint64_t *offset)
ANYACCEL_NOEXCEPT;

/**
 * Fills device memory with random elements. The generator moves on as this returns; captured into a graph, at each replay.
 *
 * @param memory any address inside, of count elements.
 * @param count elements.
 * @param generator 0: the default generator of the memory's device.
 */
anyaccel_result anyaccel_fill_random(void *memory,
                                     uint64_t count,
                                     const anyaccel_random *fill,
                                     anyaccel_generator generator,
                                     anyaccel_stream stream)
ANYACCEL_NOEXCEPT;

/**
 * Seeds the default generators of all devices. Before the start it is kept for it.
 */
anyaccel_result anyaccel_manual_seed_all(uint64_t seed) ANYACCEL_NOEXCEPT;

/**
 * Makes a graph.
 *
 * @param flags ANYACCEL_GRAPH_KEEP, or 0.
 */
anyaccel_result anyaccel_graph_create(uint32_t flags, anyaccel_graph *graph) ANYACCEL_NOEXCEPT;

/**
 * Destroys a graph; what its last replay uses is given back when that has ended. Leaves a capture that is under way. 0 is fine.
 */
anyaccel_result anyaccel_graph_destroy(anyaccel_graph graph)
ANYACCEL_NOEXCEPT;

/**
 * Begins to capture this thread's current stream of its current device: what is enqueued there is recorded instead of run, and
 * so is what is enqueued on streams that wait for an event recorded inside. Starts the runtime.
 *
 * @param pool the pool that the capture allocates from: that of another graph or of anyaccel_pool_create(), or both 0.
 * @param mode ANYACCEL_CAPTURE_*: what it forbids to other threads.
 */
anyaccel_result anyaccel_graph_begin(anyaccel_graph graph,
                                     anyaccel_pool_id pool,
                                     uint32_t mode)
ANYACCEL_NOEXCEPT;

/**
 * Ends the capture, on the stream where it began. Makes the graph executable, unless it has ANYACCEL_GRAPH_KEEP. After any
 * error but that of a wrong stream the capture has ended without a graph.
 */
anyaccel_result anyaccel_graph_end(anyaccel_graph graph)
ANYACCEL_NOEXCEPT;

/**
 * Makes what was captured executable. Without effect if it is already.
 */
anyaccel_result anyaccel_graph_instantiate(anyaccel_graph graph) ANYACCEL_NOEXCEPT;

/**
 * Runs the graph as one operation of the current stream of its device, and returns at once. Replays of one graph never overlap.
 */
anyaccel_result anyaccel_graph_replay(anyaccel_graph graph)
ANYACCEL_NOEXCEPT;

/**
 * Forgets what was captured, so that the graph can capture again; leaves a capture that is under way.
 */
anyaccel_result anyaccel_graph_reset(anyaccel_graph graph) ANYACCEL_NOEXCEPT;

/**
 * The pool of the last capture; both 0 before the first one.
 */
anyaccel_result anyaccel_graph_pool(anyaccel_graph graph, anyaccel_pool_id *pool) ANYACCEL_NOEXCEPT;

/**
 * Allows anyaccel_graph_debug_dump().
 */
anyaccel_result anyaccel_graph_enable_debug(anyaccel_graph graph) ANYACCEL_NOEXCEPT;

/**
 * Writes what was captured to a file, as a graph for Graphviz.
 */
anyaccel_result anyaccel_graph_debug_dump(anyaccel_graph graph, const char *path) ANYACCEL_NOEXCEPT;

/**
 * Makes a private pool: memory that is taken in its scope shares no segment with other memory. Starts the runtime.
 */
anyaccel_result anyaccel_pool_create(int32_t device_or_current, anyaccel_pool_id *pool) ANYACCEL_NOEXCEPT;

/**
 * Destroys a pool. Memory taken from it lives on; what is unused goes back to the device at the next anyaccel_empty_cache().
 */
anyaccel_result anyaccel_pool_destroy(anyaccel_pool_id pool)
ANYACCEL_NOEXCEPT;

/**
 * Gives back memory of one pool that is kept for reuse, after waiting for the work that uses it; both 0 is
 * anyaccel_empty_cache(). The pool may still be in use; one that graphs were captured in keeps its memory as long as they live.
 * Of a pool that is not there: nothing.
 */
anyaccel_result anyaccel_pool_empty_cache(anyaccel_pool_id pool)
ANYACCEL_NOEXCEPT;

/**
 * From now on what this thread takes on the pool's device comes from the pool, until anyaccel_pool_end(). Of nested pools the
 * innermost takes it.
 */
anyaccel_result anyaccel_pool_begin(anyaccel_pool_id pool)
ANYACCEL_NOEXCEPT;

/**
 * Ends the scope that anyaccel_pool_begin() began.
 */
anyaccel_result anyaccel_pool_end(anyaccel_pool_id pool) ANYACCEL_NOEXCEPT;

/**
 * The counters of a device's memory; all 0 while the runtime has not started.
 */
anyaccel_result anyaccel_get_memory_stats(int32_t device_or_current, anyaccel_memory_stats *stats) ANYACCEL_NOEXCEPT;

/**
 * Sets every peak of a device's memory to its current value.
 */
anyaccel_result anyaccel_reset_peak_memory_stats(int32_t device_or_current) ANYACCEL_NOEXCEPT;

/**
 * Sets the accumulated counters of a device's memory to 0.
 */
anyaccel_result anyaccel_reset_accumulated_memory_stats(int32_t device_or_current) ANYACCEL_NOEXCEPT;

/**
 * The counters of the memory pinned for a device; all 0 while the runtime has not started.
 */
anyaccel_result anyaccel_get_host_memory_stats(int32_t device_or_current,
                                               anyaccel_host_memory_stats *stats)
ANYACCEL_NOEXCEPT;

/**
 * Sets every peak of pinned memory to its current value.
 */
anyaccel_result anyaccel_reset_peak_host_memory_stats(int32_t device_or_current) ANYACCEL_NOEXCEPT;

/**
 * Sets the accumulated counters of pinned memory to 0.
 */
anyaccel_result anyaccel_reset_accumulated_host_memory_stats(int32_t device_or_current) ANYACCEL_NOEXCEPT;

/**
 * The statistics of a device's memory as a table for people.
 */
anyaccel_result anyaccel_memory_summary(int32_t device_or_current,
                                        anyaccel_write_text write,
                                        void *data)
ANYACCEL_NOEXCEPT;

/**
 * Tells a function of every request for device memory that fails, as long as the process lives. May come before the start.
 */
anyaccel_result anyaccel_observe_out_of_memory(anyaccel_out_of_memory_observer observer,
                                               void *data)
ANYACCEL_NOEXCEPT;

/**
 * Puts allocator settings in force on all devices, "max_split_size_mb:128,expandable_segments:True" say: all of them or none.
 * Without this, those of ANYACCEL_ALLOC_CONF, PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF hold.
 */
anyaccel_result anyaccel_set_allocator_settings(const char *settings)
ANYACCEL_NOEXCEPT;

/**
 * Records what the caches of all devices do from now on, or stops and forgets it. May be called before the start. Called again
 * while something is recorded, it puts other options in force and keeps the events, unless the stacks come from elsewhere. In a
 * child of fork nothing is recorded until it is called there.
 */
anyaccel_result anyaccel_record_memory_history(const anyaccel_history_options *options)
ANYACCEL_NOEXCEPT;

/**
 * Writes what the caches hold, and what was recorded, to a file that torch.cuda's memory viewer and pickle.load open: all of
 * it, or nothing.
 */
anyaccel_result anyaccel_dump_memory_snapshot(const char *path)
ANYACCEL_NOEXCEPT;

/**
 * The same as JSON: {"segments": [..], "device_traces": [[..], ..]}, with the keys of torch.cuda.memory._snapshot().
 *
 * @param write receives it in pieces.
 */
anyaccel_result anyaccel_memory_snapshot_json(anyaccel_write_text write, void *data) ANYACCEL_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ANYACCEL_ANYACCEL_H */
