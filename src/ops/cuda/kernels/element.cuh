/* Elements in packs of 8-byte words, and what combines them: the device's side of
 * ops/reduce/element.h, giving the same bits. Compiled without contraction. */
#ifndef ORIEL_OPS_CUDA_KERNELS_ELEMENT_CUH
#define ORIEL_OPS_CUDA_KERNELS_ELEMENT_CUH

#include "ops/cuda/kernels/device.cuh"
#include "ops/reduce/element.h"

/* Element k of a pack: its bits, and how they are put together again. */
template <class U> DEVICE U bits_of(const uint64_t *words, int k)
{
    const int at = k * (int)sizeof(U);

    return (U)(words[at / 8] >> 8 * (at % 8));
}

template <class U> DEVICE void put_bits(uint64_t *words, int k, U bits)
{
    const int at = k * (int)sizeof(U);

    words[at / 8] |= (uint64_t)bits << 8 * (at % 8);
}

/* The device converts f16 itself; its NaN is another. */
DEVICE float f16_convert(uint16_t bits)
{
    float a;

    asm("cvt.f32.f16 %0, %1;" : "=f"(a) : "h"(bits));
    return a;
}

DEVICE uint16_t f16_round(float a)
{
    uint16_t bits;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(a));
    return a == a ? bits : (uint16_t)0x7e00;
}

#define REAL(T, uint, accumulator, from_bits, to_bits)                                             \
    struct T##_type {                                                                              \
        typedef accumulator value;                                                                 \
        static const int size = sizeof(uint);                                                      \
        DEVICE_MEMBER value get(const uint64_t *words, int k)                                      \
        {                                                                                          \
            return from_bits(bits_of<uint>(words, k));                                             \
        }                                                                                          \
        DEVICE_MEMBER void put(uint64_t *words, int k, value a)                                    \
        {                                                                                          \
            put_bits<uint>(words, k, (uint)(to_bits));                                             \
        }                                                                                          \
    };
#define DEVICE_MEMBER static __device__ __forceinline__

REAL(u8, uint8_t, uint8_t, , a)
REAL(u16, uint16_t, uint16_t, , a)
REAL(u32, uint32_t, uint32_t, , a)
REAL(u64, uint64_t, uint64_t, , a)
REAL(s8, uint8_t, int8_t, (int8_t), a)
REAL(s16, uint16_t, int16_t, (int16_t), a)
REAL(s32, uint32_t, int32_t, (int32_t), a)
REAL(s64, uint64_t, int64_t, (int64_t), a)
REAL(f32, uint32_t, float, f32_from_bits, f32_bits(f32_store(a)))
REAL(f64, uint64_t, double, f64_from_bits, f64_bits(f64_store(a)))
REAL(f16, uint16_t, float, f16_convert, f16_round(a))
REAL(bf16, uint16_t, float, bf16_load, bf16_store(f32_store(a)))
REAL(f8e4m3fn, uint8_t, float, f8e4m3fn_load, f8e4m3fn_store(f32_store(a)))
REAL(f8e5m2, uint8_t, float, f8e5m2_load, f8e5m2_store(f32_store(a)))

/* As COMPLEX_PAIR in ops/reduce/loops.h. */
#define COMPLEX(T, R, type, words_each)                                                            \
    struct T##_value {                                                                             \
        type r, i;                                                                                 \
    };                                                                                             \
    struct T##_type {                                                                              \
        typedef T##_value value;                                                                   \
        static const int size = 8 * words_each;                                                    \
        DEVICE_MEMBER value get(const uint64_t *words, int k)                                      \
        {                                                                                          \
            return value{R##_type::get(words, 2 * k), R##_type::get(words, 2 * k + 1)};            \
        }                                                                                          \
        DEVICE_MEMBER void put(uint64_t *words, int k, value a)                                    \
        {                                                                                          \
            R##_type::put(words, 2 * k, a.r);                                                      \
            R##_type::put(words, 2 * k + 1, a.i);                                                  \
        }                                                                                          \
    };                                                                                             \
    DEVICE T##_value T##_prod(T##_value a, T##_value b)                                            \
    {                                                                                              \
        return T##_value{(a.r * b.r) - (a.i * b.i), (a.r * b.i) + (a.i * b.r)};                    \
    }                                                                                              \
    DEVICE T##_value T##_min(T##_value a, T##_value b)                                             \
    {                                                                                              \
        return (a.r < b.r) | ((a.r == b.r) & (a.i < b.i)) ? a : b;                                 \
    }                                                                                              \
    DEVICE T##_value T##_max(T##_value a, T##_value b)                                             \
    {                                                                                              \
        return (a.r > b.r) | ((a.r == b.r) & (a.i > b.i)) ? a : b;                                 \
    }

COMPLEX(c64, f32, float, 1)
COMPLEX(c128, f64, double, 2)

/* A type and how two of its values are combined. */
#define COMBINATION(name, T, function)                                                             \
    struct name : T##_type {                                                                       \
        DEVICE_MEMBER value join(value a, value b)                                                 \
        {                                                                                          \
            return function(a, b);                                                                 \
        }                                                                                          \
    };

/* Accumulates packs of W words in the order in which they are given. */
template <class C, int W> struct accumulator {
    static const int count = 8 * W / C::size; /* elements of a pack */
    typename C::value values[count];          /* so far */

    __device__ __forceinline__ void begin(const uint64_t *words)
    {
#pragma unroll
        for (int k = 0; k < count; k++)
            values[k] = C::get(words, k);
    }
    __device__ __forceinline__ void add(const uint64_t *words)
    {
#pragma unroll
        for (int k = 0; k < count; k++)
            values[k] = C::join(values[k], C::get(words, k));
    }
    __device__ __forceinline__ void end(uint64_t *words) const
    {
#pragma unroll
        for (int w = 0; w < W; w++)
            words[w] = 0;
#pragma unroll
        for (int k = 0; k < count; k++)
            C::put(words, k, values[k]);
    }
};

#endif
