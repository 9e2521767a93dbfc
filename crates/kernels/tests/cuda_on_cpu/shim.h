/* As much of CUDA as the built-in kernels use, for a C++ compiler and a CPU: each thread of a group is a thread of the system. */

#include <bit>
#include <cmath>
#include <cstddef>
#include <pthread.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static

struct dim3 {
    unsigned x;
};

static thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;
static pthread_barrier_t barrier;

static void __syncthreads() {
    pthread_barrier_wait(&barrier);
}

/* Before the threads of a group begin. */
extern "C" void begin_group(unsigned threads) {
    pthread_barrier_init(&barrier, nullptr, threads);
}

/* In each thread of a group before it calls the kernel. */
extern "C" void begin_thread(unsigned thread, unsigned threads, unsigned group, unsigned groups) {
    threadIdx.x = thread;
    blockDim.x = threads;
    blockIdx.x = group;
    gridDim.x = groups;
}

/* After its threads ended. */
extern "C" void end_group() {
    pthread_barrier_destroy(&barrier);
}

static unsigned atomicAdd(unsigned *place, unsigned value) {
    return __atomic_fetch_add(place, value, __ATOMIC_RELAXED);
}

static unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}

static int __clz(int x) {
    return std::countl_zero((unsigned)x);
}

static int __clzll(long long x) {
    return std::countl_zero((unsigned long long)x);
}

static unsigned __float_as_uint(float x) {
    return std::bit_cast<unsigned>(x);
}

static float __uint_as_float(unsigned x) {
    return std::bit_cast<float>(x);
}

static long long __double_as_longlong(double x) {
    return std::bit_cast<long long>(x);
}

static double __longlong_as_double(long long x) {
    return std::bit_cast<double>(x);
}

static float __uint2float_rn(unsigned x) {
    return (float)x;
}

static float __int2float_rn(int x) {
    return (float)x;
}

static float __ll2float_rn(long long x) {
    return (float)x;
}

static double __ull2double_rn(unsigned long long x) {
    return (double)x;
}

static double __ll2double_rn(long long x) {
    return (double)x;
}

static float __fmaf_rn(float x, float y, float z) {
    return std::fma(x, y, z);
}

static double __fma_rn(double x, double y, double z) {
    return std::fma(x, y, z);
}

struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};

static ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) {
    return {x, y};
}
