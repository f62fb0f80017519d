#include "base/copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

enum { STEP = 64, SMALL = 1024 };

typedef struct step {
    __m128i v[STEP / sizeof(__m128i)];
} step;

static inline step load(const char *src)
{
    const __m128i *from = (const __m128i *)(const void *)src;

    return (step){{_mm_loadu_si128(from), _mm_loadu_si128(from + 1), _mm_loadu_si128(from + 2),
                   _mm_loadu_si128(from + 3)}};
}

void oriel_copy(void *dst, const void *src, size_t bytes)
{
    const char *from = src;
    char *to = dst;

    if (bytes >= SMALL) {
        for (; bytes >= STEP; bytes -= STEP, from += STEP, to += STEP) {
            step s = load(from);
            for (int i = 0; i < 4; i++)
                _mm_storeu_si128((__m128i *)(void *)to + i, s.v[i]);
        }
    }
    if (bytes > 0)
        memcpy(to, from, bytes);
}

void oriel_copy_stream(void *dst, const void *src, size_t bytes)
{
    size_t head = -(uintptr_t)dst % STEP;
    const char *from = src;
    char *to = dst;

    head = head < bytes ? head : bytes;
    oriel_copy(to, from, head);
    for (bytes -= head, from += head, to += head; bytes >= STEP;
         bytes -= STEP, from += STEP, to += STEP) {
        step s = load(from);
        for (int i = 0; i < 4; i++)
            _mm_stream_si128((__m128i *)(void *)to + i, s.v[i]);
    }
    oriel_copy(to, from, bytes);
    _mm_sfence();
}

#else

void oriel_copy(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        memcpy(dst, src, bytes);
}

void oriel_copy_stream(void *dst, const void *src, size_t bytes)
{
    oriel_copy(dst, src, bytes);
}

#endif
