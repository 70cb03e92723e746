// half_functions.h - arithmetic, comparisons and mathematics of one 16-bit type.
//
// No #pragma once: included for each type after half_type.h, which explains MD_HALF and MD_HALF2. The
// functions have the same names for both types; the compiler tells them apart by their arguments.
//
// All compute in float or double and round the result once, which gives every bit that the GPU's own
// 16-bit instructions give:  + - * / and the square root of 16-bit numbers fit well into a float
// (24 bits >= 2 x 11 + 2), and for a * b + c see `md_odd_sum` in rounding.h. What differs: hexp and its
// like are right to the last bit here, and may be one bit off on a GPU.

#define MD_UNARY(name, name2, result)                                                              \
    MD_INLINE MD_HALF name(MD_HALF a) {                                                            \
        const float x = a;                                                                         \
        return MD_HALF(result);                                                                    \
    }                                                                                              \
    MD_INLINE MD_HALF2 name2(MD_HALF2 a) { return {name(a.x), name(a.y)}; }
#define MD_BINARY(name, name2, result)                                                             \
    MD_INLINE MD_HALF name(MD_HALF a, MD_HALF b) {                                                 \
        const float x = a, y = b;                                                                  \
        return MD_HALF(result);                                                                    \
    }                                                                                              \
    MD_INLINE MD_HALF2 name2(MD_HALF2 a, MD_HALF2 b) { return {name(a.x, b.x), name(a.y, b.y)}; }

// --- arithmetic -------------------------------------------------------------------------------------
// NVRTC may join __hmul and __hadd to one fused operation, and never those with _rn. Here nothing is
// joined, so the two are the same.

MD_BINARY(__hadd, __hadd2, x + y)
MD_BINARY(__hsub, __hsub2, x - y)
MD_BINARY(__hmul, __hmul2, x * y)
MD_BINARY(__hadd_rn, __hadd2_rn, x + y)
MD_BINARY(__hsub_rn, __hsub2_rn, x - y)
MD_BINARY(__hmul_rn, __hmul2_rn, x * y)
MD_BINARY(__hdiv, __h2div, x / y)
MD_BINARY(__hadd_sat, __hadd2_sat, md_saturated(x + y))
MD_BINARY(__hsub_sat, __hsub2_sat, md_saturated(x - y))
MD_BINARY(__hmul_sat, __hmul2_sat, md_saturated(x * y))
MD_UNARY(__hneg, __hneg2, -x)
MD_UNARY(__habs, __habs2, __builtin_fabsf(x))

// a * b + c rounded once: the product of two 16-bit numbers is exact in a double.
MD_INLINE MD_HALF __hfma(MD_HALF a, MD_HALF b, MD_HALF c) {
    return md_odd_float(md_odd_sum((double)(float)a * (float)b, (float)c));
}
MD_INLINE MD_HALF __hfma_sat(MD_HALF a, MD_HALF b, MD_HALF c) { return md_saturated(__hfma(a, b, c)); }
MD_INLINE MD_HALF __hfma_relu(MD_HALF a, MD_HALF b, MD_HALF c) {
    const float x = __hfma(a, b, c);
    return x < 0 ? 0.0f : x;
}
MD_INLINE MD_HALF2 __hfma2(MD_HALF2 a, MD_HALF2 b, MD_HALF2 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
MD_INLINE MD_HALF2 __hfma2_sat(MD_HALF2 a, MD_HALF2 b, MD_HALF2 c) {
    return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)};
}
MD_INLINE MD_HALF2 __hfma2_relu(MD_HALF2 a, MD_HALF2 b, MD_HALF2 c) {
    return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};
}
// Pairs as complex numbers: real part, imaginary part.
MD_INLINE MD_HALF2 __hcmadd(MD_HALF2 a, MD_HALF2 b, MD_HALF2 c) {
    const MD_HALF real = __hfma(a.x, b.x, c.x), imaginary = __hfma(a.x, b.y, c.y);
    return {__hfma(__hneg(a.y), b.y, real), __hfma(a.y, b.x, imaginary)};
}

