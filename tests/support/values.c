#include "support/values.h"

#include <stdlib.h>
#include <string.h>

#include "support/check.h"

enum { GUARD = 192, GUARD_BYTE = 0xa5, FRESH_BYTE = 0x5a, LINE = 64 };
/* Values repeat after so many elements, bytes after so many words: a prime, so that no slip by
 * a slot, a chunk or a slice looks right. */
enum { PERIOD = 509 };

struct number {
    int64_t re, im;
};

static const struct {
    int exponent_bits, mantissa_bits;
} formats[ORIEL_DTYPE_COUNT] = {
    [ORIEL_F16] = {5, 10},  [ORIEL_BF16] = {8, 7},     [ORIEL_F32] = {8, 23},
    [ORIEL_F64] = {11, 52}, [ORIEL_F8E4M3FN] = {4, 3}, [ORIEL_F8E5M2] = {5, 2},
    [ORIEL_C64] = {8, 23},  [ORIEL_C128] = {11, 52},
};

static int is_complex(oriel_dtype dtype)
{
    return dtype == ORIEL_C64 || dtype == ORIEL_C128;
}

static int is_unsigned(oriel_dtype dtype)
{
    return dtype == ORIEL_BOOL || (dtype >= ORIEL_U8 && dtype <= ORIEL_U64);
}

uint64_t values_mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 0x2545f4914f6cdd1du);

    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
    return x ^ (x >> 32);
}

/* ---- numbers ---------------------------------------------------------------- */

/* Sums stay below 8, which the narrowest float holds exactly; products are signs
 * with at most two factors of 2 among 8 consecutive members. */
static struct number number_of(size_t i, oriel_dtype dtype, oriel_redop op, int id, unsigned seed)
{
    uint64_t h = values_mix(values_mix(i, (uint64_t)id), seed);
    int64_t span = oriel_dtype_size(dtype) == 1 ? 1 : 7;
    struct number v;

    if (dtype == ORIEL_BOOL)
        return (struct number){(int64_t)(op == ORIEL_SUM || op == ORIEL_MAX || op >= ORIEL_OR
                                             ? h % 8 == 0
                                             : h % 8 != 0),
                               0};
    if (op == ORIEL_PROD) {
        int64_t size = (i + (size_t)id) % 4 == 0 ? 2 : 1;
        int turned = is_complex(dtype) && (h & 2);

        size = h & 1 && !is_unsigned(dtype) ? -size : size;
        return turned ? (struct number){0, size} : (struct number){size, 0};
    }
    if (op != ORIEL_SUM)
        span = 7;
    v.re = (int64_t)(h % (uint64_t)(2 * span + 1)) - span;
    v.im = is_complex(dtype) ? (int64_t)(h / 64 % (uint64_t)(2 * span + 1)) - span : 0;
    if (is_unsigned(dtype))
        v.re = v.re < 0 ? -v.re : v.re;
    return v;
}

oriel_redop values_op(oriel_dtype dtype, oriel_redop op)
{
    return op >= ORIEL_AND && dtype > ORIEL_U64 ? (oriel_redop)(op - ORIEL_AND) : op;
}

static int less(struct number a, struct number b)
{
    return a.re != b.re ? a.re < b.re : a.im < b.im;
}

