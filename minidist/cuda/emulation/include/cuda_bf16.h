// cuda_bf16.h - __nv_bfloat16 and __nv_bfloat162, the upper half of a float, under CUDA's names.
//
// For reading: rounding.h (the bits), half_type.h (the class, conversions), half_functions.h (what one
// does with it). Before sm_90 a GPU has few instructions for this type and computes in float, as is
// done here; the results are the same.
#pragma once
#include "cuda_fp16.h"

#define MD_WORD bfloat16
#define MD_HALF __nv_bfloat16
#define MD_HALF2 __nv_bfloat162
#define MD_OTHER __half
#define MD_ROUND md_float_to_bfloat16
#define MD_WIDEN md_bfloat16_to_float
#include "half_type.h"
#include "half_functions.h"
#include "half_end.h"

// From one type to the other, by way of float, which holds both.
inline __half::__half(const __nv_bfloat16 other) : __half((float)other) {}
inline __nv_bfloat16::__nv_bfloat16(const __half other) : __nv_bfloat16((float)other) {}

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
