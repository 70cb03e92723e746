// What the kernels of this folder share, and the only place that knows whether a GPU runs them.
//
//   up(x), down<T>(x)       float from float, __half, __nv_bfloat16, and back with one rounding
//   load2, load4, store2,   several neighbouring elements in one instruction, as floats
//   store4, aligned
//   warp_reduce, ...        one value from the values of all threads of a warp
//   block_reduce, ...       one value from the values of all threads of a block
//   ld_acquire_sys, ...     flags that another GPU, or another process, reads
//
// A block is cut into warps of 32 threads, which a GPU runs in step:
//
//   block of 80 threads     | warp 0: 0..31 | warp 1: 32..63 | warp 2: 64..79 |
//
// The last warp may be incomplete, and asking a thread that does not exist for its value gives
// garbage. All functions here are right for every size of a block from 1 to 1,024.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// --- where am I -----------------------------------------------------------------------------------

__device__ __forceinline__ unsigned thread_of_block() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
__device__ __forceinline__ unsigned threads_of_block() {
    return blockDim.x * blockDim.y * blockDim.z;
}
__device__ __forceinline__ unsigned lane_of_warp() { return thread_of_block() % 32; }

// How many threads my warp has: 32, or fewer in the last warp of a block.
__device__ __forceinline__ unsigned lanes_of_warp() {
    const unsigned left = threads_of_block() - thread_of_block() / 32 * 32;
    return left < 32 ? left : 32;
}

