/* The dialect of the built-in kernels in CUDA C++. Products and sums are not to be contracted (--fmad=false). */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;
#define ANYACCEL_F64

#define KERNEL extern "C" __global__ void
#define FN static __device__ __forceinline__
#define GLOBAL
/* Declares a variable that the threads of a group share; only at the top of a kernel. */
#define SHARED __shared__

#define THREAD ((u32)threadIdx.x)
#define THREADS ((u32)blockDim.x)
#define ALL_THREADS ((u64)blockDim.x * gridDim.x)
#define THREAD_OF_ALL ((u64)blockIdx.x * blockDim.x + threadIdx.x)
/* Waits for all threads of the group, and for what they wrote to shared variables. */
#define MEET() __syncthreads()

#define ADD_SHARED(place, value) atomicAdd((u32 *)(place), (u32)(value))
#define ADD_GLOBAL(place, value) atomicAdd((u32 *)(place), (u32)(value))

/* The upper half of the product of 64 bits. */
#define MUL_HIGH(x, y) __umul64hi((u64)(x), (u64)(y))
/* Leading zeros. */
#define CLZ_32(x) ((u32)__clz((i32)(x)))
#define CLZ_64(x) ((u32)__clzll((i64)(x)))

#define BITS_OF_F32(x) __float_as_uint((f32)(x))
#define F32_OF_BITS(x) __uint_as_float((u32)(x))
/* An integer as a float, rounded to nearest, ties to even. */
#define F32_OF_U32(x) __uint2float_rn((u32)(x))
#define F32_OF_I32(x) __int2float_rn((i32)(x))
#define F32_OF_I64(x) __ll2float_rn((i64)(x))
/* x * y + z, rounded once. */
#define FMA_F32(x, y, z) __fmaf_rn((f32)(x), (f32)(y), (f32)(z))
#define CEIL_F32(x) ceilf((f32)(x))

#define BITS_OF_F64(x) ((u64)__double_as_longlong((f64)(x)))
#define F64_OF_BITS(x) __longlong_as_double((i64)(x))
#define F64_OF_U64(x) __ull2double_rn((u64)(x))
#define F64_OF_I64(x) __ll2double_rn((i64)(x))
#define FMA_F64(x, y, z) __fma_rn((f64)(x), (f64)(y), (f64)(z))
#define CEIL_F64(x) ceil((f64)(x))

#define ADDRESS(place) ((size_t)(place))
/* Stores or loads a value at an address that is a multiple of its size. */
#define STORE(type, place, value) (*(type *)(place) = (type)(value))
#define LOAD(type, place) (*(const type *)(place))
/* Stores 16 bytes at an address that is a multiple of 16. */
#define STORE_16(place, low, high) (*(ulonglong2 *)(place) = make_ulonglong2((low), (high)))
