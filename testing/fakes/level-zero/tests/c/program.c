/* Uses the driver as any program in C would, through whichever loader it is linked with: memory, copies, events, a kernel. */
#include "try.h"

int main(int count, char **args) {
    /* A second argument: the loader loses logs, see below. */
    CHECK(count == 2 || count == 3);
    static uint8_t code[65536];
    FILE *file = fopen(args[1], "rb");
    CHECK(file);
    size_t size = fread(code, 1, sizeof code, file);
    fclose(file);

    TRY(zeInit(0));
    uint32_t drivers = 1;
    ze_driver_handle_t driver;
    TRY(zeDriverGet(&drivers, &driver));
    uint32_t devices = 0;
    TRY(zeDeviceGet(driver, &devices, NULL));
    CHECK(devices == 2);
    ze_device_handle_t device[2];
    TRY(zeDeviceGet(driver, &devices, device));
    ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    TRY(zeDeviceGetProperties(device[0], &properties));
    CHECK(properties.type == ZE_DEVICE_TYPE_GPU && !strcmp(properties.name, "Fake XPU"));
    CHECK(properties.timerResolution == 52);

    ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t context;
    TRY(zeContextCreate(driver, &context_desc, &context));
    ze_device_mem_alloc_desc_t device_desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t host_desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void *there, *peer;
    uint32_t *here;
    TRY(zeMemAllocDevice(context, &device_desc, 4096, 64, device[0], &there));
    TRY(zeMemAllocDevice(context, &device_desc, 4096, 64, device[1], &peer));
    TRY(zeMemAllocHost(context, &host_desc, 4096, 64, (void **)&here));
    ze_memory_allocation_properties_t kind = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t owner;
    TRY(zeMemGetAllocProperties(context, (char *)there + 100, &kind, &owner));
    CHECK(kind.type == ZE_MEMORY_TYPE_DEVICE && owner == device[0]);
    void *much;
    CHECK(zeMemAllocDevice(context, &device_desc, (size_t)1 << 40, 0, device[0], &much) ==
          ZE_RESULT_ERROR_UNSUPPORTED_SIZE);

    ze_event_pool_desc_t pool_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                      .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
                                      .count = 4};
    ze_event_pool_handle_t pool;
    TRY(zeEventPoolCreate(context, &pool_desc, 0, NULL, &pool));
    ze_event_handle_t event[4];
    for (uint32_t i = 0; i < 4; i++) {
        ze_event_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC, .index = i, .signal = ZE_EVENT_SCOPE_FLAG_HOST};
        TRY(zeEventCreate(pool, &desc, &event[i]));
    }

    ze_module_desc_t module_desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                                    .format = ZE_MODULE_FORMAT_IL_SPIRV,
                                    .inputSize = size,
                                    .pInputModule = code};
    ze_module_handle_t module;
    TRY(zeModuleCreate(context, device[0], &module_desc, &module, NULL));
    ze_kernel_desc_t kernel_desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = "increment"};
    ze_kernel_handle_t kernel;
    TRY(zeKernelCreate(module, &kernel_desc, &kernel));
    uint32_t words = 1024;
    TRY(zeKernelSetGroupSize(kernel, 64, 1, 1));
    TRY(zeKernelSetArgumentValue(kernel, 0, sizeof there, &there));
    TRY(zeKernelSetArgumentValue(kernel, 1, sizeof words, &words));
    CHECK(zeKernelSetArgumentValue(kernel, 1, 8, &there) == ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
    CHECK(zeKernelSetArgumentValue(kernel, 2, 4, &words) == ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);

    ze_command_queue_desc_t queue_desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                          .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    ze_command_list_handle_t list;
    TRY(zeCommandListCreateImmediate(context, device[0], &queue_desc, &list));
    uint32_t seven = 7;
    /* Held back until the host says so. */
    TRY(zeCommandListAppendMemoryFill(list, there, &seven, sizeof seven, 4096, event[1], 1, &event[0]));
    ze_group_count_t groups = {16, 1, 1};
    TRY(zeCommandListAppendLaunchKernel(list, kernel, &groups, event[2], 1, &event[1]));
    TRY(zeCommandListAppendBarrier(list, NULL, 0, NULL));
    TRY(zeCommandListAppendMemoryCopy(list, peer, there, 4096, NULL, 0, NULL));
    TRY(zeCommandListAppendBarrier(list, NULL, 0, NULL));
    TRY(zeCommandListAppendMemoryCopy(list, here, peer, 4096, event[3], 0, NULL));
    CHECK(zeEventQueryStatus(event[3]) == ZE_RESULT_NOT_READY);
    CHECK(zeEventHostSynchronize(event[3], 1000000) == ZE_RESULT_NOT_READY);
    CHECK(zeCommandListDestroy(list) == ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    TRY(zeEventHostSignal(event[0]));
    TRY(zeEventHostSynchronize(event[3], UINT64_MAX));
    for (uint32_t i = 0; i < 1024; i++)
        CHECK(here[i] == 8);
    ze_kernel_timestamp_result_t first, second;
    TRY(zeEventQueryKernelTimestamp(event[1], &first));
    TRY(zeEventQueryKernelTimestamp(event[2], &second));
    CHECK(first.global.kernelStart <= first.global.kernelEnd && first.global.kernelEnd <= second.global.kernelStart);

    /* The same with a queue, which begins again. */
    ze_command_queue_handle_t queue;
    TRY(zeCommandQueueCreate(context, device[0], &queue_desc, &queue));
    ze_command_list_desc_t list_desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC};
    ze_command_list_handle_t regular;
    TRY(zeCommandListCreate(context, device[0], &list_desc, &regular));
    TRY(zeCommandListAppendLaunchKernel(regular, kernel, &groups, NULL, 0, NULL));
    TRY(zeCommandListAppendBarrier(regular, NULL, 0, NULL));
    TRY(zeCommandListAppendMemoryCopy(regular, here, there, 4096, NULL, 0, NULL));
    TRY(zeCommandListClose(regular));
    ze_fence_desc_t fence_desc = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC};
    ze_fence_handle_t fence;
    TRY(zeFenceCreate(queue, &fence_desc, &fence));
    for (uint32_t round = 0; round < 3; round++) {
        TRY(zeCommandQueueExecuteCommandLists(queue, 1, &regular, fence));
        TRY(zeFenceHostSynchronize(fence, UINT64_MAX));
        TRY(zeFenceReset(fence));
        for (uint32_t i = 0; i < 1024; i++)
            CHECK(here[i] == 9 + round);
    }

    /* A module that is none. With several drivers a loader of 1.8 hands out its log unwrapped, and crashes when it is read. */
    code[0] ^= 1;
    ze_module_build_log_handle_t log;
    ze_module_handle_t bad;
    CHECK(zeModuleCreate(context, device[0], &module_desc, &bad, count == 3 ? NULL : &log) ==
          ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    if (count == 2) {
        char text[256];
        size_t room = sizeof text;
        TRY(zeModuleBuildLogGetString(log, &room, text));
        CHECK(strstr(text, "error"));
        TRY(zeModuleBuildLogDestroy(log));
    }

    CHECK(zeEventPoolDestroy(pool) == ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    for (uint32_t i = 0; i < 4; i++)
        TRY(zeEventDestroy(event[i]));
    TRY(zeEventPoolDestroy(pool));
    TRY(zeFenceDestroy(fence));
    TRY(zeCommandListDestroy(regular));
    TRY(zeCommandQueueDestroy(queue));
    TRY(zeCommandListDestroy(list));
    TRY(zeKernelDestroy(kernel));
    TRY(zeModuleDestroy(module));
    TRY(zeMemFree(context, there));
    TRY(zeMemFree(context, peer));
    CHECK(zeContextDestroy(context) == ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    TRY(zeMemFree(context, here));
    TRY(zeContextDestroy(context));
    puts("good");
    return 0;
}
