// Elementwise: out[i] = a[i] + b[i], a[i] + alpha * b[i], and the larger of a[i] and b[i].
//
// This is the arithmetic of an all-reduce (what arrives is added to what is there), of a residual
// connection and of gradient accumulation. One addition for 12 bytes that move: memory is the limit,
// a GPU could do a hundred times as many additions in the same time. So every step of the ladder is
// about memory:
//
//   add_f32          one thread per element. Neighbouring threads touch neighbouring addresses, and
//                    the 32 loads of a warp become one request of 128 bytes: "coalesced". Already
//                    within a few percent of the best, for large arrays.
//   add_f32_stride   a fixed grid walks over the array, each thread doing several elements. The grid
//                    need not grow with n, and what a thread prepares, it prepares once.
//   add_f32_vec      four floats per load: a quarter of the instructions, more bytes on their way.
//   add_f16_pairs    two 16-bit numbers per load: 4 bytes per thread as in add_f32, where one 16-bit
//   add_bf16_pairs   number per thread leaves half of each request unused.
//
// The arithmetic is in float32 for all types, with one rounding at the end. In bfloat16 itself, with
// 8 bits of precision, 256 + 1 is 256, and a sum of many terms stops growing.
//
// out may be a or b: each thread reads its elements before it writes them, and no other thread has
// to do with them. Hence no __restrict__, which promises the compiler that nothing overlaps.
//
// Real systems: PyTorch's TensorIterator generates such kernels from a lambda, with up to 16 bytes
// per load; NCCL has its own for the sums within collectives; and compilers fuse chains of them into
// one kernel, so that the values in between never see memory.
#include "minidist.cuh"

