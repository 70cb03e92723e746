// A GPU gives garbage and goes on.
extern "C" __global__ void wrong(const int* x, int* y) {
    int i = threadIdx.x;
    y[i] = 100 / x[i];  // here
}