// A NaN loses against a number, and wins in those with _nan. -0 counts as smaller than +0.
// CUDA has no max and min for these types.
MD_HALF max(MD_HALF a, MD_HALF b) = delete;    // use __hmax
MD_HALF min(MD_HALF a, MD_HALF b) = delete;    // use __hmin
MD_BINARY(__hmax, __hmax2, md_larger(x, y))
MD_BINARY(__hmin, __hmin2, -md_larger(-x, -y))
MD_BINARY(__hmax_nan, __hmax2_nan, x != x || y != y ? __builtin_nanf("") : md_larger(x, y))
MD_BINARY(__hmin_nan, __hmin2_nan, x != x || y != y ? __builtin_nanf("") : -md_larger(-x, -y))

// --- comparisons ------------------------------------------------------------------------------------
// Any comparison with a NaN is false, also "not equal"; in those with u ("unordered") it is true. For a
// pair: 1 or 0 in each half (__heq2), all bits or none in each half (_mask), or whether it is true of
// both (__hbeq2).

MD_INLINE bool __hisnan(MD_HALF a) { return (float)a != (float)a; }
MD_INLINE int __hisinf(MD_HALF a) { return __builtin_isinf_sign((float)a); }
MD_INLINE MD_HALF2 __hisnan2(MD_HALF2 a) { return {(float)__hisnan(a.x), (float)__hisnan(a.y)}; }

#define MD_COMPARE(word, holds)                                                                    \
    MD_INLINE bool __h##word(MD_HALF a, MD_HALF b) {                                               \
        const float x = a, y = b;                                                                  \
        return holds;                                                                              \
    }                                                                                              \
    MD_INLINE MD_HALF2 __h##word##2(MD_HALF2 a, MD_HALF2 b) {                                      \
        return {(float)__h##word(a.x, b.x), (float)__h##word(a.y, b.y)};                           \
    }                                                                                              \
    MD_INLINE unsigned __h##word##2_mask(MD_HALF2 a, MD_HALF2 b) {                                 \
        return (__h##word(a.x, b.x) ? 0xffffu : 0) | (__h##word(a.y, b.y) ? 0xffff0000u : 0);      \
    }                                                                                              \
    MD_INLINE bool __hb##word##2(MD_HALF2 a, MD_HALF2 b) {                                         \
        return __h##word(a.x, b.x) && __h##word(a.y, b.y);                                         \
    }
MD_COMPARE(eq, x == y)
MD_COMPARE(ne, x < y || x > y)
MD_COMPARE(le, x <= y)
MD_COMPARE(ge, x >= y)
MD_COMPARE(lt, x < y)
MD_COMPARE(gt, x > y)
MD_COMPARE(equ, !(x < y || x > y))
MD_COMPARE(neu, !(x == y))
MD_COMPARE(leu, !(x > y))
MD_COMPARE(geu, !(x < y))
MD_COMPARE(ltu, !(x >= y))
MD_COMPARE(gtu, !(x <= y))
#undef MD_COMPARE

// --- operators --------------------------------------------------------------------------------------

