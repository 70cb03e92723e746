// The kernels of the demo: arithmetic that costs nothing, and a sum with and without a barrier.
#include "minidist.cuh"

// out[i] = a[i] + b[i], and then `more` multiplications of what is in a register already.
extern "C" __global__ void fused(float* out, const float* a, const float* b, int more,
                                 long long n) {
    for (long long i = first_index(); i < n; i += index_stride()) {
        float x = a[i] + b[i];
        for (int k = 0; k < more; k++) x *= 0.5f;
        out[i] = x;
    }
}

// One multiplication as a kernel of its own: from memory, and back to it.
extern "C" __global__ void scale(float* x, long long n) {
    for (long long i = first_index(); i < n; i += index_stride()) x[i] *= 0.5f;
}

// The block reduction of the lesson. FORGOTTEN leaves out the barrier at the end of a round.
extern "C" __global__ void sum(float* out, const float* x, long long n) {
    extern __shared__ float parts[];
    const unsigned t = threadIdx.x;
    parts[t] = t < n ? x[t] : 0.0f;
    __syncthreads();
    for (unsigned count = blockDim.x; count > 1;) {
        const unsigned half = (count + 1) / 2;
        if (t + half < count) parts[t] += parts[t + half];
#ifndef FORGOTTEN
        __syncthreads();
#endif
        count = half;
    }
    if (t == 0) out[0] = parts[0];
}
