/* The second step: pinned memory, and kernels. Each is a table that npu.c's device table then names. */
#include "npu.h"

/* ---- Pinned memory: of the host, and within reach of the device (H27) ------------------------------------------- */

static uint32_t pinned_limits(anyaccel_device *device, anyaccel_pinned_limits *limits, anyaccel_fault *fault)
{
    (void)device;
    (void)fault;
    limits->flags = ANYACCEL_PINNED_DIRECT;
    limits->granularity = NPU_PAGE;
    return ANYACCEL_OK;
}

static uint32_t pinned_alloc(anyaccel_device *device, uint64_t len, anyaccel_mem *mem, void **pointer, anyaccel_fault *fault)
{
    if (len == 0 || len > UINT64_MAX / 2) {
        return anyaccel_fail(fault, len == 0 ? ANYACCEL_INVALID : ANYACCEL_OUT_OF_MEMORY, "pinned", 0, "not that many bytes");
    }
    struct block *block = calloc(1, sizeof *block);
    uint64_t size = (len + NPU_PAGE - 1) / NPU_PAGE * NPU_PAGE;
    uint8_t *base = block != NULL ? aligned_alloc(NPU_PAGE, size) : NULL;
    if (base == NULL) {
        free(block);
        return npu_no_memory(fault, "pinned");
    }
    block->base = base;
    block->len = size;
    pthread_mutex_lock(&device->driver->lock);
    *mem = npu_add(device->driver, &block->item, npu_end_block);
    pthread_mutex_unlock(&device->driver->lock);
    *pointer = base;
    return ANYACCEL_OK;
}

static uint32_t pinned_free(anyaccel_device *device, anyaccel_mem mem, anyaccel_fault *fault)
{
    (void)fault;
    pthread_mutex_lock(&device->driver->lock);
    struct item *item = npu_take(device->driver, mem);
    pthread_mutex_unlock(&device->driver->lock);
    npu_end_block(item);
    return ANYACCEL_OK;
}

const anyaccel_pinned_table npu_pinned = {
    .struct_size = sizeof(anyaccel_pinned_table),
    .limits = pinned_limits,
    .alloc = pinned_alloc,
    .free = pinned_free,
};

/* ---- Kernels: functions of this process ------------------------------------------------------------------------ */

#define MAX_THREADS 1024u
#define MAX_GROUPS ((1u << 31) - 1)
#define MAX_SHARED 65536u

static uint32_t kernels_limits(anyaccel_device *device, anyaccel_kernels_limits *limits, anyaccel_fault *fault)
{
    (void)device;
    (void)fault;
    limits->max_threads = MAX_THREADS;
    limits->max_groups[0] = limits->max_groups[1] = limits->max_groups[2] = MAX_GROUPS;
    limits->max_shared = MAX_SHARED;
    limits->format_count = 1;
    limits->formats[0] = ANYACCEL_FORMAT_HOST_FN;
    return ANYACCEL_OK;
}

static void end_kernel(struct item *item)
{
    struct kernel *kernel = (struct kernel *)item;
    kernel->function.drop(kernel->function.data);
    free(kernel);
}

static uint32_t kernels_load_host(anyaccel_device *device, anyaccel_host_kernel function, anyaccel_kernel *handle,
                                  anyaccel_fault *fault)
{
    struct kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL) {
        function.drop(function.data);
        return npu_no_memory(fault, "load_host");
    }
    kernel->function = function;
    pthread_mutex_lock(&device->driver->lock);
    *handle = npu_add(device->driver, &kernel->item, end_kernel);
    pthread_mutex_unlock(&device->driver->lock);
    return ANYACCEL_OK;
}

static void kernels_unload(anyaccel_device *device, anyaccel_kernel handle)
{
    pthread_mutex_lock(&device->driver->lock);
    struct item *item = npu_take(device->driver, handle);
    pthread_mutex_unlock(&device->driver->lock);
    end_kernel(item);
}

const anyaccel_kernels_table npu_kernels = {
    .struct_size = sizeof(anyaccel_kernels_table),
    .limits = kernels_limits,
    .load_host = kernels_load_host,
    .unload = kernels_unload,
};

