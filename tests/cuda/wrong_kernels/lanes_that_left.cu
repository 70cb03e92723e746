// Lane 15 asks lane 16 for its value, which has left the kernel.
extern "C" __global__ void wrong(int* x) {
    int t = threadIdx.x;
    if (t >= 16) return;
    x[t] = __shfl_down_sync(0xffffffffu, x[t], 1);  // here
}
