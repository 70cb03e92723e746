// A tree over a warp in shared memory, with a barrier of the warp on both sides of each exchange.
extern "C" __global__ void tricky(const float* x, float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    s[t + 32] = 0.0f;
    for (int step = 16; step > 0; step /= 2) {
        __syncwarp();
        float other = s[t + step];
        __syncwarp();
        s[t] += other;
    }
    if (t == 0) y[0] = s[0];
}
