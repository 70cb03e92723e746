// cuda_fp16.h - __half and __half2, the 16-bit floats of IEEE 754, under CUDA's names.
//
// For reading: rounding.h (the bits), half_type.h (the class, conversions), half_functions.h (what one
// does with it). A GPU has instructions for this type, and two at once for __half2, which is why
// kernels use pairs; here a pair is two values one after the other.
#pragma once
#include "rounding.h"

struct __nv_bfloat16;

#define MD_WORD half
#define MD_HALF __half
#define MD_HALF2 __half2
#define MD_OTHER __nv_bfloat16
#define MD_ROUND md_float_to_half
#define MD_WIDEN md_half_to_float
#include "half_type.h"
#include "half_functions.h"
#include "half_end.h"

// CUDA also knows this name for integers, without any header: their mean, rounded down. It is why
// __hadd(h, 1.0f) is ambiguous there, and has to be here.
MD_INLINE int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }

typedef __half half, nv_half, __nv_half;
typedef __half2 half2, nv_half2, __nv_half2;
