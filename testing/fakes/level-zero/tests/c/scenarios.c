/* What the fake is to do where a backend leans on it, one scenario a run, through a loader of its own. */
#include "try.h"
#include <level_zero/zes_api.h>
#include <sys/wait.h>
#include <unistd.h>

/* Newer than the header, or the fake's own. */
ze_result_t zesInit(uint32_t flags);
ze_result_t zesDriverGet(uint32_t *count, zes_driver_handle_t *drivers);
ze_result_t zesDeviceGet(zes_driver_handle_t driver, uint32_t *count, zes_device_handle_t *devices);
ze_result_t zeCommandListHostSynchronize(ze_command_list_handle_t list, uint64_t timeout);
ze_result_t zeDeviceGetRootDevice(ze_device_handle_t device, ze_device_handle_t *root);
ze_result_t zeInitDrivers(uint32_t *count, ze_driver_handle_t *drivers, const void *desc);
ze_result_t zeCommandListImmediateAppendCommandListsExp(ze_command_list_handle_t list, uint32_t count,
                                                        ze_command_list_handle_t *lists, ze_event_handle_t signal,
                                                        uint32_t waits, ze_event_handle_t *events);
void anyaccel_fake_ze_lose(uint32_t place);
void anyaccel_fake_ze_heal(void);
void anyaccel_fake_ze_fail(const char *name, uint32_t nth, uint32_t code);

enum { IN_ORDER = 2, PAGE = 4096, LARGE = 2 << 20 };

static ze_driver_handle_t driver;
static ze_device_handle_t device[8];
static uint32_t devices = 8;
static ze_context_handle_t context;
static ze_event_pool_handle_t pool;
static uint32_t events;
static const char *module_path;

static void start(void) {
    TRY(zeInit(0));
    uint32_t one = 1;
    TRY(zeDriverGet(&one, &driver));
    TRY(zeDeviceGet(driver, &devices, device));
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    TRY(zeContextCreate(driver, &desc, &context));
    ze_event_pool_desc_t pool_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                      .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
                                      .count = 64};
    TRY(zeEventPoolCreate(context, &pool_desc, 0, NULL, &pool));
}

static ze_event_handle_t event(void) {
    ze_event_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC, .index = events++};
    ze_event_handle_t event;
    TRY(zeEventCreate(pool, &desc, &event));
    return event;
}

static ze_result_t make_list(uint32_t flags, ze_command_list_handle_t *list) {
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .flags = flags,
                                    .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    return zeCommandListCreateImmediate(context, device[0], &desc, list);
}

static ze_command_list_handle_t list(uint32_t flags) {
    ze_command_list_handle_t list;
    TRY(make_list(flags, &list));
    return list;
}

static ze_result_t alloc(size_t size, void *out) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    return zeMemAllocDevice(context, &desc, size, 0, device[0], out);
}

static void *host(size_t size) {
    ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void *at;
    TRY(zeMemAllocHost(context, &desc, size, 0, &at));
    return at;
}

static void fill(ze_command_list_handle_t on, void *at, uint8_t byte) {
    TRY(zeCommandListAppendMemoryFill(on, at, &byte, 1, PAGE, NULL, 0, NULL));
}

static ze_kernel_handle_t kernel(const char *name) {
    static uint8_t code[65536];
    FILE *file = fopen(module_path, "rb");
    CHECK(file);
    size_t size = fread(code, 1, sizeof code, file);
    fclose(file);
    ze_module_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC, .inputSize = size, .pInputModule = code};
    ze_module_handle_t module;
    TRY(zeModuleCreate(context, device[0], &desc, &module, NULL));
    ze_kernel_desc_t kernel_desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = name};
    ze_kernel_handle_t kernel;
    TRY(zeKernelCreate(module, &kernel_desc, &kernel));
    return kernel;
}

