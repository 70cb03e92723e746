// The mask names 32 lanes, and 16 of them are elsewhere: they wait for those 16 in turn.
extern "C" __global__ void wrong(int* x) {
    int t = threadIdx.x;
    if (t < 16) {
        x[t] = __shfl_down_sync(0xffffffffu, x[t], 1);  // here
    }
    __syncthreads();  // here
}
