#include "base/copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

enum { STEP = 64, SMALL = 1024, PAGE = 4096 };

/* Written out, not as a struct of four: the compiler would keep that on the stack as
 * well, and every other store would go there. */
#define COPY_STEP(store, to, from)                                                                 \
    do {                                                                                           \
        const __m128i *f = (const __m128i *)(const void *)(from);                                  \
        __m128i *t = (__m128i *)(void *)(to);                                                      \
        __m128i a = _mm_loadu_si128(f), b = _mm_loadu_si128(f + 1);                                \
        __m128i c = _mm_loadu_si128(f + 2), d = _mm_loadu_si128(f + 3);                            \
        store(t, a);                                                                               \
        store(t + 1, b);                                                                           \
        store(t + 2, c);                                                                           \
        store(t + 3, d);                                                                           \
    } while (0)

void oriel_copy(void *dst, const void *src, size_t bytes)
{
    const char *from = src;
    char *to = dst;

    if (bytes >= SMALL && (uintptr_t)to % PAGE != (uintptr_t)from % PAGE) {
        for (; bytes >= STEP; bytes -= STEP, from += STEP, to += STEP)
            COPY_STEP(_mm_storeu_si128, to, from);
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
         bytes -= STEP, from += STEP, to += STEP)
        COPY_STEP(_mm_stream_si128, to, from);
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
