// spin.cpp - threads that poll:  while (flag == 0) { }
//
// On a GPU all threads of all resident blocks make progress, so a thread may poll until another one
// sets a flag. Here the other one may be waiting for this very turn. So whatever can stand in such
// a loop (a volatile read, an atomic operation, a fence, a clock) counts as a poll, and who polls
// often gives the turn away: to other threads of the block, then to other workers and processes.
// Loops with none of these are interrupted by a signal, see faults.cpp.
#include <sched.h>
#include <time.h>

#include "worker.h"

// Polls in one turn; a kernel that does a few atomic operations is not slowed down.
static const uint32_t PATIENCE = 16;

// A worker that has been idle for so many turns sleeps: the processor is for those that work.
static const uint64_t AWAKE = 1000;

static void give_turn() {
    Block& block = self->block;
    const bool others = block.yield();
    // Have all threads polled in vain? Then nobody of this block can help.
    const uint64_t rounds = others ? block.idle_turns / block.threads.size() : block.idle_turns;
    if (others && block.idle_turns % block.threads.size()) return;
    if (rounds < AWAKE) {
        sched_yield();
    } else {
        const timespec moment{0, 20'000};
        nanosleep(&moment, nullptr);
    }
}

void poll(uintptr_t pc) {
    if (++self->block.polls % PATIENCE) return;
    stop_if_asked(pc);
    give_turn();
}

void md_spin() {
    if (self) poll((uintptr_t)__builtin_return_address(0) - 1);
}

long long md_clock() {
    if (self) poll((uintptr_t)__builtin_return_address(0) - 1);
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}
