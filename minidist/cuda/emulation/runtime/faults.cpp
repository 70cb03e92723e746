// faults.cpp - signals: a kernel's fault becomes an error of its launch, and the process goes on.
//
//     SIGSEGV, SIGBUS   an address without memory; the guard page of a stack: overflow
//     SIGFPE            integer division by zero (x86)
//     TICK              every 10 ms from md_wait: stop, or give somebody else a turn
//
// A handler may interrupt anything. So it looks where: in the kernel's own code no lock is held and
// no table of ours is half written, and there a tick may do as it likes; elsewhere (in the runtime,
// in printf) it does nothing, for the next one comes soon.
#include "faults.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <atomic>

#include "launch.h"
#include "worker.h"

static uintptr_t pc_of(const void* context) {
    const auto& machine = ((const ucontext_t*)context)->uc_mcontext;
#if defined(__x86_64__)
    return (uintptr_t)machine.gregs[REG_RIP];
#else
    return (uintptr_t)machine.pc;
#endif
}

static uintptr_t stack_pointer_of(const void* context) {
    const auto& machine = ((const ucontext_t*)context)->uc_mcontext;
#if defined(__x86_64__)
    return (uintptr_t)machine.gregs[REG_RSP];
#else
    return (uintptr_t)machine.sp;
#endif
}

// ---- faults that are not a kernel's

static struct sigaction previous[NSIG];

// Whoever had this signal before us gets it. If that neither ends the process nor mends the cause,
// the same instruction faults again, and is left to the system.
static void pass_on(int number, siginfo_t* info, void* context) {
    static std::atomic<uintptr_t> last_pc{0};
    const struct sigaction& old = previous[number];
    const bool again = last_pc.exchange(pc_of(context)) == pc_of(context);
    if (number == TICK && !(old.sa_flags & SA_SIGINFO) &&
        (old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN)) return;
    if (number != TICK && again) {
        signal(number, SIG_DFL);
    } else if (old.sa_flags & SA_SIGINFO) {
        old.sa_sigaction(number, info, context);
    } else if (old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN) {
        signal(number, SIG_DFL);  // the instruction faults again, and ends the process
    } else {
        old.sa_handler(number);
    }
}

// ---- a kernel's faults

// If a function of ours or of the C library faults, the line of the kernel that called it is
// wanted: the first word on the stack that points into the kernel's code.
static uintptr_t caller_in_kernel(uintptr_t pc, uintptr_t stack_pointer) {
    const Module& module = self->launch->module;
    if (module.in_code(pc)) return pc;
    const Fiber& fiber = *self->block.stack();
    const uintptr_t low = (uintptr_t)fiber.low(), high = low + STACK_BYTES;
    uintptr_t word = stack_pointer < low ? low : stack_pointer;
    for (word = (word + 7) & ~(uintptr_t)7; word + 8 <= high; word += 8) {
        if (module.in_code(*(uintptr_t*)word)) return *(uintptr_t*)word - 1;
    }
    return 0;
}

// Whose stack it is, is not certain: a switch under way may already count as the next thread's.
static bool in_a_guard(uintptr_t address) {
    for (const auto& fiber : self->block.fibers.all()) {
        if (fiber->in_guard(address)) return true;
    }
    return false;
}

static void on_fault(int number, siginfo_t* info, void* context) {
    if (!self || !self->in_kernel) return pass_on(number, info, context);
    const Fiber& fiber = *self->block.stack();
    const uintptr_t address = (uintptr_t)info->si_addr;
    const uintptr_t stack_pointer = stack_pointer_of(context);
    // The system cannot even start a handler of TICK if too little of the stack is left.
    const bool no_room =
        info->si_code == SI_KERNEL && stack_pointer < (uintptr_t)fiber.low() + PAGE;
    Trouble trouble = trouble_at(MD_BAD_ADDRESS);
    if (in_a_guard(address) || in_a_guard(stack_pointer) || no_room) {
        trouble.kind = MD_STACK_OVERFLOW;
    }
    if (number == SIGFPE) trouble.kind = MD_DIVISION_BY_ZERO;
    trouble.address = address;
    trouble.pc = caller_in_kernel(pc_of(context), stack_pointer);
    give_up(trouble);
}

// Runs on the kernel's own stack: switching fibers from here leaves the handler half done, and it
// returns when the interrupted thread has its turn again.
static void on_tick(int number, siginfo_t* info, void* context) {
    if (!self) return pass_on(number, info, context);
    if (!self->in_kernel) return;
    const int saved_errno = errno;
    const uintptr_t pc = pc_of(context);
    const bool in_code = self->launch->module.in_code(pc);
    if (self->launch->stop) {
        self->memory.forget();  // so that the next access, if there is one, stops
        if (in_code) stop_if_asked(pc);
    } else if (in_code && self->launch->config.preempt) {
        self->block.yield();
    }
    errno = saved_errno;
}

// ---- installing

static void install(int number, void (*handler)(int, siginfo_t*, void*), int flags) {
    struct sigaction now;
    sigaction(number, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handler) return;
    previous[number] = now;
    struct sigaction ours = {};
    ours.sa_sigaction = handler;
    // SA_NODEFER: the signal is not blocked meanwhile, as a handler may be left by a switch.
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | flags;
    sigaction(number, &ours, nullptr);
}

void install_handlers() {
    for (int number : {SIGSEGV, SIGBUS, SIGFPE}) install(number, on_fault, SA_ONSTACK);
    install(TICK, on_tick, SA_RESTART);
}

// A stack overflow leaves no room for its own handler, which therefore gets another stack. All
// other signals are for Python's threads.
void prepare_for_faults() {
    const size_t bytes = 64 * 1024;
    stack_t stack = {};
    stack.ss_size = bytes;
    stack.ss_sp = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaltstack(&stack, nullptr);
    sigset_t blocked;
    sigfillset(&blocked);
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, TICK}) {
        sigdelset(&blocked, number);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}