#define MD_OPERATORS(Type, add, sub, mul, div, neg, all, one)                                      \
    MD_INLINE Type operator+(Type a, Type b) { return add(a, b); }                                 \
    MD_INLINE Type operator-(Type a, Type b) { return sub(a, b); }                                 \
    MD_INLINE Type operator*(Type a, Type b) { return mul(a, b); }                                 \
    MD_INLINE Type operator/(Type a, Type b) { return div(a, b); }                                 \
    MD_INLINE Type operator+(Type a) { return a; }                                                 \
    MD_INLINE Type operator-(Type a) { return neg(a); }                                            \
    MD_INLINE Type& operator+=(Type& a, Type b) { return a = add(a, b); }                          \
    MD_INLINE Type& operator-=(Type& a, Type b) { return a = sub(a, b); }                          \
    MD_INLINE Type& operator*=(Type& a, Type b) { return a = mul(a, b); }                          \
    MD_INLINE Type& operator/=(Type& a, Type b) { return a = div(a, b); }                          \
    MD_INLINE Type& operator++(Type& a) { return a = add(a, one); }                                \
    MD_INLINE Type& operator--(Type& a) { return a = sub(a, one); }                                \
    MD_INLINE Type operator++(Type& a, int) { const Type old = a; ++a; return old; }               \
    MD_INLINE Type operator--(Type& a, int) { const Type old = a; --a; return old; }               \
    MD_INLINE bool operator==(Type a, Type b) { return all(eq)(a, b); }                            \
    MD_INLINE bool operator!=(Type a, Type b) { return all(neu)(a, b); }                           \
    MD_INLINE bool operator<(Type a, Type b) { return all(lt)(a, b); }                             \
    MD_INLINE bool operator>(Type a, Type b) { return all(gt)(a, b); }                             \
    MD_INLINE bool operator<=(Type a, Type b) { return all(le)(a, b); }                            \
    MD_INLINE bool operator>=(Type a, Type b) { return all(ge)(a, b); }
#define MD_ONE_HOLDS(word) __h##word
#define MD_BOTH_HOLD(word) __hb##word##2
MD_OPERATORS(MD_HALF, __hadd, __hsub, __hmul, __hdiv, __hneg, MD_ONE_HOLDS, MD_HALF(1.0f))
MD_OPERATORS(MD_HALF2, __hadd2, __hsub2, __hmul2, __h2div, __hneg2, MD_BOTH_HOLD,
             (MD_HALF2{1.0f, 1.0f}))
#undef MD_OPERATORS
#undef MD_ONE_HOLDS
#undef MD_BOTH_HOLD

// --- mathematics ------------------------------------------------------------------------------------
// In double, and from there to odd, so that the result is the nearest of the 16-bit type.

MD_UNARY(htrunc, h2trunc, __builtin_truncf(x))
MD_UNARY(hceil, h2ceil, __builtin_ceilf(x))
MD_UNARY(hfloor, h2floor, __builtin_floorf(x))
MD_UNARY(hrint, h2rint, __builtin_rintf(x))
MD_UNARY(hsqrt, h2sqrt, __builtin_sqrt((double)x))
MD_UNARY(hrsqrt, h2rsqrt, 1 / __builtin_sqrt((double)x))
MD_UNARY(hrcp, h2rcp, 1 / (double)x)
MD_UNARY(hexp, h2exp, __builtin_exp((double)x))
MD_UNARY(hexp2, h2exp2, __builtin_exp2((double)x))
MD_UNARY(hexp10, h2exp10, __builtin_pow(10.0, (double)x))
MD_UNARY(hlog, h2log, __builtin_log((double)x))
MD_UNARY(hlog2, h2log2, __builtin_log2((double)x))
MD_UNARY(hlog10, h2log10, __builtin_log10((double)x))
MD_UNARY(hsin, h2sin, __builtin_sin((double)x))
MD_UNARY(hcos, h2cos, __builtin_cos((double)x))
MD_UNARY(htanh, h2tanh, __builtin_tanh((double)x))
MD_UNARY(htanh_approx, h2tanh_approx, __builtin_tanh((double)x))
#undef MD_UNARY
#undef MD_BINARY

// --- pairs and single values by functions that have one name for both types ------------------------

MD_INLINE float __low2float(MD_HALF2 a) { return a.x; }
MD_INLINE float __high2float(MD_HALF2 a) { return a.y; }
MD_INLINE MD_HALF2 __lowhigh2highlow(MD_HALF2 a) { return {a.y, a.x}; }

// --- adding in memory -------------------------------------------------------------------------------
// The old value comes back. On a GPU each half of a pair is added at once, but not both together; here
// both are, which no kernel can rely on.

#ifdef MD_ATOMIC_LOOP    // of atomics.h
MD_ATOMIC_LOOP(atomicAdd, MD_HALF, unsigned short, old + value)
MD_ATOMIC_LOOP(atomicAdd, MD_HALF2, unsigned, old + value)
#endif
