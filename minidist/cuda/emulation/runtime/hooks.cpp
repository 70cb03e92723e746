// hooks.cpp - the functions that a compiler calls for every access to memory of a kernel.
//
// Kernels are compiled with -fsanitize=thread, which turns
//
//     c[i] = a[i];      into      __tsan_read4(&a[i]);  t = a[i];  __tsan_write4(&c[i]);  c[i] = t;
//
// Usually these functions come from a library that looks for races between threads of the operating
// system. That library is not linked; we bring our own functions under these names, which ask
// whether the kernel may touch that memory at all. Atomic operations are replaced by a call.
//
// A GPU checks addresses too, but only whether any memory lies there: an index that is a little too
// large silently hits the next array.
#include <string.h>

#include "worker.h"

#define HOOK extern "C" __attribute__((visibility("default")))
// The call itself: the address that it returns to may belong to the next line.
#define CALLER ((uintptr_t)__builtin_return_address(0) - 1)

// Code outside of a launch, such as the initial value of a variable, is not checked.
static inline void check(const volatile void* address, size_t bytes, bool write, uintptr_t pc,
                         bool atomic = false) {
    if (self) self->memory.check((uintptr_t)address, bytes, write, pc, atomic);
}

// A volatile read may be a loop that waits for a flag. Whoever watches takes it for atomic.
static inline void check_volatile(const volatile void* address, size_t bytes, uintptr_t pc) {
    check(address, bytes, false, pc, true);
    if (self) poll(pc);
}

// ---- plain and volatile, of the sizes that a processor loads in one instruction

#define ACCESS(bytes)                                                                              \
    HOOK void __tsan_read##bytes(void* p) { check(p, bytes, false, CALLER); }                      \
    HOOK void __tsan_write##bytes(void* p) { check(p, bytes, true, CALLER); }                      \
    HOOK void __tsan_unaligned_read##bytes(void* p) { check(p, bytes, false, CALLER); }            \
    HOOK void __tsan_unaligned_write##bytes(void* p) { check(p, bytes, true, CALLER); }            \
    HOOK void __tsan_volatile_read##bytes(void* p) { check_volatile(p, bytes, CALLER); }           \
    HOOK void __tsan_volatile_write##bytes(void* p) { check(p, bytes, true, CALLER, true); }       \
    HOOK void __tsan_unaligned_volatile_read##bytes(void* p) { check_volatile(p, bytes, CALLER); } \
    HOOK void __tsan_unaligned_volatile_write##bytes(void* p) {                                    \
        check(p, bytes, true, CALLER, true);                                                       \
    }

ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

// ---- structs

HOOK void __tsan_read_range(void* p, size_t bytes) {
    if (bytes) check(p, bytes, false, CALLER);
}
HOOK void __tsan_write_range(void* p, size_t bytes) {
    if (bytes) check(p, bytes, true, CALLER);
}

// ---- functions of the C library: kernels are linked with --wrap=memcpy and so on

#define COPY(function)                                                                             \
    HOOK void* __wrap_##function(void* to, const void* from, size_t bytes) {                       \
        if (bytes) check(from, bytes, false, CALLER), check(to, bytes, true, CALLER);              \
        return function(to, from, bytes);                                                          \
    }                                                                                              \
    HOOK void* __tsan_##function(void* to, const void* from, size_t bytes) {                       \
        return __wrap_##function(to, from, bytes);                                                 \
    }

COPY(memcpy)
COPY(memmove)

HOOK void* __wrap_memset(void* to, int value, size_t bytes) {
    if (bytes) check(to, bytes, true, CALLER);
    return memset(to, value, bytes);
}
HOOK void* __tsan_memset(void* to, int value, size_t bytes) {
    return __wrap_memset(to, value, bytes);
}

