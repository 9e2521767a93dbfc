/* Converts elements from one type to another. */

struct convert_params {
    u64 count;
    u32 src;
    u32 dst;
};

/* The type of the two parts of a complex type; else the type itself. */
FN u32 part_of(u32 dtype) {
    return dtype == DTYPE_C32 ? DTYPE_F16 : dtype == DTYPE_C64 ? DTYPE_F32 : dtype == DTYPE_C128 ? DTYPE_F64 : dtype;
}

KERNEL convert(
    GLOBAL u8 *dst, u64 dst_offset, GLOBAL const u8 *src, u64 src_offset, struct convert_params params
) {
    GLOBAL u8 *to = dst + dst_offset;
    GLOBAL const u8 *from = src + src_offset;
    u32 src_part = part_of(params.src), dst_part = part_of(params.dst);
    u32 src_complex = src_part != params.src ? 1 : 0, dst_complex = dst_part != params.dst ? 1 : 0;
    u64 count = params.count;
    if (src_complex != 0 && dst_complex != 0) {
        /* Part by part. */
        count *= 2;
        src_complex = 0;
        dst_complex = 0;
    }
    u32 src_size = size_of(src_part), dst_size = size_of(dst_part);
    u32 src_step = src_size << src_complex, dst_step = dst_size << dst_complex;

    u32 kind = kind_of(src_part);
    for (u64 i = THREAD_OF_ALL; i < count; i += ALL_THREADS) {
        GLOBAL const u8 *in = from + i * src_step;
        GLOBAL u8 *out = to + i * dst_step;
        u64 bytes = read_element(in, src_size);
        u64 number = number_of_element(src_part, bytes);
        if (src_complex != 0 && dst_part == DTYPE_BOOL) {
            u64 imaginary = number_of_element(src_part, read_element(in + src_size, src_size));
            *out = (u8)(is_nonzero(kind, number) | is_nonzero(kind, imaginary));
            continue;
        }
        write_element(out, dst_size, src_part == dst_part ? bytes : element_of_number(dst_part, kind, number));
        if (dst_complex != 0) {
            write_element(out + dst_size, dst_size, 0);
        }
    }
}
