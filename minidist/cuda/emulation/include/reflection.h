// reflection.h - lets Python call a kernel, and ask which arguments it takes.
//
//     MD_KERNEL(add, add)   for   void add(float* out, const float* a, int n)
//
//     md_call_add(void** args)      add(*(float**)args[0], *(const float**)args[1], *(int*)args[2])
//     md_signature_add(char* text)  "*f4 *cf4 i4"
//
// The compiler knows the types of the parameters: a template that is given the function learns
// them.
#pragma once
#include "thread.h"

// ---- a type in a few letters: kind and bytes, as in NumPy

MD_UNCHECKED static inline char* md_put(char* text, const char* letters) {
    while (*letters) *text++ = *letters++;
    *text = 0;
    return text;
}

template <class T> struct md_code;  // an error here: a parameter of a type that Python cannot pass

#define MD_CODE(T, letters)                                                                        \
    template <> struct md_code<T> {                                                                \
        static char* put(char* text) { return md_put(text, letters); }                             \
    };

struct __half;  // of cuda_fp16.h and cuda_bf16.h, if the kernel includes them
struct __half2;
struct __nv_bfloat16;
struct __nv_bfloat162;

MD_CODE(void, "void")
MD_CODE(bool, "b1")
MD_CODE(char, "i1")
MD_CODE(signed char, "i1")
MD_CODE(unsigned char, "u1")
MD_CODE(short, "i2")
MD_CODE(unsigned short, "u2")
MD_CODE(int, "i4")
MD_CODE(unsigned, "u4")
MD_CODE(long, "i8")
MD_CODE(unsigned long, "u8")
MD_CODE(long long, "i8")
MD_CODE(unsigned long long, "u8")
MD_CODE(float, "f4")
MD_CODE(double, "f8")
MD_CODE(__half, "e2")
MD_CODE(__half2, "e2x2")
MD_CODE(__nv_bfloat16, "bf2")
MD_CODE(__nv_bfloat162, "bf2x2")
MD_CODE(float2, "f4x2")
MD_CODE(float4, "f4x4")
MD_CODE(double2, "f8x2")
MD_CODE(int2, "i4x2")
MD_CODE(int4, "i4x4")
MD_CODE(uint2, "u4x2")
MD_CODE(uint4, "u4x4")

template <class T> struct md_code<const T> {
    static char* put(char* text) { return md_code<T>::put(md_put(text, "c")); }
};
template <class T> struct md_code<volatile T> : md_code<T> {};
template <class T> struct md_code<const volatile T> : md_code<const T> {};
template <class T> struct md_code<T*> {
    static char* put(char* text) { return md_code<T>::put(md_put(text, "*")); }
};

// ---- the parameters of a function

template <int... positions> struct md_positions {};
template <int count, int... rest> struct md_count : md_count<count - 1, count - 1, rest...> {};
template <int... all> struct md_count<0, all...> {
    using type = md_positions<all...>;
};

template <class... A, int... position>
MD_UNCHECKED static inline void md_call(void (*kernel)(A...), void** args,
                                        md_positions<position...>) {
    (void)args;  // of a kernel without parameters
    kernel(*(A*)args[position]...);
}
template <class... A> MD_UNCHECKED static inline void md_call(void (*kernel)(A...), void** args) {
    md_call(kernel, args, typename md_count<sizeof...(A)>::type{});
}

template <class... A> MD_UNCHECKED static inline void md_signature(void (*)(A...), char* text) {
    *text = 0;
    const char* before = "";
    (void)before;  // of a kernel without parameters
    ((text = md_code<A>::put(md_put(text, before)), before = " "), ...);
}

#define MD_KERNEL(n, ...)                                                                          \
    extern "C" MD_EXPORT MD_UNCHECKED void md_call_##n(void** args) {                              \
        md_call(__VA_ARGS__, args);                                                                \
    }                                                                                              \
    extern "C" MD_EXPORT void md_signature_##n(char* text) { md_signature(__VA_ARGS__, text); }

// An address inside of this library, once for all of its kernels.
#define MD_MODULE                                                                                  \
    extern "C" MD_EXPORT const void* md_inside() { return (const void*)md_inside; }
