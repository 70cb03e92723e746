// worker.h - a worker is a thread of the operating system that runs blocks, one after the other.
#pragma once
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>

#include "block.h"
#include "memory.h"

struct Launch;

const int MD_NO_MEMORY = -1;  // for stacks: a kind that Python is told as MD_STACK_OVERFLOW

// What went wrong, in numbers only: noted on a fiber's small stack, or by a signal handler, where
// neither memory nor locks may be asked for. The sentence is made later, on the worker's own stack.
struct Trouble {
    int kind = MD_FINISHED;
    uintptr_t pc = 0;       // in the kernel's module, or 0
    uintptr_t address = 0;  // of the access
    uint32_t size = 0;
    bool write = false;
    int argument = MD_WILD;     // the range that this instruction touched before
    const char* text = nullptr;
    const char* file = nullptr;
    int line = 0;
    int64_t number = 0;
};

struct Worker {
    pthread_t system_thread = {};
    sem_t wake;                // posted when `launch` has been set
    Launch* launch = nullptr;
    Block block;
    Memory memory;
    Fiber home;  // the worker's own stack
    Trouble trouble;
    volatile sig_atomic_t in_kernel = 0;  // a signal now is the kernel's doing
};

// The worker that this thread is, or nullptr: Python's own threads are none.
extern __thread Worker* self MD_STATIC_TLS;

inline Trouble trouble_at(int kind, const char* file = nullptr, int line = 0) {
    Trouble trouble;
    trouble.kind = kind;
    trouble.file = file;
    trouble.line = line;
    return trouble;
}

// The kernel cannot go on: all threads of the block are dropped where they are.
[[noreturn]] void give_up(const Trouble& trouble);
[[noreturn]] void give_up(int kind, const char* file = nullptr, int line = 0);

// Ends the launch early if that is asked for. A place where no lock is held.
void stop_if_asked(uintptr_t pc);

// A thread polls: see spin.cpp.
void poll(uintptr_t pc);

// Take blocks of a launch and run them until there are no more.
void run_blocks(Worker& worker, Launch& launch);