static uint64_t value_len(const anyaccel_arg *arg)
{
    return arg->kind == ANYACCEL_ARG_BYTES ? arg->data.bytes.len : arg->data.local;
}

/* The arguments as the kernel sees them, and the values among them, in one allocation. */
static anyaccel_kernel_arg *take_args(struct anyaccel_driver *driver, const anyaccel_arg *args, size_t count)
{
    size_t values = 0;
    for (size_t i = 0; i < count; i++) {
        values += args[i].kind == ANYACCEL_ARG_PLACE ? 0 : (value_len(&args[i]) + 15) / 16 * 16;
    }
    anyaccel_kernel_arg *taken = calloc(1, (count * sizeof *taken + 15) / 16 * 16 + values + 16);
    if (taken == NULL) {
        return NULL;
    }
    uint8_t *value = (uint8_t *)taken + (count * sizeof *taken + 15) / 16 * 16;
    for (size_t i = 0; i < count; i++) {
        if (args[i].kind == ANYACCEL_ARG_PLACE) {
            taken[i].pointer = npu_pointer(driver, args[i].data.place.place);
            taken[i].len = args[i].data.place.len;
            continue;
        }
        taken[i].pointer = value;
        taken[i].len = value_len(&args[i]);
        if (args[i].kind == ANYACCEL_ARG_BYTES) {
            memcpy(value, args[i].data.bytes.data, args[i].data.bytes.len);
        }
        value += (taken[i].len + 15) / 16 * 16; /* group-local memory: groups run in turn and share it */
    }
    return taken;
}

uint32_t npu_launch(anyaccel_device *device, anyaccel_stream stream, anyaccel_kernel handle, const anyaccel_launch *launch,
                    const anyaccel_arg *args, size_t arg_count, anyaccel_fault *fault)
{
    uint64_t threads = 1, local = launch->shared;
    for (int axis = 0; axis < 3; axis++) {
        threads *= launch->threads[axis] <= MAX_THREADS ? launch->threads[axis] : MAX_THREADS + 1;
        if (launch->groups[axis] == 0 || launch->threads[axis] == 0 || launch->groups[axis] > MAX_GROUPS) {
            return anyaccel_fail(fault, ANYACCEL_INVALID, "launch", 0, "no groups, no threads, or too many groups");
        }
    }
    for (size_t i = 0; i < arg_count; i++) {
        local += args[i].kind == ANYACCEL_ARG_LOCAL ? args[i].data.local : 0;
    }
    if (threads > MAX_THREADS || local > MAX_SHARED) {
        return anyaccel_fail(fault, ANYACCEL_INVALID, "launch", 0, "too many threads, or too much group-local memory");
    }
    struct op op = {.kind = OP_LAUNCH, .launch = *launch, .arg_count = arg_count};
    op.args = take_args(device->driver, args, arg_count);
    if (op.args == NULL) {
        return npu_no_memory(fault, "launch");
    }
    pthread_mutex_lock(&device->driver->lock);
    op.kernel = (struct kernel *)npu_find(device->driver, handle);
    pthread_mutex_unlock(&device->driver->lock);
    uint32_t result = npu_enqueue(device, stream, op, "launch", fault);
    if (result != ANYACCEL_OK) {
        free(op.args);
    }
    return result;
}

void npu_run(struct op *op)
{
    const anyaccel_launch *launch = &op->launch;
    anyaccel_work_group group = {.shared = launch->shared};
    memcpy(group.groups, launch->groups, sizeof group.groups);
    memcpy(group.threads, launch->threads, sizeof group.threads);
    uint64_t plane = (uint64_t)launch->groups[0] * launch->groups[1];
    for (uint64_t at = 0; at < plane * launch->groups[2]; at++) {
        group.index[0] = (uint32_t)(at % launch->groups[0]);
        group.index[1] = (uint32_t)(at % plane / launch->groups[0]);
        group.index[2] = (uint32_t)(at / plane);
        op->kernel->function.call(op->kernel->function.data, &group, op->args, op->arg_count);
    }
    free(op->args);
}
