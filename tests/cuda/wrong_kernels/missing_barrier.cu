// Thread t reads what thread t - 1 has written. Nothing makes it wait for that: the result is right
// if the threads happen to run one after the other, and a GPU runs 32 of them in step.
extern "C" __global__ void wrong(const float* x, float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
#ifdef FIXED
    __syncthreads();
#endif
    y[t] = t == 0 ? s[t] : s[t] - s[t - 1];
}
