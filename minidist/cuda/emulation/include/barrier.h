// barrier.h - __syncthreads and its kin, and fences.
//
// A fence orders the accesses of one thread as others see them:
//
//     data = 1;  __threadfence();  flag = 1;        who sees the flag sees the data
//
// It waits for nobody. Loops that poll often hold one, so it counts as polling.
#pragma once
#include "thread.h"

MD_INLINE void __syncthreads(MD_PLACE) { md_barrier(file, line); }

// A barrier that also tells how many threads have, whether all have, or whether any thread has a
// predicate that is not 0.
MD_INLINE int __syncthreads_count(int predicate, MD_PLACE) {
    return md_barrier_vote(MD_COUNT, predicate, file, line);
}
MD_INLINE int __syncthreads_and(int predicate, MD_PLACE) {
    return md_barrier_vote(MD_AND, predicate, file, line);
}
MD_INLINE int __syncthreads_or(int predicate, MD_PLACE) {
    return md_barrier_vote(MD_OR, predicate, file, line);
}

// For the threads of the block, of the GPU, of all GPUs: here it is one and the same.
MD_INLINE void __threadfence_block() { md_fence(); }
MD_INLINE void __threadfence() { md_fence(); }
MD_INLINE void __threadfence_system() { md_fence(); }
