// An index is taken from where no index is.
extern "C" __global__ void wrong(const long long* index, float* y) {
    y[index[threadIdx.x]] = 1.0f;  // here
}
