// Reductions: many numbers become one. Sum, sum of squares, maximum, "is all of it finite?"
//
// The norm of the gradient is one, the loss is one, and so are the mean square in a norm layer and
// the two of a softmax. One addition per 4 bytes, so memory is the limit again; what is hard is that
// the threads must meet.
//
//   sum_one_thread    a loop. One thread of tens of thousands works, and waits for memory each time.
//   sum_interleaved   every block adds up its part in shared memory, as a tree of log2(threads)
//                     levels. The threads that go on are 0, 2, 4, ..., then 0, 4, 8, ...: all warps
//                     stay busy with ever fewer lanes at work.
//   sum_sequential    the same tree, and the threads that go on are the first half: whole warps
//                     retire, and neighbouring threads read neighbouring words of shared memory
//                     (no bank conflicts).
//   sum_warps         each thread first adds up many elements of its own; warps then combine their
//                     values through registers: two barriers instead of ten.
//   sum_last_block    the whole sum in one launch. Those above leave one number per block, and a
//                     second launch, of one block, adds these. Here the block that finishes last does
//                     it: which one that is, a counter in memory says.
//
// Bits: float addition is not associative, so another order of adding gives other bits. Here the
// order follows from n, grid and block alone, and never from who comes first; the same launch
// gives the same bits. atomicAdd(out, part) would be shorter, and its sum would change from run to
// run: two ranks that compute one norm would then clip by different factors and drift apart.
//
// Error: a loop that adds n numbers may lose n/2 units in the last place, a tree log2(n). So the
// faster ways are also the more precise ones.
//
// Real systems: CUB's DeviceReduce runs two launches, PyTorch the last-block way with 16-byte loads.
// The ladder is that of Mark Harris, "Optimizing Parallel Reduction in CUDA" (2007).
#include "minidist.cuh"

// --- step 1: one thread -----------------------------------------------------------------------------

extern "C" __global__ void sum_one_thread(float* out, const float* x, long long n) {
    if (blockIdx.x > 0 || threadIdx.x > 0) return;
    float sum = 0.0f;
    for (long long i = 0; i < n; i++) sum += x[i];
    out[0] = sum;
}

// --- steps 2 and 3: a tree in shared memory ------------------------------------------------------------
//
// Both want blockDim.x floats of dynamic shared memory, and leave the sum of block b in out[b].

//   threads   0     1     2     3     4     5
//   level 1   0+1         2+3         4+5         step 1: threads whose number is a multiple of 2
//   level 2   0+1+2+3                 4+5         step 2: of 4
//   level 3   0+1+2+3+4+5                         step 4: of 8
extern "C" __global__ void sum_interleaved(float* out, const float* x, long long n) {
    extern __shared__ float parts[];
    const unsigned t = threadIdx.x;
    const long long i = first_index();
    parts[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        if (t % (2 * step) == 0 && t + step < blockDim.x) parts[t] += parts[t + step];
        __syncthreads();  // outside of the if: all threads must come, also those that are done
    }
    if (t == 0) out[blockIdx.x] = parts[0];
}

//   threads   0     1     2     3     4     5
//   level 1   0+3   1+4   2+5                     half = 3
//   level 2   0+3+2+5     1+4                     half = 2: thread 1 finds nobody and waits
//   level 3   all                                 half = 1
extern "C" __global__ void sum_sequential(float* out, const float* x, long long n) {
    extern __shared__ float parts[];
    const unsigned t = threadIdx.x;
    const long long i = first_index();
    parts[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned count = blockDim.x; count > 1;) {
        const unsigned half = (count + 1) / 2;
        if (t + half < count) parts[t] += parts[t + half];
        __syncthreads();
        count = half;
    }
    if (t == 0) out[blockIdx.x] = parts[0];
}

// --- step 4: registers first, then warps ---------------------------------------------------------------

