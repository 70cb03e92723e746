// memory.cpp - the ranges of a launch, and what happens to an access outside of the last window.
#include "memory.h"

#include <string.h>
#include <sys/mman.h>

#include "launch.h"
#include "worker.h"

// Nothing else lies this near to dynamic shared memory, so an address there was meant for it.
static const size_t MARGIN = 64 * 1024;

void Memory::make_dynamic_shared(size_t bytes) {
    const size_t needed = (bytes + PAGE - 1) / PAGE * PAGE;
    if (!mapping || needed > mapped) {
        if (mapping) munmap(mapping, mapped + 2 * MARGIN);
        mapped = needed;
        mapping = (char*)mmap(nullptr, mapped + 2 * MARGIN, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped) mprotect(mapping + MARGIN, mapped, PROT_READ | PROT_WRITE);
    }
    md_here.dynamic_shared = mapping + MARGIN;
    dynamic_shared_range = {(uintptr_t)mapping + MARGIN, bytes, MD_SHARED, true};
}

void Memory::start_launch(const Launch& launch) {
    forget();
    ranges.clear();
    accesses = 0;
    watched = launch.config.watched;
    room = launch.config.room;
    load = launch.module.load;
    for (uint32_t i = 0; i < launch.config.range_count; i++) {
        const md_range& range = launch.config.ranges[i];
        ranges.push_back({(uintptr_t)range.begin, range.size, range.argument, range.writable != 0});
    }
    make_dynamic_shared(launch.config.dynamic_shared);
    const Module& module = launch.module;
    static_shared_range = {(uintptr_t)static_shared(module), module.shared_bytes, MD_SHARED, true};
    for (const Range& shared : {dynamic_shared_range, static_shared_range}) {
        if (shared.size || shared.begin) ranges.push_back(shared);
    }
    ranges.push_back({module.begin, module.end - module.begin, MD_WILD, true});
    ranges.push_back({(uintptr_t)&md_here, sizeof md_here, MD_WILD, false});  // &threadIdx
}

// As floats these bytes are NaN, as integers -1: what is used before it was written shows.
void Memory::poison() {
    if (static_shared_range.size) {
        memset((void*)static_shared_range.begin, 0xFF, static_shared_range.size);
    }
    if (dynamic_shared_range.size) {
        memset((void*)dynamic_shared_range.begin, 0xFF, dynamic_shared_range.size);
    }
}

void Memory::forget() { memset((void*)windows, 0, sizeof windows); }

// Two arguments may be views of the same memory, one of them const: then it may be written.
const Range* Memory::containing(uintptr_t address, size_t bytes, bool write) const {
    const Range* found = nullptr;
    for (const Range& range : ranges) {
        if (!range.holds(address, bytes)) continue;
        if (range.writable || !write) return &range;
        found = &range;
    }
    return found;
}

// Only what threads can share is of interest: neither the own stack nor the module's constants.
void Memory::note(uintptr_t address, size_t bytes, bool write, uintptr_t pc, bool atomic) {
    if (self->block.stack()->on_stack(address)) return;
    const Range* range = containing(address, bytes, write);
    if (!range || (range->argument < 0 && range->argument != MD_SHARED)) return;
    if (accesses++ >= room) return;
    const Block& block = self->block;
    uint64_t place = address;
    if (range->argument == MD_SHARED) {
        place -= range->begin;
        if (range->begin == static_shared_range.begin) place += MD_STATIC;
    }
    watched[accesses - 1] = {pc - load,
                             place,
                             block.number,
                             block.running_number(),
                             (uint32_t)bytes,
                             range->argument,
                             (uint32_t)(write * MD_WRITE | atomic * MD_AS_ONE),
                             (uint32_t)block.generation,
                             block.running().exchanges};
}

// Runs on the kernel's small stack, so it notes numbers and leaves the sentence to report.cpp.
void Memory::look_up(uintptr_t address, size_t bytes, bool write, uintptr_t pc) {
    stop_if_asked(pc);
    // Not kept as a window, for the next thread has another stack.
    if (self->block.stack()->on_stack(address)) return;
    const Range* range = containing(address, bytes, write);
    Window& last = window(write, pc);
    if (range && (range->writable || !write)) {
        last = {*range, pc};
        return;
    }
    Trouble trouble = trouble_at(range ? MD_CONST_WRITE : MD_OUT_OF_BOUNDS);
    trouble.pc = pc;
    trouble.address = address;
    trouble.size = (uint32_t)bytes;
    trouble.write = write;
    if (range) trouble.argument = range->argument;
    if (!range && last.pc == pc) trouble.argument = last.range.argument;
    give_up(trouble);
}
