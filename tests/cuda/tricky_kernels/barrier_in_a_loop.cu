// A barrier in a branch is right if all threads of the block take the same branch.
extern "C" __global__ void tricky(const float* x, float* y, int rounds) {
    __shared__ float s[64];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = 0; i < rounds; i++) {
        if (i % 2 == 0) {
            s[t] = x[i * 64 + t];
            __syncthreads();
            sum += s[63 - t];
            __syncthreads();
        } else {
            sum += x[i * 64 + t];
        }
    }
    y[t] = sum;
}
