// rounding.h - from float32 to the two 16-bit types and back, bit for bit as a GPU does it.
//
//               sign  exponent   fraction                  largest   smallest normal   digits
//     float32    | 1 |    8    |         23         |       3e38         1e-38            7
//     bfloat16   | 1 |    8    |   7    |                   3e38         1e-38            2
//     float16    | 1 |   5  |    10    |                   65504         6e-5             3
//
// bfloat16 is the upper half of a float32: the same range, few digits. float16 has more digits and
// a range that gradients leave. Both round to the nearest value, and a tie goes to the one whose last
// bit is 0 ("to even"), so that the errors of a long sum do not all point the same way:
//
//     kept bits ...0|1000   a tie, stays ...0        kept bits ...1|1000   a tie, goes up to ..10
//     kept bits ...0|1001   above the tie, goes up   kept bits ...1|0111   below it, stays ...1
//
// A result beyond the largest number is infinite, and every NaN becomes the one NaN 0x7fff.
#pragma once
#include <string.h>

#include "vector_types.h"

MD_INLINE unsigned md_bits(float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

MD_INLINE float md_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Drop the last `drop` bits, to nearest even. A carry runs from the fraction into the exponent, which
// is right: the value after 1.111 x 2^3 is 1.000 x 2^4, and the one after the largest is infinity.
MD_INLINE unsigned md_drop(unsigned bits, int drop) {
    const unsigned last = bits >> drop & 1;
    return (bits + (1u << (drop - 1)) - 1 + last) >> drop;
}

MD_INLINE unsigned short md_float_to_bfloat16(float value) {
    const unsigned bits = md_bits(value), size = bits & 0x7fffffff;
    return (unsigned short)(size > 0x7f800000 ? 0x7fff : md_drop(bits, 16));
}

// A shift keeps every bit, those of a NaN too.
MD_INLINE float md_bfloat16_to_float(unsigned short bits) { return md_float((unsigned)bits << 16); }

MD_INLINE unsigned short md_float_to_half(float value) {
    const unsigned bits = md_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return 0x7fff;                              // NaN
    if (size >= 0x477ff000) return (unsigned short)(sign | 0x7c00);    // from 65520 on: infinite
    if (size < 0x38800000) {
        // Below 2^-14 the values of float16 lie 2^-24 apart, as those of float32 do above 0.5: the
        // addition itself rounds.
        const unsigned steps = md_bits(md_float(size) + 0.5f) - md_bits(0.5f);
        return (unsigned short)(sign | steps);
    }
    // The exponent of float32 counts from -127, that of float16 from -15.
    return (unsigned short)(sign | md_drop(size - (112u << 23), 13));
}

MD_INLINE float md_half_to_float(unsigned short bits) {
    const unsigned sign = (unsigned)(bits & 0x8000) << 16, size = bits & 0x7fff;
    if (size > 0x7c00) return md_float(0x7fffffff);                    // NaN, without its sign
    if (size == 0x7c00) return md_float(sign | 0x7f800000);            // infinite
    if (size < 0x0400) return md_float(sign | md_bits((float)size * 0x1p-24f));
    return md_float(sign | ((size << 13) + (112u << 23)));
}

// --- rounding once, though there are two steps ------------------------------------------------------
//
// A double that is rounded to float and then to 16 bits can be rounded up twice, to a neighbour that
// is not the nearest:   0.4999 -> 0.50 -> 1. "Rounding to odd" in the first step prevents it: cut
// off, and where something was lost set the last bit. No tie can appear that was none.

MD_INLINE float md_odd_float(double value) {
    const float nearest = (float)value;
    if (nearest == value || value != value) return nearest;
    const unsigned cut = __builtin_fabs((double)nearest) > __builtin_fabs(value);
    return md_float((md_bits(nearest) - cut) | 1);
}

// a + b to odd. `lost` is exactly what the rounded sum lacks (Knuth's two-sum).
MD_INLINE double md_odd_sum(double a, double b) {
    const double sum = a + b, part = sum - a, lost = (a - (sum - part)) + (b - part);
    if (!(__builtin_fabs(lost) > 0)) return sum;                       // exact, infinite or NaN
    unsigned long long bits;
    memcpy(&bits, &sum, sizeof bits);
    bits = (bits - ((lost < 0) != (sum < 0))) | 1;
    double odd;
    memcpy(&odd, &bits, sizeof odd);
    return odd;
}

// An integer as a float to odd, in two exact parts: 64 bits do not fit in one double.
template <class Integer> MD_INLINE float md_odd_integer(Integer value) {
    const Integer low = (Integer)(value % 0x10000);
    return md_odd_float(md_odd_sum((double)(Integer)(value - low), (double)low));
}

// A whole float as an integer: beyond the range the nearest end, as on a GPU; C++ promises nothing.
template <class Integer> MD_INLINE Integer md_to_integer(float whole) {
    const bool is_signed = (Integer)-1 < (Integer)0;
    const int bits = 8 * (int)sizeof(Integer) - (is_signed ? 1 : 0);
    const Integer largest = (Integer)(~0ull >> (64 - bits));
    const Integer smallest = (Integer)(is_signed ? -largest - 1 : 0);
    if (whole != whole) return (Integer)(sizeof(Integer) == 8 ? 1ull << 63 : 0);
    if (whole >= (float)largest) return largest;                       // (float)largest may be 2^bits
    if (whole <= (float)smallest) return smallest;
    return (Integer)whole;
}

// --- two rules about NaN ----------------------------------------------------------------------------

// What CUDA calls saturated: within 0 and 1, and 0 for a NaN.
MD_INLINE float md_saturated(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

// The larger one. A NaN loses against a number, and -0 is smaller than +0.
MD_INLINE float md_larger(float x, float y) {
    if (x != x || y != y) return x != x ? y : x;
    return x == y ? (__builtin_signbit(x) ? y : x) : (x > y ? x : y);
}
