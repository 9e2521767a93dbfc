/* The C ABI of anyaccel: how a vendor's library becomes a device.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A plugin is a shared library that exports one function, anyaccel_plugin_entry. It returns a table of tables of
 * functions: what a driver does, what a device does, and one table for each capability, NULL where there is none.
 * anyaccel does the rest: caching of memory, statistics, streams that are pooled, graphs, random numbers, conversion
 * of element types, copies between devices.
 *
 * Functions marked "required" must not be NULL, or the plugin is refused by their name. Those marked "optional" may be.
 * C11 and C++17. 64-bit targets.
 *
 *
 * VERSIONS
 *
 * Majors differ in meaning: a host refuses another major. Minors only append: fields at the end of structs that begin
 * with struct_size, tables, numbers. So a plugin of an older or a newer minor works:
 *
 *   - Tables begin with struct_size, which the plugin sets to sizeof. What a host finds beyond it counts as NULL, what it
 *     does not know beyond its own it does not read.
 *   - Structs that a function fills in begin with struct_size as well, which the host sets, and the host has zeroed the
 *     rest. Never write beyond it: ANYACCEL_HAS tells whether a field of a later minor is there. What is not written
 *     stays 0, which each field defines.
 *   - Structs without struct_size never change.
 *   - Fields named reserved are 0.
 *
 * docs/abi-changelog.md has each version's changes.
 *
 *
 * CALLS
 *
 *   - A function that can fail returns ANYACCEL_OK or a kind of fault, and may write facts into the fault that it is
 *     given (never NULL): see anyaccel_fail below. Then it had no effect (H19): what it was to write does not count.
 *   - Handles are 64-bit numbers of the plugin's choice. Any value will do, 0 too, but none is given out twice (H2).
 *   - Text goes into buffers of the caller; it is UTF-8 and not terminated: see anyaccel_put_text below.
 *   - Nothing unwinds through a call, in either direction: no C++ exception, no longjmp. The types say so in C++.
 *   - The library is never unloaded: its threads, its static strings and its tables may live as long as the process.
 *   - anyaccel_plugin_entry, create, destroy, probe, describe and checks take no lock that could have been held during
 *     a fork by a thread that the child does not have (H24). All of them may be called in a forked child.
 *
 *
 * RULES
 *
 * The numbers are those of crates/hal/src/lib.rs. `anyaccel cts --list` names the cases of the suite that examine each.
 * "Caller" is anyaccel, "you" are the plugin.
 *
 *   H1  (caller) Handles passed are live: given out by this driver, of this device, not yet freed.
 *   H2  (you) Handles are unique among all that the driver ever gave out, of their type.
 *   H3  (you) OK from alloc means backed. len >= what was asked, addr is a multiple of the alignment, live segments of a
 *       device do not overlap in addr .. addr + len. The caller never dereferences addr.
 *   H4  (caller) Memory is freed when the work that names it has ended. Places lie inside their segments. Lengths > 0.
 *   H5  (caller) Host memory of a copy is valid, and left alone, until a mark enqueued after it has ended. (you) Access
 *       it in stream order. A copy with host memory may block the caller until it is done; nothing else waits for the
 *       device when it enqueues.
 *   H6  (you) What is enqueued on one stream takes effect one after the other, in the order of the calls. Between
 *       streams there is no order but by wait.
 *   H7  (you) The marks of a stream rise strictly. A mark has ended when all work enqueued on its stream before it has,
 *       and is visible to the host and to work that waits for it.
 *   H8  (you) After wait(stream, of, mark) what is enqueued on stream begins after that mark has ended. It never blocks
 *       the caller, holds up nothing enqueued before, waits for nothing enqueued on `of` after the mark.
 *   H9  (you) completed gives the highest ended mark, 0 before the first. It never falls, never blocks, runs no functions
 *       of the host.
 *   H10 (you) wait_host returns OK only after the mark has ended, ANYACCEL_TIMED_OUT not before its time is over. Other
 *       threads may call anything meanwhile.
 *   H11 (you) Progress: mark, host_call and wait_host submit what was enqueued before them, and it ends without further
 *       calls.
 *   H12 (you) What a call takes by pointer is taken before it returns, but for host memory of copies.
 *   H13 (you) Functions of the host are called in stream order, once, and then dropped; with no lock held, on a thread
 *       that may block. Any number may block at a time without stopping copies or functions of other streams. If a
 *       function's turn can't come (the device is lost, the driver destroyed, earlier work of the stream failed) it is
 *       called with ANYACCEL_HOST_CANCELLED. (caller) It neither unwinds nor calls this driver.
 *   H14 (you) fill repeats its pattern from the start of the place on. (caller) The pattern's size is one of
 *       fill_patterns; offset and length are multiples of it.
 *   H15 (caller) The arguments of launch match the kernel. (you) Refuse what can be checked with ANYACCEL_INVALID.
 *   H16 (you) builtin answers the same for the device's life, and a built-in computes what it must, bit for bit.
 *   H17 (you) A stamp keeps the device's time at its turn. elapsed_ns is the difference, or ANYACCEL_NOT_READY.
 *   H18 (you) Any function may be called from any thread, also at the same time for one stream, then in some order. What
 *       the thread had current in your runtime is left as found.
 *   H19 (you) A call that fails had no effect.
 *   H20 (you) ANYACCEL_DEVICE_LOST is for good: every later call on the device returns it, but those that give things
 *       back succeed, and all marks count as ended. Other devices are not touched.
 *   H21 (you) ANYACCEL_OUT_OF_MEMORY: it can succeed once memory was freed. ANYACCEL_UNSUPPORTED: never on this device.
 *   H22 (you) create starts nothing, nor do describe and probe where ANYACCEL_FORK_SAFE_PROBE is set: no thread, no
 *       file kept open, no state of a driver that a fork would break.
 *   H23 (you) open takes memory and makes queues on no other device. Opened again, it is the same device.
 *   H24 (you) See CALLS. Nothing that a fork's child calls first may wait for a thread of its parent.
 *   H25 (you) destroy, on any thread, does not wait for the device: work not yet begun is dropped or still runs, host
 *       functions end by H13 either way, then the driver's threads end. It may be called inside a host function.
 *   H26 (you) Capabilities and their limits are constant for a device's life.
 *   H27 (you) Pinned memory is valid from alloc to free and aligned to pages.
 *   H28 (you) A copy between devices is ordered in the stream that it is enqueued on.
 *   H29 (you) Mapped bytes of a range act as one segment, at stable addresses.
 *   H30 (you) Work after a closed gate does not begin before gates->open, which submits what it held up.
 *   H31 (you) A replay is one operation of its stream. abort always leaves the capture.
 *   H32 (you) Native events, telemetry and kernels do as their functions say.
 *   H33 (you) Work that fails while the device lives has ended, and so do marks behind it. The next wait_host on its stream
 *       returns its fault, once; until then host functions behind it are cancelled.
 */
