/* Permutations. */

/* Up to so many elements are shuffled. */
#define PERMUTATION_SMALL 4096

FN u64 permutation_draw(struct random_start start, u64 k) {
    struct words words = philox(start.seed, start.call + k / 2, 0);
    return (k & 1) == 0 ? join_64(words.w[0], words.w[1]) : join_64(words.w[2], words.w[3]);
}

FN u64 permutation_mix(u64 value, u64 key) {
    u64 t = (value + key) * 0x9e3779b97f4a7c15ul;
    return (t ^ t >> 32) * 0xd1b54a32d192ed03ul >> 32;
}

RANDOM(random_permutation) {
    SHARED u16 order[PERMUTATION_SMALL];
    SHARED u16 other[PERMUTATION_SMALL];
    SHARED u64 keys[16];
    GLOBAL u8 *to = dst + dst_offset;
    u32 size = size_of(params.dtype);
    struct random_start start = random_start(&params, cell + cell_offset);

    if (params.count <= PERMUTATION_SMALL) {
        /* A group shuffles alone: its threads draw with whom each element changes places, and one does the changes. */
        u32 count = (u32)params.count;
        for (u32 k = THREAD; k < count; k += THREADS) {
            order[k] = (u16)k;
            other[k] = (u16)MUL_HIGH(permutation_draw(start, k), (u64)k + 1);
        }
        MEET();
        if (THREAD == 0) {
            for (u32 k = count; k > 1; k--) {
                u16 last = order[k - 1];
                order[k - 1] = order[other[k - 1]];
                order[other[k - 1]] = last;
            }
        }
        MEET();
        for (u64 i = THREAD_OF_ALL; i < count; i += ALL_THREADS) {
            write_element(to + i * size, size, order[i]);
        }
        return;
    }

    for (u32 k = THREAD; k < 16; k += THREADS) {
        keys[k] = permutation_draw(start, k);
    }
    MEET();
    u32 bits = 64 - CLZ_64(params.count - 1);
    u32 lower_bits = bits / 2;
    u64 lower = (1ul << lower_bits) - 1, upper = (1ul << (bits - lower_bits)) - 1;
    for (u64 i = THREAD_OF_ALL; i < params.count; i += ALL_THREADS) {
        u64 value = i;
        do {
            u64 low = value & lower, high = value >> lower_bits;
            for (u32 round = 0; round < 16; round += 2) {
                low ^= permutation_mix(high, keys[round]) & lower;
                high ^= permutation_mix(low, keys[round + 1]) & upper;
            }
            value = high << lower_bits | low;
        } while (value >= params.count);
        write_element(to + i * size, size, value);
    }
}
