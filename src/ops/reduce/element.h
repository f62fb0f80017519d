/* Elements: how each dtype is read into an accumulator, combined and written
 * back. Everything is written without branches on data, so that compilers turn
 * the loops over it into vector code. */
#ifndef ORIEL_OPS_REDUCE_ELEMENT_H
#define ORIEL_OPS_REDUCE_ELEMENT_H

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define ELEMENT         static __device__ __forceinline__
#define IN_MEMORY       /* the kernels load whole packs */
#define UNORDERED(a, b) ((a) != (a) || (b) != (b))
#else
#define ELEMENT         static inline __attribute__((always_inline))
/* In memory elements have no alignment and may be of any declared type. */
#define IN_MEMORY       __attribute__((aligned(1), may_alias))
#define UNORDERED(a, b) __builtin_isunordered(a, b)
#endif

/* ---- integers ------------------------------------------------------------ */

#define INTEGER_TYPE(T, type)                                                                      \
    typedef type T##_element IN_MEMORY;                                                            \
    ELEMENT type T##_load(type a)                                                                  \
    {                                                                                              \
        return a;                                                                                  \
    }                                                                                              \
    ELEMENT type T##_store(type a)                                                                 \
    {                                                                                              \
        return a;                                                                                  \
    }                                                                                              \
    ELEMENT type T##_min(type a, type b)                                                           \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    ELEMENT type T##_max(type a, type b)                                                           \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }

INTEGER_TYPE(u8, uint8_t)
INTEGER_TYPE(u16, uint16_t)
INTEGER_TYPE(u32, uint32_t)
INTEGER_TYPE(u64, uint64_t)
INTEGER_TYPE(s8, int8_t)
INTEGER_TYPE(s16, int16_t)
INTEGER_TYPE(s32, int32_t)
INTEGER_TYPE(s64, int64_t)

/* Sums and products wrap, which C defines for unsigned types only; the bits are
 * those of the signed ones. `wide` is what the operands are computed in: uint16_t
 * by itself becomes int, where 65535 * 65535 overflows. */
#define WRAPPING_TYPE(T, type, wide)                                                               \
    ELEMENT type T##_sum(type a, type b)                                                           \
    {                                                                                              \
        return (type)((wide)a + (wide)b);                                                          \
    }                                                                                              \
    ELEMENT type T##_prod(type a, type b)                                                          \
    {                                                                                              \
        return (type)((wide)a * (wide)b);                                                          \
    }

/* Of bits too the signed types have those of the unsigned ones. */
#define BITWISE_TYPE(T, type)                                                                      \
    ELEMENT type T##_and(type a, type b)                                                           \
    {                                                                                              \
        return (type)(a & b);                                                                      \
    }                                                                                              \
    ELEMENT type T##_or(type a, type b)                                                            \
    {                                                                                              \
        return (type)(a | b);                                                                      \
    }                                                                                              \
    ELEMENT type T##_xor(type a, type b)                                                           \
    {                                                                                              \
        return (type)(a ^ b);                                                                      \
    }

BITWISE_TYPE(u8, uint8_t)
BITWISE_TYPE(u16, uint16_t)
BITWISE_TYPE(u32, uint32_t)
BITWISE_TYPE(u64, uint64_t)

WRAPPING_TYPE(u8, uint8_t, uint32_t)
WRAPPING_TYPE(u16, uint16_t, uint32_t)
WRAPPING_TYPE(u32, uint32_t, uint32_t)
WRAPPING_TYPE(u64, uint64_t, uint64_t)

/* ---- bool: any byte but 0 reads as true, 0 or 1 is written --------------- */

ELEMENT uint8_t bool_or(uint8_t a, uint8_t b)
{
    return (a | b) != 0;
}

ELEMENT uint8_t bool_and(uint8_t a, uint8_t b)
{
    return (a != 0) & (b != 0);
}

