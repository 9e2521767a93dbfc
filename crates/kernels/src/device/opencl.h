/* The dialect of the built-in kernels in OpenCL C (1.1 and later). */

#pragma OPENCL FP_CONTRACT OFF
#ifdef ANYACCEL_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef int i32;
typedef long i64;
typedef float f32;

#define KERNEL __kernel void
#define FN static inline
#define GLOBAL __global
/* Declares a variable that the threads of a group share; only at the top of a kernel. */
#define SHARED __local

#define THREAD ((u32)get_local_id(0))
#define THREADS ((u32)get_local_size(0))
#define ALL_THREADS ((u64)get_local_size(0) * get_num_groups(0))
#define THREAD_OF_ALL ((u64)get_group_id(0) * get_local_size(0) + get_local_id(0))
/* Waits for all threads of the group, and for what they wrote to shared variables. */
#define MEET() barrier(CLK_LOCAL_MEM_FENCE)

#define ADD_SHARED(place, value) atomic_add((volatile __local u32 *)(place), (u32)(value))
#define ADD_GLOBAL(place, value) atomic_add((volatile __global u32 *)(place), (u32)(value))

/* The upper half of the product of 64 bits. */
#define MUL_HIGH(x, y) mul_hi((u64)(x), (u64)(y))
/* Leading zeros. */
#define CLZ_32(x) ((u32)clz((u32)(x)))
#define CLZ_64(x) ((u32)clz((u64)(x)))

#define BITS_OF_F32(x) as_uint((f32)(x))
#define F32_OF_BITS(x) as_float((u32)(x))
/* An integer as a float, rounded to nearest, ties to even. */
#define F32_OF_U32(x) convert_float_rte((u32)(x))
#define F32_OF_I32(x) convert_float_rte((i32)(x))
#define F32_OF_I64(x) convert_float_rte((i64)(x))
/* x * y + z, rounded once. */
#define FMA_F32(x, y, z) fma((f32)(x), (f32)(y), (f32)(z))
#define CEIL_F32(x) ceil((f32)(x))

#ifdef ANYACCEL_F64
typedef double f64;
#define BITS_OF_F64(x) as_ulong((f64)(x))
#define F64_OF_BITS(x) as_double((u64)(x))
#define F64_OF_U64(x) convert_double_rte((u64)(x))
#define F64_OF_I64(x) convert_double_rte((i64)(x))
#define FMA_F64(x, y, z) fma((f64)(x), (f64)(y), (f64)(z))
#define CEIL_F64(x) ceil((f64)(x))
#endif

#define ADDRESS(place) ((size_t)(place))
/* Stores or loads a value at an address that is a multiple of its size. */
#define STORE(type, place, value) (*(__global type *)(place) = (type)(value))
#define LOAD(type, place) (*(__global const type *)(place))
/* Stores 16 bytes at an address that is a multiple of 16. */
#define STORE_16(place, low, high) (*(__global ulong2 *)(place) = (ulong2)((low), (high)))
