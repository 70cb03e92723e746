// block.h - the threads of one block, played in turn by one worker.
//
//     not_started --turn--> running --__syncthreads--> at_barrier --all have come--> (can run)
//                           |    \---warp operation--> in_warp    --lanes have come-> (can run)
//                           |    \---polls-----------> ready                          (can run)
//                           \--returns---------------> left
//
// There is no scheduler. Who has to wait looks for the next thread that can run, and switches to
// it. A thread that returns without ever having waited leaves its stack to the next one: a kernel
// without barriers is a plain loop over its threads.
#pragma once
#include <stdint.h>

#include <vector>

#define MD_RUNTIME
#include "../include/thread.h"
#include "abi.h"
#include "fiber.h"
#include "warp.h"

enum class State : uint8_t { not_started, ready, at_barrier, in_warp, left };

struct alignas(64) Thread {  // one line of the cache
    State state;
    uint3 index;
    Fiber* fiber;      // from its first turn to its end
    uint64_t awaited;  // at_barrier, in_warp: the generation that must be over
    Group* group;      // the warp operation that it is in, or was in last
    const char* file;  // where it waits
    int line;
    uint32_t exchanges;  // warp operations that it has passed
};

class Block {
  public:
    void start_launch(const md_config& config);
    void start_block(uint64_t number);
    Fiber* first_fiber();  // the first thread, ready to be switched to; nullptr: no memory

    void barrier(const char* file, int line);
    int vote(int kind, int predicate, const char* file, int line);
    const uint64_t* exchange(uint32_t mask, uint64_t value, const char* file, int line,
                             uint32_t* lanes);
    bool yield();        // false: nobody else can run
    uint32_t polls = 0;  // by the current thread in this turn

    const Thread& running() const { return threads[current]; }
    uint32_t running_number() const { return (uint32_t)current; }
    const Fiber* stack() const { return stack_of_current; }
    FiberPool fibers;

    // For reports.
    uint64_t number = 0;  // of this block in the grid
    uint64_t barriers = 0, switches = 0;
    uint64_t generation = 0;  // how many barriers are over
    uint64_t idle_turns = 0;  // given away by polling threads since the block last got on
    std::vector<Thread> threads;
    std::vector<Warp> warps;

  private:
    static void play();  // what every fiber runs
    void leave();
    void wait(State state, uint64_t awaited, const char* file, int line);
    int next_thread();
    bool can_run(const Thread& thread) const;
    void turn_to(int next);
    void set_current(int next);
    void check_place(const char* file, int line);
    void finish_barrier();
    void shuffle();
    Group* join(Warp& warp, Thread& thread, uint32_t mask);

    void (*entry)(void**) = nullptr;
    void** args = nullptr;
    int count = 0, gone = 0, arrived = 0;
    int current = 0, position = 0;  // position: of the current thread in `order`
    Fiber* stack_of_current = nullptr;
    std::vector<int> order;
    int ayes[2] = {}, noes[2] = {};  // of two barriers: late threads still read the last result
    const char* barrier_file = nullptr;  // where the first thread came to the barrier
    int barrier_line = 0;
    int order_kind = MD_FORWARD;
    uint64_t seed = 0, random = 0;
};

// A small generator of random numbers (splitmix64): the next one, and the state moves on.
inline uint64_t next_random(uint64_t& state) {
    uint64_t x = state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}
