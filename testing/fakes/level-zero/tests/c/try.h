/* What the programs here check with. */
#include <level_zero/ze_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                                            \
    do {                                                                     \
        ze_result_t result = (call);                                         \
        if (result != ZE_RESULT_SUCCESS) {                                   \
            fprintf(stderr, "line %d: %s: 0x%x\n", __LINE__, #call, result); \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

#define CHECK(truth)                                                    \
    do {                                                                \
        if (!(truth)) {                                                 \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #truth); \
            exit(1);                                                    \
        }                                                               \
    } while (0)
