/* A device whose memory has no addresses, only objects and offsets. */
#include "check.h"

int main(void) {
    void *memory = NULL, *pinned;
    REFUSED(ANYACCEL_ERROR_UNSUPPORTED, "memory by address is not supported on objects:0", anyaccel_alloc(0, 64, NOW, &memory));
    CHECK(memory == NULL);
    anyaccel_memory_stats stats = {.struct_size = sizeof stats};
    OK(anyaccel_get_memory_stats(0, &stats));
    CHECK(stats.allocation.all.current == 0);
    /* What needs none works. */
    OK(anyaccel_host_alloc(0, 64, &pinned));
    OK(anyaccel_host_free(pinned));
    OK(anyaccel_synchronize_device(0));
    return 0;
}
