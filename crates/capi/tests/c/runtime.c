/* The runtime and its devices. Two host devices. */
#include "check.h"

int main(void) {
    CHECK(anyaccel_api_version() >> 16 == ANYACCEL_API_MAJOR);
    CHECK((anyaccel_api_version() & 0xffff) == ANYACCEL_API_MINOR);
    CHECK(strcmp(anyaccel_result_name(ANYACCEL_ERROR_FORKED), "ANYACCEL_ERROR_FORKED") == 0);
    CHECK(strcmp(anyaccel_result_name(-7), "unknown") == 0);
    CHECK(anyaccel_last_error(NULL, 0) == 0);

    /* Asking starts nothing. */
    int32_t count = -1;
    OK(anyaccel_device_count(&count));
    CHECK(count == 2);
    struct text kind = {0};
    OK(anyaccel_kind(append, &kind));
    CHECK(strcmp(kind.bytes, getenv("ANYACCEL_BACKEND")) == 0);
    int32_t device = -1;
    OK(anyaccel_current_device(&device));
    CHECK(device == 0 && !anyaccel_is_started());
    OK(anyaccel_synchronize_device(1));
    OK(anyaccel_set_device(-3));
    OK(anyaccel_set_memory_budget(0, UINT64_MAX));
    CHECK(!anyaccel_is_started());
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_synchronize_device(2));

    OK(anyaccel_init());
    OK(anyaccel_init());
    CHECK(anyaccel_is_started());

    OK(anyaccel_set_device(1));
    OK(anyaccel_current_device(&device));
    CHECK(device == 1);
    int32_t before = -1;
    OK(anyaccel_exchange_device(0, &before));
    CHECK(before == 1);
    OK(anyaccel_exchange_device(-1, &before));
    CHECK(before == 0);
    OK(anyaccel_exchange_device(0, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "2 devices, with indices 0 to 1", anyaccel_set_device(2));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_exchange_device(100, &before));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "device: NULL", anyaccel_current_device(NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "count: NULL", anyaccel_device_count(NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "write: NULL", anyaccel_kind(NULL, NULL));

    anyaccel_device_info info = {.struct_size = sizeof info};
    OK(anyaccel_get_device_info(HERE, &info));
    CHECK(info.struct_size == sizeof info && info.name[0] != 0 && info.memory > 0 && info.alignment > 0);
    CHECK(info.dtypes >> 6 & 1); /* float32 */
    CHECK(info.greatest_priority <= info.least_priority);
    bool host = strcmp(kind.bytes, "host") == 0;
    CHECK(((info.flags & ANYACCEL_DEVICE_HOST_ADDRESSABLE) != 0) == host);
    uint64_t dtypes = 0;
    OK(anyaccel_device_capability(1, &dtypes));
    CHECK(dtypes == info.dtypes);
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "dtypes: NULL", anyaccel_device_capability(0, NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "info: NULL", anyaccel_get_device_info(0, NULL));
    info.struct_size = 8;
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "struct_size is 8", anyaccel_get_device_info(0, &info));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", (info.struct_size = sizeof info, anyaccel_get_device_info(7, &info)));

    /* A struct of a later minor: what this library does not know becomes 0. */
    struct {
        anyaccel_device_info known;
        uint64_t later[2];
    } grown;
    memset(&grown, 0xee, sizeof grown);
    grown.known.struct_size = sizeof grown;
    OK(anyaccel_get_device_info(0, &grown.known));
    CHECK(grown.known.struct_size == sizeof grown && grown.later[0] == 0 && grown.later[1] == 0);

    bool can = true;
    OK(anyaccel_can_access_peer(0, 0, &can));
    CHECK(!can);
    OK(anyaccel_can_access_peer(0, 1, &can));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "not negative", anyaccel_can_access_peer(-1, 0, &can));

    uint64_t free_bytes = 0, total = 0;
    OK(anyaccel_memory_info(HERE, &free_bytes, &total));
    CHECK(total > 0 && free_bytes <= total);
    OK(anyaccel_memory_info(0, NULL, NULL));

    /* The message is cut, terminated, and its whole length told. */
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "out of range", anyaccel_set_device(9));
    char tiny[6];
    memset(tiny, 'x', sizeof tiny);
    size_t whole = anyaccel_last_error(tiny, sizeof tiny);
    CHECK(whole > 20 && strlen(tiny) == 5 && strncmp(message(), tiny, 5) == 0);
    CHECK(anyaccel_last_error(NULL, 0) == whole);

    REFUSED(ANYACCEL_ERROR_SETTINGS, "/nowhere/libnone.so", anyaccel_load_plugin("/nowhere/libnone.so"));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "path: NULL", anyaccel_load_plugin(NULL));
    REFUSED(ANYACCEL_ERROR_ARGUMENT, "UTF-8", anyaccel_load_plugin("/\xff"));
    free(kind.bytes);
    return 0;
}
