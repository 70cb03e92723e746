// report.cpp - a fault in words: what happened, to which thread, and what the others were doing.
//
// Runs on the worker's own stack after the block was given up; its threads are still as they were.
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <vector>

#include "launch.h"
#include "pool.h"
#include "worker.h"

static void say(md_outcome& outcome, const char* format, ...) {
    const size_t used = strlen(outcome.text);
    va_list values;
    va_start(values, format);
    vsnprintf(outcome.text + used, sizeof outcome.text - used, format, values);
    va_end(values);
}

// ---- where the threads of a block are

namespace {
struct Party {  // threads that wait at the same place for the same
    const Thread* first;
    int size;
};
}  // namespace

static bool together(const Thread& a, const Thread& b) {
    if (a.state != b.state) return false;
    if (a.state == State::at_barrier) return a.line == b.line && !strcmp(a.file, b.file);
    if (a.state == State::in_warp) return a.line == b.line && a.group == b.group;
    return true;
}

static void describe_party(md_outcome& outcome, const Party& party, const Warp& warp) {
    const Thread& first = *party.first;
    say(outcome, "  %d thread%s, the first is (%u,%u,%u): ", party.size, party.size == 1 ? "" : "s",
        first.index.x, first.index.y, first.index.z);
    switch (first.state) {
        case State::not_started: say(outcome, "not started\n"); break;
        case State::ready: say(outcome, "can run\n"); break;
        case State::left: say(outcome, "have left the kernel\n"); break;
        case State::at_barrier:
            say(outcome, "wait in __syncthreads at %s:%d\n", first.file, first.line);
            break;
        case State::in_warp:
            say(outcome, "wait in a warp operation with mask 0x%08x at %s:%d", first.group->mask,
                first.file, first.line);
            say(outcome, " for lanes 0x%08x\n",
                first.group->mask & warp.present & ~first.group->arrived);
            break;
    }
}

static void describe_block(md_outcome& outcome, const Block& block) {
    std::vector<Party> parties;
    for (const Thread& thread : block.threads) {
        Party* mine = nullptr;
        for (Party& party : parties) {
            if (together(*party.first, thread)) mine = &party;
        }
        if (mine) {
            mine->size++;
        } else {
            parties.push_back({&thread, 1});
        }
    }
    const uint3 b = md_here.block;
    say(outcome, "block (%u,%u,%u), %llu barriers passed, %llu turns given away by polling:\n", b.x,
        b.y, b.z, (unsigned long long)block.generation, (unsigned long long)block.idle_turns);
    for (const Party& party : parties) {
        const size_t number = party.first - &block.threads[0];
        describe_party(outcome, party, block.warps[number / 32]);
    }
}

// ---- what happened

static uint64_t distance(const Range& range, uintptr_t address) {
    if (address < range.begin) return range.begin - address;
    const uintptr_t end = range.begin + range.size;
    return address < end ? 0 : address - end + 1;
}

// Further away than this, an address is no index that went too far.
static uint64_t reach(const Range& range) {
    const uint64_t least = 64 * 1024;
    return range.size < least ? least : range.size;
}

static const Range* meant(const Worker& worker) {
    const Range* best = nullptr;
    uint64_t best_distance = UINT64_MAX;
    for (const Range& range : worker.memory.ranges) {
        if (range.argument == MD_WILD) continue;
        if (range.argument == worker.trouble.argument) return &range;  // touched before
        const uint64_t away = distance(range, worker.trouble.address);
        if (away < best_distance && away <= reach(range)) best = &range, best_distance = away;
    }
    return best;
}

static bool on_foreign_stack(const Worker& worker) {
    for (const auto& fiber : worker.block.fibers.all()) {
        if (fiber->on_stack(worker.trouble.address)) return true;
    }
    return false;
}