#ifndef ANYACCEL_PLUGIN_H
#define ANYACCEL_PLUGIN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
#define ANYACCEL_NOEXCEPT noexcept
extern "C" {
#else
#define ANYACCEL_NOEXCEPT
#endif

#if defined(_WIN32)
#define ANYACCEL_EXPORT __declspec(dllexport)
#else
#define ANYACCEL_EXPORT __attribute__((visibility("default")))
#endif

#define ANYACCEL_ABI_MAJOR 1u
#define ANYACCEL_ABI_MINOR 0u

/* Whether the struct that pointer points to, of that type, reaches to the end of a field. */
#define ANYACCEL_HAS(type, pointer, field) \
    ((pointer)->struct_size >= offsetof(type, field) + sizeof(((type *)0)->field))

/* Results. All but OK and TIMED_OUT are kinds of fault; a number that the host does not know counts as DRIVER. */
#define ANYACCEL_OK 0u
#define ANYACCEL_OUT_OF_MEMORY 1u /* not enough memory now; the same call can succeed later (H21) */
#define ANYACCEL_UNSUPPORTED 2u   /* this device can't do that, ever (H21) */
#define ANYACCEL_DEVICE_LOST 3u   /* the device is gone for good (H20) */
#define ANYACCEL_NOT_READY 4u     /* the answer is not there yet */
#define ANYACCEL_INVALID 5u       /* the caller broke the contract, or asked for what can't be */
#define ANYACCEL_DRIVER 6u        /* anything else that the native driver reported */
#define ANYACCEL_TIMED_OUT 16u    /* of wait_host alone: its time was over first */

/* Kinds of device. The numbers are PyTorch's, where it has one. The name belongs to the number; a vendor's kind has
 * ANYACCEL_KIND_PRIVATE and a name of its own: lower-case letters, digits and _, first a letter, at most 32 bytes. */
#define ANYACCEL_KIND_CUDA 1u     /* "cuda" */
#define ANYACCEL_KIND_OPENCL 4u   /* "opencl" */
#define ANYACCEL_KIND_HIP 6u      /* "hip" */
#define ANYACCEL_KIND_XPU 12u     /* "xpu" */
#define ANYACCEL_KIND_MPS 13u     /* "mps" */
#define ANYACCEL_KIND_MTIA 18u    /* "mtia" */
#define ANYACCEL_KIND_PRIVATE 20u /* a name of its own */
#define ANYACCEL_KIND_HOST 64u    /* "host", the built-in device */
#define ANYACCEL_KIND_SIM 65u     /* "sim", the simulated device */

/* Handles. */
typedef uint64_t anyaccel_mem;     /* device or pinned memory; not an address */
typedef uint64_t anyaccel_stream;  /* unique per driver */
typedef uint64_t anyaccel_stamp;   /* a point in a stream whose time is kept */
typedef uint64_t anyaccel_kernel;  /* a built-in or a loaded one */
typedef uint64_t anyaccel_gate;    /* holds up streams until the host opens it */
typedef uint64_t anyaccel_graph;   /* executable */
typedef uint64_t anyaccel_capture; /* from its begin to its end */
typedef uint64_t anyaccel_event;   /* one that other processes or libraries can name */
typedef uint64_t anyaccel_range;   /* reserved addresses */

/* A driver and an open device: the plugin's own, which it may define. */
typedef struct anyaccel_driver anyaccel_driver;
typedef struct anyaccel_device anyaccel_device;

/* Text to read: length bytes of UTF-8. */
typedef struct anyaccel_string {
    const char *data; /* may be NULL if length is 0 */
    size_t length;
} anyaccel_string;

/* A buffer of the caller for text. */
typedef struct anyaccel_text {
    char *data;
    size_t capacity; /* how many bytes may be written */
    size_t length;   /* out: how long the text is, even if only its beginning was written */
} anyaccel_text;

/* Facts about a failed call. What is left alone is filled in by the host: a plugin may return a kind and no more. */
typedef struct anyaccel_fault {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t code;        /* the native error code, 0 if there is none */
    anyaccel_string api; /* the native function that failed; static text. Empty: the name of the ABI's function */
    anyaccel_text note;  /* a fact that the code does not hold: a build log, a symbol's name. No sentence for users */
} anyaccel_fault;

/* ---- Discovery ------------------------------------------------------------------------------------------------ */

/* The layers between a process and a device, from the bottom up. */
#define ANYACCEL_LAYER_LIBRARY 1u      /* the native library is found and loads */
#define ANYACCEL_LAYER_VERSION 2u      /* its version is known */
#define ANYACCEL_LAYER_DEVICE_NODES 3u /* the kernel's device nodes exist */
#define ANYACCEL_LAYER_PERMISSIONS 4u  /* this user may open them */
#define ANYACCEL_LAYER_MASK 5u         /* the variables that hide devices */
#define ANYACCEL_LAYER_PROBE 6u        /* counting the devices */

/* Why there is no device. */
#define ANYACCEL_ABSENCE_NONE 0u         /* there is one, or nobody knows why not */
#define ANYACCEL_ABSENCE_MISSING 1u      /* something that a layer needs; subject: what was looked for, found: instead */
#define ANYACCEL_ABSENCE_BAD_VARIABLE 2u /* subject: its name, found: its value, expected: what it may hold */
#define ANYACCEL_ABSENCE_MASKED 3u       /* a variable hides all devices; subject: its name, found: its value */

/* What discovery found. */
typedef struct anyaccel_probe {
    uint32_t struct_size;
    uint32_t visible; /* devices that this process can use, masks applied; at most 65536 */
    uint32_t present; /* devices before masks, if present_known */
    uint32_t present_known; /* 1: present counts. More than 0 present and none visible ends the search for a kind */
    uint32_t started; /* 1: the native runtime had to be started to know, which a later fork does not survive */
    uint32_t absence; /* ANYACCEL_ABSENCE_... */
    uint32_t layer;   /* where the search ended, for ANYACCEL_ABSENCE_MISSING */
    uint32_t reserved;
    anyaccel_text subject;
    anyaccel_text found;
    anyaccel_text expected;
} anyaccel_probe;

/* Verdicts of a check. */
#define ANYACCEL_VERDICT_PASS 1u
#define ANYACCEL_VERDICT_WARN 2u
#define ANYACCEL_VERDICT_FAIL 3u
#define ANYACCEL_VERDICT_NOT_APPLICABLE 4u

/* One layer examined, for `anyaccel doctor`. */
typedef struct anyaccel_check {
    uint32_t struct_size; /* set by the plugin */
    uint32_t layer;       /* ANYACCEL_LAYER_... */
    uint32_t verdict;     /* ANYACCEL_VERDICT_... */
    uint32_t reserved;
    anyaccel_string subject; /* what was examined */
    anyaccel_string found;
} anyaccel_check;

/* Bits of anyaccel_device_info.flags. */
#define ANYACCEL_INFO_UUID 0x1u             /* uuid is set */
#define ANYACCEL_INFO_PCI 0x2u              /* pci_... are set */
#define ANYACCEL_INFO_HOST_ENDS 0x4u        /* copies may name any host memory; else `pinned` is required, and the host stages through it */
#define ANYACCEL_INFO_INTEGRATED_KNOWN 0x8u /* ANYACCEL_INFO_INTEGRATED counts */
#define ANYACCEL_INFO_INTEGRATED 0x10u      /* it shares the host's memory */

/* Bits of anyaccel_device_info.fill_patterns: patterns of that many bytes. */
#define ANYACCEL_FILL_1 0x1u
#define ANYACCEL_FILL_2 0x2u
#define ANYACCEL_FILL_4 0x4u
#define ANYACCEL_FILL_8 0x8u
#define ANYACCEL_FILL_16 0x10u

/* A device's properties. Constant for its life. */
typedef struct anyaccel_device_info {
    uint32_t struct_size;
    uint32_t flags;             /* ANYACCEL_INFO_... */
    anyaccel_text name;         /* the marketing name */
    anyaccel_text vendor;       /* who makes it */
    anyaccel_text driver;       /* the version of the native driver, as it writes it itself */
    uint8_t uuid[16];           /* identifies the card for good */
    uint32_t pci_domain;
    uint8_t pci_bus;
    uint8_t pci_device;
    uint8_t pci_function;
    uint8_t reserved;
    uint64_t memory;            /* bytes */
    uint64_t max_alloc;         /* the largest single allocation, bytes */
    uint64_t alignment;         /* what addresses of segments are multiples of; a power of two, at most 2 MiB */
    uint64_t place_alignment;   /* what offsets of places in kernel arguments are multiples of; a power of two, often 1 */
    uint64_t dtypes;            /* bit n: the built-in conversion knows element type n; 0 where there is no built-in: the
                                   host converts, all types */
    uint32_t stamp_ns;          /* resolution of stamps, nanoseconds */
    uint32_t fill_patterns;     /* ANYACCEL_FILL_..., at least ANYACCEL_FILL_1 */
    uint32_t cores;             /* compute units; 0: unknown */
    uint32_t clock_mhz;         /* the highest clock; 0: unknown */
    int32_t priority_least;     /* stream priorities: 0 on every known device ... */
    int32_t priority_greatest;  /* ... and the most urgent one, at most priority_least */
} anyaccel_device_info;

/* A driver: discovers devices, opens them, owns what they share. There may be several at a time in one process. */
typedef struct anyaccel_driver_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Required. A new driver. Starts nothing (H22, H24). */
    uint32_t (*create)(anyaccel_driver **driver, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;

    /* Required. Gives it back, after its devices were closed: its threads end (H25). Not called for what was made before
     * a fork. */
    void (*destroy)(anyaccel_driver *driver) ANYACCEL_NOEXCEPT;

    /* Required. How many devices there are, or why none. Reads masks anew each time until start froze them (H22). */
    void (*probe)(anyaccel_driver *driver, anyaccel_probe *probe) ANYACCEL_NOEXCEPT;

    /* Optional. A device's properties without opening it (H22). Returns 1 if it filled them in, 0 if only an open device
     * can tell. */
    uint32_t (*describe)(anyaccel_driver *driver, uint32_t ordinal, anyaccel_device_info *info) ANYACCEL_NOEXCEPT;

    /* Required. Starts the native runtime, freezes masks, counts devices: 0 to 65536. A second call gives the same. A
     * failed start leaves no trace. ANYACCEL_INVALID for a bad variable, which the probe names. */
    uint32_t (*start)(anyaccel_driver *driver, uint32_t *count, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;

    /* Required. Opens a device, once started (H23). May be called again for the same one, each time with its own close.
     * ANYACCEL_INVALID for an ordinal out of range. */
    uint32_t (*open)(anyaccel_driver *driver, uint32_t ordinal, anyaccel_device **device, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;

    /* Required. Gives one open back. Waits for nothing. */
    void (*close)(anyaccel_device *device) ANYACCEL_NOEXCEPT;

    /* Optional. Examines each layer for the doctor, reporting one after the other. Starts nothing. */
    void (*checks)(anyaccel_driver *driver, void *context,
                   void (*report)(void *context, const anyaccel_check *check) ANYACCEL_NOEXCEPT) ANYACCEL_NOEXCEPT;
} anyaccel_driver_table;

/* ---- What calls carry ----------------------------------------------------------------------------------------- */

/* Backed device memory (H3). */
typedef struct anyaccel_segment {
    anyaccel_mem mem; /* what copies, fills and kernels name */
    uint64_t addr;    /* the device address, or a synthetic one where there are none */
    uint64_t len;     /* usable bytes */
} anyaccel_segment;

/* Where in memory an operation begins. */
typedef struct anyaccel_place {
    anyaccel_mem mem;
    uint64_t offset; /* bytes from its start */
} anyaccel_place;

/* A point in the order of a stream. */
typedef struct anyaccel_mark {
    uint64_t value;    /* rises per stream (H7), from 1 on */
    uint32_t captured; /* 1: a point inside a native capture, which serves only waits of that capture. Else 0 */
    uint32_t reserved;
} anyaccel_mark;

/* Ends of copies. */
#define ANYACCEL_END_DEVICE 1u /* data.place: device memory */
#define ANYACCEL_END_PINNED 2u /* data.place: pinned memory of the host */
#define ANYACCEL_END_HOST 3u   /* data.host: any memory of the host (H5); only with ANYACCEL_INFO_HOST_ENDS */

typedef struct anyaccel_end {
    uint32_t kind;  /* ANYACCEL_END_... */
    uint32_t unset; /* holds anything */
    union {
        anyaccel_place place;
        void *host;
    } data;
} anyaccel_end;

/* How a function of the host is called. */
#define ANYACCEL_HOST_RUN 0u       /* its turn has come */
#define ANYACCEL_HOST_CANCELLED 1u /* its turn can't come */

/* A function of the host (H13). Who is handed one owns it, also if the call then fails: drop(data) is called once, after
 * the last call. Eager: called once. In a graph: called once a replay. Only with status RUN or CANCELLED. */
typedef struct anyaccel_host_fn {
    void (*call)(void *data, uint32_t status) ANYACCEL_NOEXCEPT;
    void (*drop)(void *data) ANYACCEL_NOEXCEPT;
    void *data;
} anyaccel_host_fn;

/* The size of a launch. */
typedef struct anyaccel_launch {
    uint32_t groups[3];  /* along x, y, z (CUDA: grid); none is 0 */
    uint32_t threads[3]; /* of a group (CUDA: block); none is 0 */
    uint32_t shared;     /* dynamic group-local memory, bytes */
    uint32_t reserved;
} anyaccel_launch;

/* Arguments of kernels. */
#define ANYACCEL_ARG_PLACE 1u /* device memory */
#define ANYACCEL_ARG_BYTES 2u /* a value, taken before the call returns (H12) */
#define ANYACCEL_ARG_LOCAL 3u /* that many bytes of group-local memory */

typedef struct anyaccel_arg_place {
    anyaccel_place place;
    uint64_t len; /* how much of it the kernel may touch, bytes */
} anyaccel_arg_place;

typedef struct anyaccel_arg_bytes {
    const void *data; /* never NULL */
    size_t len;
} anyaccel_arg_bytes;

typedef struct anyaccel_arg {
    uint32_t kind;  /* ANYACCEL_ARG_... */
    uint32_t unset; /* holds anything */
    union {
        anyaccel_arg_place place;
        anyaccel_arg_bytes bytes;
        size_t local;
    } data;
} anyaccel_arg;

/* ---- Capabilities --------------------------------------------------------------------------------------------- */

/* A table that is NULL means that no device has the capability. Each table begins with limits: ANYACCEL_UNSUPPORTED
 * means that this device lacks what others of the plugin have. Presence and limits are constant (H26). */

/* Bits of anyaccel_pinned_limits.flags. */
#define ANYACCEL_PINNED_REGISTER 0x1u /* memory that others own can be registered */
#define ANYACCEL_PINNED_DIRECT 0x2u   /* it may be an argument of kernels */

typedef struct anyaccel_pinned_limits {
    uint32_t struct_size;
    uint32_t flags;       /* ANYACCEL_PINNED_... */
    uint64_t granularity; /* what lengths are rounded up to, bytes; 0 counts as 1 */
} anyaccel_pinned_limits;

/* Host memory that the device reaches directly (H27). */
typedef struct anyaccel_pinned_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Required. */
    uint32_t (*limits)(anyaccel_device *device, anyaccel_pinned_limits *limits, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. len > 0 bytes. */
    uint32_t (*alloc)(anyaccel_device *device, uint64_t len, anyaccel_mem *mem, void **pointer, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required with ANYACCEL_PINNED_REGISTER. Makes memory that others own reachable, until free. INVALID if it is. */
    uint32_t (*register_memory)(anyaccel_device *device, void *pointer, uint64_t len, anyaccel_mem *mem,
                                anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. */
    uint32_t (*free)(anyaccel_device *device, anyaccel_mem mem, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
} anyaccel_pinned_table;

typedef struct anyaccel_peers_limits {
    uint32_t struct_size;
    uint32_t reachable; /* how many other devices can be reached at a time */
} anyaccel_peers_limits;

/* Direct access to other devices of the driver (H28). */
typedef struct anyaccel_peers_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Required. */
    uint32_t (*limits)(anyaccel_device *device, anyaccel_peers_limits *limits, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. 1 if this device reaches the memory of that one; 0 for itself and for none such. */
    uint32_t (*can_access)(anyaccel_device *device, uint32_t ordinal) ANYACCEL_NOEXCEPT;
    /* Required. From memory of the device `from` to memory of this one. UNSUPPORTED where can_access is 0. */
    uint32_t (*copy)(anyaccel_device *device, anyaccel_stream stream, anyaccel_place dst, uint32_t from,
                     anyaccel_place src, uint64_t len, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
} anyaccel_peers_table;

typedef struct anyaccel_virtual_memory_limits {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t granularity; /* what offsets and lengths of mappings are multiples of, bytes; a power of two */
} anyaccel_virtual_memory_limits;

/* Address ranges that are backed piece by piece (H29). */
typedef struct anyaccel_virtual_memory_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Required. */
    uint32_t (*limits)(anyaccel_device *device, anyaccel_virtual_memory_limits *limits, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required. Addresses without memory; segment->mem names the whole range. INVALID off the granularity. */
    uint32_t (*reserve)(anyaccel_device *device, uint64_t len, anyaccel_range *range, anyaccel_segment *segment,
                        anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. Backs a part. INVALID if some of it is. */
    uint32_t (*map)(anyaccel_device *device, anyaccel_range range, uint64_t offset, uint64_t len,
                    anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. Takes the backing of a part away. INVALID if some of it has none. */
    uint32_t (*unmap)(anyaccel_device *device, anyaccel_range range, uint64_t offset, uint64_t len,
                      anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. Gives the addresses back, with what backs them. */
    uint32_t (*release)(anyaccel_device *device, anyaccel_range range, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
} anyaccel_virtual_memory_table;

/* Forms of kernels. */
#define ANYACCEL_FORMAT_PTX 1u
#define ANYACCEL_FORMAT_CUBIN 2u
#define ANYACCEL_FORMAT_SPIRV 3u
#define ANYACCEL_FORMAT_OPENCL_C 4u
#define ANYACCEL_FORMAT_MSL 5u
#define ANYACCEL_FORMAT_HOST_FN 6u /* a function of this process */
#define ANYACCEL_FORMAT_CUDA_C 7u  /* CUDA C++ source, functions declared extern "C" */

typedef struct anyaccel_kernels_limits {
    uint32_t struct_size;
    uint32_t max_threads;   /* of a group; a kernel may allow fewer and refuses more with INVALID */
    uint32_t max_groups[3]; /* along x, y, z */
    uint32_t max_shared;    /* group-local memory, bytes */
    uint32_t format_count;
    uint32_t formats[9];    /* ANYACCEL_FORMAT_... that can be loaded, the best first */
} anyaccel_kernels_limits;

/* Which group of a launch a kernel of the host is called for. */
typedef struct anyaccel_work_group {
    uint32_t index[3];
    uint32_t groups[3];
    uint32_t threads[3];
    uint32_t shared;
} anyaccel_work_group;

/* An argument as a kernel of the host sees it. */
typedef struct anyaccel_kernel_arg {
    uint8_t *pointer; /* group-local memory: fresh for each group, contents undefined */
    uint64_t len;
} anyaccel_kernel_arg;

/* A kernel that is a function of this process: called once a group, for several groups at a time. Owned as an
 * anyaccel_host_fn is: drop(data) is called once, after the last call, also if loading fails. */
typedef struct anyaccel_host_kernel {
    void (*call)(const void *data, const anyaccel_work_group *group, const anyaccel_kernel_arg *args, size_t count)
        ANYACCEL_NOEXCEPT;
    void (*drop)(void *data) ANYACCEL_NOEXCEPT;
    void *data;
} anyaccel_host_kernel;

/* Loading of kernels (H32). */
typedef struct anyaccel_kernels_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Required. */
    uint32_t (*limits)(anyaccel_device *device, anyaccel_kernels_limits *limits, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required unless HOST_FN is the only form. UNSUPPORTED for another form; INVALID with the build log in the note.
     * entry, the function to launch, is terminated by 0. */
    uint32_t (*load)(anyaccel_device *device, uint32_t format, const void *code, size_t len, const char *entry,
                     anyaccel_kernel *kernel, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required with ANYACCEL_FORMAT_HOST_FN. */
    uint32_t (*load_host)(anyaccel_device *device, anyaccel_host_kernel function, anyaccel_kernel *kernel,
                          anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. Its launches have ended. Not for built-ins. */
    void (*unload)(anyaccel_device *device, anyaccel_kernel kernel) ANYACCEL_NOEXCEPT;
} anyaccel_kernels_table;

typedef struct anyaccel_gates_limits {
    uint32_t struct_size;
    uint32_t closed; /* how many may be closed at a time */
} anyaccel_gates_limits;

/* Waits that the host ends (H30). */
typedef struct anyaccel_gates_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Required. */
    uint32_t (*limits)(anyaccel_device *device, anyaccel_gates_limits *limits, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. A closed one. OUT_OF_MEMORY beyond the limit. */
    uint32_t (*create)(anyaccel_device *device, anyaccel_gate *gate, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. Holds the stream up here until the gate is open. */
    uint32_t (*wait)(anyaccel_device *device, anyaccel_stream stream, anyaccel_gate gate, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required. For good. */
    uint32_t (*open)(anyaccel_device *device, anyaccel_gate gate, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. A closed one is opened first. */
    void (*destroy)(anyaccel_device *device, anyaccel_gate gate) ANYACCEL_NOEXCEPT;
} anyaccel_gates_table;

/* Operations. */
#define ANYACCEL_OP_COPY 1u
#define ANYACCEL_OP_FILL 2u
#define ANYACCEL_OP_WRITE 3u
#define ANYACCEL_OP_HOST_CALL 4u
#define ANYACCEL_OP_LAUNCH 5u

typedef struct anyaccel_op_copy {
    anyaccel_end dst;
    anyaccel_end src;
    uint64_t len;
} anyaccel_op_copy;

typedef struct anyaccel_op_fill {
    anyaccel_place dst;
    uint64_t len;
    uint8_t pattern[16];
    uint32_t pattern_len;
    uint32_t reserved;
} anyaccel_op_fill;

typedef struct anyaccel_op_write {
    anyaccel_place dst;
    uint8_t bytes[64];
    uint32_t len;
    uint32_t reserved;
} anyaccel_op_write;

typedef struct anyaccel_op_launch {
    anyaccel_kernel kernel;
    anyaccel_launch launch;
    const anyaccel_arg *args; /* valid for the call that is given the operation */
    size_t arg_count;
} anyaccel_op_launch;

/* What streams carry and graphs are lists of. */
typedef struct anyaccel_op {
    uint32_t kind; /* ANYACCEL_OP_... */
    uint32_t reserved;
    union {
        anyaccel_op_copy copy;
        anyaccel_op_fill fill;
        anyaccel_op_write write;
        anyaccel_host_fn host_call;
        anyaccel_op_launch launch;
    } data;
} anyaccel_op;

/* A node of an explicit graph. */
typedef struct anyaccel_node {
    anyaccel_op op;
    const uint32_t *after; /* earlier nodes of the list that end before it */
    size_t after_count;
} anyaccel_node;

/* What a capture forbids. */
#define ANYACCEL_CAPTURE_GLOBAL 1u       /* calls that could break it are refused on every thread */
#define ANYACCEL_CAPTURE_THREAD_LOCAL 2u /* on the capturing thread only */
#define ANYACCEL_CAPTURE_RELAXED 3u      /* nowhere */

/* Bits of anyaccel_graphs_limits.flags. */
#define ANYACCEL_GRAPHS_CAPTURE 0x1u     /* streams can be captured */
#define ANYACCEL_GRAPHS_LIST 0x2u        /* lists of nodes can be built */
#define ANYACCEL_GRAPHS_HOST_CALLS 0x4u  /* functions of the host may be nodes */
#define ANYACCEL_GRAPHS_HOST_COPIES 0x8u /* copies from and to host memory may be nodes */
#define ANYACCEL_GRAPHS_UPDATE 0x10u     /* nodes can be updated */
#define ANYACCEL_GRAPHS_ORDERED 0x20u    /* replays of one graph follow one another, whatever streams they go to */

typedef struct anyaccel_graphs_limits {
    uint32_t struct_size;
    uint32_t flags; /* ANYACCEL_GRAPHS_... */
} anyaccel_graphs_limits;

/* Native graphs (H31). Without them the host records and replays, so most plugins need none. */
typedef struct anyaccel_graphs_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Required. */
    uint32_t (*limits)(anyaccel_device *device, anyaccel_graphs_limits *limits, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required with ANYACCEL_GRAPHS_CAPTURE, as are the next three. Captures what is enqueued from now on. */
    uint32_t (*begin)(anyaccel_device *device, anyaccel_stream stream, uint32_t mode, anyaccel_capture *capture,
                      anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Which capture the stream takes part in: *capturing is 0 or 1. */
    uint32_t (*capture_id)(anyaccel_device *device, anyaccel_stream stream, uint32_t *capturing,
                           anyaccel_capture *capture, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Ends the capture that began on the stream. */
    uint32_t (*end)(anyaccel_device *device, anyaccel_stream stream, anyaccel_graph *graph, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Leaves the capture, whatever its state. */
    void (*abort)(anyaccel_device *device, anyaccel_stream stream) ANYACCEL_NOEXCEPT;
    /* Required with ANYACCEL_GRAPHS_LIST. INVALID for a node after itself or a later one. All but functions of the host
     * is taken before it returns. */
    uint32_t (*build)(anyaccel_device *device, const anyaccel_node *nodes, size_t count, anyaccel_graph *graph,
                      anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. The replay before has ended or is ordered before this one. */
    uint32_t (*replay)(anyaccel_device *device, anyaccel_graph graph, anyaccel_stream stream, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required with ANYACCEL_GRAPHS_UPDATE. Replaces a node's operation by one of the same form, for later replays. */
    uint32_t (*update)(anyaccel_device *device, anyaccel_graph graph, uint32_t node, const anyaccel_op *op,
                       anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. Its replays have ended. */
    void (*destroy)(anyaccel_device *device, anyaccel_graph graph) ANYACCEL_NOEXCEPT;
} anyaccel_graphs_table;

typedef struct anyaccel_native_events_limits {
    uint32_t struct_size;
    uint32_t ipc_bytes; /* of an interprocess handle; 0: there are none */
} anyaccel_native_events_limits;

/* Events that other processes or libraries can name (H32). */
typedef struct anyaccel_native_events_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Required. */
    uint32_t (*limits)(anyaccel_device *device, anyaccel_native_events_limits *limits, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required. interprocess is 0 or 1. */
    uint32_t (*create)(anyaccel_device *device, uint32_t interprocess, anyaccel_event *event, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required. At this point of the stream. */
    uint32_t (*record)(anyaccel_device *device, anyaccel_event event, anyaccel_stream stream, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required. The stream waits for its last record. */
    uint32_t (*wait)(anyaccel_device *device, anyaccel_event event, anyaccel_stream stream, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required with ipc_bytes > 0, as is import_handle. INVALID for a buffer shorter than ipc_bytes. */
    uint32_t (*export_handle)(anyaccel_device *device, anyaccel_event event, void *handle, size_t len,
                              anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Another process's event. INVALID for bytes that are no handle. */
    uint32_t (*import_handle)(anyaccel_device *device, const void *handle, size_t len, anyaccel_event *event,
                              anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Optional. The vendor's object; 0 where there is none. */
    uint64_t (*native)(anyaccel_device *device, anyaccel_event event) ANYACCEL_NOEXCEPT;
    /* Required. */
    void (*destroy)(anyaccel_device *device, anyaccel_event event) ANYACCEL_NOEXCEPT;
} anyaccel_native_events_table;

/* Sensors. The bit of a sensor in anyaccel_telemetry_limits.sensors is 1 << its number. */
#define ANYACCEL_SENSOR_UTILIZATION 0u  /* percent of the last interval with work on the device */
#define ANYACCEL_SENSOR_MEMORY_USAGE 1u /* percent of the last interval with memory traffic */
#define ANYACCEL_SENSOR_TEMPERATURE 2u  /* degrees Celsius */
#define ANYACCEL_SENSOR_POWER 3u        /* watts */
#define ANYACCEL_SENSOR_CLOCK 4u        /* MHz */

typedef struct anyaccel_telemetry_limits {
    uint32_t struct_size;
    uint32_t sensors;
} anyaccel_telemetry_limits;

/* Sensors (H32). */
typedef struct anyaccel_telemetry_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Required. */
    uint32_t (*limits)(anyaccel_device *device, anyaccel_telemetry_limits *limits, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required. UNSUPPORTED for a sensor that the limits lack, NOT_READY if there is no reading yet. */
    uint32_t (*read)(anyaccel_device *device, uint32_t sensor, float *value, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
} anyaccel_telemetry_table;

/* ---- Devices -------------------------------------------------------------------------------------------------- */

typedef struct anyaccel_memory_info {
    uint32_t struct_size;
    uint32_t free_known; /* 1: free counts */
    uint64_t free;       /* bytes, all processes together */
    uint64_t total;      /* bytes */
} anyaccel_memory_info;

/* Instead of a mark in wait_host: everything enqueued before the call. */
#define ANYACCEL_NOW UINT64_MAX
/* Instead of nanoseconds in wait_host: no deadline. */
#define ANYACCEL_FOREVER UINT64_MAX

/* How wait_host waits. */
#define ANYACCEL_WAIT_AUTO 1u  /* whatever is quickest, then asleep */
#define ANYACCEL_WAIT_BLOCK 2u /* asleep from the start, for long waits */

/* An open device: memory, order, time, work. */
typedef struct anyaccel_device_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Required. Its properties, as describe gives them. */
    uint32_t (*info)(anyaccel_device *device, anyaccel_device_info *info, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;

    /* Required. Free and total memory now. */
    uint32_t (*memory_info)(anyaccel_device *device, anyaccel_memory_info *info, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;

    /* Memory. */

    /* Required. At least len bytes (H3), contents undefined. May wait for the device. INVALID for 0 or more than
     * max_alloc. Called rarely: memory is cached above. */
    uint32_t (*alloc)(anyaccel_device *device, uint64_t len, anyaccel_segment *segment, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required. May wait for the device. */
    uint32_t (*free)(anyaccel_device *device, anyaccel_mem mem, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Optional. Names memory that somebody else owns, by its address or native object; free forgets it. */
    uint32_t (*import)(anyaccel_device *device, uint64_t native, uint64_t len, anyaccel_segment *segment,
                       anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Optional. What another library would name the memory by: its device address or native object. NULL: 0. */
    uint64_t (*native_mem)(anyaccel_device *device, anyaccel_mem mem) ANYACCEL_NOEXCEPT;

    /* Streams. */

    /* Required. Of a priority from priority_greatest to priority_least. */
    uint32_t (*create_stream)(anyaccel_device *device, int32_t priority, anyaccel_stream *stream, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required. Its work has ended, by a mark. */
    uint32_t (*destroy_stream)(anyaccel_device *device, anyaccel_stream stream, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Optional. The native stream, for other libraries of the vendor. NULL: 0. */
    uint64_t (*native_stream)(anyaccel_device *device, anyaccel_stream stream) ANYACCEL_NOEXCEPT;

    /* Order. */

    /* Required. Marks this point of the stream (H7) and submits what is before it (H11). */
    uint32_t (*mark)(anyaccel_device *device, anyaccel_stream stream, anyaccel_mark *mark, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required. stream waits for a mark of `of` (H8), which may be of another device of the driver: UNSUPPORTED there if
     * it can't. */
    uint32_t (*wait)(anyaccel_device *device, anyaccel_stream stream, anyaccel_stream of, anyaccel_mark mark,
                     anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. This thread waits (H10) until the mark of that value, or ANYACCEL_NOW, for at most so many nanoseconds, 0
     * included, or ANYACCEL_FOREVER. OK, ANYACCEL_TIMED_OUT, or the fault of work that failed (H33). */
    uint32_t (*wait_host)(anyaccel_device *device, anyaccel_stream stream, uint64_t mark, uint64_t nanoseconds,
                          uint32_t mode, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. The highest ended mark (H9); on a lost device the highest given out. */
    uint32_t (*completed)(anyaccel_device *device, anyaccel_stream stream, uint64_t *mark, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;

    /* Time. */

    /* Required. Keeps the device's time at this point of the stream (H17). */
    uint32_t (*stamp)(anyaccel_device *device, anyaccel_stream stream, anyaccel_stamp *stamp, anyaccel_fault *fault)
        ANYACCEL_NOEXCEPT;
    /* Required. From one stamp to the other; NOT_READY until the turns of both have come. */
    uint32_t (*elapsed_ns)(anyaccel_device *device, anyaccel_stamp from, anyaccel_stamp to, int64_t *nanoseconds,
                           anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. Whether its turn has come or not. */
    void (*drop_stamp)(anyaccel_device *device, anyaccel_stamp stamp) ANYACCEL_NOEXCEPT;

    /* Work. */

    /* Required. len bytes. At least one end is on this device, none on another. INVALID for two ends that are memory of
     * the host. */
    uint32_t (*copy)(anyaccel_device *device, anyaccel_stream stream, const anyaccel_end *dst, const anyaccel_end *src,
                     uint64_t len, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. len bytes of a pattern (H14). UNSUPPORTED for a size that the device lacks. */
    uint32_t (*fill)(anyaccel_device *device, anyaccel_stream stream, anyaccel_place dst, const void *pattern,
                     uint32_t pattern_len, uint64_t len, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. At most 64 bytes, taken before it returns (H12). INVALID for more. */
    uint32_t (*write)(anyaccel_device *device, anyaccel_stream stream, anyaccel_place dst, const void *bytes,
                      uint32_t len, anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
    /* Required. A function of the host in stream order (H13); submits what is before it (H11). The function is the
     * plugin's from here on, also if it fails: then it drops it without a call. */
    uint32_t (*host_call)(anyaccel_device *device, anyaccel_stream stream, const anyaccel_host_fn *function,
                          anyaccel_fault *fault) ANYACCEL_NOEXCEPT;

    /* Kernels. */

    /* Optional. The built-in of that number (H16): 1 and its handle, or 0. NULL: there are none, and the host computes
     * through copies. */
    uint32_t (*builtin)(anyaccel_device *device, uint32_t number, anyaccel_kernel *kernel) ANYACCEL_NOEXCEPT;
    /* Required with builtin or kernels. Arguments are taken before it returns (H12). */
    uint32_t (*launch)(anyaccel_device *device, anyaccel_stream stream, anyaccel_kernel kernel,
                       const anyaccel_launch *launch, const anyaccel_arg *args, size_t arg_count,
                       anyaccel_fault *fault) ANYACCEL_NOEXCEPT;

    /* Capabilities, each optional. */

    const anyaccel_pinned_table *pinned;
    const anyaccel_peers_table *peers;
    const anyaccel_virtual_memory_table *virtual_memory;
    const anyaccel_kernels_table *kernels;
    const anyaccel_gates_table *gates;
    const anyaccel_graphs_table *graphs;
    const anyaccel_native_events_table *native_events;
    const anyaccel_telemetry_table *telemetry;
} anyaccel_device_table;

/* ---- The plugin ----------------------------------------------------------------------------------------------- */

/* Bits of anyaccel_plugin.flags. */
#define ANYACCEL_FORK_SAFE_PROBE 0x1u /* probe and describe start nothing, whatever they find (H22) */
#define ANYACCEL_RESTARTABLE 0x2u     /* a new driver works in a child that was forked after its parent had started one */

/* What a plugin is. The first four fields are the same in every major. */
typedef struct anyaccel_plugin {
    uint32_t struct_size;
    uint32_t abi_major; /* ANYACCEL_ABI_MAJOR that it was built with */
    uint32_t abi_minor; /* ANYACCEL_ABI_MINOR that it was built with */
    uint32_t kind;      /* ANYACCEL_KIND_... */
    const char *name;   /* the kind's name, terminated by 0 */
    const char *version; /* of the plugin, for people, terminated by 0; may be NULL */
    uint32_t flags;     /* ANYACCEL_FORK_SAFE_PROBE ... */
    uint32_t reserved;
    const anyaccel_driver_table *driver; /* required */
    const anyaccel_device_table *device; /* required, the same for all devices */
} anyaccel_plugin;

/* Who loads the plugin. */
typedef struct anyaccel_host {
    uint32_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor;
    uint32_t reserved;
} anyaccel_host;

/* What the library exports: the same table at every call, or NULL if it can't work with this host. Starts nothing. A
 * plugin that knows several majors picks by host->abi_major. */
ANYACCEL_EXPORT const anyaccel_plugin *anyaccel_plugin_entry(const anyaccel_host *host) ANYACCEL_NOEXCEPT;

/* ---- For plugins in C ----------------------------------------------------------------------------------------- */

/* Writes text into a buffer of the caller, as much as fits. */
static inline void anyaccel_put_text(anyaccel_text *text, const char *value)
{
    size_t length = strlen(value);
    text->length = length;
    if (length > text->capacity) {
        length = text->capacity;
    }
    if (length > 0) {
        memcpy(text->data, value, length);
    }
}

/* Fills a fault in and returns its kind: `return anyaccel_fail(fault, ANYACCEL_INVALID, "alloc", 0, "no bytes");`
 * api is a string literal or other static text; note may be NULL. */
static inline uint32_t anyaccel_fail(anyaccel_fault *fault, uint32_t kind, const char *api, int64_t code,
                                     const char *note)
{
    fault->code = code;
    fault->api.data = api;
    fault->api.length = api != NULL ? strlen(api) : 0;
    if (note != NULL) {
        anyaccel_put_text(&fault->note, note);
    }
    return kind;
}

#ifdef __cplusplus
}
#endif

#endif
