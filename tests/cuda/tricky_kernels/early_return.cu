// Threads without an element leave. No barrier follows, so nobody waits for them.
extern "C" __global__ void tricky(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = 2.0f * x[i];
}
