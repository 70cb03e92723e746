// y may be x: each thread reads its element before it writes there, and no other.
extern "C" __global__ void tricky(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1.0f;
}
