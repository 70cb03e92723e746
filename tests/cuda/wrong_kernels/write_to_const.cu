// What is promised not to be written must not be, even by a cast.
extern "C" __global__ void wrong(const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) ((float*)x)[i] = 0.0f;  // here
}
