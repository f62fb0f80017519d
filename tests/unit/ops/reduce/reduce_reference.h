/* What a reduction gives, worked out element by element in f64, and random bits:
 * for the tests of oriel_reduce_elements. */
#ifndef ORIEL_TESTS_UNIT_REDUCE_REFERENCE_H
#define ORIEL_TESTS_UNIT_REDUCE_REFERENCE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "oriel/oriel.h"

static inline uint64_t random_u64(void)
{
    static uint64_t random_state = 1;
    uint64_t z = random_state += 0x9e3779b97f4a7c15; /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* ---- formats of 8 and 16 bits: the code nearest to a number ------------------- */

typedef struct format {
    int mantissa, exponent; /* bits */
    unsigned infinity;      /* the least code that is no finite number */
    unsigned nan;
    size_t bytes;
} format;

static const format *format_of(oriel_dtype dtype)
{
    static const format f16 = {10, 5, 0x7c00, 0x7e00, 2};
    static const format bf16 = {7, 8, 0x7f80, 0x7fc0, 2};
    static const format e4m3fn = {3, 4, 0x7f, 0x7f, 1};
    static const format e5m2 = {2, 5, 0x7c, 0x7e, 1};

    switch (dtype) {
    case ORIEL_F16:
        return &f16;
    case ORIEL_BF16:
        return &bf16;
    case ORIEL_F8E4M3FN:
        return &e4m3fn;
    case ORIEL_F8E5M2:
        return &e5m2;
    default:
        return NULL;
    }
}

static inline unsigned format_sign(const format *fmt)
{
    return 1u << (fmt->mantissa + fmt->exponent);
}

/* What a code without sign would be if no code meant infinity or NaN. */
static inline double format_value(const format *fmt, unsigned code)
{
    int bias = (1 << (fmt->exponent - 1)) - 1;
    int e = (int)(code >> fmt->mantissa);
    double m = code & ((1u << fmt->mantissa) - 1);

    if (e == 0)
        return ldexp(m, 1 - bias - fmt->mantissa);
    return ldexp(m + (1 << fmt->mantissa), e - bias - fmt->mantissa);
}

static inline double format_decode(const format *fmt, unsigned code)
{
    unsigned sign = code & format_sign(fmt);
    unsigned magnitude = code & (format_sign(fmt) - 1);
    double value = format_value(fmt, magnitude);

    if (magnitude >= fmt->infinity)
        value = magnitude == fmt->infinity && fmt->infinity != fmt->nan ? INFINITY : NAN;
    return sign ? -value : value;
}

static inline unsigned format_encode(const format *fmt, double x)
{
    unsigned sign = signbit(x) ? format_sign(fmt) : 0;
    unsigned low = 0, high = fmt->infinity; /* value(low) <= |x| < value(high) */
    double up, down;

    if (isnan(x))
        return fmt->nan;
    x = fabs(x);
    if (x >= format_value(fmt, high))
        return sign | fmt->infinity;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;

        if (format_value(fmt, middle) <= x)
            low = middle;
        else
            high = middle;
    }
    down = x - format_value(fmt, low);
    up = format_value(fmt, high) - x;
    if (down < up || (down == up && low % 2 == 0))
        return sign | low;
    return sign | high;
}

/* ---- one element of any dtype ------------------------------------------------- */

/* A number of any dtype: `u` for bool and integers, `f` for floats and complex. */
typedef struct number {
    uint64_t u;
    double f[2];
} number;

static inline int is_float(oriel_dtype dtype)
{
    return dtype >= ORIEL_F16;
}

static inline int is_complex(oriel_dtype dtype)
{
    return dtype == ORIEL_C64 || dtype == ORIEL_C128;
}

static inline int is_f64(oriel_dtype dtype)
{
    return dtype == ORIEL_F64 || dtype == ORIEL_C128;
}

static inline int is_signed(oriel_dtype dtype)
{
    return dtype >= ORIEL_S8 && dtype <= ORIEL_S64;
}

static inline number number_load(oriel_dtype dtype, const unsigned char *p)
{
    const format *fmt = format_of(dtype);
    size_t size = oriel_dtype_size(dtype);
    number x = {0};
    float s[2];

    if (is_f64(dtype)) {
        memcpy(x.f, p, size);
    } else if (fmt == NULL && is_float(dtype)) {
        memcpy(s, p, size);
        x.f[0] = s[0];
        x.f[1] = is_complex(dtype) ? s[1] : 0;
    } else {
        memcpy(&x.u, p, size);
        if (fmt != NULL)
            x.f[0] = format_decode(fmt, (unsigned)x.u);
        if (is_signed(dtype) && size < 8 && (x.u >> (8 * size - 1)) != 0)
            x.u |= ~(uint64_t)0 << (8 * size);
    }
    return x;
}

