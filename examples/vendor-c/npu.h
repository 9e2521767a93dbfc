/* What npu.c and extras.c share. */
#ifndef NPU_H
#define NPU_H

#include <anyaccel/plugin.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define NPU_DEVICES 2
#define NPU_MEMORY ((uint64_t)256 << 20)
#define NPU_ALIGNMENT 256u
#define NPU_PAGE 4096u

/* Everything that has a handle begins with this. Numbers are never given out twice (H2): addresses would be. */
struct item {
    uint64_t id;
    struct item *next;
    void (*end)(struct item *item); /* gives it back, at the latest when the driver ends */
};

/* Device or pinned memory. */
struct block {
    struct item item;
    uint8_t *base;
    uint64_t len;
};

/* A kernel: a function that is called once a group. */
struct kernel {
    struct item item;
    anyaccel_host_kernel function;
};

enum op_kind { OP_COPY, OP_FILL, OP_WRITE, OP_HOST_CALL, OP_WAIT, OP_MARK, OP_STAMP, OP_LAUNCH };

/* Something enqueued. Places have become pointers: the caller keeps memory alive until a later mark has ended (H4, H5). */
struct op {
    struct op *next;
    enum op_kind kind;
    uint8_t *dst;
    const uint8_t *src;
    uint64_t len;
    uint8_t bytes[64]; /* of a write, or a fill's pattern */
    uint32_t pattern;
    anyaccel_host_fn function;
    struct stream *of; /* whose mark to wait for */
    uint64_t mark;
    struct stamp *stamp;
    struct kernel *kernel;
    anyaccel_launch launch;
    size_t arg_count;
    anyaccel_kernel_arg *args;
};

/* An in-order queue with a thread of its own, so a function of the host that blocks holds up nobody else (H13). */
struct stream {
    struct item item;
    struct anyaccel_device *device;
    pthread_cond_t work;   /* something was enqueued, or it is to end */
    struct op *first;      /* the one being done stays first until it has ended */
    struct op **last;
    uint64_t marked;       /* the last mark given out */
    uint64_t done;         /* the last mark that has ended */
    int closed;
    struct stream *next;   /* of the driver's */
};

struct anyaccel_device {
    struct anyaccel_driver *driver;
    uint32_t ordinal;
    uint64_t used;
};

#define NPU_BUCKETS 512u

/* One lock for all; nothing that can take long is done while it is held. */
struct anyaccel_driver {
    pthread_mutex_t lock;
    pthread_cond_t ended; /* some mark has ended */
    unsigned owners;      /* whoever made it, and each thread: the last one frees it (H25) */
    int closing;
    uint64_t next_id;
    struct item *items[NPU_BUCKETS]; /* what has a handle, by number */
    struct stream *streams;
    struct anyaccel_device devices[NPU_DEVICES];
};

/* Adds an item under a new number. With the lock held. */
uint64_t npu_add(struct anyaccel_driver *driver, struct item *item, void (*end)(struct item *item));
/* Finds an item, or takes it out. With the lock held. Numbers that the host passes are good (H1): the answers are never NULL. */
struct item *npu_find(struct anyaccel_driver *driver, uint64_t id);
struct item *npu_take(struct anyaccel_driver *driver, uint64_t id);
void npu_end_block(struct item *item);
uint8_t *npu_pointer(struct anyaccel_driver *driver, anyaccel_place place); /* without the lock */
/* Puts an operation at the end of a stream. */
uint32_t npu_enqueue(struct anyaccel_device *device, anyaccel_stream stream, struct op op, const char *api,
                     anyaccel_fault *fault);
/* The host has no memory: the caller may give some back and try again (H21). */
uint32_t npu_no_memory(anyaccel_fault *fault, const char *api);

#ifdef NPU_EXTRAS
extern const anyaccel_pinned_table npu_pinned;
extern const anyaccel_kernels_table npu_kernels;
uint32_t npu_launch(struct anyaccel_device *device, anyaccel_stream stream, anyaccel_kernel kernel,
                    const anyaccel_launch *launch, const anyaccel_arg *args, size_t arg_count,
                    anyaccel_fault *fault) ANYACCEL_NOEXCEPT;
#endif
void npu_run(struct op *op); /* does a launch, without the lock */
#endif
