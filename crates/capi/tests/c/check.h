/* What the test programs share: a check that fails names its line and what the library said. */
#ifndef CHECK_H
#define CHECK_H

#include <anyaccel/anyaccel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *message(void) {
    static _Thread_local char text[4096];
    anyaccel_last_error(text, sizeof text);
    return text;
}

#define CHECK(what)                                                                        \
    do {                                                                                   \
        if (!(what)) {                                                                     \
            fprintf(stderr, "%s:%d: %s\nlast error: %s\n", __FILE__, __LINE__, #what, message()); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

/* The call succeeds. */
#define OK(call)                                                                           \
    do {                                                                                   \
        anyaccel_result result_ = (call);                                                  \
        if (result_ != ANYACCEL_OK) {                                                      \
            fprintf(stderr, "%s:%d: %s\n%s: %s\n", __FILE__, __LINE__, #call,              \
                    anyaccel_result_name(result_), message());                             \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

/* The call is refused with that code, and the message has those words. */
#define REFUSED(code, words, call)                                                         \
    do {                                                                                   \
        anyaccel_result result_ = (call);                                                  \
        if (result_ != (code) || strstr(message(), (words)) == NULL) {                     \
            fprintf(stderr, "%s:%d: %s\nexpected %s with '%s', got %s: %s\n", __FILE__, __LINE__, #call, \
                    anyaccel_result_name(code), (words), anyaccel_result_name(result_), message()); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

#define NOW ANYACCEL_CURRENT_STREAM
#define HERE ANYACCEL_CURRENT_DEVICE

/* Text that the library writes. */
struct text {
    char *bytes;
    size_t len;
};

static inline void append(void *data, const char *piece, size_t len) {
    struct text *text = data;
    text->bytes = realloc(text->bytes, text->len + len + 1);
    memcpy(text->bytes + text->len, piece, len);
    text->len += len;
    text->bytes[text->len] = 0;
}

#endif
