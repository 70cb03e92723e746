// launch.h - one call of a kernel: a grid of blocks, and the workers that take them.
#pragma once
#include <stdint.h>

#include <atomic>
#include <vector>

#include "abi.h"
#include "module.h"

struct Worker;

enum Stop { MD_GO_ON, MD_STOP_ASKED, MD_STOP_FAULT };

struct Launch {
    md_config config;
    Module module;
    uint64_t blocks = 0;
    uint64_t stride = 1;  // random order: see block_number
    std::atomic<uint64_t> next_turn{0};
    std::atomic<uint64_t> ended{0};     // blocks
    std::atomic<int> stop{MD_GO_ON};
    std::vector<Worker*> workers;

    // Guarded by the pool's mutex.
    uint32_t running = 0;  // workers
    md_outcome outcome = {};

    uint64_t block_number(uint64_t turn) const;
};

// Put worker.trouble into words, in the launch's outcome.
void report(Worker& worker);
