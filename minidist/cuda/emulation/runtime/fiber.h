// fiber.h - a fiber is a stack and a place in the code: a thread without the operating system.
//
//     guard  |<------------- 64 KiB of stack ------------>|
//     +------+---------------------------------+----------+--+
//     | none |                                 | in use   |  |   top: shifted from fiber to fiber
//     +------+---------------------------------+----------+--+
//     reading or writing the guard page is a signal: the stack has overflowed
//
// Switching saves the registers on the old stack and takes them from the new one: about 3 ns.
// A GPU does this in no time at all, since every thread has registers of its own.
#pragma once
#include <unistd.h>
#include <stddef.h>
#include <stdint.h>

#include <memory>
#include <vector>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(MD_UCONTEXT)
#define MD_UCONTEXT  // the portable switch: about 20 times slower, for it calls the kernel
#endif
#ifdef MD_UCONTEXT
#include <ucontext.h>
#endif

const size_t STACK_BYTES = 64 * 1024;
inline const size_t PAGE = (size_t)sysconf(_SC_PAGESIZE);  // 4 KiB, or 64 on some aarch64

struct Fiber {
    char* guard = nullptr;  // the mapping: a guard page, then the stack
    char* top = nullptr;    // where the first frame begins
    void* saved = nullptr;  // stack pointer while somebody else runs
#ifdef MD_UCONTEXT
    ucontext_t context = {};  // points into itself: a Fiber must never be moved
#endif
    Fiber() = default;
    Fiber(const Fiber&) = delete;

    char* low() const { return guard + PAGE; }
    bool on_stack(uintptr_t address) const { return address - (uintptr_t)low() < STACK_BYTES; }
    bool in_guard(uintptr_t address) const { return address - (uintptr_t)guard < PAGE; }
};

// The next switch to this fiber calls entry(), which must not return.
void prepare(Fiber& fiber, void (*entry)());

// Go on in `to`; returns when somebody switches back to `from`.
void switch_fiber(Fiber& from, Fiber& to);

// The fibers of one worker. Mappings are kept: making one costs more than a whole small block.
class FiberPool {
  public:
    Fiber* take();  // nullptr: no memory
    void give(Fiber* fiber) { idle.push_back(fiber); }
    void reclaim();  // all are idle again, wherever they were
    const std::vector<std::unique_ptr<Fiber>>& all() const { return made; }

  private:
    std::vector<std::unique_ptr<Fiber>> made;
    std::vector<Fiber*> idle;
};
