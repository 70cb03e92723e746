// Shared memory is not zero at the start of a block: it holds what the last block left.
extern "C" __global__ void wrong(const float* x, float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
#ifdef FIXED
    s[t] = 0.0f;
    __syncthreads();
#endif
    if (t < 32) s[t] = x[t];
    __syncthreads();
    y[t] = s[t];
}