// A grid-stride loop is
//     for (long long i = first_index(); i < n; i += index_stride())
// and does n elements with a grid of any size. 64 bits: 2^31 elements of 2 bytes are only 4 GiB.
__device__ __forceinline__ long long first_index() {
    return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ long long index_stride() { return (long long)gridDim.x * blockDim.x; }

// --- floats from and to 16 bits ---------------------------------------------------------------------

__device__ __forceinline__ float up(float x) { return x; }
__device__ __forceinline__ float up(__half x) { return __half2float(x); }
__device__ __forceinline__ float up(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T> __device__ __forceinline__ T down(float x);
template <> __device__ __forceinline__ float down<float>(float x) { return x; }
template <> __device__ __forceinline__ __half down<__half>(float x) { return __float2half_rn(x); }
template <> __device__ __forceinline__ __nv_bfloat16 down<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}

// --- several elements at once -----------------------------------------------------------------------
//
// A thread that asks for 16 bytes in one instruction keeps more bytes on their way than one that asks
// for 4, and needs a quarter of the instructions. The address must be a multiple of the size, else
// the GPU stops with "misaligned address": a view x[1:] is not. So kernels ask `aligned` first.

template <typename T> __device__ __forceinline__ bool aligned(const T* p, unsigned count) {
    return (unsigned long long)p % (count * sizeof(T)) == 0;
}

// Two pairs of 16-bit numbers, moved as one word of 8 bytes: as a struct they might go one by one.
template <typename Pair> struct __align__(8) Pairs {
    Pair first, second;
};
template <typename Pair> __device__ __forceinline__ Pairs<Pair> load_pairs(const void* p) {
    const unsigned long long word = *(const unsigned long long*)p;
    return *(const Pairs<Pair>*)&word;
}
template <typename Pair> __device__ __forceinline__ void store_pairs(void* p, Pair a, Pair b) {
    const Pairs<Pair> pairs = {a, b};
    *(unsigned long long*)p = *(const unsigned long long*)&pairs;
}

__device__ __forceinline__ float2 load2(const float* p) { return *(const float2*)p; }
__device__ __forceinline__ float2 load2(const __half* p) {
    return __half22float2(*(const __half2*)p);
}
__device__ __forceinline__ float2 load2(const __nv_bfloat16* p) {
    return __bfloat1622float2(*(const __nv_bfloat162*)p);
}
__device__ __forceinline__ void store2(float* p, float2 x) { *(float2*)p = x; }
__device__ __forceinline__ void store2(__half* p, float2 x) {
    *(__half2*)p = __floats2half2_rn(x.x, x.y);
}
__device__ __forceinline__ void store2(__nv_bfloat16* p, float2 x) {
    *(__nv_bfloat162*)p = __floats2bfloat162_rn(x.x, x.y);
}

__device__ __forceinline__ float4 load4(const float* p) { return *(const float4*)p; }
__device__ __forceinline__ float4 load4(const __half* p) {
    const Pairs<__half2> pairs = load_pairs<__half2>(p);
    const float2 a = __half22float2(pairs.first), b = __half22float2(pairs.second);
    return make_float4(a.x, a.y, b.x, b.y);
}
__device__ __forceinline__ float4 load4(const __nv_bfloat16* p) {
    const Pairs<__nv_bfloat162> pairs = load_pairs<__nv_bfloat162>(p);
    const float2 a = __bfloat1622float2(pairs.first), b = __bfloat1622float2(pairs.second);
    return make_float4(a.x, a.y, b.x, b.y);
}
__device__ __forceinline__ void store4(float* p, float4 x) { *(float4*)p = x; }
__device__ __forceinline__ void store4(__half* p, float4 x) {
    store_pairs(p, __floats2half2_rn(x.x, x.y), __floats2half2_rn(x.z, x.w));
}
__device__ __forceinline__ void store4(__nv_bfloat16* p, float4 x) {
    store_pairs(p, __floats2bfloat162_rn(x.x, x.y), __floats2bfloat162_rn(x.z, x.w));
}

// --- reductions of a warp and of a block --------------------------------------------------------------

struct Sum {
    template <typename T> __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};

// NaN is the largest of all, as in NumPy. `fmaxf` would drop it, and hide what has gone wrong.
struct Max {
    template <typename T> __device__ __forceinline__ T operator()(T a, T b) const {
        return a > b || a != a ? a : b;
    }
};

// Combine the values of all threads of a warp; all of them get the result, with the same bits.
// All threads of the warp must call it.
//
//   lane          0      1      2      3         In each step every lane takes the value of the
//   step 2      0+2    1+3    2+0    3+1         lane whose number differs in one bit: log2(32) = 5
//   step 1      0+2+1+3 in all of them           steps for 32 values, and no memory.
template <typename T, typename Op> __device__ T warp_reduce(T value, Op op) {
    const unsigned lanes = lanes_of_warp(), lane = lane_of_warp();
    const unsigned mask = 0xffffffffu >> (32 - lanes);  // one bit for each thread that exists
    for (unsigned step = 16; step > 0; step /= 2) {
        const unsigned from = lane ^ step;
        const T other = __shfl_sync(mask, value, from < lanes ? from : lane);
        if (from < lanes) value = op(value, other);
    }
    // In an incomplete warp only lane 0 has met all the others.
    return lanes == 32 ? value : __shfl_sync(mask, value, 0);
}

// Combine the values of all threads of a block; all of them get the result, with the same bits.
// All threads of the block must call it. Warps first, by shuffles, then their results in shared
// memory: two barriers, where a tree in shared memory has ten for 1,024 threads.
template <typename T, typename Op> __device__ T block_reduce(T value, Op op) {
    __shared__ T of_warp[32];
    const unsigned warps = (threads_of_block() + 31) / 32;
    value = warp_reduce(value, op);
    __syncthreads();  // the results of an earlier call may still be read
    if (lane_of_warp() == 0) of_warp[thread_of_block() / 32] = value;
    __syncthreads();
    T result = of_warp[0];
    for (unsigned w = 1; w < warps; w++) result = op(result, of_warp[w]);
    return result;
}

template <typename T> __device__ T warp_sum(T value) { return warp_reduce(value, Sum()); }
template <typename T> __device__ T warp_max(T value) { return warp_reduce(value, Max()); }
template <typename T> __device__ T block_sum(T value) { return block_reduce(value, Sum()); }
template <typename T> __device__ T block_max(T value) { return block_reduce(value, Max()); }

// --- infinite or not a number ---------------------------------------------------------------------------

// By the bits: compilers may take comparisons with NaN away when they are told that there are none.
__device__ __forceinline__ bool is_finite(float x) {
    return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

// --- flags that others read -----------------------------------------------------------------------------
//
// Data first, then the flag that says "the data is there". A plain store may overtake another one on
// its way to a peer; a release store waits for all earlier ones, and who sees its value by an acquire
// load sees them too. "sys": not only on this GPU, but for all GPUs and the host. A CPU of the x86
// family keeps stores in order by itself, so a plain store seems to work there and fails on a GPU.

#ifdef MINIDIST_EMULATED
__device__ inline unsigned ld_acquire_sys(const unsigned* p) { return md_load_acquire(p); }
__device__ inline void st_release_sys(unsigned* p, unsigned v) { md_store_release(p, v); }
#else
__device__ __forceinline__ unsigned ld_acquire_sys(const unsigned* p) {
    unsigned value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
    return value;
}
__device__ __forceinline__ void st_release_sys(unsigned* p, unsigned v) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
#endif
