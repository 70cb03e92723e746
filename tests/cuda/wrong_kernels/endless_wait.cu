// Nobody ever sets the flag.
extern "C" __global__ void wrong(volatile int* flag, int* y) {
    while (flag[0] == 0) {}  // here
    y[0] = 1;
}