ELEMENT uint8_t bool_xor(uint8_t a, uint8_t b)
{
    return (a != 0) ^ (b != 0);
}

/* ---- f32 and f64 --------------------------------------------------------- */

/* Which payload and sign a NaN gets depends on the CPU and on the order in
 * which a compiler passes the operands of a commutative operation, so a store
 * writes one NaN for all. */
#define F32_NAN UINT32_C(0x7fc00000)
#define F64_NAN UINT64_C(0x7ff8000000000000)

/* min and max follow IEEE 754-2019 minimum and maximum, as XLA's do: -0 is less
 * than +0, and NaN wins. With equal operands both selections give a zero of one
 * sign each: or keeps a minus, and drops it. With a NaN the or is a NaN too,
 * since the two selections give both operands. */
#define FLOAT_TYPE(T, type, uint, nan)                                                             \
    typedef type T##_element IN_MEMORY;                                                            \
    ELEMENT uint T##_bits(type a)                                                                  \
    {                                                                                              \
        uint u;                                                                                    \
        memcpy(&u, &a, sizeof(u));                                                                 \
        return u;                                                                                  \
    }                                                                                              \
    ELEMENT type T##_from_bits(uint u)                                                             \
    {                                                                                              \
        type a;                                                                                    \
        memcpy(&a, &u, sizeof(a));                                                                 \
        return a;                                                                                  \
    }                                                                                              \
    ELEMENT type T##_load(type a)                                                                  \
    {                                                                                              \
        return a;                                                                                  \
    }                                                                                              \
    ELEMENT type T##_store(type a)                                                                 \
    {                                                                                              \
        return a == a ? a : T##_from_bits(nan);                                                    \
    }                                                                                              \
    ELEMENT type T##_sum(type a, type b)                                                           \
    {                                                                                              \
        return a + b;                                                                              \
    }                                                                                              \
    ELEMENT type T##_prod(type a, type b)                                                          \
    {                                                                                              \
        return a * b;                                                                              \
    }                                                                                              \
    ELEMENT type T##_min(type a, type b)                                                           \
    {                                                                                              \
        return T##_from_bits(T##_bits(a < b ? a : b) | T##_bits(b < a ? b : a));                   \
    }                                                                                              \
    ELEMENT type T##_max(type a, type b)                                                           \
    {                                                                                              \
        uint unordered = (uint)0 - (uint)UNORDERED(a, b);                                          \
        return T##_from_bits((T##_bits(a > b ? a : b) & T##_bits(b > a ? b : a)) | unordered);     \
    }

FLOAT_TYPE(f32, float, uint32_t, F32_NAN)
FLOAT_TYPE(f64, double, uint64_t, F64_NAN)

/* ---- bf16: the upper half of an f32 -------------------------------------- */

typedef uint16_t bf16_element IN_MEMORY;

/* Here and below, conversions from f32 are given what f32_store returns: the
 * only NaN is F32_NAN. */

/* To nearest, ties to even; the bf16 is the upper half of the result. */
ELEMENT uint32_t bf16_round(float a)
{
    uint32_t u = f32_bits(a);

    return u + 0x7fff + ((u >> 16) & 1);
}

ELEMENT float bf16_load(uint16_t a)
{
    return f32_from_bits((uint32_t)a << 16);
}

ELEMENT uint16_t bf16_store(float a)
{
    return (uint16_t)(bf16_round(a) >> 16);
}

/* ---- f16, f8e4m3fn, f8e5m2: fewer bits of exponent too ------------------- */

typedef uint16_t f16_element IN_MEMORY;
typedef uint8_t f8e4m3fn_element IN_MEMORY;
typedef uint8_t f8e5m2_element IN_MEMORY;

/* Where these compare, they do it on signed numbers: SSE2 and AVX2 have no other
 * comparison. Where they select, they do it by masks: with ?: gcc would move an
 * addition into one arm, keep the branch since it may trap, and not vectorise. */
