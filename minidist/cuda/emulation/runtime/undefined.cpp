// undefined.cpp - the functions that a compiler calls when a kernel does what C++ leaves undefined.
//
// Kernels are compiled with -fsanitize=alignment,bounds: before a float4 is loaded its address is
// looked at, and before s[i] the index, for an array of known size. As in hooks.cpp the library
// that belongs to it is not linked; these are the structures that it would be given.
#include "worker.h"

namespace {
struct Place {
    const char* file;
    uint32_t line, column;
};
struct Type {
    uint16_t kind;     // 0: an integer,
    uint16_t details;  // then: 1 if it has a sign, and twice the logarithm of its bits
    char name[1];      // with quotes: 'float [32]'
};
struct OutOfBounds {
    Place place;
    Type *array, *index;
};
struct TypeMismatch {
    Place place;
    Type* type;
    unsigned char log_alignment, check;
};
struct Overflow {
    Place place;
    Type* type;
};
}  // namespace

#define HANDLER(name) extern "C" __attribute__((visibility("default"))) void __ubsan_handle_##name

static Trouble trouble_with(int kind, const Place& place, const char* type, uintptr_t pc) {
    Trouble trouble = trouble_at(kind, place.file, (int)place.line);
    trouble.text = type;
    trouble.pc = pc;
    return trouble;
}

// The call itself: the address that it returns to may belong to the next line.
#define CALLER ((uintptr_t)__builtin_return_address(0) - 1)

// An index is handed over in 64 bits, whatever its own type: a negative int has lost the upper
// half of them.
HANDLER(out_of_bounds_abort)(OutOfBounds* what, uintptr_t index) {
    Trouble trouble = trouble_with(MD_INDEX, what->place, what->array->name, CALLER);
    const bool narrow = what->index->kind == 0 && what->index->details >> 1 <= 5;
    const bool has_sign = what->index->details & 1;
    trouble.number = narrow && has_sign ? (int32_t)index : (int64_t)index;
    give_up(trouble);
}

HANDLER(type_mismatch_v1_abort)(TypeMismatch* what, uintptr_t address) {
    Trouble trouble = trouble_with(MD_MISALIGNED, what->place, what->type->name, CALLER);
    trouble.address = address;
    trouble.size = 1u << what->log_alignment;
    give_up(trouble);
}

// With -fsanitize=integer-divide-by-zero, for processors on which a division by zero is no signal.
HANDLER(divrem_overflow_abort)(Overflow* what, uintptr_t, uintptr_t) {
    give_up(trouble_with(MD_DIVISION_BY_ZERO, what->place, what->type->name, CALLER));
}

// ---- the kernel's own assertions

void md_fail(int kind, const char* text, const char* file, int line) {
    Trouble trouble = trouble_at(kind, file, line);
    trouble.text = text;
    trouble.pc = CALLER;
    give_up(trouble);
}
