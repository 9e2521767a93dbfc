/* Statistics, settings, histories and snapshots. Two devices. */
#include "check.h"
#include <unistd.h>

int main(void) {
    anyaccel_memory_stats stats = {.struct_size = sizeof stats};
    OK(anyaccel_get_memory_stats(0, &stats));
    CHECK(stats.allocated_bytes.all.allocated == 0);
    anyaccel_host_memory_stats host = {.struct_size = sizeof host};
    OK(anyaccel_get_host_memory_stats(0, &host));
    OK(anyaccel_reset_peak_memory_stats(0));
    OK(anyaccel_empty_cache());
    anyaccel_history_options history = {.struct_size = sizeof history, .enabled = ANYACCEL_HISTORY_ALL, .pinned = 1};
    OK(anyaccel_record_memory_history(&history));
    CHECK(!anyaccel_is_started());

    void *memory, *pinned;
    OK(anyaccel_alloc(0, 3 << 20, NOW, &memory));
    OK(anyaccel_host_alloc(0, 100, &pinned));
    OK(anyaccel_get_memory_stats(0, &stats));
    CHECK(stats.allocated_bytes.all.current == 3 << 20 && stats.allocated_bytes.large.current == 3 << 20);
    CHECK(stats.requested_bytes.all.current == 3 << 20 && stats.reserved_bytes.all.current >= 3 << 20);
    CHECK(stats.allocation.all.current == 1 && stats.num_device_alloc == 1 && stats.max_split_size == -1);
    OK(anyaccel_get_host_memory_stats(0, &host));
    CHECK(host.active_requests.current == 1 && host.requested_bytes.current == 100 && host.host_alloc_time.count == 1);

    struct text json = {0}, summary = {0};
    OK(anyaccel_memory_snapshot_json(append, &json));
    CHECK(strstr(json.bytes, "\"segments\":[{") && strstr(json.bytes, "\"state\":\"active_allocated\""));
    CHECK(strstr(json.bytes, "\"action\":\"segment_alloc\"") && strstr(json.bytes, "\"device_traces\":[["));
    OK(anyaccel_memory_summary(0, append, &summary));
    CHECK(strlen(summary.bytes) > 200);
    char path[64];
    snprintf(path, sizeof path, "/tmp/anyaccel-stats-%d.pickle", (int)getpid());
    OK(anyaccel_dump_memory_snapshot(path));
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL && fgetc(file) == 0x80); /* a pickle */
    fclose(file);
    CHECK(remove(path) == 0);
    REFUSED(ANYACCEL_ERROR_STATE, "/nowhere/x", anyaccel_dump_memory_snapshot("/nowhere/x"));

    OK(anyaccel_free(memory));
    OK(anyaccel_reset_peak_memory_stats(0));
    OK(anyaccel_reset_accumulated_memory_stats(0));
    OK(anyaccel_get_memory_stats(0, &stats));
    CHECK(stats.allocated_bytes.all.current == 0 && stats.allocated_bytes.all.peak == 0);
    CHECK(stats.allocated_bytes.all.freed == 0 && stats.reserved_bytes.all.current > 0);
    OK(anyaccel_empty_cache());
    OK(anyaccel_get_memory_stats(0, &stats));
    CHECK(stats.reserved_bytes.all.current == 0);
    OK(anyaccel_reset_peak_host_memory_stats(0));
    OK(anyaccel_reset_accumulated_host_memory_stats(0));
    OK(anyaccel_host_free(pinned));

    history.enabled = ANYACCEL_HISTORY_OFF;
    OK(anyaccel_record_memory_history(&history));
    history.enabled = 7;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "enabled 7", anyaccel_record_memory_history(&history));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "options: NULL", anyaccel_record_memory_history(NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "stats: NULL", anyaccel_get_memory_stats(0, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "stats: NULL", anyaccel_get_host_memory_stats(0, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_get_memory_stats(3, &stats));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_reset_peak_memory_stats(3));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_reset_accumulated_memory_stats(3));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_reset_peak_host_memory_stats(3));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_reset_accumulated_host_memory_stats(3));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "write: NULL", anyaccel_memory_snapshot_json(NULL, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "write: NULL", anyaccel_memory_summary(0, NULL, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "path: NULL", anyaccel_dump_memory_snapshot(NULL));
    OK(anyaccel_set_allocator_settings("max_split_size_mb:64"));
    OK(anyaccel_get_memory_stats(0, &stats));
    CHECK(stats.max_split_size == 64 << 20);
    REFUSED(ANYACCEL_ERROR_SETTINGS, "foo", anyaccel_set_allocator_settings("foo:1"));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "settings: NULL", anyaccel_set_allocator_settings(NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "struct_size is 100", (stats.struct_size = 100, anyaccel_get_memory_stats(0, &stats)));
    free(json.bytes);
    free(summary.bytes);
    return 0;
}
