// Each thread gets 120 KB of its own.
extern "C" __global__ void wrong(int* x) {
    int all[30000];
    for (int i = 0; i < 30000; i++) all[i] = x[i & 3];
    x[0] = all[x[1] & 1023];
}
