// What tests/cuda/test_types.py asks of the emulated types: each function maps an array to an array.
//
// Compiled once for each type, with -DTYPE=__half -DWORD=half or the other one. 16-bit values travel
// as their bits.
#include "cuda_bf16.h"

#define PASTE_(a, b, c) a##b##c
#define PASTE(a, b, c) PASTE_(a, b, c)
#define NAMED(before, after) PASTE(before, WORD, after)
#define PUBLIC extern "C" __attribute__((visibility("default")))

typedef unsigned short bits;
static TYPE from(bits a) { return NAMED(__ushort_as_, )(a); }
static bits to(TYPE a) { return NAMED(__, _as_ushort)(a); }

#define MAP(name, Out, In, expression)                                                             \
    PUBLIC void name(Out* out, const In* in, long n) {                                             \
        for (long i = 0; i < n; i++) {                                                             \
            const In a = in[i];                                                                    \
            out[i] = expression;                                                                   \
        }                                                                                          \
    }
#define MAP2(name, Out, expression)                                                                \
    PUBLIC void name(Out* out, const bits* first, const bits* second, long n) {                    \
        for (long i = 0; i < n; i++) {                                                             \
            const TYPE a = from(first[i]), b = from(second[i]);                                    \
            out[i] = expression;                                                                   \
        }                                                                                          \
    }

MAP(widen, float, bits, (float)from(a))
MAP(widen_named, float, bits, NAMED(__, 2float)(from(a)))
MAP(from_float, bits, float, to(TYPE(a)))
MAP(from_float_rn, bits, float, to(NAMED(__float2, _rn)(a)))
MAP(from_float_rz, bits, float, to(NAMED(__float2, _rz)(a)))
MAP(from_float_rd, bits, float, to(NAMED(__float2, _rd)(a)))
MAP(from_float_ru, bits, float, to(NAMED(__float2, _ru)(a)))
MAP(from_double, bits, double, to(TYPE(a)))
MAP(truth, unsigned char, bits, (bool)from(a))
MAP(is_nan, unsigned char, bits, __hisnan(from(a)))
MAP(is_inf, int, bits, __hisinf(from(a)))

#define INTEGER(word, Integer)                                                                     \
    MAP(from_##word, bits, Integer, to(TYPE(a)))                                                   \
    MAP(from_##word##_rn, bits, Integer, to(NAMED(__##word##2, _rn)(a)))                           \
    MAP(to_##word, Integer, bits, (Integer)from(a))                                                \
    MAP(to_##word##_rz, Integer, bits, NAMED(__, 2##word##_rz)(from(a)))                           \
    MAP(to_##word##_rn, Integer, bits, NAMED(__, 2##word##_rn)(from(a)))                           \
    MAP(to_##word##_rd, Integer, bits, NAMED(__, 2##word##_rd)(from(a)))                           \
    MAP(to_##word##_ru, Integer, bits, NAMED(__, 2##word##_ru)(from(a)))
INTEGER(short, short)
INTEGER(ushort, unsigned short)
INTEGER(int, int)
INTEGER(uint, unsigned)
INTEGER(ll, long long)
INTEGER(ull, unsigned long long)
MAP(to_char_rz, signed char, bits, NAMED(__, 2char_rz)(from(a)))
MAP(to_uchar_rz, unsigned char, bits, NAMED(__, 2uchar_rz)(from(a)))

#define MATH(name) MAP(do_##name, bits, bits, to(name(from(a))))
MATH(hexp) MATH(hexp2) MATH(hexp10) MATH(hlog) MATH(hlog2) MATH(hlog10) MATH(hsin) MATH(hcos)
MATH(htanh) MATH(hsqrt) MATH(hrsqrt) MATH(hrcp) MATH(htrunc) MATH(hceil) MATH(hfloor) MATH(hrint)
MATH(__hneg) MATH(__habs)

#define BINARY(name) MAP2(do_##name, bits, to(name(a, b)))
BINARY(__hadd) BINARY(__hsub) BINARY(__hmul) BINARY(__hdiv) BINARY(__hadd_rn) BINARY(__hsub_rn)
BINARY(__hmul_rn) BINARY(__hadd_sat) BINARY(__hsub_sat) BINARY(__hmul_sat) BINARY(__hmax)
BINARY(__hmin) BINARY(__hmax_nan) BINARY(__hmin_nan)
MAP2(plus, bits, to(a + b))
MAP2(minus, bits, to(a - b))
MAP2(times, bits, to(a * b))
MAP2(over, bits, to(a / b))

#define COMPARE(name) MAP2(do_##name, unsigned char, name(a, b))
COMPARE(__heq) COMPARE(__hne) COMPARE(__hle) COMPARE(__hge) COMPARE(__hlt) COMPARE(__hgt)
COMPARE(__hequ) COMPARE(__hneu) COMPARE(__hleu) COMPARE(__hgeu) COMPARE(__hltu) COMPARE(__hgtu)
MAP2(equal, unsigned char, a == b)
MAP2(unequal, unsigned char, a != b)
MAP2(below, unsigned char, a < b)
MAP2(above, unsigned char, a > b)
MAP2(at_most, unsigned char, a <= b)
MAP2(at_least, unsigned char, a >= b)

PUBLIC void fused(bits* out, const bits* a, const bits* b, const bits* c, long n) {
    for (long i = 0; i < n; i++) out[i] = to(__hfma(from(a[i]), from(b[i]), from(c[i])));
}