// What this thread finds in x by itself. Four floats per load, if x begins at a multiple of 16 bytes;
// with one accumulator for each, so that an addition need not wait for the one before.
template <typename T, typename Term> __device__ T own_sum(const float* x, long long n, Term term) {
    T a = 0, b = 0, c = 0, d = 0;
    const long long groups = aligned(x, 4) ? n / 4 : 0;
    for (long long i = first_index(); i < groups; i += index_stride()) {
        const float4 four = load4(x + 4 * i);
        a += term(four.x), b += term(four.y), c += term(four.z), d += term(four.w);
    }
    for (long long i = 4 * groups + first_index(); i < n; i += index_stride()) a += term(x[i]);
    return (a + b) + (c + d);
}

struct Itself {
    __device__ __forceinline__ float operator()(float x) const { return x; }
};
// In float64, 1e20 squared is no infinity, and the sum over a billion gradients keeps its digits. Even
// where a GPU has few units for float64, there is one element for every 4 bytes from memory.
struct Square {
    __device__ __forceinline__ double operator()(float x) const { return (double)x * x; }
};

// Any grid: blocks write one sum each, and a second launch of one block adds those.
extern "C" __global__ void sum_warps(float* out, const float* x, long long n) {
    const float sum = block_sum(own_sum<float>(x, n, Itself()));
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// --- step 5: one launch ---------------------------------------------------------------------------------

// True for all threads of the block that comes here last; what all blocks wrote before they came is
// visible to it. Call it once, after thread 0 has written. `arrived` is 0 before the launch and after
// it, since atomicInc starts again at 0 when it has reached its limit.
__device__ bool last_block(unsigned* arrived) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        __threadfence();  // first my part, then the counter: not the other way round
        last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();  // first the counter, then the parts of the others
    }
    __syncthreads();
    return last;
}

// Combine one value of each block; the last block writes out[0]. parts has a place for each block.
// They are read as volatile, so from where all blocks see the same, and not from a cache of this
// multiprocessor that may hold something older.
template <typename T, typename Op>
__device__ void grid_reduce(T* out, T* parts, unsigned* arrived, T value, T neutral, Op op) {
    value = block_reduce(value, op);
    if (threadIdx.x == 0) parts[blockIdx.x] = value;
    if (!last_block(arrived)) return;
    value = neutral;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x)
        value = op(value, (T)((volatile T*)parts)[b]);
    value = block_reduce(value, op);
    if (threadIdx.x == 0) out[0] = value;
}

extern "C" __global__ void sum_last_block(float* out, float* parts, unsigned* arrived,
                                          const float* x, long long n) {
    grid_reduce(out, parts, arrived, own_sum<float>(x, n, Itself()), 0.0f, Sum());
}

// --- the same, for other questions ------------------------------------------------------------------------

// The square of the norm of a gradient.
extern "C" __global__ void sum_squares(double* out, double* parts, unsigned* arrived,
                                       const float* x, long long n) {
    grid_reduce(out, parts, arrived, own_sum<double>(x, n, Square()), 0.0, Sum());
}

// The largest element; NaN if there is one, minus infinity if there is nothing.
extern "C" __global__ void largest(float* out, float* parts, unsigned* arrived, const float* x,
                                   long long n) {
    const float nothing = __uint_as_float(0xff800000u);  // minus infinity
    float most = nothing;
    for (long long i = first_index(); i < n; i += index_stride()) most = Max()(most, x[i]);
    grid_reduce(out, parts, arrived, most, nothing, Max());
}

// Set *found to 1 if an element is infinite or not a number, and leave it alone otherwise: so one
// flag, set to 0 before, serves all the gradients of a model, and `adamw` looks at it. An atomic, since
// several blocks may find something; its order cannot change the result.
extern "C" __global__ void find_not_finite(unsigned* found, const float* x, long long n) {
    int bad = 0;
    for (long long i = first_index(); i < n; i += index_stride()) bad |= !is_finite(x[i]);
    if (__syncthreads_or(bad) && threadIdx.x == 0) atomicOr(found, 1u);
}
extern "C" __global__ void find_not_finite_bf16(unsigned* found, const __nv_bfloat16* x,
                                                long long n) {
    int bad = 0;
    for (long long i = first_index(); i < n; i += index_stride()) bad |= !is_finite(up(x[i]));
    if (__syncthreads_or(bad) && threadIdx.x == 0) atomicOr(found, 1u);
}
