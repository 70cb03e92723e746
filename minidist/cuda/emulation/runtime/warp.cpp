// warp.cpp - all warp operations are one: write a value, wait for the others, read theirs.
//
//     lane      0   1   2   3        __shfl_down_sync(0xf, v, 1)
//     writes    a   b   c   d        into the slot of its lane
//               ------------- all lanes of the mask have come
//     reads     b   c   d   d
//
// Two rows of slots are used in turn: while slow lanes still read the last row, fast lanes may
// write the next one, and cannot get any further ahead, since that operation needs the slow ones.
//
// A GPU runs a warp in step, but since 2017 only where nothing makes its lanes diverge: kernels
// have to say with a mask whom they mean. A lane that is named and never comes is a deadlock.
#include "warp.h"

#include "worker.h"

static void finish(Group& group) {
    group.came[group.generation & 1] = group.arrived;
    group.arrived = 0;
    group.generation++;
}

// The group of this mask; a new one takes the place of a group that no lane looks at any more.
Group* Block::join(Warp& warp, Thread& thread, uint32_t mask) {
    if (thread.group) {
        if (thread.group->mask == mask) return thread.group;
        thread.group->users--;
    }
    Group* found = nullptr;
    for (Group* group = &warp.groups[0]; group < &warp.groups[warp.used]; group++) {
        if (group->mask == mask) found = group;
        if (!found && group->users == 0) found = group;
        if (found && found->mask == mask) break;
    }
    if (!found) found = &warp.groups[warp.used++], found->mask = 0;
    if (found->mask != mask) {
        found->mask = mask;
        found->arrived = 0;
        found->generation = 0;
        found->users = 0;
    }
    found->users++;
    thread.group = found;
    return found;
}

[[noreturn]] static void not_in_mask(uint32_t mask, const char* file, int line) {
    Trouble trouble = trouble_at(MD_BAD_MASK, file, line);
    trouble.text = "the lane that calls is not in the mask";
    trouble.number = mask;
    give_up(trouble);
}

const uint64_t* Block::exchange(uint32_t mask, uint64_t value, const char* file, int line,
                                uint32_t* lanes) {
    Thread& thread = threads[current];
    Warp& warp = warps[current / 32];
    const uint32_t lane = (uint32_t)current % 32;
    if (!(mask >> lane & 1)) not_in_mask(mask, file, line);
    Group& group = *join(warp, thread, mask);
    const int row = group.generation & 1;
    group.value[row][lane] = value;
    group.arrived |= 1u << lane;
    if (group.arrived == (mask & warp.present)) {
        finish(group);
    } else {
        wait(State::in_warp, group.generation, file, line);
    }
    thread.exchanges++;
    *lanes = group.came[row];
    return group.value[row];
}

// A lane has left the kernel: the others need not wait for it any more.
void leave_warp(Warp& warp, Group* last, uint32_t lane) {
    warp.present &= ~(1u << lane);
    if (last) last->users--;
    for (int i = 0; i < warp.used; i++) {
        Group& group = warp.groups[i];
        if (group.arrived && group.arrived == (group.mask & warp.present)) finish(group);
    }
}

const uint64_t* md_warp(uint32_t mask, uint64_t value, const char* file, int line,
                        uint32_t* lanes) {
    return self->block.exchange(mask, value, file, line, lanes);
}