// A kernel cannot end the process; on a GPU it would not even compile.
static void no_way_out(uintptr_t pc) {
    if (!self) return;
    Trouble trouble = trouble_at(MD_ASSERTION);
    trouble.pc = pc;
    trouble.text = "abort() or exit() in a kernel; __trap() stops one";
    give_up(trouble);
}
HOOK void __wrap_abort() { no_way_out(CALLER); }
HOOK void __wrap_exit(int) { no_way_out(CALLER); }
HOOK void __wrap__exit(int) { no_way_out(CALLER); }

// ---- atomic operations
//
// A stronger order than the kernel asks for is always right, and costs nothing that shows here. So
// this machine hides an order that is too weak; only a GPU, or a reader, finds it.

static void misaligned(const volatile void* address, size_t bytes, uintptr_t pc) {
    Trouble trouble = trouble_at(MD_MISALIGNED);
    trouble.pc = pc;
    trouble.address = (uintptr_t)address;
    trouble.size = (uint32_t)bytes;
    trouble.text = "an atomic operation";
    give_up(trouble);
}

static inline void check_atomic(const volatile void* address, size_t bytes, bool write,
                                uintptr_t pc) {
    if (!self) return;
    check(address, bytes, write, pc, true);
    if ((uintptr_t)address % bytes) misaligned(address, bytes, pc);
    poll(pc);
}

#define UPDATE(bits, T, operation)                                                                 \
    HOOK T __tsan_atomic##bits##_##operation(volatile T* p, T value, int) {                        \
        check_atomic(p, sizeof(T), true, CALLER);                                                  \
        return __atomic_##operation(p, value, __ATOMIC_SEQ_CST);                                   \
    }

#define COMPARE_EXCHANGE(bits, T, strength)                                                        \
    HOOK int __tsan_atomic##bits##_compare_exchange_##strength(volatile T* p, T* expected,         \
                                                               T desired, int, int) {              \
        check_atomic(p, sizeof(T), true, CALLER);                                                  \
        return __atomic_compare_exchange_n(p, expected, desired, false, __ATOMIC_SEQ_CST,          \
                                           __ATOMIC_SEQ_CST);                                      \
    }

#define ATOMIC(bits, T)                                                                            \
    HOOK T __tsan_atomic##bits##_load(const volatile T* p, int) {                                  \
        check_atomic(p, sizeof(T), false, CALLER);                                                 \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    HOOK void __tsan_atomic##bits##_store(volatile T* p, T value, int) {                           \
        check_atomic(p, sizeof(T), true, CALLER);                                                  \
        __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                              \
    }                                                                                              \
    HOOK T __tsan_atomic##bits##_exchange(volatile T* p, T value, int) {                           \
        check_atomic(p, sizeof(T), true, CALLER);                                                  \
        return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                    \
    }                                                                                              \
    HOOK T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T desired, int,   \
                                                      int) {                                       \
        check_atomic(p, sizeof(T), true, CALLER);                                                  \
        __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_SEQ_CST,                \
                                    __ATOMIC_SEQ_CST);                                             \
        return expected;                                                                           \
    }                                                                                              \
    COMPARE_EXCHANGE(bits, T, strong)                                                              \
    COMPARE_EXCHANGE(bits, T, weak)                                                                \
    UPDATE(bits, T, fetch_add)                                                                     \
    UPDATE(bits, T, fetch_sub)                                                                     \
    UPDATE(bits, T, fetch_and)                                                                     \
    UPDATE(bits, T, fetch_or)                                                                      \
    UPDATE(bits, T, fetch_xor)                                                                     \
    UPDATE(bits, T, fetch_nand)

ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

static void fence(uintptr_t pc) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (self) poll(pc);
}

void md_fence() { fence(CALLER); }
HOOK void __tsan_atomic_thread_fence(int) { fence(CALLER); }
HOOK void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

// ---- what we do not need

HOOK void __tsan_init() {}
HOOK void __tsan_func_entry(void*) {}
HOOK void __tsan_func_exit() {}
