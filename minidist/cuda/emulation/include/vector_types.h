// vector_types.h - float4, int2 and their like, with the sizes and alignments that CUDA gives them.
//
//     float2   | x | y |             8 bytes, at addresses that are multiples of 8
//     float3   | x | y | z |        12 bytes, at multiples of 4: a GPU loads it piece by piece
//     float4   | x | y | z | w |    16 bytes, at multiples of 16: one load instruction
//
// The alignment is the promise that lets a GPU move all elements at once; a float4 at another
// address is an error there, and here too. Only a pair and a quadruple make such a promise, and
// never beyond 16 bytes, the most that one instruction moves: a double4 is loaded as two halves.
//
// On a GPU these types are part of the compiler. What differs: nothing that a kernel can see.
#pragma once

// Functions of these headers are always inlined, so that a load of an argument stands in the
// kernel itself, where the checks of memory see it with the kernel's own line.
#ifndef MD_INLINE
#define MD_INLINE static inline __attribute__((always_inline, unused))
#endif

// One family: name1 .. name4 and make_name1 .. make_name4. The alignments of a single element and of
// a triple are those of the element.
#define MD_VECTORS(name, element, align_of_2, align_of_4)                                          \
    struct name##1 { element x; };                                                                 \
    struct alignas(align_of_2) name##2 { element x, y; };                                          \
    struct name##3 { element x, y, z; };                                                           \
    struct alignas(align_of_4) name##4 { element x, y, z, w; };                                    \
    MD_INLINE name##1 make_##name##1(element x) { return {x}; }                                    \
    MD_INLINE name##2 make_##name##2(element x, element y) { return {x, y}; }                      \
    MD_INLINE name##3 make_##name##3(element x, element y, element z) { return {x, y, z}; }        \
    MD_INLINE name##4 make_##name##4(element x, element y, element z, element w) {                 \
        return {x, y, z, w};                                                                       \
    }

MD_VECTORS(char, signed char, 2, 4)
MD_VECTORS(uchar, unsigned char, 2, 4)
MD_VECTORS(short, short, 4, 8)
MD_VECTORS(ushort, unsigned short, 4, 8)
MD_VECTORS(int, int, 8, 16)
MD_VECTORS(uint, unsigned int, 8, 16)
MD_VECTORS(long, long, 16, 16)
MD_VECTORS(ulong, unsigned long, 16, 16)
MD_VECTORS(longlong, long long, 16, 16)
MD_VECTORS(ulonglong, unsigned long long, 16, 16)
MD_VECTORS(float, float, 8, 16)
MD_VECTORS(double, double, 16, 16)

// The size of a grid or of a block: what is not said is 1.
struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 size) : x(size.x), y(size.y), z(size.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
