// The last block has more threads than there are elements left, and nothing holds them back.
extern "C" __global__ void wrong(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.0f * x[i];  // here
}
