// The block that finishes last adds the sums of all: a sum in one launch. The fence keeps a block's
// sum before its count, the atomic decides who is last, and the barrier tells the other threads.
extern "C" __global__ void tricky(const float* x, float* sums, unsigned* count, float* y, int n) {
    __shared__ float s[64];
    __shared__ bool last;
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int step = 32; step > 0; step /= 2) {
        if (t < step) s[t] += s[t + step];
        __syncthreads();
    }
    if (t == 0) {
        sums[blockIdx.x] = s[0];
        __threadfence();
        last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;  // and count is 0 again
    }
    __syncthreads();
    if (last && t == 0) {
        float sum = 0.0f;
        for (int b = 0; b < (int)gridDim.x; b++) sum += ((volatile float*)sums)[b];
        y[0] = sum;
    }
}
