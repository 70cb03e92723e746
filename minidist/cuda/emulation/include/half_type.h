// half_type.h - one 16-bit type, the pair of it, and the conversions that carry its name.
//
// No #pragma once: cuda_fp16.h and cuda_bf16.h each include this file, having said which type it is:
//
//     MD_WORD    half                  bfloat16               the name within a function's name
//     MD_HALF    __half                __nv_bfloat16          the type
//     MD_HALF2   __half2               __nv_bfloat162         two of them in one 32-bit register
//     MD_OTHER   __nv_bfloat16         __half                 the other type
//     MD_ROUND   md_float_to_half      md_float_to_bfloat16   from rounding.h
//     MD_WIDEN   md_half_to_float      md_bfloat16_to_float
//
// so MD_NAMED(__float2, _rn) is __float2half_rn for one and __float2bfloat16_rn for the other.
// Constructors and conversions are those of CUDA's own class, no more: `h * 2.0f` is ambiguous on a
// GPU (a product of halves or of floats?), and is refused here in the same way.

#define MD_PASTE_(a, b, c) a##b##c
#define MD_PASTE(a, b, c) MD_PASTE_(a, b, c)
#define MD_NAMED(before, after) MD_PASTE(before, MD_WORD, after)
#define MD_RAW MD_PASTE(MD_HALF, _raw, )
#define MD_RAW2 MD_PASTE(MD_HALF2, _raw, )
#define MD_MEMBER inline __attribute__((always_inline))

// The bits alone, for constants.
struct alignas(2) MD_RAW { unsigned short x; };
struct alignas(4) MD_RAW2 { unsigned short x, y; };

struct alignas(2) MD_HALF {
  protected:
    unsigned short __x;

  public:
    MD_HALF() = default;    // not initialised, as for a float
    constexpr MD_HALF(const MD_RAW& raw) : __x(raw.x) {}
    MD_MEMBER operator MD_RAW() const { return {__x}; }
    MD_MEMBER operator MD_RAW() const volatile { return {__x}; }
    MD_MEMBER MD_HALF& operator=(const MD_RAW& raw) { __x = raw.x; return *this; }
    MD_MEMBER volatile MD_HALF& operator=(const MD_RAW& raw) volatile { __x = raw.x; return *this; }
    explicit MD_MEMBER MD_HALF(const MD_OTHER other);

    MD_MEMBER MD_HALF(float value) : __x(MD_ROUND(value)) {}
    MD_MEMBER MD_HALF(double value) : __x(MD_ROUND(md_odd_float(value))) {}
    MD_MEMBER operator float() const { return MD_WIDEN(__x); }
    MD_MEMBER operator bool() const { return (__x & 0x7fff) != 0; }

#define MD_FROM(Integer)                                                                           \
    MD_MEMBER MD_HALF(Integer value) : __x(MD_ROUND(md_odd_integer(value))) {}
#define MD_TO(Integer)                                                                             \
    MD_MEMBER operator Integer() const {                                                           \
        return md_to_integer<Integer>(__builtin_truncf(MD_WIDEN(__x)));                            \
    }
#define MD_FROM_AND_TO(Integer) MD_FROM(Integer) MD_TO(Integer)
    MD_TO(char)
    MD_TO(signed char)
    MD_TO(unsigned char)
    MD_FROM_AND_TO(short)
    MD_FROM_AND_TO(unsigned short)
    MD_FROM_AND_TO(int)
    MD_FROM_AND_TO(unsigned int)
    MD_FROM_AND_TO(long)
    MD_FROM_AND_TO(unsigned long)
    MD_FROM_AND_TO(long long)
    MD_FROM_AND_TO(unsigned long long)
#undef MD_FROM
#undef MD_TO
#undef MD_FROM_AND_TO
};

struct alignas(4) MD_HALF2 {
    MD_HALF x, y;
    MD_HALF2() = default;
    constexpr MD_HALF2(const MD_HALF& x, const MD_HALF& y) : x(x), y(y) {}
    constexpr MD_HALF2(const MD_RAW2& raw) : x(MD_RAW{raw.x}), y(MD_RAW{raw.y}) {}
    MD_MEMBER operator MD_RAW2() const { return {MD_RAW(x).x, MD_RAW(y).x}; }
};

// --- bits -------------------------------------------------------------------------------------------

MD_INLINE unsigned short MD_NAMED(__, _as_ushort)(MD_HALF a) { return MD_RAW(a).x; }
MD_INLINE short MD_NAMED(__, _as_short)(MD_HALF a) { return (short)MD_RAW(a).x; }
MD_INLINE MD_HALF MD_NAMED(__ushort_as_, )(unsigned short bits) { return MD_RAW{bits}; }
MD_INLINE MD_HALF MD_NAMED(__short_as_, )(short bits) { return MD_RAW{(unsigned short)bits}; }

// --- floats -----------------------------------------------------------------------------------------