static inline void number_store(oriel_dtype dtype, number x, unsigned char *p)
{
    static const uint32_t nan32 = 0x7fc00000;
    static const uint64_t nan64 = 0x7ff8000000000000;
    const format *fmt = format_of(dtype);
    size_t size = oriel_dtype_size(dtype);

    if (fmt != NULL)
        x.u = format_encode(fmt, x.f[0]);
    if (fmt != NULL || !is_float(dtype)) {
        memcpy(p, &x.u, size);
        return;
    }
    for (int i = 0; i <= is_complex(dtype); i++) {
        float s = (float)x.f[i];

        if (is_f64(dtype))
            memcpy(p + 8 * i, isnan(x.f[i]) ? (const void *)&nan64 : &x.f[i], 8);
        else
            memcpy(p + 4 * i, isnan(s) ? (const void *)&nan32 : &s, 4);
    }
}

static inline double real_min(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return signbit(a) ? a : b;
    return a < b ? a : b;
}

/* In f64: rounding that to f32 is the f32 result, also for products. */
static inline double real_op(oriel_redop op, double a, double b)
{
    switch (op) {
    case ORIEL_SUM:
        return a + b;
    case ORIEL_PROD:
        return a * b;
    case ORIEL_MIN:
        return real_min(a, b);
    default:
        return -real_min(-a, -b);
    }
}

static inline double rounded(oriel_dtype dtype, double x)
{
    volatile float narrow = (float)x; /* gcc 12 with ASan loses the rounding otherwise */

    return is_f64(dtype) ? x : (double)narrow;
}

static inline number complex_op(oriel_dtype dtype, oriel_redop op, number a, number b)
{
    /* volatile: each product is rounded by itself */
    volatile double rr = rounded(dtype, a.f[0] * b.f[0]), ii = rounded(dtype, a.f[1] * b.f[1]);
    volatile double ri = rounded(dtype, a.f[0] * b.f[1]), ir = rounded(dtype, a.f[1] * b.f[0]);
    double sign = op == ORIEL_MIN ? 1 : -1;
    int first;

    switch (op) {
    case ORIEL_SUM:
        return (number){.f = {a.f[0] + b.f[0], a.f[1] + b.f[1]}};
    case ORIEL_PROD:
        return (number){.f = {rr - ii, ri + ir}};
    default:
        first = a.f[0] == b.f[0] ? sign * a.f[1] < sign * b.f[1] : sign * a.f[0] < sign * b.f[0];
        return first ? a : b;
    }
}

static inline number integer_op(oriel_dtype dtype, oriel_redop op, number a, number b)
{
    int less = is_signed(dtype) ? (int64_t)a.u < (int64_t)b.u : a.u < b.u;

    if (dtype == ORIEL_BOOL && op == ORIEL_XOR)
        return (number){.u = !a.u != !b.u};
    if (dtype == ORIEL_BOOL)
        return (number){.u = op == ORIEL_SUM || op == ORIEL_MAX || op == ORIEL_OR ? (a.u || b.u)
                                                                                  : (a.u && b.u)};
    switch (op) {
    case ORIEL_AND:
        return (number){.u = a.u & b.u};
    case ORIEL_OR:
        return (number){.u = a.u | b.u};
    case ORIEL_XOR:
        return (number){.u = a.u ^ b.u};
    case ORIEL_SUM:
        return (number){.u = a.u + b.u};
    case ORIEL_PROD:
        return (number){.u = a.u * b.u};
    case ORIEL_MIN:
        return less ? a : b;
    default:
        return less ? b : a;
    }
}

static inline number number_op(oriel_dtype dtype, oriel_redop op, number a, number b)
{
    unsigned char narrow[8];
    number r;

    if (!is_float(dtype)) {
        r = integer_op(dtype, op, a, b);
        memcpy(narrow, &r.u, sizeof(narrow)); /* wraps to the dtype's width */
        return number_load(dtype, narrow);
    }
    r = is_complex(dtype) ? complex_op(dtype, op, a, b)
                          : (number){.f = {real_op(op, a.f[0], b.f[0])}};
    r.f[0] = rounded(dtype, r.f[0]);
    r.f[1] = rounded(dtype, r.f[1]);
    return r;
}

static inline void reference(unsigned char *dst, const void *const *src, int n, size_t count,
                             oriel_dtype dtype, oriel_redop op)
{
    size_t size = oriel_dtype_size(dtype);

    if (n == 1) {
        memcpy(dst, src[0], count * size);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        number acc = number_load(dtype, (const unsigned char *)src[0] + i * size);

        for (int k = 1; k < n; k++)
            acc = number_op(dtype, op, acc,
                            number_load(dtype, (const unsigned char *)src[k] + i * size));
        number_store(dtype, acc, dst + i * size);
    }
}

#endif
