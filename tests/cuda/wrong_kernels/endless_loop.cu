// The step gets smaller each time, but comes to rest at 3 and never gets down to 2.
extern "C" __global__ void wrong(float* x) {
    float step = x[0];
    while (step > 2.0f) {
        step = step * 0.5f + 1.5f;  // here
    }
    x[0] = step;
}
