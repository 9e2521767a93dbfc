/* Philox 4x32-10. */

struct words {
    u32 w[4];
};

/* The block at a counter of two halves. */
FN struct words philox(u64 seed, u64 low, u64 high) {
    u32 x0 = (u32)low, x1 = (u32)(low >> 32), x2 = (u32)high, x3 = (u32)(high >> 32);
    u32 key0 = (u32)seed, key1 = (u32)(seed >> 32);
    for (u32 round = 0; round < 10; round++) {
        u64 a = (u64)0xd2511f53u * x0;
        u64 b = (u64)0xcd9e8d57u * x2;
        x0 = (u32)(b >> 32) ^ x1 ^ key0;
        x1 = (u32)b;
        x2 = (u32)(a >> 32) ^ x3 ^ key1;
        x3 = (u32)a;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    struct words words;
    words.w[0] = x0;
    words.w[1] = x1;
    words.w[2] = x2;
    words.w[3] = x3;
    return words;
}
