// A tree over a warp in shared memory that trusts in the 32 threads running in step. Since Volta
// they need not.
extern "C" __global__ void wrong(const float* x, float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    s[t + 32] = 0.0f;
    for (int step = 16; step > 0; step /= 2) {
#ifdef FIXED
        __syncwarp();
        float other = s[t + step];
        __syncwarp();
        s[t] += other;
#else
        s[t] += s[t + step];
#endif
    }
    if (t == 0) y[0] = s[0];
}
