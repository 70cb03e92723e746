// Two barriers in two branches are two different ones: each half waits for the other for ever.
extern "C" __global__ void wrong(float* x) {
    if (threadIdx.x < 32) {
        x[threadIdx.x] = 1.0f;
        __syncthreads();  // here
    } else {
        __syncthreads();  // here
        x[threadIdx.x] = 2.0f;
    }
}
