/* The loops over elements and their table. Included once by each file that
 * compiles them for an instruction set. That file names the table (TABLE,
 * TABLE_NAME); with HAVE_F16_CONVERT it brings f16_load_rows, f16_store_rows. */
#include "ops/reduce/element.h"
#include "ops/reduce/kernels.h"

/* Contraction into fused operations would change the bits. gcc has no pragma
 * for it: it needs -ffp-contract=off where the target has fused operations. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic ignored "-Wpass-failed" /* at -O1 nothing is vectorised */
#define INDEPENDENT_ROWS _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT_ROWS _Pragma("GCC ivdep")
#endif

/* Runs the statement for each i below `count`. A destination equals a source or
 * is disjoint, so no row depends on another, which the compiler cannot see. The
 * rows go in chunks of a constant number so that it vectorises at -O2 too. */
#define CHUNK 64
#define FOR_ROWS(i, count, ...)                                                                    \
    do {                                                                                           \
        size_t done_ = 0;                                                                          \
        for (; (count)-done_ >= CHUNK; done_ += CHUNK) {                                           \
            INDEPENDENT_ROWS                                                                       \
            for (size_t row_ = 0; row_ < CHUNK; row_++) {                                          \
                size_t i = done_ + row_;                                                           \
                __VA_ARGS__;                                                                       \
            }                                                                                      \
        }                                                                                          \
        for (size_t i = done_; i < (count); i++) {                                                 \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* ---- dst = a op b -------------------------------------------------------- */

#define PAIR(T, name, op)                                                                          \
    static void T##_##name(void *dst, const void *a, const void *b, size_t count)                  \
    {                                                                                              \
        const T##_element *x = a, *y = b;                                                          \
        T##_element *to = dst;                                                                     \
                                                                                                   \
        FOR_ROWS(i, count, to[i] = T##_store(op(T##_load(x[i]), T##_load(y[i]))));                 \
    }

#define PAIRS(T, A)                                                                                \
    PAIR(T, pair_sum, A##_sum)                                                                     \
    PAIR(T, pair_prod, A##_prod)                                                                   \
    PAIR(T, pair_min, A##_min)                                                                     \
    PAIR(T, pair_max, A##_max)

#define BITS(T)                                                                                    \
    PAIR(T, pair_and, T##_and)                                                                     \
    PAIR(T, pair_or, T##_or)                                                                       \
    PAIR(T, pair_xor, T##_xor)

PAIR(u8, pair_any, bool_or)
PAIR(u8, pair_all, bool_and)
PAIR(u8, pair_odd, bool_xor)
PAIRS(u8, u8)
PAIRS(u16, u16)
PAIRS(u32, u32)
PAIRS(u64, u64)
BITS(u8)
BITS(u16)
BITS(u32)
BITS(u64)
PAIR(s8, pair_min, s8_min)
PAIR(s8, pair_max, s8_max)
PAIR(s16, pair_min, s16_min)
PAIR(s16, pair_max, s16_max)
PAIR(s32, pair_min, s32_min)
PAIR(s32, pair_max, s32_max)
PAIR(s64, pair_min, s64_min)
PAIR(s64, pair_max, s64_max)
PAIRS(f32, f32)
PAIRS(f64, f64)

/* Two elements at a time, in the halves of a 32-bit word, need no shuffles. */
#define BF16_HIGH 0xffff0000
#define BF16_PAIR(op)                                                                              \
    static void bf16_pair_##op(void *dst, const void *a, const void *b, size_t count)              \
    {                                                                                              \
        const u32_element *x = a, *y = b;                                                          \
        u32_element *to = dst;                                                                     \
        size_t last = count - 1;                                                                   \
                                                                                                   \
        FOR_ROWS(i, count / 2,                                                                     \
                 float low = f32_##op(f32_from_bits(x[i] << 16), f32_from_bits(y[i] << 16));       \
                 float high =                                                                      \
                     f32_##op(f32_from_bits(x[i] & BF16_HIGH), f32_from_bits(y[i] & BF16_HIGH));   \
                 to[i] = bf16_round(f32_store(low)) >> 16 |                                        \
                         (bf16_round(f32_store(high)) & BF16_HIGH));                               \
        if (count % 2 != 0)                                                                        \
            ((bf16_element *)dst)[last] =                                                          \
                bf16_store(f32_store(f32_##op(bf16_load(((const bf16_element *)a)[last]),          \
                                              bf16_load(((const bf16_element *)b)[last]))));       \
    }

BF16_PAIR(sum)
BF16_PAIR(prod)
BF16_PAIR(min)
BF16_PAIR(max)

/* Complex numbers are rows of two reals: as structs that are passed by value
 * clang would not vectorise them. min and max are jax.lax's: a strict
 * lexicographic comparison, the second operand where it does not hold, so also
 * with a NaN. */
#define COMPLEX_PAIR(T, R, type, name, real, imaginary)                                            \
    static void T##_pair_##name(void *dst, const void *a, const void *b, size_t count)             \
    {                                                                                              \
        const R##_element *x = a, *y = b;                                                          \
        R##_element *to = dst;                                                                     \
                                                                                                   \
        FOR_ROWS(i, count, type ar = x[2 * i], ai = x[2 * i + 1];                                  \
                 type br = y[2 * i], bi = y[2 * i + 1]; to[2 * i] = R##_store(real);               \
                 to[2 * i + 1] = R##_store(imaginary));                                            \
    }

#define LESS    ((ar < br) | ((ar == br) & (ai < bi)))
#define GREATER ((ar > br) | ((ar == br) & (ai > bi)))
#define COMPLEX_PAIRS(T, R, type)                                                                  \
    COMPLEX_PAIR(T, R, type, prod, (ar * br) - (ai * bi), (ar * bi) + (ai * br))                   \
    COMPLEX_PAIR(T, R, type, min, LESS ? ar : br, LESS ? ai : bi)                                  \
    COMPLEX_PAIR(T, R, type, max, GREATER ? ar : br, GREATER ? ai : bi)                            \
    static void T##_pair_sum(void *dst, const void *a, const void *b, size_t count)                \
    {                                                                                              \
        R##_pair_sum(dst, a, b, 2 * count);                                                        \
    }

COMPLEX_PAIRS(c64, f32, float)
COMPLEX_PAIRS(c128, f64, double)

/* ---- to and from f32 ----------------------------------------------------- */

#define CONVERT(T)                                                                                 \
    static void T##_load_rows(float *dst, const void *src, size_t count)                           \
    {                                                                                              \
        const T##_element *from = src;                                                             \
                                                                                                   \
        FOR_ROWS(i, count, dst[i] = T##_load(from[i]));                                            \
    }                                                                                              \
    static void T##_store_rows(void *dst, const float *src, size_t count)                          \
    {                                                                                              \
        T##_element *to = dst;                                                                     \
                                                                                                   \
        FOR_ROWS(i, count, to[i] = T##_store(src[i]));                                             \
    }

#ifndef HAVE_F16_CONVERT
CONVERT(f16)
#endif
CONVERT(bf16)
CONVERT(f8e4m3fn)
CONVERT(f8e5m2)

/* ---- the table ----------------------------------------------------------- */

#define PAIRS_OF(T)                                                                                \
    {                                                                                              \
        [ORIEL_SUM] = T##_pair_sum, [ORIEL_PROD] = T##_pair_prod, [ORIEL_MIN] = T##_pair_min,      \
        [ORIEL_MAX] = T##_pair_max                                                                 \
    }
/* Of integers: U is the unsigned type of the size of T. */
#define INTEGERS_OF(T, U)                                                                          \
    {                                                                                              \
        [ORIEL_SUM] = U##_pair_sum, [ORIEL_PROD] = U##_pair_prod, [ORIEL_MIN] = T##_pair_min,      \
        [ORIEL_MAX] = T##_pair_max, [ORIEL_AND] = U##_pair_and, [ORIEL_OR] = U##_pair_or,          \
        [ORIEL_XOR] = U##_pair_xor                                                                 \
    }

const oriel_reduce_kernels TABLE = {
    .name = TABLE_NAME,
    .pair =
        {
            [ORIEL_BOOL] = {[ORIEL_SUM] = u8_pair_any,
                            [ORIEL_PROD] = u8_pair_all,
                            [ORIEL_MIN] = u8_pair_all,
                            [ORIEL_MAX] = u8_pair_any,
                            [ORIEL_AND] = u8_pair_all,
                            [ORIEL_OR] = u8_pair_any,
                            [ORIEL_XOR] = u8_pair_odd},
            [ORIEL_S8] = INTEGERS_OF(s8, u8),
            [ORIEL_S16] = INTEGERS_OF(s16, u16),
            [ORIEL_S32] = INTEGERS_OF(s32, u32),
            [ORIEL_S64] = INTEGERS_OF(s64, u64),
            [ORIEL_U8] = INTEGERS_OF(u8, u8),
            [ORIEL_U16] = INTEGERS_OF(u16, u16),
            [ORIEL_U32] = INTEGERS_OF(u32, u32),
            [ORIEL_U64] = INTEGERS_OF(u64, u64),
            [ORIEL_BF16] = PAIRS_OF(bf16),
            [ORIEL_F32] = PAIRS_OF(f32),
            [ORIEL_F64] = PAIRS_OF(f64),
            [ORIEL_C64] = PAIRS_OF(c64),
            [ORIEL_C128] = PAIRS_OF(c128),
        },
    .load =
        {
            [ORIEL_F16] = f16_load_rows,
            [ORIEL_BF16] = bf16_load_rows,
            [ORIEL_F8E4M3FN] = f8e4m3fn_load_rows,
            [ORIEL_F8E5M2] = f8e5m2_load_rows,
        },
    .store =
        {
            [ORIEL_F16] = f16_store_rows,
            [ORIEL_BF16] = bf16_store_rows,
            [ORIEL_F8E4M3FN] = f8e4m3fn_store_rows,
            [ORIEL_F8E5M2] = f8e5m2_store_rows,
        },
};
