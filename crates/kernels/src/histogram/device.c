/* Counts how often each byte value occurs. */

struct histogram_params {
    u64 len;
};

/* Neighbouring threads count in different tables, so that runs of a byte do not all wait for one counter. */
#define HISTOGRAM_TABLES 8

/* Adds to one of the 64-bit counts. Two additions of 32 bits do it on devices without wider ones: what the lower one carries is
   seen by just the thread that made it wrap. */
FN void histogram_add(GLOBAL u32 *count, u32 value) {
    u32 before = ADD_GLOBAL(&count[0], value);
    if (before + value < before) {
        ADD_GLOBAL(&count[1], 1);
    }
}

KERNEL histogram(
    GLOBAL u8 *counts, u64 counts_offset, GLOBAL const u8 *data, u64 data_offset, struct histogram_params params
) {
    SHARED u32 tables[256 * HISTOGRAM_TABLES];
    for (u32 i = THREAD; i < 256 * HISTOGRAM_TABLES; i += THREADS) {
        tables[i] = 0;
    }
    MEET();

    GLOBAL const u8 *start = data + data_offset;
    u32 table = THREAD % HISTOGRAM_TABLES;
    u64 head = (8 - (ADDRESS(start) & 7)) & 7;
    head = head < params.len ? head : params.len;
    u64 words = (params.len - head) / 8;
    for (u64 i = THREAD_OF_ALL; i < words; i += ALL_THREADS) {
        u64 word = LOAD(u64, start + head + 8 * i);
        if (word == (word << 8 | word >> 56)) {
            ADD_SHARED(&tables[(word & 255) * HISTOGRAM_TABLES + table], 8);
            continue;
        }
        for (u32 k = 0; k < 8; k++) {
            ADD_SHARED(&tables[(word >> 8 * k & 255) * HISTOGRAM_TABLES + table], 1);
        }
    }
    for (u64 i = THREAD_OF_ALL; i < head; i += ALL_THREADS) {
        ADD_SHARED(&tables[start[i] * HISTOGRAM_TABLES + table], 1);
    }
    for (u64 i = head + 8 * words + THREAD_OF_ALL; i < params.len; i += ALL_THREADS) {
        ADD_SHARED(&tables[start[i] * HISTOGRAM_TABLES + table], 1);
    }
    MEET();

    /* A group counts fewer than 2^32 bytes: the launch has enough groups. */
    for (u32 value = THREAD; value < 256; value += THREADS) {
        u32 sum = 0;
        for (u32 i = 0; i < HISTOGRAM_TABLES; i++) {
            sum += tables[value * HISTOGRAM_TABLES + i];
        }
        if (sum != 0) {
            histogram_add((GLOBAL u32 *)(counts + counts_offset) + 2 * value, sum);
        }
    }
}