ELEMENT int32_t all_bits_if(int condition)
{
    return -(int32_t)condition;
}

#define F32_EXPONENT 0x7f800000
#define F32_480      0x43f00000
#define F32_65536    0x47800000

/* The f32 bits of the least normal number of a format: its exponent is 1 less a
 * bias of half the exponents, less one; f32's bias is 127. */
#define LEAST_NORMAL(exponent_bits) ((129 - (1 << ((exponent_bits)-1))) << 23)

/* `code` has no sign; above `finite` it is an infinity or NaN. An addition moves
 * the exponent to f32's bias. A subnormal has no leading one: it is given one at
 * the least exponent, which is subtracted again, exactly. */
ELEMENT int32_t small_load(int32_t code, int mantissa_bits, int exponent_bits, int32_t finite)
{
    const int32_t least = LEAST_NORMAL(exponent_bits);
    int32_t shifted = code << (23 - mantissa_bits);
    int32_t normal = shifted + least - (1 << 23);
    float subnormal = f32_from_bits((uint32_t)(shifted + least)) - f32_from_bits((uint32_t)least);
    int32_t tiny = all_bits_if(shifted < 1 << 23);

    return (tiny & (int32_t)f32_bits(subnormal)) | (~tiny & normal) |
           (all_bits_if(code > finite) & F32_EXPONENT);
}

/* The code without its sign. f32's addition rounds: `one` is 1.0 with so large an
 * exponent that the sum's last bit weighs what the code's last bit does, and the
 * sum less `one` is the mantissa with its leading one, as an integer. Magnitudes
 * from `limit` on have the code of `limit`. */
ELEMENT int32_t small_store(float a, int mantissa_bits, int exponent_bits, int32_t limit)
{
    const int32_t least = LEAST_NORMAL(exponent_bits);
    const int drop = 23 - mantissa_bits;
    int32_t magnitude = (int32_t)(f32_bits(a) & 0x7fffffff);
    int32_t m = magnitude < limit ? magnitude : limit;
    int32_t exponent = m & F32_EXPONENT;
    int32_t e = exponent > least ? exponent : least;
    int32_t one = e + (drop << 23);
    float sum = f32_from_bits((uint32_t)m) + f32_from_bits((uint32_t)one);

    return (int32_t)f32_bits(sum) - one + ((e - least) >> drop);
}

ELEMENT float f16_load(uint16_t a)
{
    uint32_t sign = (uint32_t)(a & 0x8000) << 16;

    return f32_from_bits(sign | (uint32_t)small_load(a & 0x7fff, 10, 5, 0x7bff));
}

ELEMENT uint16_t f16_store(float a)
{
    int32_t nan = all_bits_if(a != a) & 0x7e00;

    return (uint16_t)((f32_bits(a) >> 16 & 0x8000) | small_store(a, 10, 5, F32_65536) | nan);
}

ELEMENT float f8e5m2_load(uint8_t a)
{
    return f16_load((uint16_t)(a << 8)); /* the upper half of an f16 */
}

ELEMENT uint8_t f8e5m2_store(float a)
{
    int32_t nan = all_bits_if(a != a) & 0x7e;

    return (uint8_t)((f32_bits(a) >> 24 & 0x80) | small_store(a, 2, 5, F32_65536) | nan);
}

/* No infinity; the last code is NaN. */
ELEMENT float f8e4m3fn_load(uint8_t a)
{
    uint32_t sign = (uint32_t)(a & 0x80) << 24;

    return f32_from_bits(sign | (uint32_t)small_load(a & 0x7f, 3, 4, 0x7e));
}

/* The limit is what would follow the largest number, 448: its code is NaN's. */
ELEMENT uint8_t f8e4m3fn_store(float a)
{
    return (uint8_t)((f32_bits(a) >> 24 & 0x80) | small_store(a, 3, 4, F32_480));
}

#endif
