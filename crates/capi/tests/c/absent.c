/* No device, or no such backend: EXPECT is the code that starting gives. */
#include "check.h"

int main(void) {
    const char *expected = getenv("EXPECT");
    bool unknown = strcmp(expected, "ANYACCEL_ERROR_UNKNOWN_BACKEND") == 0;
    int32_t count = -1;
    anyaccel_result counted = anyaccel_device_count(&count);
    CHECK(count == 0 && counted == (unknown ? ANYACCEL_ERROR_UNKNOWN_BACKEND : ANYACCEL_OK));
    struct text kind = {0};
    anyaccel_result named = anyaccel_kind(append, &kind);
    CHECK(named == counted);
    for (int i = 0; i < 2; i++) CHECK(strcmp(anyaccel_result_name(anyaccel_init()), expected) == 0);
    CHECK(strlen(message()) > 10);
    if (unknown) CHECK(strstr(message(), getenv("ANYACCEL_BACKEND")));
    void *memory;
    CHECK(strcmp(anyaccel_result_name(anyaccel_alloc(HERE, 8, NOW, &memory)), expected) == 0);
    CHECK(!anyaccel_is_started());
    OK(anyaccel_free(NULL));
    REFUSED(ANYACCEL_ERROR_HANDLE, "no live device memory", anyaccel_free(&memory));
    OK(anyaccel_empty_cache());
    bool pinned = true;
    OK(anyaccel_host_is_pinned(&memory, &pinned));
    CHECK(!pinned);
    free(kind.bytes);
    return 0;
}