static void in_child(void (*what)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        what();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Devices and memory through Sysman alone. */
static void count_cards(void) {
    TRY(zesInit(0));
    uint32_t one = 1, cards = 8;
    zes_driver_handle_t driver;
    zes_device_handle_t card[8];
    TRY(zesDriverGet(&one, &driver));
    TRY(zesDeviceGet(driver, &cards, card));
    CHECK(cards == 2);
    zes_device_properties_t properties = {.stype = ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    TRY(zesDeviceGetProperties(card[1], &properties));
    CHECK(!strcmp(properties.core.name, "Fake XPU") && properties.core.uuid.id[2] == 0x21);
    uint32_t modules = 1;
    zes_mem_handle_t module;
    TRY(zesDeviceEnumMemoryModules(card[0], &modules, &module));
    zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};
    TRY(zesMemoryGetState(module, &state));
    CHECK(modules == 1 && state.free == state.size && state.size == 1 << 30);
    uint32_t engines = 8;
    zes_engine_handle_t engine[8];
    TRY(zesDeviceEnumEngineGroups(card[0], &engines, engine));
    zes_engine_stats_t before, after;
    TRY(zesEngineGetActivity(engine[0], &before));
    TRY(zesEngineGetActivity(engine[0], &after));
    CHECK(engines == 3 && after.timestamp >= before.timestamp && after.activeTime >= before.activeTime);
    double celsius;
    uint32_t sensors = 1;
    zes_temp_handle_t sensor;
    TRY(zesDeviceEnumTemperatureSensors(card[0], &sensors, &sensor));
    TRY(zesTemperatureGetState(sensor, &celsius));
    CHECK(celsius > 0 && celsius < 100);
}

static void sysman(void) {
    count_cards();
    in_child(count_cards);
}

/* The runtime may start in a child whose parent only counted. */
static void sysman_then_start(void) {
    count_cards();
    in_child(start);
    start();
    count_cards();
}

static void old_sysman(void) {
    start();
    zes_device_handle_t card = (zes_device_handle_t)device[1];
    zes_device_properties_t properties = {.stype = ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    TRY(zesDeviceGetProperties(card, &properties));
    CHECK(properties.core.uuid.id[2] == 0x21);
}

/* Prints the devices. */
static void hierarchy(void) {
    ze_result_t started = zeInit(0);
    if (started != ZE_RESULT_SUCCESS) {
        printf("%x\n", started);
        exit(0);
    }
    uint32_t one = 1;
    TRY(zeDriverGet(&one, &driver));
    TRY(zeDeviceGet(driver, &devices, device));
    for (uint32_t i = 0; i < devices; i++) {
        ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
        TRY(zeDeviceGetProperties(device[i], &properties));
        uint32_t parts = 0;
        TRY(zeDeviceGetSubDevices(device[i], &parts, NULL));
        ze_device_handle_t root;
        TRY(zeDeviceGetRootDevice(device[i], &root));
        printf("%d.%d flags %x parts %u root %d\n", properties.uuid.id[2] - 0x20, properties.uuid.id[15],
               properties.flags, parts, root != NULL);
    }
    exit(0);
}

/* Which of two fills is the last where nothing orders them, and where something does. */
static uint8_t last_of_two(ze_command_list_handle_t on, int barrier) {
    uint8_t *at;
    TRY(alloc(PAGE, &at));
    ze_event_handle_t held = event();
    TRY(zeCommandListAppendWaitOnEvents(on, 1, &held));
    fill(on, at, 1);
    if (barrier)
        TRY(zeCommandListAppendBarrier(on, NULL, 0, NULL));
    fill(on, at, 2);
    CHECK(zeCommandListHostSynchronize(on, 0) == ZE_RESULT_NOT_READY);
    TRY(zeEventHostSignal(held));
    TRY(zeCommandListHostSynchronize(on, UINT64_MAX));
    return at[PAGE - 1];
}

static void order(void) {
    start();
    CHECK(last_of_two(list(0), 0) == 1);
    CHECK(last_of_two(list(0), 1) == 2);
    CHECK(last_of_two(list(IN_ORDER), 0) == 2);
}

static void old_api(void) {
    start();
    ze_command_list_handle_t list;
    CHECK(make_list(IN_ORDER, &list) == ZE_RESULT_ERROR_INVALID_ENUMERATION);
    TRY(make_list(0, &list));
    ze_api_version_t version;
    TRY(zeDriverGetApiVersion(driver, &version));
    CHECK(version == ZE_API_VERSION_1_4);
}

static void lost(void) {
    start();
    ze_command_list_handle_t on = list(0);
    ze_kernel_handle_t spin = kernel("spin");
    uint32_t long_time = 600000;
    TRY(zeKernelSetArgumentValue(spin, 0, sizeof long_time, &long_time));
    ze_event_handle_t done = event();
    ze_group_count_t groups = {1, 1, 1};
    TRY(zeCommandListAppendLaunchKernel(on, spin, &groups, done, 0, NULL));
    CHECK(zeEventQueryStatus(done) == ZE_RESULT_NOT_READY);
    CHECK(zeEventDestroy(done) == ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    anyaccel_fake_ze_lose(0);
    CHECK(zeEventHostSynchronize(done, UINT64_MAX) == ZE_RESULT_ERROR_DEVICE_LOST);
    CHECK(zeEventQueryStatus(done) == ZE_RESULT_ERROR_DEVICE_LOST);
    CHECK(zeCommandListHostSynchronize(on, UINT64_MAX) == ZE_RESULT_ERROR_DEVICE_LOST);
    CHECK(zeDeviceGetStatus(device[0]) == ZE_RESULT_ERROR_DEVICE_LOST);
    CHECK(zeContextGetStatus(context) == ZE_RESULT_ERROR_DEVICE_LOST);
    TRY(zeDeviceGetStatus(device[1]));
    void *at;
    CHECK(alloc(PAGE, &at) == ZE_RESULT_ERROR_DEVICE_LOST);
    anyaccel_fake_ze_heal();
    TRY(alloc(PAGE, &at));
    ze_event_handle_t again = event();
    uint8_t byte = 1;
    TRY(zeCommandListAppendMemoryFill(on, at, &byte, 1, PAGE, again, 0, NULL));
    TRY(zeEventHostSynchronize(again, UINT64_MAX));
    /* A kernel that touches what is none loses the device as well. */
    TRY(zeKernelSetArgumentValue(kernel("spin"), 0, sizeof long_time, &long_time));
    ze_kernel_handle_t increment = kernel("increment");
    void *nowhere = (void *)0x1000;
    uint32_t words = 16;
    TRY(zeKernelSetGroupSize(increment, 16, 1, 1));
    TRY(zeKernelSetArgumentValue(increment, 0, sizeof nowhere, &nowhere));
    TRY(zeKernelSetArgumentValue(increment, 1, sizeof words, &words));
    TRY(zeCommandListAppendLaunchKernel(on, increment, &groups, NULL, 0, NULL));
    CHECK(zeCommandListHostSynchronize(on, UINT64_MAX) == ZE_RESULT_ERROR_DEVICE_LOST);
    anyaccel_fake_ze_heal();
}

static void call_in_child(void) {
    CHECK(zeInit(0) == ZE_RESULT_ERROR_UNINITIALIZED);
    CHECK(zeDeviceGet(driver, &devices, NULL) == ZE_RESULT_ERROR_UNINITIALIZED);
}

static void forked(void) {
    CHECK(zeDriverGet(&devices, NULL) == ZE_RESULT_ERROR_UNINITIALIZED);
    devices = 8;
    start();
    in_child(call_in_child);
    TRY(zeDeviceGet(driver, &devices, device));
}

static void limits(void) {
    start();
    void *first, *second;
    TRY(alloc(24 << 20, &first));
    CHECK(alloc(24 << 20, &second) == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK(alloc(0, &second) == ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    TRY(zeMemFree(context, first));
    TRY(alloc(24 << 20, &second));
    CHECK(zeMemFree(context, (char *)second + 1) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
    ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    CHECK(zeMemAllocHost(context, &desc, 24 << 20, 0, &first) == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    CHECK(zeMemAllocHost(context, &desc, 64, 3, &first) == ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    TRY(zeMemAllocHost(context, &desc, 64, LARGE, &first));
    CHECK((uintptr_t)first % LARGE == 0);
    /* A copy must end where the memory does. */
    ze_command_list_handle_t on = list(0);
    CHECK(zeCommandListAppendMemoryCopy(on, first, second, PAGE + 1, NULL, 0, NULL) ==
          ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

static void failures(void) {
    start();
    void *at;
    anyaccel_fake_ze_fail("zeMemAllocDevice", 2, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    TRY(alloc(PAGE, &at));
    CHECK(alloc(PAGE, &at) == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    TRY(alloc(PAGE, &at));
    /* The second one of this name was ordered by the variable. */
    TRY(zeDeviceGetStatus(device[0]));
    CHECK(zeDeviceGetStatus(device[0]) == ZE_RESULT_ERROR_DEVICE_LOST);
    TRY(zeDeviceGetStatus(device[0]));
    CHECK(zeContextGetStatus(context) == ZE_RESULT_ERROR_UNKNOWN);
    CHECK(zeContextGetStatus(context) == ZE_RESULT_ERROR_UNKNOWN);
}

static void addresses(void) {
    start();
    size_t page;
    TRY(zeVirtualMemQueryPageSize(context, device[0], LARGE, &page));
    CHECK(page == LARGE);
    uint8_t *at;
    TRY(zeVirtualMemReserve(context, NULL, 4 * page, (void **)&at));
    CHECK((uintptr_t)at % page == 0);
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = page};
    ze_physical_mem_handle_t piece[2];
    ze_command_list_handle_t on = list(IN_ORDER);
    for (int i = 0; i < 2; i++) {
        TRY(zePhysicalMemCreate(context, device[0], &desc, &piece[i]));
        TRY(zeVirtualMemMap(context, at + i * page, page, piece[i], 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    }
    uint8_t byte = 5;
    /* Neighbours are one. */
    TRY(zeCommandListAppendMemoryFill(on, at, &byte, 1, 2 * page, NULL, 0, NULL));
    TRY(zeCommandListHostSynchronize(on, UINT64_MAX));
    CHECK(at[0] == 5 && at[2 * page - 1] == 5);
    CHECK(zeCommandListAppendMemoryFill(on, at, &byte, 1, 2 * page + 1, NULL, 0, NULL) ==
          ZE_RESULT_ERROR_INVALID_ARGUMENT);
    CHECK(zeVirtualMemFree(context, at, 4 * page) == ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    TRY(zeVirtualMemSetAccessAttribute(context, at, page, ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY));
    ze_memory_access_attribute_t access;
    size_t length;
    TRY(zeVirtualMemGetAccessAttribute(context, at, page, &access, &length));
    CHECK(access == ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY && length == page);
    CHECK(zeCommandListAppendMemoryFill(on, at, &byte, 1, 1, NULL, 0, NULL) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
    /* What was there is still there at another address. */
    TRY(zeVirtualMemUnmap(context, at, page));
    TRY(zeVirtualMemMap(context, at + 3 * page, page, piece[0], 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    CHECK(at[3 * page] == 5);
    TRY(zeVirtualMemUnmap(context, at + 3 * page, page));
    TRY(zeVirtualMemUnmap(context, at + page, page));
    for (int i = 0; i < 2; i++)
        TRY(zePhysicalMemDestroy(context, piece[i]));
    TRY(zeVirtualMemFree(context, at, 4 * page));
}

typedef ze_result_t (*begin_t)(ze_command_list_handle_t, const void *);
typedef ze_result_t (*end_t)(ze_command_list_handle_t, const void *, void **);
typedef ze_result_t (*instantiate_t)(void *, const void *, void **);
typedef ze_result_t (*append_t)(ze_command_list_handle_t, void *, const void *, ze_event_handle_t, uint32_t,
                                ze_event_handle_t *);
typedef ze_result_t (*destroy_t)(void *);

static void *extension(const char *name) {
    void *address;
    TRY(zeDriverGetExtensionFunctionAddress(driver, name, &address));
    return address;
}

static void graphs(void) {
    start();
    begin_t begin = (begin_t)extension("zeCommandListBeginGraphCaptureExt");
    end_t end = (end_t)extension("zeCommandListEndGraphCaptureExt");
    instantiate_t instantiate = (instantiate_t)extension("zeGraphInstantiateExt");
    append_t append = (append_t)extension("zeCommandListAppendGraphExt");
    destroy_t destroy = (destroy_t)extension("zeGraphDestroyExt");
    destroy_t destroy_executable = (destroy_t)extension("zeExecutableGraphDestroyExt");
    ze_command_list_handle_t on = list(IN_ORDER), other = list(IN_ORDER);
    ze_kernel_handle_t increment = kernel("increment");
    uint32_t *at, words = 16;
    TRY(alloc(PAGE, &at));
    fill(on, at, 0);
    TRY(zeCommandListHostSynchronize(on, UINT64_MAX));
    TRY(zeKernelSetGroupSize(increment, 16, 1, 1));
    TRY(zeKernelSetArgumentValue(increment, 0, sizeof at, &at));
    TRY(zeKernelSetArgumentValue(increment, 1, sizeof words, &words));
    ze_group_count_t groups = {1, 1, 1};
    ze_event_handle_t away = event(), back = event();

    /* Two lists: the second joins by an event, and comes back by one. */
    TRY(begin(on, NULL));
    TRY(zeCommandListAppendLaunchKernel(on, increment, &groups, away, 0, NULL));
    TRY(zeCommandListAppendLaunchKernel(other, increment, &groups, back, 1, &away));
    TRY(zeCommandListAppendWaitOnEvents(on, 1, &back));
    void *graph, *executable;
    TRY(end(on, NULL, &graph));
    CHECK(at[0] == 0);
    TRY(instantiate(graph, NULL, &executable));
    TRY(destroy(graph));
    for (int round = 0; round < 3; round++)
        TRY(append(on, executable, NULL, NULL, 0, NULL));
    TRY(zeCommandListHostSynchronize(on, UINT64_MAX));
    CHECK(at[0] == 6 && at[15] == 6 && at[16] == 0);
    TRY(destroy_executable(executable));

    /* A list that does not come back spoils the graph. */
    ze_event_handle_t once = event();
    TRY(begin(on, NULL));
    TRY(zeCommandListAppendLaunchKernel(on, increment, &groups, once, 0, NULL));
    TRY(zeCommandListAppendLaunchKernel(other, increment, &groups, NULL, 1, &once));
    CHECK(end(on, NULL, &graph) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
    /* And both lists work as before. */
    TRY(zeCommandListAppendLaunchKernel(other, increment, &groups, NULL, 0, NULL));
    TRY(zeCommandListHostSynchronize(other, UINT64_MAX));
    CHECK(at[0] == 7);
}

/* The timer was set to come round at once. */
static void timer(void) {
    start();
    ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2};
    TRY(zeDeviceGetProperties(device[0], &properties));
    CHECK(properties.timerResolution == 1000000000 && properties.kernelTimestampValidBits == 20);
    ze_command_list_handle_t on = list(0);
    ze_kernel_handle_t spin = kernel("spin");
    uint32_t millis = 3;
    TRY(zeKernelSetArgumentValue(spin, 0, sizeof millis, &millis));
    ze_group_count_t groups = {1, 1, 1};
    ze_event_handle_t done = event();
    TRY(zeCommandListAppendLaunchKernel(on, spin, &groups, done, 0, NULL));
    TRY(zeEventHostSynchronize(done, UINT64_MAX));
    ze_kernel_timestamp_result_t times;
    TRY(zeEventQueryKernelTimestamp(done, &times));
    CHECK(times.global.kernelStart < 1 << 20 && times.global.kernelEnd < 1 << 20);
    uint64_t host_time, ticks;
    TRY(zeDeviceGetGlobalTimestamps(device[0], &host_time, &ticks));
    CHECK(ticks < 1ul << 40);
}

typedef ze_result_t (*host_function_t)(ze_command_list_handle_t, void (*)(void *), void *, const void *,
                                       ze_event_handle_t, uint32_t, ze_event_handle_t *);

static void add_one(void *at) {
    *(int *)at += 1;
}

static void host_functions(void) {
    start();
    host_function_t append = (host_function_t)extension("zeCommandListAppendHostFunction");
    ze_command_list_handle_t on = list(IN_ORDER);
    int calls = 0;
    for (int i = 0; i < 10; i++)
        TRY(append(on, add_one, &calls, NULL, NULL, 0, NULL));
    TRY(zeCommandListHostSynchronize(on, UINT64_MAX));
    CHECK(calls == 10);
}

/* Cards that don't reach each other. */
static void alone(void) {
    start();
    ze_bool_t can;
    TRY(zeDeviceCanAccessPeer(device[0], device[1], &can));
    CHECK(!can);
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *there, *here = host(PAGE);
    TRY(zeMemAllocDevice(context, &desc, PAGE, 0, device[1], &there));
    CHECK(zeCommandListAppendMemoryCopy(list(0), here, there, PAGE, NULL, 0, NULL) ==
          ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

/* The newer way to start. */
static void drivers(void) {
    struct {
        uint32_t stype;
        const void *pNext;
        uint32_t flags;
    } desc = {0x00020021, NULL, 2};
    uint32_t count = 0;
    CHECK(zeInitDrivers(&count, NULL, &desc) == ZE_RESULT_ERROR_UNINITIALIZED);
    desc.flags = 1;
    TRY(zeInitDrivers(&count, NULL, &desc));
    CHECK(count == 1);
    TRY(zeInitDrivers(&count, &driver, &desc));
    TRY(zeDeviceGet(driver, &devices, device));
    CHECK(devices == 2);
}

static void freed_later(void) {
    start();
    ze_command_list_handle_t on = list(IN_ORDER);
    void *there, *here = host(PAGE);
    TRY(alloc(PAGE, &there));
    ze_event_handle_t held = event();
    TRY(zeCommandListAppendMemoryCopy(on, here, there, PAGE, NULL, 1, &held));
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                      .freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE};
    TRY(zeMemFreeExt(context, &desc, there));
    ze_memory_allocation_properties_t kind = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    TRY(zeMemGetAllocProperties(context, there, &kind, NULL));
    CHECK(kind.type == ZE_MEMORY_TYPE_DEVICE);
    TRY(zeEventHostSignal(held));
    TRY(zeCommandListHostSynchronize(on, UINT64_MAX));
    while (kind.type != ZE_MEMORY_TYPE_UNKNOWN)
        TRY(zeMemGetAllocProperties(context, there, &kind, NULL));
    TRY(alloc(PAGE, &there));
    desc.freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE;
    TRY(zeMemFreeExt(context, &desc, there));
    TRY(zeMemGetAllocProperties(context, there, &kind, NULL));
    CHECK(kind.type == ZE_MEMORY_TYPE_UNKNOWN);
}

/* The less common commands. */
static void commands(void) {
    start();
    ze_command_list_handle_t on = list(IN_ORDER);
    uint8_t *at = host(PAGE), *to = host(PAGE);
    for (int i = 0; i < PAGE; i++)
        at[i] = (uint8_t)i;
    /* A box of 3 by 2 by 2 out of rows of 16 and slices of 64. */
    ze_copy_region_t from = {1, 1, 0, 3, 2, 2}, into = {0, 0, 0, 3, 2, 2};
    memset(to, 0, PAGE);
    TRY(zeCommandListAppendMemoryCopyRegion(on, to, &into, 4, 8, at, &from, 16, 64, NULL, 0, NULL));
    TRY(zeCommandListHostSynchronize(on, UINT64_MAX));
    const uint8_t box[] = {17, 18, 19, 0, 33, 34, 35, 0, 81, 82, 83, 0, 97, 98, 99, 0};
    CHECK(!memcmp(to, box, sizeof box));

    ze_kernel_handle_t increment = kernel("increment");
    uint32_t words = 64, *numbers = (uint32_t *)to;
    memset(to, 0, PAGE);
    TRY(zeKernelSetGroupSize(increment, 16, 1, 1));
    TRY(zeKernelSetArgumentValue(increment, 0, sizeof to, &to));
    TRY(zeKernelSetArgumentValue(increment, 1, sizeof words, &words));
    ze_group_count_t *groups = host(sizeof *groups);
    *groups = (ze_group_count_t){2, 1, 1};
    ze_event_handle_t done = event();
    TRY(zeCommandListAppendLaunchKernelIndirect(on, increment, groups, done, 0, NULL));
    ze_kernel_timestamp_result_t *times = host(sizeof *times);
    TRY(zeCommandListAppendQueryKernelTimestamps(on, 1, &done, times, NULL, NULL, 0, NULL));
    uint64_t *time = host(sizeof *time);
    TRY(zeCommandListAppendWriteGlobalTimestamp(on, time, NULL, 0, NULL));
    TRY(zeCommandListAppendEventReset(on, done));
    TRY(zeCommandListHostSynchronize(on, UINT64_MAX));
    CHECK(numbers[31] == 1 && numbers[32] == 0);
    CHECK(times->global.kernelStart <= times->global.kernelEnd && times->global.kernelEnd <= *time);
    CHECK(zeEventQueryStatus(done) == ZE_RESULT_NOT_READY);

    /* A list that is closed, run in an immediate one, twice. */
    ze_command_list_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC};
    ze_command_list_handle_t regular;
    TRY(zeCommandListCreate(context, device[0], &desc, &regular));
    ze_group_count_t one = {1, 1, 1};
    TRY(zeCommandListAppendLaunchKernel(regular, increment, &one, NULL, 0, NULL));
    CHECK(zeCommandListImmediateAppendCommandListsExp(on, 1, &regular, NULL, 0, NULL) ==
          ZE_RESULT_ERROR_INVALID_ARGUMENT);
    TRY(zeCommandListClose(regular));
    for (int round = 0; round < 2; round++)
        TRY(zeCommandListImmediateAppendCommandListsExp(on, 1, &regular, round ? done : NULL, 0, NULL));
    TRY(zeEventHostSynchronize(done, UINT64_MAX));
    CHECK(numbers[15] == 3 && numbers[16] == 1);
    TRY(zeCommandListReset(regular));
    TRY(zeCommandListAppendBarrier(regular, NULL, 0, NULL));

    /* A list that only copies takes no kernels, and only bytes to fill with. */
    ze_command_queue_desc_t copying = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                       .ordinal = 1,
                                       .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    ze_command_list_handle_t copies;
    TRY(zeCommandListCreateImmediate(context, device[0], &copying, &copies));
    CHECK(zeCommandListAppendLaunchKernel(copies, increment, &one, NULL, 0, NULL) ==
          ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
    CHECK(zeCommandListAppendMemoryFill(copies, to, at, 4, PAGE, NULL, 0, NULL) == ZE_RESULT_ERROR_INVALID_SIZE);
    /* It waits for what is appended. */
    TRY(zeCommandListAppendMemoryFill(copies, to, at + 5, 1, PAGE, NULL, 0, NULL));
    CHECK(to[PAGE - 1] == 5);
}

int main(int count, char **args) {
    CHECK(count == 3);
    module_path = args[1];
    const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"sysman", sysman},       {"sysman_then_start", sysman_then_start},
               {"old_sysman", old_sysman}, {"hierarchy", hierarchy},
               {"order", order},         {"old_api", old_api},
               {"lost", lost},           {"forked", forked},
               {"limits", limits},       {"failures", failures},
               {"addresses", addresses}, {"graphs", graphs},
               {"timer", timer},         {"host_functions", host_functions},
               {"alone", alone},         {"drivers", drivers},
               {"freed_later", freed_later}, {"commands", commands}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, args[2])) {
            all[i].run();
            puts("good");
            return 0;
        }
    return 2;
}
