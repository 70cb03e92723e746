// The first element has no element before it.
extern "C" __global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] - x[i - 1];  // here
}
