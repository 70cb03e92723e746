// <= for <: the loop over the elements of a row goes one too far, in the last row only.
extern "C" __global__ void wrong(const float* x, float* y, int rows, int width) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int i = 0; i <= width; i++) {
        sum += x[row * width + i];  // here
    }
    y[row] = sum;
}
