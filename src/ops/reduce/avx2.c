/* The kernels for x86-64 with AVX2 and F16C. FMA stays off: a fused operation
 * would give other bits than the rest. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif

#include "ops/reduce/element.h"

/* A NaN's payload may differ from what f16_load gives: a store drops it. */
static void f16_load_rows(float *dst, const void *src, size_t count)
{
    const f16_element *from = src;
    size_t i = 0;

    for (; count - i >= 8; i += 8) {
        __m128i half = _mm_loadu_si128((const __m128i_u *)(from + i));
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(half));
    }
    for (; i < count; i++)
        dst[i] = f16_load(from[i]);
}

static void f16_store_rows(void *dst, const float *src, size_t count)
{
    f16_element *to = dst;
    size_t i = 0;

    for (; count - i >= 8; i += 8) {
        __m256 a = _mm256_loadu_ps(src + i);
        _mm_storeu_si128((__m128i_u *)(to + i), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < count; i++)
        to[i] = f16_store(src[i]);
}

#define HAVE_F16_CONVERT
#define TABLE      oriel_reduce_kernels_avx2
#define TABLE_NAME "avx2"
#include "ops/reduce/loops.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
