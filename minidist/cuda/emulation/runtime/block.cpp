// block.cpp - whose turn is it? (The picture stands in block.h.)
#include "block.h"

#include <numeric>
#include <utility>

#include "worker.h"

void Block::start_launch(const md_config& config) {
    entry = config.entry;
    args = config.args;
    order_kind = config.order;
    seed = config.seed;
    const uint32_t x = config.block[0], y = config.block[1], z = config.block[2];
    count = (int)(x * y * z);
    threads.resize(count);
    order.resize(count);
    warps.resize((count + 31) / 32);
    barriers = switches = 0;
    for (uint32_t t = 0; t < (uint32_t)count; t++) threads[t].index = {t % x, t / x % y, t / x / y};
    md_here.block_size = {x, y, z};
    md_here.grid_size = {config.grid[0], config.grid[1], config.grid[2]};
}

// The random order depends on the seed and on the block, not on which worker gets it, nor when.
void Block::start_block(uint64_t block_number) {
    number = block_number;
    random = seed;
    random = next_random(random) ^ number;
    std::iota(order.begin(), order.end(), 0);
    if (order_kind == MD_REVERSE) std::iota(order.rbegin(), order.rend(), 0);
    if (order_kind == MD_RANDOM) shuffle();
    for (Thread& thread : threads) {
        thread.state = State::not_started;
        thread.group = nullptr;
        thread.exchanges = 0;
    }
    int left = count;
    for (Warp& warp : warps) {
        warp.present = left >= 32 ? ~0u : (1u << left) - 1;
        warp.used = 0;
        left -= 32;
    }
    gone = arrived = 0;
    generation = idle_turns = 0;
    ayes[0] = ayes[1] = noes[0] = noes[1] = 0;
    barrier_file = nullptr;
    position = count - 1;  // before the first
}

Fiber* Block::first_fiber() {
    Fiber* fiber = fibers.take();
    if (!fiber) return nullptr;
    prepare(*fiber, play);
    const int first = next_thread();
    threads[first].fiber = fiber;
    set_current(first);
    return fiber;
}

// A fiber: new threads as long as there are any, then whoever was waiting.
void Block::play() {
    Block& block = self->block;
    for (;;) {
        block.entry(block.args);
        block.leave();
        Fiber* mine = block.stack_of_current;
        if (block.gone == block.count) {
            block.fibers.give(mine);
            switch_fiber(*mine, self->home);
        }
        const int next = block.next_thread();
        if (next < 0) give_up(MD_DEADLOCK);
        if (block.threads[next].state == State::not_started) {
            block.threads[next].fiber = mine;
            block.set_current(next);
            continue;
        }
        block.fibers.give(mine);
        block.set_current(next);
        block.switches++;
        switch_fiber(*mine, *block.threads[next].fiber);
    }
}

// The current thread has returned from the kernel: nobody waits for it any more.
void Block::leave() {
    Thread& thread = threads[current];
    thread.state = State::left;
    idle_turns = 0;
    gone++;
    if (arrived && arrived + gone == count) finish_barrier();
    leave_warp(warps[current / 32], thread.group, current % 32);
}

void Block::set_current(int next) {
    Thread& thread = threads[next];
    current = next;
    stack_of_current = thread.fiber;
    polls = 0;
    thread.state = State::ready;
    md_here.thread = thread.index;
    md_here.lane = (uint32_t)next % 32;
}

bool Block::can_run(const Thread& thread) const {
    switch (thread.state) {
        case State::not_started:
        case State::ready: return true;
        case State::at_barrier: return generation > thread.awaited;
        case State::in_warp: return thread.group->generation > thread.awaited;
        case State::left: return false;
    }
    return false;
}

// The next one in order after the current thread, which itself comes last; -1: nobody can run.
int Block::next_thread() {
    for (int step = 1; step <= count; step++) {
        const int place = position + step < count ? position + step : position + step - count;
        if (can_run(threads[order[place]])) {
            position = place;
            return order[place];
        }
    }
    return -1;
}

// The current thread stops here until it has its turn again. Everything on the way here is the last
// thing that its caller does, so that compilers jump instead of calling, and little of the stack is
// in use while a thread waits: the stacks of a whole block then fit into the cache.
void Block::turn_to(int next) {
    Fiber* mine = stack_of_current;
    Thread& thread = threads[next];
    if (thread.state == State::not_started) {
        thread.fiber = fibers.take();
        if (!thread.fiber) give_up(MD_NO_MEMORY);
        prepare(*thread.fiber, play);
    }
    set_current(next);
    switches++;
    switch_fiber(*mine, *thread.fiber);
}

void Block::wait(State state, uint64_t awaited, const char* file, int line) {
    Thread& thread = threads[current];
    thread.awaited = awaited;
    thread.file = file;
    thread.line = line;
    thread.state = state;
    const int next = next_thread();
    if (next < 0) give_up(MD_DEADLOCK);
    turn_to(next);
}

bool Block::yield() {
    idle_turns++;
    const int next = next_thread();
    if (next == current) return false;
    turn_to(next);
    return true;
}

// A new random order; the current thread goes on, wherever it stands in it.
void Block::shuffle() {
    for (int i = count - 1; i > 0; i--) {
        std::swap(order[i], order[next_random(random) % (uint64_t)(i + 1)]);
    }
    for (int i = 0; i < count; i++) {
        if (order[i] == current) position = i;
    }
}
