// worker.cpp - running blocks, and getting out of one that went wrong.
#include "worker.h"

#include <stdio.h>

#include "launch.h"
#include "pool.h"

__thread Worker* self MD_STATIC_TLS;
__thread md_thread md_here MD_STATIC_TLS;

// From a fiber, or from a signal handler. The block's fibers stay as they are, for the report, and
// are then taken for other blocks; nothing on their stacks needs to be cleaned up.
void give_up(const Trouble& trouble) {
    self->trouble = trouble;
    self->in_kernel = 0;
    Fiber nowhere;
    switch_fiber(nowhere, self->home);
    __builtin_unreachable();
}

void give_up(int kind, const char* file, int line) { give_up(trouble_at(kind, file, line)); }

void stop_if_asked(uintptr_t pc) {
    if (self->launch->stop == MD_GO_ON) return;
    Trouble trouble = trouble_at(MD_STOPPED);
    trouble.pc = pc;
    give_up(trouble);
}

static void run_block(Worker& worker, uint64_t number) {
    const uint32_t* grid = worker.launch->config.grid;
    md_here.block = {(unsigned)(number % grid[0]), (unsigned)(number / grid[0] % grid[1]),
                     (unsigned)(number / grid[0] / grid[1])};
    worker.memory.poison();
    worker.block.start_block(number);
    worker.trouble = {};
    Fiber* first = worker.block.first_fiber();
    if (first) {
        worker.in_kernel = 1;
        switch_fiber(worker.home, *first);  // returns when all threads have left, or in give_up
        worker.in_kernel = 0;
    } else {
        worker.trouble = trouble_at(MD_NO_MEMORY);
    }
}

void run_blocks(Worker& worker, Launch& launch) {
    worker.block.start_launch(launch.config);
    worker.memory.start_launch(launch);
    for (;;) {
        const uint64_t turn = launch.next_turn++;
        if (turn >= launch.blocks || launch.stop) break;
        run_block(worker, launch.block_number(turn));
        if (worker.trouble.kind != MD_FINISHED) {
            report(worker);
            worker.block.fibers.reclaim();
            break;
        }
        launch.ended++;
    }
    std::lock_guard<std::mutex> lock(pool->mutex);
    launch.outcome.barriers += worker.block.barriers;
    launch.outcome.switches += worker.block.switches;
    launch.outcome.accesses += worker.memory.accesses;
    // What the kernel has printed; a thread that was dropped inside of printf still holds it.
    if (ftrylockfile(stdout) == 0) {
        fflush(stdout);
        funlockfile(stdout);
    }
}
