// atomics.h - read, change and write back, with nobody in between.
//
//     atomicAdd(&sum, x)     returns the old value
//
// The compiler's own atomic operations do it for integers. All others are a loop: compute the new
// value from the old one, and write it if the old one is still there, else try again. A GPU has
// instructions for some of these too, and the same loop (atomicCAS) for the rest.
//
// Who adds floats this way gets a sum that depends on the order in which threads come.
#pragma once
#include "thread.h"

// ---- with one operation of the compiler: integers

#define MD_ATOMIC_INTEGER(T)                                                                       \
    MD_INLINE T atomicAdd(T* p, T value) { return __atomic_fetch_add(p, value, 0); }               \
    MD_INLINE T atomicExch(T* p, T value) { return __atomic_exchange_n(p, value, 0); }             \
    MD_INLINE T atomicAnd(T* p, T value) { return __atomic_fetch_and(p, value, 0); }               \
    MD_INLINE T atomicOr(T* p, T value) { return __atomic_fetch_or(p, value, 0); }                 \
    MD_INLINE T atomicXor(T* p, T value) { return __atomic_fetch_xor(p, value, 0); }               \
    MD_INLINE T atomicCAS(T* p, T expected, T desired) {                                           \
        __atomic_compare_exchange_n(p, &expected, desired, false, 0, 0);                           \
        return expected;                                                                           \
    }                                                                                              \
    MD_ATOMIC_LOOP(atomicMin, T, T, old < value ? old : value)                                     \
    MD_ATOMIC_LOOP(atomicMax, T, T, old > value ? old : value)

// ---- with a loop: `expression` is the new value; U is an integer of the same size

#define MD_ATOMIC_LOOP(name, T, U, expression)                                                     \
    MD_INLINE T name(T* p, T value) {                                                              \
        U bits = __atomic_load_n((U*)p, 0);                                                        \
        for (;;) {                                                                                 \
            T old, changed;                                                                        \
            U desired;                                                                             \
            __builtin_memcpy(&old, &bits, sizeof old);                                             \
            changed = expression;                                                                  \
            __builtin_memcpy(&desired, &changed, sizeof changed);                                  \
            if (__atomic_compare_exchange_n((U*)p, &bits, desired, false, 0, 0)) return old;       \
        }                                                                                          \
    }

MD_ATOMIC_INTEGER(int)
MD_ATOMIC_INTEGER(unsigned)
MD_ATOMIC_INTEGER(long long)
MD_ATOMIC_INTEGER(unsigned long long)

MD_INLINE int atomicSub(int* p, int value) { return __atomic_fetch_sub(p, value, 0); }
MD_INLINE unsigned atomicSub(unsigned* p, unsigned value) {
    return __atomic_fetch_sub(p, value, 0);
}
MD_INLINE unsigned short atomicCAS(unsigned short* p, unsigned short expected,
                                   unsigned short desired) {
    __atomic_compare_exchange_n(p, &expected, desired, false, 0, 0);
    return expected;
}

// Count up to `value` and begin at 0 again; count down to 0 and begin at `value` again.
MD_ATOMIC_LOOP(atomicInc, unsigned, unsigned, old >= value ? 0 : old + 1)
MD_ATOMIC_LOOP(atomicDec, unsigned, unsigned, old == 0 || old > value ? value : old - 1)

MD_ATOMIC_LOOP(atomicAdd, float, unsigned, old + value)
MD_ATOMIC_LOOP(atomicAdd, double, unsigned long long, old + value)
MD_ATOMIC_LOOP(atomicExch, float, unsigned, value)

// ---- flags for other blocks and other processes, which on a GPU are instructions of PTX

template <class T> MD_INLINE T md_load_acquire(const T* p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
template <class T> MD_INLINE void md_store_release(T* p, T value) {
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
}