static void describe_address(md_outcome& outcome, const Worker& worker) {
    const uintptr_t address = worker.trouble.address;
    outcome.size = worker.trouble.size;
    outcome.write = worker.trouble.write;
    outcome.argument = MD_WILD;
    outcome.offset = (int64_t)address;
    if (address < PAGE) {
        say(outcome, "address %p: a null pointer, or an index of one", (void*)address);
    } else if (on_foreign_stack(worker)) {
        outcome.argument = MD_FOREIGN_STACK;
        say(outcome, "address %p is a local variable of another thread", (void*)address);
    } else if (const Range* range = meant(worker)) {
        outcome.argument = range->argument;
        outcome.offset = (int64_t)(address - range->begin);
        const bool dynamic = range->begin == worker.memory.dynamic_shared_range.begin;
        const char* name = range->argument != MD_SHARED ? "an argument"
                           : dynamic                    ? "dynamic shared memory"
                                                        : "static shared memory";
        say(outcome, "byte %lld of %s, which has %zu bytes", (long long)outcome.offset, name,
            range->size);
    } else {
        say(outcome, "address %p is near no argument", (void*)address);
    }
}

static void describe_other(md_outcome& outcome, const Worker& worker) {
    const Trouble& trouble = worker.trouble;
    const Block& block = worker.block;
    switch (trouble.kind) {
        case MD_STACK_OVERFLOW:
            say(outcome, "local arrays or recursion need more than the %zu KiB of a thread",
                STACK_BYTES / 1024);
            break;
        case MD_NO_MEMORY:
            say(outcome, "there is no memory for the stacks of so many threads");
            break;
        case MD_DIVERGENT_BARRIER:
            say(outcome, "thread (%u,%u,%u) is at __syncthreads in %s:%d, others are not:\n",
                md_here.thread.x, md_here.thread.y, md_here.thread.z, trouble.file, trouble.line);
            describe_block(outcome, block);
            break;
        case MD_STOPPED:
        case MD_DEADLOCK: describe_block(outcome, block); break;
        case MD_BAD_MASK:
            say(outcome, "%s (", trouble.text);
            if (trouble.number) say(outcome, "mask 0x%08x, ", (unsigned)trouble.number);
            say(outcome, "lane %u) at %s:%d", md_here.lane, trouble.file, trouble.line);
            break;
        case MD_INDEX:
            say(outcome, "index %lld is outside of %s", (long long)trouble.number, trouble.text);
            break;
        case MD_MISALIGNED:
            say(outcome, "address %p is no multiple of %u, as %s needs", (void*)trouble.address,
                trouble.size, trouble.text);
            break;
        default: say(outcome, "%s", trouble.text ? trouble.text : "");
    }
}

static void describe(md_outcome& outcome, const Worker& worker) {
    const Trouble& trouble = worker.trouble;
    const Module& module = worker.launch->module;
    outcome.kind = trouble.kind == MD_NO_MEMORY ? MD_STACK_OVERFLOW : trouble.kind;
    outcome.pc = module.in_code(trouble.pc) ? trouble.pc - module.load : 0;
    const uint3 b = md_here.block, t = md_here.thread;
    const uint32_t block[] = {b.x, b.y, b.z}, thread[] = {t.x, t.y, t.z};
    memcpy(outcome.block, block, sizeof block);
    memcpy(outcome.thread, thread, sizeof thread);
    switch (trouble.kind) {
        case MD_OUT_OF_BOUNDS:
        case MD_CONST_WRITE:
        case MD_BAD_ADDRESS: describe_address(outcome, worker); break;
        default: describe_other(outcome, worker);
    }
}

// Of several workers' faults the first one counts; of a stopped launch, every block is described.
void report(Worker& worker) {
    Launch& launch = *worker.launch;
    std::lock_guard<std::mutex> lock(pool->mutex);
    md_outcome& outcome = launch.outcome;
    if (outcome.kind == MD_FINISHED) {
        describe(outcome, worker);
        int go_on = MD_GO_ON;
        launch.stop.compare_exchange_strong(go_on, MD_STOP_FAULT);
    } else if (outcome.kind == MD_STOPPED && worker.trouble.kind == MD_STOPPED) {
        describe_block(outcome, worker.block);
    }
}