MD_INLINE float MD_NAMED(__, 2float)(MD_HALF a) { return (float)a; }
MD_INLINE MD_HALF MD_NAMED(__float2, )(float a) { return a; }
MD_INLINE MD_HALF MD_NAMED(__float2, _rn)(float a) { return a; }
MD_INLINE MD_HALF MD_NAMED(__double2, )(double a) { return a; }

// Down, up, and towards zero: from the nearest value one step, if that lies on the wrong side. The
// next value is the next number of bits; past zero the order of the bits turns round.
MD_INLINE MD_HALF MD_NAMED(__float2, _rd)(float a) {
    const MD_HALF near = a;
    if (!((float)near > a)) return near;
    const unsigned short bits = MD_RAW(near).x;
    if ((bits & 0x7fff) == 0) return MD_RAW{0x8001};
    return MD_RAW{(unsigned short)(bits & 0x8000 ? bits + 1 : bits - 1)};
}
MD_INLINE MD_HALF MD_NAMED(__float2, _ru)(float a) {
    const unsigned short bits = MD_RAW(MD_NAMED(__float2, _rd)(-a)).x;
    return MD_RAW{(unsigned short)(a != a ? bits : bits ^ 0x8000)};
}
MD_INLINE MD_HALF MD_NAMED(__float2, _rz)(float a) {
    return a < 0 ? MD_NAMED(__float2, _ru)(a) : MD_NAMED(__float2, _rd)(a);
}

// --- integers: __int2half_rn, __half2int_rz and so on -----------------------------------------------
// From an integer only to nearest; CUDA also has _rd, _ru, _rz, which nobody has missed here yet.

#define MD_INTEGER_TO(word, Integer, suffix, whole)                                                \
    MD_INLINE Integer MD_NAMED(__, 2##word##suffix)(MD_HALF a) {                                   \
        return md_to_integer<Integer>(whole((float)a));                                            \
    }
#define MD_INTEGER(word, Integer)                                                                  \
    MD_INLINE MD_HALF MD_NAMED(__##word##2, _rn)(Integer a) { return a; }                          \
    MD_INTEGER_TO(word, Integer, _rz, __builtin_truncf)                                            \
    MD_INTEGER_TO(word, Integer, _rn, __builtin_rintf)                                             \
    MD_INTEGER_TO(word, Integer, _rd, __builtin_floorf)                                            \
    MD_INTEGER_TO(word, Integer, _ru, __builtin_ceilf)
MD_INTEGER(short, short)
MD_INTEGER(ushort, unsigned short)
MD_INTEGER(int, int)
MD_INTEGER(uint, unsigned int)
MD_INTEGER(ll, long long)
MD_INTEGER(ull, unsigned long long)
MD_INTEGER_TO(char, signed char, _rz, __builtin_truncf)
MD_INTEGER_TO(uchar, unsigned char, _rz, __builtin_truncf)
#undef MD_INTEGER_TO
#undef MD_INTEGER

// --- pairs ------------------------------------------------------------------------------------------
// `low` is x, `high` is y; in a register x is the lower half.

MD_INLINE MD_HALF2 MD_NAMED(make_, 2)(MD_HALF x, MD_HALF y) { return {x, y}; }
MD_INLINE MD_HALF2 MD_NAMED(__halves2, 2)(MD_HALF x, MD_HALF y) { return {x, y}; }
MD_INLINE MD_HALF2 MD_PASTE(MD_NAMED(__, 2), MD_WORD, 2)(MD_HALF a) { return {a, a}; }
MD_INLINE MD_HALF2 MD_NAMED(__float2, 2_rn)(float a) { return {a, a}; }
MD_INLINE MD_HALF2 MD_NAMED(__floats2, 2_rn)(float x, float y) { return {x, y}; }
MD_INLINE MD_HALF2 MD_NAMED(__float22, 2_rn)(float2 a) { return {a.x, a.y}; }
MD_INLINE float2 MD_NAMED(__, 22float2)(MD_HALF2 a) { return {(float)a.x, (float)a.y}; }

MD_INLINE MD_HALF MD_NAMED(__low2, )(MD_HALF2 a) { return a.x; }
MD_INLINE MD_HALF MD_NAMED(__high2, )(MD_HALF2 a) { return a.y; }
MD_INLINE MD_HALF2 MD_NAMED(__low2, 2)(MD_HALF2 a) { return {a.x, a.x}; }
MD_INLINE MD_HALF2 MD_NAMED(__high2, 2)(MD_HALF2 a) { return {a.y, a.y}; }
MD_INLINE MD_HALF2 MD_NAMED(__lows2, 2)(MD_HALF2 a, MD_HALF2 b) { return {a.x, b.x}; }
MD_INLINE MD_HALF2 MD_NAMED(__highs2, 2)(MD_HALF2 a, MD_HALF2 b) { return {a.y, b.y}; }
