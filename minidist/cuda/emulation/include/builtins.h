// builtins.h - CUDA's own words, and the variables that tell a thread who it is.
#pragma once
#include "thread.h"

#define MINIDIST_EMULATED 1  // for what only one of the two can compile
#define __CUDA_ARCH__ 900

// ---- functions

#define __global__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict

// Functions of these headers are always inlined, so that a load of an argument stands in the
// kernel itself, where the checks of memory see it with the kernel's own line.
#ifndef MD_INLINE
#define MD_INLINE static inline __attribute__((always_inline, unused))
#endif

// For the few that read memory of the runtime, which is none of the kernel's.
#ifdef __clang__
#define MD_UNCHECKED __attribute__((no_sanitize("thread"), disable_sanitizer_instrumentation))
#else
#define MD_UNCHECKED __attribute__((no_sanitize("thread")))
#endif

// ---- variables

// A worker runs one block at a time, so a variable of its own is the block's.
#define __shared__ thread_local

// Visible, so that Python finds the variable by its name.
#define __device__ __attribute__((visibility("default")))
#define __constant__ __attribute__((visibility("default")))
#define __managed__ __attribute__((visibility("default")))
#define __align__(n) __attribute__((aligned(n)))

// extern __shared__ float s[];   is rewritten as   MD_DYNAMIC_SHARED(float, s)
#define MD_DYNAMIC_SHARED(type, name) type* name = (type*)md_here.dynamic_shared;

#define threadIdx (md_here.thread)
#define blockIdx (md_here.block)
#define blockDim (md_here.block_size)
#define gridDim (md_here.grid_size)
#define warpSize 32

// ---- things to call

#define clock64() md_clock()
#define clock() md_clock()
#define __nanosleep(nanoseconds) ((void)(nanoseconds), md_spin())
#define __trap() md_fail(MD_KIND_ASSERTION, "__trap() was called", __FILE__, __LINE__)
#define MD_KIND_ASSERTION 8
#define MD_KIND_BAD_MASK 11

#undef assert
#define assert(condition)                                                                          \
    ((condition) ? (void)0                                                                         \
                 : md_fail(MD_KIND_ASSERTION, "assertion failed: " #condition, __FILE__, __LINE__))
// A kernel that includes <assert.h> gets the C library's macro, which calls this.
#define __assert_fail(condition, file, line, function) md_fail(MD_KIND_ASSERTION, condition, file, line)
