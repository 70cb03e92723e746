// fiber.cpp - stacks, and the switch from one to another.
#include "fiber.h"

#include <string.h>
#include <sys/mman.h>

// ---- stacks

// If all stacks began at the same offset in 4 KiB, the hot part of all of them would compete for the
// same few sets of the cache. So every fiber begins 320 bytes further down than the last.
static size_t colour(size_t number) { return number * 320 % 4096; }

Fiber* FiberPool::take() {
    if (idle.empty()) {
        // Only pages that are touched become memory.
        void* memory = mmap(nullptr, PAGE + STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        if (memory == MAP_FAILED) return nullptr;
        mprotect(memory, PAGE, PROT_NONE);
        auto fiber = std::make_unique<Fiber>();
        fiber->guard = (char*)memory;
        fiber->top = fiber->low() + STACK_BYTES - colour(made.size());
        idle.reserve(made.size() + 1);  // so that giving one back never allocates
        idle.push_back(fiber.get());
        made.push_back(std::move(fiber));
    }
    Fiber* fiber = idle.back();
    idle.pop_back();
    return fiber;
}

void FiberPool::reclaim() {
    idle.clear();
    for (auto& fiber : made) idle.push_back(fiber.get());
}

// ---- the switch

#ifdef MD_UCONTEXT

void prepare(Fiber& fiber, void (*entry)()) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.low();
    fiber.context.uc_stack.ss_size = (size_t)(fiber.top - fiber.low());
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, entry, 0);
}

void switch_fiber(Fiber& from, Fiber& to) { swapcontext(&from.context, &to.context); }

#else

// A function call may destroy most registers; only the few that it must keep have to be saved, and
// the return address lies on the stack already.
extern "C" void md_switch(void** saved, void* stack_pointer);

void switch_fiber(Fiber& from, Fiber& to) { md_switch(&from.saved, to.saved); }

#if defined(__x86_64__)

asm(R"(
    .text
    .globl md_switch
    .hidden md_switch
    .type md_switch, @function
md_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .size md_switch, .-md_switch
)");

// The stack looks as if entry() had been called and had at once called md_switch.
void prepare(Fiber& fiber, void (*entry)()) {
    void** stack = (void**)((uintptr_t)fiber.top & ~(uintptr_t)15);
    *--stack = nullptr;       // entry()'s return address: there is none
    *--stack = (void*)entry;  // where `ret` goes
    for (int i = 0; i < 6; i++) *--stack = nullptr;  // the six registers
    fiber.saved = stack;
}

#elif defined(__aarch64__)

asm(R"(
    .text
    .globl md_switch
    .hidden md_switch
    .type md_switch, %function
md_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size md_switch, .-md_switch
)");

// The same picture; on this machine `ret` goes to register x30.
void prepare(Fiber& fiber, void (*entry)()) {
    void** stack = (void**)((uintptr_t)fiber.top & ~(uintptr_t)15) - 20;
    memset(stack, 0, 160);
    stack[11] = (void*)entry;
    fiber.saved = stack;
}

#endif
#endif
