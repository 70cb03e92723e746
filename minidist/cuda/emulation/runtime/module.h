// module.h - where a kernel's library lies in memory.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct Module {
    uintptr_t load = 0;             // what addresses in the file are relative to
    uintptr_t begin = 0, end = 0;   // everything: code, constants, variables
    uintptr_t code = 0, code_end = 0;
    size_t shared_id = 0;           // its thread-local variables: __shared__ ones, see below
    size_t shared_bytes = 0;

    bool in_code(uintptr_t address) const { return address - code < code_end - code; }
};

Module find_module(const void* inside);

// Static shared memory of a module for blocks of the calling worker; nullptr if it has none.
//
// __shared__ is thread_local to the compiler, so it has one copy in every worker; and since a
// worker runs one block at a time, that copy is the block's.
void* static_shared(const Module& module);