static struct number combine(struct number a, struct number b, oriel_dtype dtype, oriel_redop op)
{
    if (op == ORIEL_AND)
        return (struct number){a.re & b.re, 0};
    if (op == ORIEL_OR)
        return (struct number){a.re | b.re, 0};
    if (op == ORIEL_XOR)
        return (struct number){a.re ^ b.re, 0};
    if (dtype == ORIEL_BOOL) {
        int any = op == ORIEL_SUM || op == ORIEL_MAX;
        return (struct number){any ? a.re | b.re : a.re & b.re, 0};
    }
    switch (op) {
    case ORIEL_SUM:
        return (struct number){a.re + b.re, a.im + b.im};
    case ORIEL_PROD:
        return (struct number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    case ORIEL_MIN:
        return less(b, a) ? b : a;
    default:
        return less(a, b) ? b : a;
    }
}

/* ---- bytes -------------------------------------------------------------------- */

/* A whole number that has few enough digits as the bits of a binary float. */
static uint64_t float_bits(int64_t value, int exponent_bits, int mantissa_bits)
{
    uint64_t sign = value < 0;
    uint64_t size = sign ? (uint64_t)-value : (uint64_t)value;
    int bias = (1 << (exponent_bits - 1)) - 1;
    int top;

    if (size == 0)
        return 0;
    top = 63 - __builtin_clzll(size);
    size ^= 1ull << top;
    size = top <= mantissa_bits ? size << (mantissa_bits - top) : size >> (top - mantissa_bits);
    return sign << (exponent_bits + mantissa_bits) | (uint64_t)(top + bias) << mantissa_bits | size;
}

static void encode(struct number v, oriel_dtype dtype, unsigned char *out)
{
    size_t bytes = oriel_dtype_size(dtype);
    uint64_t re = (uint64_t)v.re;
    uint64_t im;

    if (formats[dtype].exponent_bits != 0)
        re = float_bits(v.re, formats[dtype].exponent_bits, formats[dtype].mantissa_bits);
    if (!is_complex(dtype)) {
        memcpy(out, &re, bytes);
        return;
    }
    im = float_bits(v.im, formats[dtype].exponent_bits, formats[dtype].mantissa_bits);
    memcpy(out, &re, bytes / 2);
    memcpy(out + bytes / 2, &im, bytes / 2);
}

/* The reduction of what the members send, for up to one period. */
static void reference(oriel_dtype dtype, oriel_redop op, const int *ids, int n, unsigned seed,
                      size_t count, unsigned char *out)
{
    for (size_t i = 0; i < count && i < PERIOD; i++) {
        struct number v = number_of(i, dtype, op, ids[0], seed);

        for (int m = 1; m < n; m++)
            v = combine(v, number_of(i, dtype, op, ids[m], seed), dtype, op);
        encode(v, dtype, out + i * oriel_dtype_size(dtype));
    }
}

/* Goes on as it begins. */
static void repeat(unsigned char *out, size_t period, size_t bytes)
{
    for (size_t i = period; i < bytes; i += period)
        memcpy(out + i, out, bytes - i < period ? bytes - i : period);
}

void values_fill(void *out, size_t count, oriel_dtype dtype, oriel_redop op, int id, unsigned seed)
{
    size_t size = oriel_dtype_size(dtype);

    reference(dtype, op, &id, 1, seed, count, out);
    repeat(out, PERIOD * size, count * size);
}

void values_fill_bytes(void *out, size_t bytes, uint64_t id, unsigned seed)
{
    for (size_t i = 0; i < bytes && i < PERIOD * 8; i += 8) {
        uint64_t word = values_mix(seed + 8 * i, id);

        memcpy((unsigned char *)out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
    repeat(out, PERIOD * 8, bytes);
}

/* A product of complex numbers may have a negative zero. */
static int is_same(oriel_dtype dtype, const unsigned char *want, const unsigned char *have)
{
    size_t part = oriel_dtype_size(dtype) / (is_complex(dtype) ? 2 : 1);
    unsigned char element[16];

    memcpy(element, have, oriel_dtype_size(dtype));
    for (size_t at = 0; is_complex(dtype) && at <= part; at += part) {
        static const unsigned char zeros[8];
        if (memcmp(element + at, zeros, part - 1) == 0 && element[at + part - 1] == 0x80)
            element[at + part - 1] = 0;
    }
    return memcmp(want, element, oriel_dtype_size(dtype)) == 0;
}

long values_wrong(const void *got, size_t count, oriel_dtype dtype, oriel_redop op, const int *ids,
                  int n, unsigned seed)
{
    size_t size = oriel_dtype_size(dtype);
    unsigned char want[PERIOD * 16];

    reference(dtype, op, ids, n, seed, count, want);
    for (size_t at = 0; at < count; at += PERIOD) {
        const unsigned char *have = (const unsigned char *)got + at * size;
        size_t here = count - at < PERIOD ? count - at : PERIOD;

        if (memcmp(have, want, here * size) == 0)
            continue;
        for (size_t i = 0; i < here; i++) {
            if (!is_same(dtype, want + i * size, have + i * size))
                return (long)(at + i);
        }
    }
    return -1;
}

void values_random(void *out, size_t bytes, uint64_t seed, int id)
{
    uint64_t state = values_mix(seed, (uint64_t)id);

    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = state = state * 6364136223846793005ull + 1442695040888963407ull;

        word ^= word >> 29;
        memcpy((unsigned char *)out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

long values_difference(const void *a, const void *b, size_t bytes)
{
    const unsigned char *left = a, *right = b;
    size_t i = 0;

    while (i < bytes && left[i] == right[i])
        i++;
    return i < bytes ? (long)i : -1;
}

/* NaN, signed minimum, unsigned maximum, false. */
static int is_poison(const unsigned char *element, size_t bytes, oriel_dtype dtype)
{
    uint64_t bits = 0;
    int m = formats[dtype].mantissa_bits;
    uint64_t all_exponent = ((1ull << formats[dtype].exponent_bits) - 1) << m;

    if (is_complex(dtype))
        return is_poison(element, bytes / 2, dtype == ORIEL_C64 ? ORIEL_F32 : ORIEL_F64) &&
               is_poison(element + bytes / 2, bytes / 2,
                         dtype == ORIEL_C64 ? ORIEL_F32 : ORIEL_F64);
    memcpy(&bits, element, bytes);
    if (dtype == ORIEL_F8E4M3FN)
        return (bits & 0x7f) == 0x7f;
    if (m != 0)
        return (bits & all_exponent) == all_exponent && (bits & ((1ull << m) - 1)) != 0;
    if (dtype == ORIEL_BOOL)
        return bits == 0;
    if (is_unsigned(dtype))
        return bits == UINT64_MAX >> (64 - 8 * bytes);
    return bits == 1ull << (8 * bytes - 1);
}

long values_unpoisoned(const void *got, size_t count, oriel_dtype dtype)
{
    size_t bytes = oriel_dtype_size(dtype);

    for (size_t i = 0; i < count; i++) {
        if (!is_poison((const unsigned char *)got + i * bytes, bytes, dtype))
            return (long)i;
    }
    return -1;
}

/* ---- buffers -------------------------------------------------------------------- */

test_buffer buffer_make(size_t bytes, size_t shift)
{
    test_buffer buffer = {.bytes = bytes};
    size_t all = GUARD + shift + bytes + GUARD;

    buffer.base = aligned_alloc(LINE, (all + LINE - 1) / LINE * LINE);
    CHECK(buffer.base != NULL, "%zu bytes", all);
    buffer.data = buffer.base + GUARD + shift;
    memset(buffer.base, GUARD_BYTE, all);
    memset(buffer.data, FRESH_BYTE, bytes);
    return buffer;
}

void buffer_free(test_buffer *buffer)
{
    for (const unsigned char *at = buffer->base; at < buffer->data; at++)
        CHECK(*at == GUARD_BYTE, "%zu bytes before the buffer of %zu", (size_t)(buffer->data - at),
              buffer->bytes);
    for (size_t i = 0; i < GUARD; i++)
        CHECK(buffer->data[buffer->bytes + i] == GUARD_BYTE, "%zu bytes after the buffer of %zu", i,
              buffer->bytes);
    free(buffer->base);
}
