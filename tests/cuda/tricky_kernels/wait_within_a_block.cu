// Thread 0 waits for a flag that thread 1 sets. Since Volta every thread goes on sooner or later.
extern "C" __global__ void tricky(volatile int* flag, int* y) {
    if (threadIdx.x == 0) {
        while (flag[0] == 0) {}
        y[0] = 7;
    } else if (threadIdx.x == 1) {
        flag[0] = 1;
    }
}
