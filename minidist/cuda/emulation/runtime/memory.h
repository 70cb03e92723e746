// memory.h - which memory may the kernel touch?
//
//     arguments     [====a====]      [==b==]   [=====c=====]        read; written unless const
//     shared        static [==]   dynamic [====]                    this worker's block's
//     the module    [code, constants, __device__ variables]
//     own stack     [========]                                      of the current thread
//     all else      out of bounds
//
// The compiler calls a function for every load and store of a kernel (hooks.cpp), and each of them
// asks here, so this must take a few ns. An instruction of a kernel nearly always touches the same
// array. So for every instruction (by its address, into a small table) the range that it touched
// last is kept, and tried first: its window.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <vector>

#include "abi.h"

struct Launch;
struct Module;

struct Range {
    uintptr_t begin;
    size_t size;
    int argument;  // or md_place
    bool writable;

    bool holds(uintptr_t address, size_t bytes) const {
        const uintptr_t offset = address - begin;  // huge, if the address is below
        return offset < size && bytes <= size - offset;
    }
};

struct Window {
    Range range;
    uintptr_t pc;
};

class Memory {
  public:
    void start_launch(const Launch& launch);
    void poison();  // before every block: shared memory holds nothing sensible

    void check(uintptr_t address, size_t bytes, bool write, uintptr_t pc, bool atomic = false) {
        if (!window(write, pc).range.holds(address, bytes)) look_up(address, bytes, write, pc);
        if (watched) note(address, bytes, write, pc, atomic);
    }
    void forget();  // all windows: the next access looks up

    // For reports.
    const Range* containing(uintptr_t address, size_t bytes, bool write) const;
    std::vector<Range> ranges;
    Range static_shared_range{}, dynamic_shared_range{};
    uint64_t accesses = 0;  // of a watched launch, also those for which there was no room

  private:
    static const size_t WINDOWS = 64;
    Window windows[2][WINDOWS] = {};  // of reads, of writes

    Window& window(bool write, uintptr_t pc) { return windows[write][(pc ^ pc >> 6) % WINDOWS]; }
    void look_up(uintptr_t address, size_t bytes, bool write, uintptr_t pc);
    void make_dynamic_shared(size_t bytes);
    void note(uintptr_t address, size_t bytes, bool write, uintptr_t pc, bool atomic);

    char* mapping = nullptr;  // dynamic shared memory, between two stretches of no memory at all
    size_t mapped = 0;

    md_access* watched = nullptr;
    uint64_t room = 0;
    uintptr_t load = 0;  // where the module was loaded
};
