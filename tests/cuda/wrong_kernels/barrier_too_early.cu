// One barrier is there, and the one that keeps fast threads from writing the next round is not.
extern "C" __global__ void wrong(const float* x, float* y, int rounds) {
    __shared__ float s[64];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = 0; i < rounds; i++) {
        s[t] = x[i * 64 + t];
        __syncthreads();
        sum += s[63 - t];
#ifdef FIXED
        __syncthreads();
#endif
    }
    y[t] = sum;
}
