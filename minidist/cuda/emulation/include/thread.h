// thread.h - what a kernel and the emulator's runtime share: who I am, and what I can ask for.
//
//     kernel (its own library)                  runtime (one library for all kernels)
//     ------------------------                  -------------------------------------
//     threadIdx.x        reads  md_here  <----  written whenever another thread gets its turn
//     __syncthreads()    calls  md_barrier ---> returns when all threads of the block have come
//
// A GPU keeps the thread's index in special registers. Here one worker, a thread of the operating
// system, plays all threads of a block in turn, and md_here is that worker's own variable.
#pragma once
#include <stdint.h>

#include "vector_types.h"

// No initial values here: then a compiler knows that reading md_here runs no code.
struct md_thread {
    uint3 thread, block, block_size, grid_size;
    void* dynamic_shared;
    uint32_t lane;  // of the warp: 0 to 31
};

// For a kernel it is constant: from one thread's view it never changes, so the compiler may keep
// threadIdx in a register across a barrier, and need not have reads of it checked.
#ifdef MD_RUNTIME
#define MD_HERE __thread md_thread
#else
#define MD_HERE const __thread md_thread
#endif

// Found by one instruction instead of a call; for a few bytes the system keeps room for that.
#define MD_STATIC_TLS __attribute__((tls_model("initial-exec")))

#define MD_EXPORT __attribute__((visibility("default")))

// Where in the kernel's file a call stands: filled in at the place of the call.
#define MD_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// What md_barrier_vote tells every thread.
enum md_vote { MD_COUNT, MD_AND, MD_OR };

extern "C" {
extern MD_EXPORT MD_HERE md_here MD_STATIC_TLS;

// Wait for all threads of the block that have not left the kernel.
MD_EXPORT void md_barrier(const char* file, int line);
MD_EXPORT int md_barrier_vote(int kind, int predicate, const char* file, int line);

// Wait for the lanes in `mask`. Returns the value of every lane; `lanes` says whose are valid.
MD_EXPORT const uint64_t* md_warp(uint32_t mask, uint64_t value, const char* file, int line,
                                  uint32_t* lanes);

// My accesses so far are seen before those to come.
MD_EXPORT void md_fence();

// I am polling: now and then somebody else gets a turn, for what I wait for may be his to do.
MD_EXPORT void md_spin();

// A clock in nanoseconds that never stands still.
MD_EXPORT long long md_clock();

// End the launch with an error of this kind (abi.h).
[[noreturn]] MD_EXPORT void md_fail(int kind, const char* text, const char* file, int line);
}
