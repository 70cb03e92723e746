// abi.h - how Python starts a kernel: four functions, called through ctypes.
//
//     handle = md_launch(&config)          returns at once; workers run the blocks
//     while (!md_wait(handle, 50)) ...     1 when all blocks have ended; Python looks for Ctrl-C
//     md_stop(handle)                      asked to end early: then md_wait again
//     md_end(handle, &outcome)             how it went; the handle is gone
//
// What `config` points to (arguments, ranges) must live until md_end.
#pragma once
#include <stdint.h>

// Memory that the kernel may touch.
struct md_range {
    void* begin;
    uint64_t size;     // bytes
    int32_t argument;  // its position; -1: memory that is reached in another way
    int32_t writable;
};

// One access of a kernel to an argument or to shared memory, for whoever watches a launch.
struct md_access {
    uint64_t pc;  // as in md_outcome
    uint64_t address;  // in shared memory: bytes from its begin, and MD_STATIC if it is static
    uint64_t block;    // its number in the grid
    uint32_t thread;   // its number in the block
    uint32_t size;     // bytes
    int32_t argument;  // its position; MD_SHARED: shared memory
    uint32_t how;      // MD_WRITE, MD_AS_ONE: bits
    uint32_t barriers;   // that the block has passed
    uint32_t exchanges;  // warp operations that the thread has passed
};
enum md_how { MD_WRITE = 1, MD_AS_ONE = 2 };  // as one: atomic, or volatile
const uint64_t MD_STATIC = 1ull << 32;

enum md_order { MD_FORWARD, MD_REVERSE, MD_RANDOM };  // of threads and of blocks

struct md_config {
    void (*entry)(void**);  // md_call_<n> of the kernel's module: one call is one thread
    void** args;            // addresses of the arguments' values
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared;  // bytes
    uint32_t workers;         // threads of the operating system; cooperative: one for each block
    int32_t order;            // md_order
    int32_t preempt;          // 1: a thread that polls without any yield point loses its turn
    uint64_t seed;            // of the random order
    const void* inside;       // any address inside of the kernel's module
    const md_range* ranges;
    uint32_t range_count;
    md_access* watched;  // nullptr, or room for the first accesses; then there is one worker
    uint64_t room;       // how many there is room for
};

enum md_kind {
    MD_FINISHED,
    MD_STOPPED,
    MD_OUT_OF_BOUNDS,
    MD_BAD_ADDRESS,  // a signal: an access that the compiler did not show us, as in memcpy
    MD_STACK_OVERFLOW,
    MD_DIVISION_BY_ZERO,
    MD_DIVERGENT_BARRIER,
    MD_DEADLOCK,
    MD_ASSERTION,
    MD_MISALIGNED,
    MD_INDEX,
    MD_BAD_MASK,
    MD_CONST_WRITE,
};

// `argument` of an out-of-bounds error that is near no argument.
enum md_place { MD_WILD = -1, MD_SHARED = -2, MD_FOREIGN_STACK = -3 };

struct md_outcome {
    int32_t kind;      // md_kind
    int32_t argument;  // the nearest, or md_place
    int64_t offset;    // bytes from its begin
    uint32_t size;     // bytes of the access
    int32_t write;
    uint64_t pc;  // relative to where the module was loaded, as addr2line wants it; 0: unknown
    uint32_t block[3], thread[3];
    uint64_t barriers, switches;
    uint64_t accesses;  // how many there were, if the launch was watched
    char text[8192];
};

extern "C" {
__attribute__((visibility("default"))) void* md_launch(const md_config* config);
__attribute__((visibility("default"))) int md_wait(void* launch, int milliseconds);
__attribute__((visibility("default"))) void md_stop(void* launch);
__attribute__((visibility("default"))) void md_end(void* launch, md_outcome* outcome);
// Bytes of static shared memory of the module that `inside` points into.
__attribute__((visibility("default"))) uint64_t md_static_shared(const void* inside);
}
