// warp.h - what the lanes of a warp that exchange values share.
//
// A group is the set of lanes that call warp operations with the same mask. Two lanes of a warp may
// well be in different groups at the same time:  if (lane < 16) f(0x0000ffff) else f(0xffff0000).
#pragma once
#include <stdint.h>

#include <memory>

struct Group {
    uint32_t mask;
    uint32_t arrived;     // lanes that wait for the others
    uint32_t came[2];     // who took part: of this operation and of the last one
    uint64_t generation;  // operations that are over
    int users;            // lanes that were in this group last: they may still read its values
    uint64_t value[2][32];
};

struct Warp {
    uint32_t present;  // lanes that exist and have not left the kernel
    int used;          // groups in use so far
    // A lane is in one group at most, so there are never more groups than lanes.
    std::unique_ptr<Group[]> groups{new Group[32]};
};

// This lane leaves the kernel; `last` is the group that it was in, or nullptr.
void leave_warp(Warp& warp, Group* last, uint32_t lane);
