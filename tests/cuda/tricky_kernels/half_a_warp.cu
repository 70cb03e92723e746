// Half of a warp exchanges values in a branch; the mask names that half and nobody else.
extern "C" __global__ void tricky(const int* x, int* y) {
    int t = threadIdx.x;
    if (t < 16) {
        int sum = x[t];
        for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0x0000ffffu, sum, step);
        y[t] = sum;
    } else {
        y[t] = -x[t];
    }
}
