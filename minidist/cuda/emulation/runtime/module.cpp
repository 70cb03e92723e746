// module.cpp - asks the dynamic linker about a kernel's library.
#include "module.h"

#include <link.h>

#include <algorithm>

#include "abi.h"

namespace {
struct Search {
    uintptr_t inside;
    Module found;
};
}  // namespace

static Module describe(const dl_phdr_info& library) {
    Module module;
    module.load = library.dlpi_addr;
    module.begin = module.code = UINTPTR_MAX;
    for (int i = 0; i < library.dlpi_phnum; i++) {
        const auto& part = library.dlpi_phdr[i];
        const uintptr_t begin = library.dlpi_addr + part.p_vaddr, end = begin + part.p_memsz;
        if (part.p_type == PT_TLS) {
            module.shared_id = library.dlpi_tls_modid;
            module.shared_bytes = part.p_memsz;
        }
        if (part.p_type != PT_LOAD) continue;
        module.begin = std::min(module.begin, begin);
        module.end = std::max(module.end, end);
        if (!(part.p_flags & PF_X)) continue;
        module.code = std::min(module.code, begin);
        module.code_end = std::max(module.code_end, end);
    }
    return module;
}

static int visit(dl_phdr_info* library, size_t, void* data) {
    Search& search = *(Search*)data;
    const Module module = describe(*library);
    if (search.inside < module.begin || search.inside >= module.end) return 0;
    search.found = module;
    return 1;
}

Module find_module(const void* inside) {
    Search search{(uintptr_t)inside, {}};
    dl_iterate_phdr(visit, &search);
    return search.found;
}

// What the compiler calls for every access to a thread-local variable of a library. The first call
// in a thread makes that thread's copy.
extern "C" void* __tls_get_addr(size_t (*id_and_offset)[2]);

void* static_shared(const Module& module) {
    if (!module.shared_bytes) return nullptr;
    size_t begin[2] = {module.shared_id, 0};
    return __tls_get_addr(&begin);
}

uint64_t md_static_shared(const void* inside) { return find_module(inside).shared_bytes; }
