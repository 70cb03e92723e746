// A program that launches a kernel without Python: ./main runtime.so kernel.so
//
// It prints how two launches went: a sum over halves, exact, and an index past the end.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "abi.h"

static void* need(void* found) {
    if (!found) {
        puts(dlerror());
        exit(1);
    }
    return found;
}

int main(int, char** names) {
    void* runtime = need(dlopen(names[1], RTLD_NOW | RTLD_GLOBAL));
    void* module = need(dlopen(names[2], RTLD_LAZY));
    auto launch = (decltype(&md_launch))need(dlsym(runtime, "md_launch"));
    auto wait = (decltype(&md_wait))need(dlsym(runtime, "md_wait"));
    auto end = (decltype(&md_end))need(dlsym(runtime, "md_end"));
    auto entry = (void (*)(void**))need(dlsym(module, "md_call_sum"));
    auto inside = (const void* (*)())need(dlsym(module, "md_inside"));

    const int n = 1000, blocks = 4;
    for (int length : {n, n - 3}) {
        // 0, 1, 2, ... as halves: exact up to 2048.
        std::vector<__fp16> in(n);
        for (int i = 0; i < n; i++) in[i] = (__fp16)i;
        float out = 0;
        void *first = &out, *second = in.data();
        int count = n;
        void* args[] = {&first, &second, &count};
        md_range ranges[] = {{&out, 4, 0, 1}, {in.data(), 2 * (uint64_t)length, 1, 0}};
        md_config config = {entry, args, {blocks, 1, 1}, {96, 1, 1}, 0, 2, MD_RANDOM, 1, 7,
                            inside(), ranges, 2};
        void* handle = launch(&config);
        while (!wait(handle, 50)) {}
        md_outcome outcome;
        end(handle, &outcome);
        printf("kind %d argument %d offset %ld sum %.0f\n", outcome.kind, outcome.argument,
               (long)outcome.offset, out);
    }
}
