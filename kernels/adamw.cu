// One step of AdamW, for a flat piece of the parameters (Loshchilov and Hutter, arXiv 1711.05101).
//
//   x <- x * keep                                     decay, straight on the weights
//   m <- m + (g - m) * rate_m                         running mean of the gradient
//   v <- v + (g * g - v) * rate_v                     and of its square
//   x <- x - step * m / (sqrt(v) * root + eps)
//
// The host computes the scalars, in float64, since they are the same for all elements:
//
//   keep = 1 - lr * decay    rate_m = 1 - beta1    step = lr / (1 - beta1^t)
//   root = 1 / sqrt(1 - beta2^t)                   rate_v = 1 - beta2
//
// What fusing gains: as array code these are 14 operations, each of which reads and writes memory, 136
// bytes per element in float32. In one kernel x, m, v and g come once, and x, m and v go: 28 bytes.
// Memory is the limit, so that is about a fifth of the time.
//
//   adamw_f32           one thread per element
//   adamw_f32_vec       four elements per thread: fewer instructions, more bytes on their way
//   adamw_bf16(_vec)    the model computes with bfloat16 parameters; the optimiser keeps float32
//                       "masters" of them. A step changes a weight by a thousandth of itself or less,
//                       and bfloat16 has 8 bits of precision: x - step would be x again.
//
// A step with a gradient that is not finite must not happen, on no element: m and v would never
// recover. The flag that `find_not_finite` (reduce.cu) has set is read from the memory of the device,
// so the host need not wait for it between the two launches.
//
// Real systems: torch.optim.AdamW(fused=True) and Apex's FusedAdam do many tensors of a model in
// one launch (see pack.cu for the map that this takes) and have the same flag, `found_inf`.
#include "minidist.cuh"

struct Scalars {
    float keep, rate_m, rate_v, root, eps, step;
};

// The arithmetic, for one element. m and v change in place.
__device__ __forceinline__ float stepped(float x, float g, float& m, float& v, const Scalars& s) {
    m += (g - m) * s.rate_m;
    v += (g * g - v) * s.rate_v;
    return x * s.keep - m / (sqrtf(v) * s.root + s.eps) * s.step;
}

// not_finite may be null: then nobody has looked.
__device__ __forceinline__ bool skipped(const unsigned* not_finite) {
    return not_finite != nullptr && *not_finite != 0;
}

// --- float32 --------------------------------------------------------------------------------------------

extern "C" __global__ void adamw_f32(float* x, const float* g, float* m, float* v,
                                     const unsigned* not_finite, float keep, float rate_m,
                                     float rate_v, float root, float eps, float step,
                                     long long n) {
    if (skipped(not_finite)) return;
    const Scalars s = {keep, rate_m, rate_v, root, eps, step};
    for (long long i = first_index(); i < n; i += index_stride())
        x[i] = stepped(x[i], g[i], m[i], v[i], s);
}

__device__ __forceinline__ float4 stepped(float4 x, float4 g, float4& m, float4& v,
                                          const Scalars& s) {
    return make_float4(stepped(x.x, g.x, m.x, v.x, s), stepped(x.y, g.y, m.y, v.y, s),
                       stepped(x.z, g.z, m.z, v.z, s), stepped(x.w, g.w, m.w, v.w, s));
}

extern "C" __global__ void adamw_f32_vec(float* x, const float* g, float* m, float* v,
                                         const unsigned* not_finite, float keep, float rate_m,
                                         float rate_v, float root, float eps, float step,
                                         long long n) {
    if (skipped(not_finite)) return;
    const Scalars s = {keep, rate_m, rate_v, root, eps, step};
    const bool fit = aligned(x, 4) && aligned(g, 4) && aligned(m, 4) && aligned(v, 4);
    const long long groups = fit ? n / 4 : 0;
    for (long long i = first_index(); i < groups; i += index_stride()) {
        float4 m4 = load4(m + 4 * i), v4 = load4(v + 4 * i);
        store4(x + 4 * i, stepped(load4(x + 4 * i), load4(g + 4 * i), m4, v4, s));
        store4(m + 4 * i, m4);
        store4(v + 4 * i, v4);
    }
    for (long long i = 4 * groups + first_index(); i < n; i += index_stride())
        x[i] = stepped(x[i], g[i], m[i], v[i], s);
}

// --- bfloat16 parameters and gradients, float32 masters ---------------------------------------------------

// x is written only: it is the master, rounded. 28 bytes per element, since a master has come in and
// x and g have become half as large.
extern "C" __global__ void adamw_bf16(__nv_bfloat16* x, float* master, const __nv_bfloat16* g,
                                      float* m, float* v, const unsigned* not_finite, float keep,
                                      float rate_m, float rate_v, float root, float eps,
                                      float step, long long n) {
    if (skipped(not_finite)) return;
    const Scalars s = {keep, rate_m, rate_v, root, eps, step};
    for (long long i = first_index(); i < n; i += index_stride()) {
        const float now = stepped(master[i], up(g[i]), m[i], v[i], s);
        master[i] = now;
        x[i] = down<__nv_bfloat16>(now);
    }
}

extern "C" __global__ void adamw_bf16_vec(__nv_bfloat16* x, float* master, const __nv_bfloat16* g,
                                          float* m, float* v, const unsigned* not_finite,
                                          float keep, float rate_m, float rate_v, float root,
                                          float eps, float step, long long n) {
    if (skipped(not_finite)) return;
    const Scalars s = {keep, rate_m, rate_v, root, eps, step};
    const bool fit = aligned(x, 4) && aligned(master, 4) && aligned(g, 4) && aligned(m, 4) &&
                     aligned(v, 4);
    const long long groups = fit ? n / 4 : 0;
    for (long long i = first_index(); i < groups; i += index_stride()) {
        float4 m4 = load4(m + 4 * i), v4 = load4(v + 4 * i);
        const float4 x4 = stepped(load4(master + 4 * i), load4(g + 4 * i), m4, v4, s);
        store4(master + 4 * i, x4);
        store4(x + 4 * i, x4);
        store4(m + 4 * i, m4);
        store4(v + 4 * i, v4);
    }
    for (long long i = 4 * groups + first_index(); i < n; i += index_stride()) {
        const float now = stepped(master[i], up(g[i]), m[i], v[i], s);
        master[i] = now;
        x[i] = down<__nv_bfloat16>(now);
    }
}
