// 16 bytes at a time, from an address that is no multiple of 16.
extern "C" __global__ void wrong(const float* x, float* y) {
    float4 v = *(const float4*)(x + 1);  // here
    y[0] = v.x + v.y + v.z + v.w;
}
