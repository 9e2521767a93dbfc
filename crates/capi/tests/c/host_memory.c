/* Pinned memory by address. Two devices. */
#include "check.h"

static void *freed_inside;
static void free_inside(void *data) {
    (void)data;
    OK(anyaccel_host_free(freed_inside));
}

int main(void) {
    char *pinned = NULL;
    void *nothing = (void *)1, *device;
    OK(anyaccel_host_alloc(HERE, 3000, (void **)&pinned));
    OK(anyaccel_host_alloc(HERE, 0, &nothing));
    CHECK(pinned != NULL && nothing == NULL);
    memset(pinned, 'p', 3000);

    bool yes = false;
    OK(anyaccel_host_is_pinned(pinned + 2999, &yes));
    CHECK(yes);
    OK(anyaccel_host_is_pinned(pinned + 3000, &yes));
    CHECK(!yes);
    OK(anyaccel_host_is_pinned(NULL, &yes));
    CHECK(!yes);
    OK(anyaccel_host_is_pinned(&yes, &yes));
    CHECK(!yes);
    anyaccel_pointer_info info = {.struct_size = sizeof info};
    OK(anyaccel_get_pointer_info(pinned + 10, &info));
    CHECK(info.kind == ANYACCEL_POINTER_PINNED && info.device == 0 && info.base == pinned && info.size == 3000);

    /* Asynchronous, both ways, from the middle; then freed without a wait. */
    OK(anyaccel_alloc(0, 100, NOW, &device));
    OK(anyaccel_copy(device, 0, pinned + 50, ANYACCEL_HOST, 100, NOW, ANYACCEL_COPY_ASYNC));
    OK(anyaccel_memset(device, 'q', 50, NOW));
    OK(anyaccel_copy(pinned + 1000, ANYACCEL_HOST, device, 0, 100, NOW, ANYACCEL_COPY_ASYNC));
    OK(anyaccel_stream_synchronize(NOW));
    CHECK(pinned[999] == 'p' && pinned[1000] == 'q' && pinned[1049] == 'q' && pinned[1050] == 'p');
    OK(anyaccel_host_record_stream(pinned + 7, ANYACCEL_STREAM(0, 0)));
    OK(anyaccel_copy(device, 0, pinned, ANYACCEL_HOST, 100, NOW, ANYACCEL_COPY_ASYNC));

    /* For another device it is memory like any other. */
    void *elsewhere;
    OK(anyaccel_alloc(1, 100, NOW, &elsewhere));
    OK(anyaccel_copy(elsewhere, 1, pinned + 1000, ANYACCEL_HOST, 100, NOW, ANYACCEL_COPY_ASYNC));
    char back[100];
    OK(anyaccel_copy(back, ANYACCEL_HOST, elsewhere, 1, 100, NOW, 0));
    CHECK(back[0] == 'q' && back[99] == 'p');
    REFUSED(ANYACCEL_ERROR_WRONG_DEVICE, "pinned memory", anyaccel_host_record_stream(pinned, ANYACCEL_STREAM(1, 0)));

    REFUSED(ANYACCEL_ERROR_HANDLE, "no live pinned memory", anyaccel_host_free(pinned + 1));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live pinned memory", anyaccel_host_free(device));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live device memory", anyaccel_free(pinned));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live pinned memory", anyaccel_host_record_stream(back, NOW));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "memory: NULL", anyaccel_host_alloc(HERE, 8, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "pinned: NULL", anyaccel_host_is_pinned(pinned, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "", anyaccel_host_alloc(HERE, SIZE_MAX, &nothing));

    OK(anyaccel_host_free(NULL));
    OK(anyaccel_host_free(pinned));
    REFUSED(ANYACCEL_ERROR_HANDLE, "freed already", anyaccel_host_free(pinned));
    OK(anyaccel_host_alloc(HERE, 64, &freed_inside));
    anyaccel_host_function function = {.struct_size = sizeof function, .call = free_inside};
    OK(anyaccel_stream_host_function(NOW, &function));
    OK(anyaccel_synchronize_device(0));

    anyaccel_host_memory_stats stats = {.struct_size = sizeof stats};
    /* Asking makes the marks that tell when the blocks are reusable, which end a little later. */
    int rounds = 0;
    do {
        OK(anyaccel_get_host_memory_stats(0, &stats));
        OK(anyaccel_synchronize_device(0));
    } while (stats.active_requests.current != 0 && ++rounds < 100000);
    CHECK(stats.active_requests.current == 0 && stats.num_host_alloc >= 1);
    OK(anyaccel_empty_host_cache());
    OK(anyaccel_get_host_memory_stats(0, &stats));
    CHECK(stats.allocated_bytes.current == 0);
    OK(anyaccel_free(device));
    OK(anyaccel_free(elsewhere));
    return 0;
}
