// device_math.h - the functions of a GPU that <math.h> does not have.
//
//     __expf(x)           a GPU's quick approximation; here it is expf, and right to the last bit
//     __float_as_int(x)   the same 32 bits, seen as another type
//     __popc(x)           bits
//     __ldg(p)            a load with a hint for the caches; here just a load
//     max(a, b)           for all types
//
// So results differ from a GPU's in the last bits: compare with a tolerance.
#pragma once
#include "thread.h"

// ---- quick approximations, and explicit rounding to the nearest

// The C library declares functions of these names for its own use, so they must be macros.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __sincosf(x, s, c) sincosf(x, s, c)

MD_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
MD_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
MD_INLINE float rcbrtf(float x) { return 1.0f / cbrtf(x); }
MD_INLINE float sinpif(float x) { return sinf((float)(3.14159265358979323846 * x)); }
MD_INLINE float cospif(float x) { return cosf((float)(3.14159265358979323846 * x)); }
MD_INLINE float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
MD_INLINE float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

MD_INLINE float __fdividef(float a, float b) { return a / b; }
MD_INLINE float __fdiv_rn(float a, float b) { return a / b; }
MD_INLINE float __fadd_rn(float a, float b) { return a + b; }
MD_INLINE float __fsub_rn(float a, float b) { return a - b; }
MD_INLINE float __fmul_rn(float a, float b) { return a * b; }
MD_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
MD_INLINE float __frcp_rn(float x) { return 1.0f / x; }
MD_INLINE float __fsqrt_rn(float x) { return sqrtf(x); }
MD_INLINE float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
MD_INLINE double __dadd_rn(double a, double b) { return a + b; }
MD_INLINE double __dmul_rn(double a, double b) { return a * b; }
MD_INLINE double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

// ---- the larger and the smaller one: a float that is not a number loses

template <class A, class B> MD_INLINE auto max(A a, B b) -> decltype(a + b) {
    return (decltype(a + b))a < (decltype(a + b))b ? b : a;
}
template <class A, class B> MD_INLINE auto min(A a, B b) -> decltype(a + b) {
    return (decltype(a + b))b < (decltype(a + b))a ? b : a;
}
MD_INLINE float max(float a, float b) { return fmaxf(a, b); }
MD_INLINE float min(float a, float b) { return fminf(a, b); }
MD_INLINE double max(double a, double b) { return fmax(a, b); }
MD_INLINE double min(double a, double b) { return fmin(a, b); }

// ---- the same bits as another type

template <class To, class From> MD_INLINE To md_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits need as many");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
MD_INLINE int __float_as_int(float x) { return md_bits<int>(x); }
MD_INLINE float __int_as_float(int x) { return md_bits<float>(x); }
MD_INLINE unsigned __float_as_uint(float x) { return md_bits<unsigned>(x); }
MD_INLINE float __uint_as_float(unsigned x) { return md_bits<float>(x); }
MD_INLINE long long __double_as_longlong(double x) { return md_bits<long long>(x); }
MD_INLINE double __longlong_as_double(long long x) { return md_bits<double>(x); }

// ---- to integers: to the nearest (of two, the even one), down, up, towards 0. What does not fit
// becomes the nearest integer that there is, and what is not a number becomes 0.

MD_INLINE int md_to_int(float x) {
    if (x != x) return 0;
    return x >= 2147483648.0f ? 2147483647 : x <= -2147483648.0f ? -2147483647 - 1 : (int)x;
}
MD_INLINE unsigned md_to_uint(float x) {
    return !(x > 0) ? 0 : x >= 4294967296.0f ? 4294967295u : (unsigned)x;
}
MD_INLINE int __float2int_rn(float x) { return md_to_int(rintf(x)); }
MD_INLINE int __float2int_rd(float x) { return md_to_int(floorf(x)); }
MD_INLINE int __float2int_ru(float x) { return md_to_int(ceilf(x)); }
MD_INLINE int __float2int_rz(float x) { return md_to_int(x); }
MD_INLINE unsigned __float2uint_rn(float x) { return md_to_uint(rintf(x)); }
MD_INLINE unsigned __float2uint_rd(float x) { return md_to_uint(floorf(x)); }
MD_INLINE unsigned __float2uint_ru(float x) { return md_to_uint(ceilf(x)); }
MD_INLINE unsigned __float2uint_rz(float x) { return md_to_uint(x); }
MD_INLINE float __int2float_rn(int x) { return (float)x; }
MD_INLINE float __uint2float_rn(unsigned x) { return (float)x; }
MD_INLINE float __ll2float_rn(long long x) { return (float)x; }
MD_INLINE float __double2float_rn(double x) { return (float)x; }

// ---- bits of integers

MD_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
MD_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
MD_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
MD_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
MD_INLINE int __ffs(int x) { return __builtin_ffs(x); }
MD_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
MD_INLINE unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++) reversed |= (x >> i & 1) << (31 - i);
    return reversed;
}
MD_INLINE int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
MD_INLINE unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((unsigned long long)a * b >> 32);
}
MD_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
MD_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}
MD_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}

// ---- loads and stores with hints for the caches, which this machine does not have

template <class T> MD_INLINE T __ldg(const T* p) { return *p; }
template <class T> MD_INLINE T __ldca(const T* p) { return *p; }
template <class T> MD_INLINE T __ldcg(const T* p) { return *p; }
template <class T> MD_INLINE T __ldcs(const T* p) { return *p; }
template <class T> MD_INLINE void __stcg(T* p, T value) { *p = value; }
template <class T> MD_INLINE void __stcs(T* p, T value) { *p = value; }