struct Add {
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
struct AddScaled {
    float alpha;
    __device__ __forceinline__ float operator()(float a, float b) const { return a + alpha * b; }
};
struct Larger {  // NaN wins, as in NumPy
    __device__ __forceinline__ float operator()(float a, float b) const { return Max()(a, b); }
};

// --- step 1: one thread per element -------------------------------------------------------------------

// Launch with at least n threads in all. The last block is rarely full: hence the test.
extern "C" __global__ void add_f32(float* out, const float* a, const float* b, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

template <typename T, typename Op>
__device__ void each(T* out, const T* a, const T* b, long long n, Op op) {
    const long long i = first_index();
    if (i < n) out[i] = down<T>(op(up(a[i]), up(b[i])));
}

extern "C" __global__ void add_f16(__half* out, const __half* a, const __half* b, long long n) {
    each(out, a, b, n, Add());
}
extern "C" __global__ void add_bf16(__nv_bfloat16* out, const __nv_bfloat16* a,
                                    const __nv_bfloat16* b, long long n) {
    each(out, a, b, n, Add());
}
extern "C" __global__ void add_scaled_f32(float* out, const float* a, const float* b, float alpha,
                                          long long n) {
    each(out, a, b, n, AddScaled{alpha});
}
extern "C" __global__ void add_scaled_f16(__half* out, const __half* a, const __half* b,
                                          float alpha, long long n) {
    each(out, a, b, n, AddScaled{alpha});
}
extern "C" __global__ void add_scaled_bf16(__nv_bfloat16* out, const __nv_bfloat16* a,
                                           const __nv_bfloat16* b, float alpha, long long n) {
    each(out, a, b, n, AddScaled{alpha});
}
extern "C" __global__ void max_f32(float* out, const float* a, const float* b, long long n) {
    each(out, a, b, n, Larger());
}
extern "C" __global__ void max_f16(__half* out, const __half* a, const __half* b, long long n) {
    each(out, a, b, n, Larger());
}
extern "C" __global__ void max_bf16(__nv_bfloat16* out, const __nv_bfloat16* a,
                                    const __nv_bfloat16* b, long long n) {
    each(out, a, b, n, Larger());
}

// --- step 2: a grid of any size ------------------------------------------------------------------------

// With 2 blocks of 4 threads, thread t of block 0 does elements t, t + 8, t + 16, ...
template <typename T, typename Op>
__device__ void stride(T* out, const T* a, const T* b, long long n, Op op) {
    for (long long i = first_index(); i < n; i += index_stride())
        out[i] = down<T>(op(up(a[i]), up(b[i])));
}

extern "C" __global__ void add_f32_stride(float* out, const float* a, const float* b, long long n) {
    stride(out, a, b, n, Add());
}
extern "C" __global__ void add_scaled_f32_stride(float* out, const float* a, const float* b,
                                                 float alpha, long long n) {
    stride(out, a, b, n, AddScaled{alpha});
}
extern "C" __global__ void max_f32_stride(float* out, const float* a, const float* b, long long n) {
    stride(out, a, b, n, Larger());
}

// --- step 3: several elements per load -----------------------------------------------------------------

// Groups of four, then what is left over one by one. An array that begins elsewhere than at a
// multiple of 16 bytes is done one by one altogether: slower, and right.
template <typename Op>
__device__ void by_four(float* out, const float* a, const float* b, long long n, Op op) {
    const bool fit = aligned(out, 4) && aligned(a, 4) && aligned(b, 4);
    const long long groups = fit ? n / 4 : 0;
    for (long long i = first_index(); i < groups; i += index_stride()) {
        const float4 x = load4(a + 4 * i), y = load4(b + 4 * i);
        store4(out + 4 * i, make_float4(op(x.x, y.x), op(x.y, y.y), op(x.z, y.z), op(x.w, y.w)));
    }
    for (long long i = 4 * groups + first_index(); i < n; i += index_stride())
        out[i] = op(a[i], b[i]);
}

template <typename T, typename Op>
__device__ void by_pairs(T* out, const T* a, const T* b, long long n, Op op) {
    const bool fit = aligned(out, 2) && aligned(a, 2) && aligned(b, 2);
    const long long pairs = fit ? n / 2 : 0;
    for (long long i = first_index(); i < pairs; i += index_stride()) {
        const float2 x = load2(a + 2 * i), y = load2(b + 2 * i);
        store2(out + 2 * i, make_float2(op(x.x, y.x), op(x.y, y.y)));
    }
    for (long long i = 2 * pairs + first_index(); i < n; i += index_stride())
        out[i] = down<T>(op(up(a[i]), up(b[i])));
}

extern "C" __global__ void add_f32_vec(float* out, const float* a, const float* b, long long n) {
    by_four(out, a, b, n, Add());
}
extern "C" __global__ void add_scaled_f32_vec(float* out, const float* a, const float* b,
                                              float alpha, long long n) {
    by_four(out, a, b, n, AddScaled{alpha});
}
extern "C" __global__ void max_f32_vec(float* out, const float* a, const float* b, long long n) {
    by_four(out, a, b, n, Larger());
}
extern "C" __global__ void add_f16_pairs(__half* out, const __half* a, const __half* b,
                                         long long n) {
    by_pairs(out, a, b, n, Add());
}
extern "C" __global__ void add_bf16_pairs(__nv_bfloat16* out, const __nv_bfloat16* a,
                                          const __nv_bfloat16* b, long long n) {
    by_pairs(out, a, b, n, Add());
}
extern "C" __global__ void add_scaled_f16_pairs(__half* out, const __half* a, const __half* b,
                                                float alpha, long long n) {
    by_pairs(out, a, b, n, AddScaled{alpha});
}
extern "C" __global__ void add_scaled_bf16_pairs(__nv_bfloat16* out, const __nv_bfloat16* a,
                                                 const __nv_bfloat16* b, float alpha, long long n) {
    by_pairs(out, a, b, n, AddScaled{alpha});
}
extern "C" __global__ void max_f16_pairs(__half* out, const __half* a, const __half* b,
                                         long long n) {
    by_pairs(out, a, b, n, Larger());
}
extern "C" __global__ void max_bf16_pairs(__nv_bfloat16* out, const __nv_bfloat16* a,
                                          const __nv_bfloat16* b, long long n) {
    by_pairs(out, a, b, n, Larger());
}
