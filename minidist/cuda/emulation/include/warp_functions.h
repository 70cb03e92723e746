// warp_functions.h - values from other lanes of the warp: shuffles, votes, matches, reductions.
//
//     lane                      0   1   2   3   4   5   6   7
//     v                         a   b   c   d   e   f   g   h
//     __shfl_sync(.., v, 2)     c   c   c   c   c   c   c   c
//     __shfl_up_sync(.., 1)     a   a   b   c   d   e   f   g
//     __shfl_down_sync(.., 1)   b   c   d   e   f   g   h   h      (of a warp of 8)
//     __shfl_xor_sync(.., 1)    b   a   d   c   f   e   h   g
//
// A width of 2, 4, 8 or 16 cuts the warp into parts of so many lanes, each a warp of its own.
//
// The mask names the lanes that take part; all of them must come, with the same mask. On a GPU a
// lane that reads from one that does not take part gets garbage; here it is an error.
#pragma once
#include "thread.h"

#define MD_WARP template <class T> MD_UNCHECKED static inline

// What the lanes of the mask have brought.
struct md_lanes {
    const uint64_t* values;
    uint32_t present;

    MD_UNCHECKED bool has(uint32_t lane) const { return lane < 32 && (present >> lane & 1); }
    template <class T> MD_UNCHECKED T get(uint32_t lane) const {
        T value;
        __builtin_memcpy(&value, &values[lane], sizeof value);
        return value;
    }
};

template <class T>
MD_UNCHECKED static inline md_lanes md_exchange(unsigned mask, T mine, const char* file, int line) {
    static_assert(sizeof(T) <= 8, "a warp operation moves values of up to 8 bytes");
    uint64_t value = 0;
    __builtin_memcpy(&value, &mine, sizeof mine);
    md_lanes lanes;
    lanes.values = md_warp(mask, value, file, line, &lanes.present);
    return lanes;
}

// ---- shuffles

template <class T>
MD_UNCHECKED static inline T md_shuffle(unsigned mask, T mine, unsigned source, const char* file,
                                        int line) {
    const md_lanes lanes = md_exchange(mask, mine, file, line);
    if (!lanes.has(source)) {
        md_fail(MD_KIND_BAD_MASK,
                mask >> source & 1 ? "a shuffle reads a lane that does not exist or has left"
                                   : "a shuffle reads a lane that is not in the mask",
                file, line);
    }
    return lanes.get<T>(source);
}

MD_UNCHECKED static inline void md_check_width(int width, const char* file, int line) {
    if (width >= 1 && width <= 32 && (width & (width - 1)) == 0) return;
    md_fail(MD_KIND_BAD_MASK, "the width of a shuffle is 1, 2, 4, 8, 16 or 32", file, line);
}

// In each of them `first` is the first lane of my part of the warp; who would read beyond the part
// keeps its own value.
MD_WARP T __shfl_sync(unsigned mask, T value, int source, int width = 32, MD_PLACE) {
    md_check_width(width, file, line);
    const unsigned first = md_here.lane & ~(unsigned)(width - 1);
    return md_shuffle(mask, value, first + (source & (width - 1)), file, line);
}

MD_WARP T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, MD_PLACE) {
    md_check_width(width, file, line);
    const unsigned first = md_here.lane & ~(unsigned)(width - 1);
    const bool inside = md_here.lane - first >= delta;
    return md_shuffle(mask, value, inside ? md_here.lane - delta : md_here.lane, file, line);
}

MD_WARP T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, MD_PLACE) {
    md_check_width(width, file, line);
    const unsigned first = md_here.lane & ~(unsigned)(width - 1);
    const bool inside = delta < (unsigned)width && md_here.lane - first + delta < (unsigned)width;
    return md_shuffle(mask, value, inside ? md_here.lane + delta : md_here.lane, file, line);
}

// Reading from an earlier part is allowed, from a later one not: so the hardware has it.
MD_WARP T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, MD_PLACE) {
    md_check_width(width, file, line);
    const unsigned first = md_here.lane & ~(unsigned)(width - 1);
    const unsigned source = md_here.lane ^ (unsigned)bits;
    const bool inside = source < first + (unsigned)width;
    return md_shuffle(mask, value, inside ? source : md_here.lane, file, line);
}

// ---- votes

#define MD_VOTE MD_UNCHECKED static inline

MD_VOTE void __syncwarp(unsigned mask = 0xffffffffu, MD_PLACE) {
    md_exchange(mask, 0, file, line);
}

// The lanes whose predicate is not 0.
MD_VOTE unsigned __ballot_sync(unsigned mask, int predicate, MD_PLACE) {
    const md_lanes lanes = md_exchange(mask, predicate != 0, file, line);
    unsigned result = 0;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (lanes.has(lane) && lanes.get<bool>(lane)) result |= 1u << lane;
    }
    return result;
}
MD_VOTE int __any_sync(unsigned mask, int predicate, MD_PLACE) {
    return __ballot_sync(mask, predicate, file, line) != 0;
}
MD_VOTE int __all_sync(unsigned mask, int predicate, MD_PLACE) {
    return __ballot_sync(mask, !predicate, file, line) == 0;
}

// ---- matches

// The lanes whose bits are the same as mine.
MD_WARP unsigned __match_any_sync(unsigned mask, T value, MD_PLACE) {
    const md_lanes lanes = md_exchange(mask, value, file, line);
    unsigned result = 0;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (lanes.has(lane) && lanes.values[lane] == lanes.values[md_here.lane]) {
            result |= 1u << lane;
        }
    }
    return result;
}

// The mask and 1 if all lanes have the same bits, else 0 and 0.
MD_WARP unsigned __match_all_sync(unsigned mask, T value, int* same, MD_PLACE) {
    const md_lanes lanes = md_exchange(mask, value, file, line);
    *same = 1;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (lanes.has(lane) && lanes.values[lane] != lanes.values[md_here.lane]) *same = 0;
    }
    return *same ? lanes.present : 0;
}

// ---- reductions of integers

#define MD_REDUCE(name, T, expression)                                                             \
    MD_VOTE T name(unsigned mask, T value, MD_PLACE) {                                             \
        const md_lanes lanes = md_exchange(mask, value, file, line);                               \
        T a = value;                                                                               \
        for (unsigned lane = 0; lane < 32; lane++) {                                               \
            if (!lanes.has(lane) || lane == md_here.lane) continue;                                \
            const T b = lanes.get<T>(lane);                                                        \
            a = expression;                                                                        \
        }                                                                                          \
        return a;                                                                                  \
    }

MD_REDUCE(__reduce_add_sync, unsigned, a + b)
MD_REDUCE(__reduce_add_sync, int, (int)((unsigned)a + (unsigned)b))
MD_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
MD_REDUCE(__reduce_min_sync, int, a < b ? a : b)
MD_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
MD_REDUCE(__reduce_max_sync, int, a > b ? a : b)
MD_REDUCE(__reduce_and_sync, unsigned, a & b)
MD_REDUCE(__reduce_or_sync, unsigned, a | b)
MD_REDUCE(__reduce_xor_sync, unsigned, a ^ b)

// ---- refused

__attribute__((error("it tells which lanes happen to run together, and no kernel may rely on that: "
                     "compute the mask from the condition, with __ballot_sync"))) unsigned
__activemask();
