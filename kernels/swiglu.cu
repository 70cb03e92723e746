// SwiGLU: one array opens or closes the gate of another.
//
//     h = silu(gate) * up          silu(g) = g s, with the sigmoid s = 1 / (1 + exp(-g))
//
//     dup = dh silu(g)             dgate = dh up (s + silu(g) (1 - s))
//
// Each element is on its own, so only memory traffic costs time. The steps of the ladder, with what
// moves for n elements:
//
//     two kernels      silu into an array, then the product: 3n read, 2n written
//     one kernel       2n read, n written ("fusing": the middle stays in a register)
//     four elements    the same in fewer and wider loads and stores, so that each thread has more
//                      bytes on their way to it at a time
//
// bfloat16 halves the bytes. Numbers are widened to float32 when they are read and rounded once
// when they are written; all arithmetic is in float32. The backward kernel computes the sigmoid
// again: reading a stored one would take longer than the exp.
//
// Real systems: vLLM's silu_and_mul, Liger kernels and Megatron's fused SwiGLU do the same.

#include "minidist.cuh"

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }  // 1 / inf = 0

__device__ inline float gated(float g, float up) { return g * sigmoid(g) * up; }

struct Gradients {
    float gate, up;
};

__device__ inline Gradients gated_backward(float dh, float g, float up) {
    float s = sigmoid(g), silu = g * s;
    return {dh * up * (s + silu * (1.0f - s)), dh * silu};
}

// Step 1: as array code does it, one kernel for each operation.

extern "C" __global__ void silu_f32(const float* gate, float* silu, long long n) {
    for (long long i = first_index(); i < n; i += index_stride()) {
        silu[i] = gate[i] * sigmoid(gate[i]);
    }
}

extern "C" __global__ void multiply_f32(const float* a, const float* b, float* out, long long n) {
    for (long long i = first_index(); i < n; i += index_stride()) out[i] = a[i] * b[i];
}

// Step 2: one kernel. `from` is where the loop starts: step 3 has it do what fills no four.

template <typename T>
__device__ void swiglu_ones(const T* gate, const T* ups, T* h, long long from, long long n) {
    for (long long i = from + first_index(); i < n; i += index_stride()) {
        h[i] = down<T>(gated(up(gate[i]), up(ups[i])));
    }
}

template <typename T>
__device__ void swiglu_ones_backward(const T* dh, const T* gate, const T* ups, T* dgate, T* dups,
                                     long long from, long long n) {
    for (long long i = from + first_index(); i < n; i += index_stride()) {
        Gradients d = gated_backward(up(dh[i]), up(gate[i]), up(ups[i]));
        dgate[i] = down<T>(d.gate);
        dups[i] = down<T>(d.up);
    }
}

// Step 3: four elements at a time. Where an array does not begin on a multiple of four elements (a
// view), everything is left to step 2; else only the last one to three elements are.

template <typename T>
__device__ void swiglu_fours(const T* gate, const T* ups, T* h, long long n) {
    bool fours = aligned(gate, 4) && aligned(ups, 4) && aligned(h, 4);
    long long full = fours ? n / 4 : 0;
    for (long long i = first_index(); i < full; i += index_stride()) {
        float4 g = load4(gate + 4 * i), u = load4(ups + 4 * i);
        store4(h + 4 * i, make_float4(gated(g.x, u.x), gated(g.y, u.y),  //
                                      gated(g.z, u.z), gated(g.w, u.w)));
    }
    swiglu_ones(gate, ups, h, 4 * full, n);
}

template <typename T>
__device__ void swiglu_fours_backward(const T* dh, const T* gate, const T* ups, T* dgate, T* dups,
                                      long long n) {
    bool fours = aligned(dh, 4) && aligned(gate, 4) && aligned(ups, 4) && aligned(dgate, 4) &&
                 aligned(dups, 4);
    long long full = fours ? n / 4 : 0;
    for (long long i = first_index(); i < full; i += index_stride()) {
        float4 d = load4(dh + 4 * i), g = load4(gate + 4 * i), u = load4(ups + 4 * i);
        Gradients a = gated_backward(d.x, g.x, u.x), b = gated_backward(d.y, g.y, u.y);
        Gradients c = gated_backward(d.z, g.z, u.z), e = gated_backward(d.w, g.w, u.w);
        store4(dgate + 4 * i, make_float4(a.gate, b.gate, c.gate, e.gate));
        store4(dups + 4 * i, make_float4(a.up, b.up, c.up, e.up));
    }
    swiglu_ones_backward(dh, gate, ups, dgate, dups, 4 * full, n);
}

// What can be launched: steps 2 and 3, forward and backward, for both types of storage.

extern "C" __global__ void swiglu_one_f32(const float* gate, const float* ups, float* h,
                                          long long n) {
    swiglu_ones(gate, ups, h, 0, n);
}
extern "C" __global__ void swiglu_one_bf16(const __nv_bfloat16* gate, const __nv_bfloat16* ups,
                                           __nv_bfloat16* h, long long n) {
    swiglu_ones(gate, ups, h, 0, n);
}
extern "C" __global__ void swiglu_four_f32(const float* gate, const float* ups, float* h,
                                           long long n) {
    swiglu_fours(gate, ups, h, n);
}
extern "C" __global__ void swiglu_four_bf16(const __nv_bfloat16* gate, const __nv_bfloat16* ups,
                                            __nv_bfloat16* h, long long n) {
    swiglu_fours(gate, ups, h, n);
}
extern "C" __global__ void swiglu_backward_one_f32(const float* dh, const float* gate,
                                                   const float* ups, float* dgate, float* dups,
                                                   long long n) {
    swiglu_ones_backward(dh, gate, ups, dgate, dups, 0, n);
}
extern "C" __global__ void swiglu_backward_one_bf16(const __nv_bfloat16* dh,
                                                    const __nv_bfloat16* gate,
                                                    const __nv_bfloat16* ups, __nv_bfloat16* dgate,
                                                    __nv_bfloat16* dups, long long n) {
    swiglu_ones_backward(dh, gate, ups, dgate, dups, 0, n);
}
extern "C" __global__ void swiglu_backward_four_f32(const float* dh, const float* gate,
                                                    const float* ups, float* dgate, float* dups,
                                                    long long n) {
    swiglu_fours_backward(dh, gate, ups, dgate, dups, n);
}
extern "C" __global__ void swiglu_backward_four_bf16(const __nv_bfloat16* dh,
                                                     const __nv_bfloat16* gate,
                                                     const __nv_bfloat16* ups,
                                                     __nv_bfloat16* dgate, __nv_bfloat16* dups,
                                                     long long n) {
    swiglu_fours_backward(dh, gate, ups, dgate, dups, n);
}
