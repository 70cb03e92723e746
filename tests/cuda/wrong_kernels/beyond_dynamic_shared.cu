// The launch gives shared memory for fewer numbers than the kernel thinks.
extern "C" __global__ void wrong(const float* x, float* y) {
    extern __shared__ float s[];
    int t = threadIdx.x;
    s[t] = x[t];  // here
    __syncthreads();
    y[t] = s[blockDim.x - 1 - t];
}
