/* Repeats a pattern of 16 bytes. */

struct fill_pattern_params {
    u64 pattern[2];
    u64 len;
};

KERNEL fill_pattern(GLOBAL u8 *dst, u64 dst_offset, struct fill_pattern_params params) {
    GLOBAL u8 *start = dst + dst_offset;
    /* Up to the first multiple of 16 and from the last one on it goes byte by byte, between them by 16 bytes. */
    u64 head = (16 - (ADDRESS(start) & 15)) & 15;
    head = head < params.len ? head : params.len;
    u64 lines = (params.len - head) / 16;
    u64 tail = head + 16 * lines;

    /* The pattern as it lies from the first multiple of 16 on. */
    u64 low = params.pattern[head >> 3 & 1];
    u64 high = params.pattern[(head >> 3 & 1) ^ 1];
    u32 shift = (u32)(head & 7) * 8;
    u64 line_low = shift == 0 ? low : low >> shift | high << (64 - shift);
    u64 line_high = shift == 0 ? high : high >> shift | low << (64 - shift);

    for (u64 i = THREAD_OF_ALL; i < lines; i += ALL_THREADS) {
        STORE_16(start + head + 16 * i, line_low, line_high);
    }
    for (u64 i = THREAD_OF_ALL; i < head; i += ALL_THREADS) {
        start[i] = (u8)(params.pattern[i >> 3] >> (i & 7) * 8);
    }
    for (u64 i = tail + THREAD_OF_ALL; i < params.len; i += ALL_THREADS) {
        start[i] = (u8)(params.pattern[i >> 3 & 1] >> (i & 7) * 8);
    }
}
