// barrier.cpp - __syncthreads: nobody passes before all have come.
//
// A barrier has a generation, the number of barriers that are over. A thread that has to wait notes
// the generation at which it came; the last one to come counts it up, and so frees all others in
// one step. Threads that have left the kernel count as having come, as on GPUs since 2017.
//
// On a GPU, threads that wait at different __syncthreads are undefined behaviour, which as a rule
// means that the barrier is passed too early, or never. Here it is an error.
#include <string.h>

#include "worker.h"

void Block::check_place(const char* file, int line) {
    if (!barrier_file) {
        barrier_file = file;
        barrier_line = line;
    }
    if (line == barrier_line && (file == barrier_file || !strcmp(file, barrier_file))) return;
    give_up(MD_DIVERGENT_BARRIER, file, line);
}

void Block::barrier(const char* file, int line) {
    check_place(file, line);
    idle_turns = 0;
    arrived++;
    if (arrived + gone == count) {
        finish_barrier();
    } else {
        wait(State::at_barrier, generation, file, line);
    }
}

int Block::vote(int kind, int predicate, const char* file, int line) {
    const int which = generation & 1;
    (predicate ? ayes : noes)[which]++;
    barrier(file, line);
    if (kind == MD_COUNT) return ayes[which];
    return kind == MD_AND ? noes[which] == 0 : ayes[which] != 0;
}

void Block::finish_barrier() {
    arrived = 0;
    barrier_file = nullptr;
    generation++;
    barriers++;
    // The threads have yet to read the votes of the barrier that is over; these are the next one's.
    ayes[generation & 1] = noes[generation & 1] = 0;
    if (order_kind == MD_RANDOM) shuffle();
}

void md_barrier(const char* file, int line) { self->block.barrier(file, line); }

int md_barrier_vote(int kind, int predicate, const char* file, int line) {
    return self->block.vote(kind, predicate, file, line);
}
