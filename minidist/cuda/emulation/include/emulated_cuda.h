// emulated_cuda.h - what nvcc and NVRTC know without being told, for a C++ compiler.
//
// It is included before a kernel file, and makes C++ of its CUDA:
//
//     __global__ void add(...)        builtins.h       words that a C++ compiler does not know
//     threadIdx.x, float4             thread.h, vector_types.h
//     __syncthreads()                 barrier.h
//     __shfl_down_sync(...)           warp_functions.h
//     atomicAdd(...)                  atomics.h
//     rsqrtf(x), max(a, b)            device_math.h
//     (how Python calls a kernel)     reflection.h
//
// What differs from a GPU: threads do not run at the same time, doubles are as fast as floats, and
// a * b + c is rounded twice. Kernels need no other header for what stands here.
#pragma once

// The C library comes first: it uses words that builtins.h makes macros of.
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "builtins.h"

#include "barrier.h"
#include "warp_functions.h"
#include "atomics.h"
#include "device_math.h"
#include "reflection.h"
