/* labels: valgrind */
/* oriel_reduce against plain arithmetic on single elements, for every table of
 * kernels that this CPU can run. */
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/reduce.h"
#include "ops/reduce_kernels.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define MAX_SOURCES 5
#define MAX_COUNT   4099
#define GUARD       64

/* ---- reference: one element, as plainly as possible ------------------------ */

/* A number of any dtype: `u` for bool and integers, `f` for floats and complex. */
typedef struct number {
    uint64_t u;
    double f[2];
} number;

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

static unsigned format_sign(const format *fmt)
{
    return 1u << (fmt->mantissa + fmt->exponent);
}

/* What a code without sign would be if no code meant infinity or NaN. */
static double format_value(const format *fmt, unsigned code)
{
    int bias = (1 << (fmt->exponent - 1)) - 1;
    int e = (int)(code >> fmt->mantissa);
    double m = code & ((1u << fmt->mantissa) - 1);

    if (e == 0)
        return ldexp(m, 1 - bias - fmt->mantissa);
    return ldexp(m + (1 << fmt->mantissa), e - bias - fmt->mantissa);
}

static double format_decode(const format *fmt, unsigned code)
{
    unsigned sign = code & format_sign(fmt);
    unsigned magnitude = code & (format_sign(fmt) - 1);
    double value = format_value(fmt, magnitude);

    if (magnitude >= fmt->infinity)
        value = magnitude == fmt->infinity && fmt->infinity != fmt->nan ? INFINITY : NAN;
    return sign ? -value : value;
}

static unsigned format_encode(const format *fmt, double x)
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

static int is_float(oriel_dtype dtype)
{
    return dtype >= ORIEL_F16;
}

static int is_complex(oriel_dtype dtype)
{
    return dtype == ORIEL_C64 || dtype == ORIEL_C128;
}

static int is_f64(oriel_dtype dtype)
{
    return dtype == ORIEL_F64 || dtype == ORIEL_C128;
}

static int is_signed(oriel_dtype dtype)
{
    return dtype >= ORIEL_S8 && dtype <= ORIEL_S64;
}

static number number_load(oriel_dtype dtype, const unsigned char *p)
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

static void number_store(oriel_dtype dtype, number x, unsigned char *p)
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

static double real_min(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return signbit(a) ? a : b;
    return a < b ? a : b;
}

/* In f64: rounding that to f32 is the f32 result, also for products. */
static double real_op(oriel_redop op, double a, double b)
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

static double rounded(oriel_dtype dtype, double x)
{
    return is_f64(dtype) ? x : (double)(float)x;
}

static number complex_op(oriel_dtype dtype, oriel_redop op, number a, number b)
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

static number integer_op(oriel_dtype dtype, oriel_redop op, number a, number b)
{
    int less = is_signed(dtype) ? (int64_t)a.u < (int64_t)b.u : a.u < b.u;

    if (dtype == ORIEL_BOOL)
        return (number){.u = op == ORIEL_SUM || op == ORIEL_MAX ? (a.u || b.u) : (a.u && b.u)};
    switch (op) {
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

static number number_op(oriel_dtype dtype, oriel_redop op, number a, number b)
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

static void reference(unsigned char *dst, const void *const *src, int n, size_t count,
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

/* ---- inputs ---------------------------------------------------------------- */

static uint64_t random_state = 1;

static uint64_t random_u64(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15; /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static double random_real(void)
{
    static const double special[] = {0.0, -0.0, 1.0,    -1.0,   INFINITY, -INFINITY,
                                     NAN, -NAN, 1e-310, -1e-42, 6e-8,     3e38};

    if (random_u64() % 2 == 0)
        return special[random_u64() % (sizeof(special) / sizeof(special[0]))];
    return ldexp((double)(int64_t)random_u64(), (int)(random_u64() % 8) - 64);
}

/* A third random bits, a third numbers near 1, a third special ones. */
static void fill_random(unsigned char *p, size_t count, oriel_dtype dtype)
{
    size_t size = oriel_dtype_size(dtype);

    for (size_t i = 0; i < count; i++) {
        uint64_t bits[2] = {random_u64(), random_u64()};
        number x = {.f = {random_real(), random_real()}};

        if (dtype == ORIEL_BOOL)
            p[i] = bits[0] % 3 == 0 ? 0 : (unsigned char)(1 << bits[0] % 8);
        else if (is_float(dtype) && bits[0] % 3 != 0)
            number_store(dtype, x, p + i * size);
        else
            memcpy(p + i * size, bits, size);
    }
}

/* ---- every dtype, op, n and count ------------------------------------------ */

static unsigned char source_bytes[MAX_SOURCES][16 * MAX_COUNT + 2 * GUARD];
static unsigned char result_bytes[16 * MAX_COUNT + 2 * GUARD];
static unsigned char expected_bytes[16 * MAX_COUNT];

static void assert_elements_equal(const unsigned char *got, const unsigned char *expected,
                                  size_t count, oriel_dtype dtype, oriel_redop op, int n,
                                  const char *kernels)
{
    size_t size = oriel_dtype_size(dtype);

    for (size_t i = 0; i < count; i++) {
        if (memcmp(got + i * size, expected + i * size, size) == 0)
            continue;
        print_error("%s %s %s, n %d, element %zu of %zu\n", kernels, oriel_dtype_name(dtype),
                    oriel_redop_name(op), n, i, count);
        assert_memory_equal(got + i * size, expected + i * size, size);
    }
}

static void fill_sources(const void **src, size_t count, oriel_dtype dtype)
{
    for (int k = 0; k < MAX_SOURCES; k++) {
        unsigned char *p = source_bytes[k] + random_u64() % GUARD;

        fill_random(p, count, dtype);
        src[k] = p;
    }
}

static void check_reduce(const void *const *src, int n, size_t count, oriel_dtype dtype,
                         oriel_redop op)
{
    const oriel_reduce_kernels *kernels;
    size_t bytes = count * oriel_dtype_size(dtype);
    unsigned char guard[GUARD];

    memset(guard, 0xa5, GUARD);
    reference(expected_bytes, src, n, count, dtype, op);
    for (int t = 0; (kernels = oriel_reduce_kernels_get(t)) != NULL; t++) {
        unsigned char *dst = result_bytes + GUARD + random_u64() % GUARD;

        memcpy(dst - GUARD, guard, GUARD);
        memset(dst, 0xcc, bytes);
        memcpy(dst + bytes, guard, GUARD);
        oriel_reduce_with(kernels, dst, src, n, count, dtype, op);
        assert_elements_equal(dst, expected_bytes, count, dtype, op, n, kernels->name);
        assert_memory_equal(dst - GUARD, guard, GUARD);
        assert_memory_equal(dst + bytes, guard, GUARD);
    }
}

static void test_every_reduction(void **state)
{
    const void *src[MAX_SOURCES];

    (void)state;
    for (int d = 0; d < ORIEL_DTYPE_COUNT; d++) {
        for (int op = 0; op < ORIEL_REDOP_COUNT; op++) {
            fill_sources(src, 70, (oriel_dtype)d);
            for (int n = 1; n <= MAX_SOURCES; n++)
                for (size_t count = 0; count <= 70; count++)
                    check_reduce(src, n, count, (oriel_dtype)d, (oriel_redop)op);
        }
    }
}

/* Longer than one block of accumulators, and odd. */
static void test_large_counts(void **state)
{
    static const size_t counts[] = {127, 128, 513, 1025, MAX_COUNT};
    const void *src[MAX_SOURCES];

    (void)state;
    for (int d = 0; d < ORIEL_DTYPE_COUNT; d++) {
        for (int op = 0; op < ORIEL_REDOP_COUNT; op++) {
            fill_sources(src, MAX_COUNT, (oriel_dtype)d);
            for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
                for (int n = 2; n <= 4; n++)
                    check_reduce(src, n, counts[i], (oriel_dtype)d, (oriel_redop)op);
        }
    }
}

static void check_in_place(int n, int k, size_t count, oriel_dtype dtype, oriel_redop op)
{
    const oriel_reduce_kernels *kernels;
    const void *src[MAX_SOURCES];

    for (int t = 0; (kernels = oriel_reduce_kernels_get(t)) != NULL; t++) {
        fill_sources(src, count, dtype);
        reference(expected_bytes, src, n, count, dtype, op);
        oriel_reduce_with(kernels, (void *)(uintptr_t)src[k], src, n, count, dtype, op);
        assert_elements_equal(src[k], expected_bytes, count, dtype, op, n, kernels->name);

        for (int i = 0; i < n; i++)
            src[i] = src[k];
        reference(expected_bytes, src, n, count, dtype, op);
        oriel_reduce_with(kernels, (void *)(uintptr_t)src[k], src, n, count, dtype, op);
        assert_elements_equal(src[k], expected_bytes, count, dtype, op, n, kernels->name);
    }
}

static void test_in_place(void **state)
{
    static const size_t counts[] = {1, 7, 64, 129, 1501};

    (void)state;
    for (int d = 0; d < ORIEL_DTYPE_COUNT; d++)
        for (int op = 0; op < ORIEL_REDOP_COUNT; op++)
            for (int n = 1; n <= 4; n++)
                for (int k = 0; k < n; k++)
                    check_in_place(n, k, counts[(d + op + n + k) % 5], (oriel_dtype)d,
                                   (oriel_redop)op);
}

/* ---- conversions ----------------------------------------------------------- */

static const oriel_dtype small_dtypes[] = {ORIEL_F16, ORIEL_BF16, ORIEL_F8E4M3FN, ORIEL_F8E5M2};
enum { SMALL = sizeof(small_dtypes) / sizeof(small_dtypes[0]) };

/* x + -0 is x for every x, so each code must come back, and each NaN as one. */
static void test_every_code_comes_back(void **state)
{
    static uint16_t code[1 << 16], zero[1 << 16], result[1 << 16];
    const void *src[2] = {code, zero};
    const oriel_reduce_kernels *kernels;

    (void)state;
    for (int t = 0; (kernels = oriel_reduce_kernels_get(t)) != NULL; t++) {
        for (int i = 0; i < 2; i++) {
            const format *fmt = format_of(small_dtypes[i]);

            for (unsigned c = 0; c < 1 << 16; c++) {
                code[c] = (uint16_t)c;
                zero[c] = 0x8000;
            }
            oriel_reduce_with(kernels, result, src, 2, 1 << 16, small_dtypes[i], ORIEL_SUM);
            for (unsigned c = 0; c < 1 << 16; c++)
                assert_int_equal(result[c], isnan(format_decode(fmt, c)) ? fmt->nan : c);
        }
        for (int i = 2; i < SMALL; i++) {
            const format *fmt = format_of(small_dtypes[i]);
            unsigned char *bytes = (unsigned char *)code, *to = (unsigned char *)result;

            for (unsigned c = 0; c < 256; c++)
                bytes[c] = (unsigned char)c;
            memset(zero, 0x80, 256);
            oriel_reduce_with(kernels, result, src, 2, 256, small_dtypes[i], ORIEL_SUM);
            for (unsigned c = 0; c < 256; c++)
                assert_int_equal(to[c], isnan(format_decode(fmt, c)) ? fmt->nan : c);
        }
    }
}

static void check_store(const float *x, size_t count, oriel_dtype dtype)
{
    const format *fmt = format_of(dtype);
    const oriel_reduce_kernels *kernels;
    unsigned char codes[2 * 64];

    assert_true(count <= 64);
    for (int t = 0; (kernels = oriel_reduce_kernels_get(t)) != NULL; t++) {
        kernels->store[dtype](codes, x, count);
        for (size_t i = 0; i < count; i++) {
            uint16_t got = 0;

            memcpy(&got, codes + i * fmt->bytes, fmt->bytes);
            if (got != format_encode(fmt, x[i]))
                print_error("%s %s of %a\n", kernels->name, oriel_dtype_name(dtype), x[i]);
            assert_int_equal(got, format_encode(fmt, x[i]));
        }
    }
}

/* Each code, half way to the next one, and the f32 numbers next to those. */
static void test_rounding_to_nearest_even(void **state)
{
    (void)state;
    for (int i = 0; i < SMALL; i++) {
        const format *fmt = format_of(small_dtypes[i]);
        unsigned step = fmt->bytes == 1 ? 1 : 7; /* of 32,768 codes some are enough */

        for (unsigned c = 0; c < fmt->infinity; c += step) {
            float low = (float)format_value(fmt, c), high = (float)format_value(fmt, c + 1);
            float half = low + (high - low) / 2;
            float x[8];

            x[0] = low;
            x[1] = half;
            x[2] = nextafterf(half, 0);
            x[3] = nextafterf(half, INFINITY);
            for (int k = 0; k < 4; k++)
                x[4 + k] = -x[k];
            check_store(x, 8, small_dtypes[i]);
        }
    }
}

static void test_rounding_of_random_bits(void **state)
{
    (void)state;
    for (int i = 0; i < SMALL; i++) {
        for (int round = 0; round < 200; round++) {
            float x[64];

            for (int k = 0; k < 64; k++) {
                uint32_t bits = (uint32_t)random_u64();

                memcpy(&x[k], &bits, 4);
                if (isnan(x[k]))
                    x[k] = INFINITY;
            }
            check_store(x, 64, small_dtypes[i]);
        }
    }
}

/* ---- cases worked out by hand ---------------------------------------------- */

/* Repeated over two chunks and a tail, so that vector and scalar code both see
 * it. `bits` are the operands and then the result. */
static void check_case(oriel_dtype dtype, oriel_redop op, int n, const uint64_t *bits)
{
    enum { COUNT = 131 };
    static unsigned char column[MAX_SOURCES][8 * COUNT], result[8 * COUNT];
    const void *src[MAX_SOURCES];
    const oriel_reduce_kernels *kernels;
    size_t size = oriel_dtype_size(dtype);

    for (int k = 0; k < n; k++) {
        for (size_t i = 0; i < COUNT; i++)
            memcpy(column[k] + i * size, &bits[k], size);
        src[k] = column[k];
    }
    for (int t = 0; (kernels = oriel_reduce_kernels_get(t)) != NULL; t++) {
        oriel_reduce_with(kernels, result, src, n, COUNT, dtype, op);
        for (size_t i = 0; i < COUNT; i++)
            assert_memory_equal(result + i * size, &bits[n], size);
    }
}

#define CASE(dtype, op, n, ...) check_case(dtype, op, n, (const uint64_t[]){__VA_ARGS__})

static void test_zeros_have_an_order(void **state)
{
    static const struct {
        oriel_dtype dtype;
        uint64_t minus;
    } zeros[] = {{ORIEL_F16, 0x8000},     {ORIEL_BF16, 0x8000},
                 {ORIEL_F32, 0x80000000}, {ORIEL_F64, UINT64_C(1) << 63},
                 {ORIEL_F8E4M3FN, 0x80},  {ORIEL_F8E5M2, 0x80}};

    (void)state;
    for (size_t i = 0; i < sizeof(zeros) / sizeof(zeros[0]); i++) {
        uint64_t minus = zeros[i].minus;

        CASE(zeros[i].dtype, ORIEL_MIN, 2, 0, minus, minus);
        CASE(zeros[i].dtype, ORIEL_MIN, 2, minus, 0, minus);
        CASE(zeros[i].dtype, ORIEL_MAX, 2, 0, minus, 0);
        CASE(zeros[i].dtype, ORIEL_MAX, 2, minus, 0, 0);
        CASE(zeros[i].dtype, ORIEL_MAX, 2, minus, minus, minus);
        CASE(zeros[i].dtype, ORIEL_SUM, 3, minus, minus, minus, minus);
    }
    /* complex: equal, so the second operand */
    CASE(ORIEL_C64, ORIEL_MIN, 2, 0x80000000, 0, 0);
    CASE(ORIEL_C64, ORIEL_MAX, 2, 0, 0x80000000, 0x80000000);
}

static void test_nan_wins_and_is_one(void **state)
{
    (void)state;
    for (int op = 0; op < ORIEL_REDOP_COUNT; op++) {
        CASE(ORIEL_F32, (oriel_redop)op, 2, 0x3f800000, 0xffc00123, 0x7fc00000);
        CASE(ORIEL_F32, (oriel_redop)op, 2, 0x7f800001, 0xff800000, 0x7fc00000);
        CASE(ORIEL_F32, (oriel_redop)op, 3, 0x7fc00001, 0xffc00002, 0x7f800000, 0x7fc00000);
        CASE(ORIEL_F64, (oriel_redop)op, 2, 0, 0xfff8000000000001, 0x7ff8000000000000);
        CASE(ORIEL_F16, (oriel_redop)op, 2, 0xfe01, 0x3c00, 0x7e00);
        CASE(ORIEL_F16, (oriel_redop)op, 2, 0x3c00, 0x7c01, 0x7e00);
        CASE(ORIEL_BF16, (oriel_redop)op, 2, 0x3f80, 0xff81, 0x7fc0);
        CASE(ORIEL_F8E4M3FN, (oriel_redop)op, 2, 0x38, 0xff, 0x7f);
        CASE(ORIEL_F8E5M2, (oriel_redop)op, 2, 0x3c, 0xfd, 0x7e);
    }
    CASE(ORIEL_F32, ORIEL_SUM, 2, 0x7f800000, 0xff800000, 0x7fc00000);
    /* complex min and max take the second operand when they cannot compare */
    CASE(ORIEL_C64, ORIEL_MIN, 2, 0x7fc00000, 0x3f800000, 0x3f800000);
    CASE(ORIEL_C64, ORIEL_MAX, 2, 0x3f800000, 0x7fc00000, 0x7fc00000);
}

static void test_overflow(void **state)
{
    (void)state;
    CASE(ORIEL_F8E4M3FN, ORIEL_SUM, 2, 0x7e, 0x58, 0x7e); /* 448 + 16 = 464: a tie */
    CASE(ORIEL_F8E4M3FN, ORIEL_SUM, 2, 0x7e, 0x5a, 0x7f); /* 448 + 20 */
    CASE(ORIEL_F8E4M3FN, ORIEL_SUM, 2, 0xfe, 0xfe, 0xff);
    CASE(ORIEL_F8E5M2, ORIEL_SUM, 2, 0x7b, 0x7b, 0x7c);
    CASE(ORIEL_F16, ORIEL_SUM, 2, 0xfbff, 0xfbff, 0xfc00);
    CASE(ORIEL_BF16, ORIEL_SUM, 2, 0x7f7f, 0x7f7f, 0x7f80);
    CASE(ORIEL_U8, ORIEL_SUM, 2, 0xff, 1, 0);
    CASE(ORIEL_U16, ORIEL_PROD, 2, 0xffff, 0xffff, 1);
    CASE(ORIEL_S32, ORIEL_PROD, 2, 0x80000000, 0xffffffff, 0x80000000);
    CASE(ORIEL_S64, ORIEL_SUM, 2, UINT64_C(1) << 63, UINT64_MAX, INT64_MAX);
}

static void test_sums_run_in_order_and_round_once(void **state)
{
    (void)state;
    /* (1e8 + 1) - 1e8 */
    CASE(ORIEL_F32, ORIEL_SUM, 3, 0x4cbebc20, 0x3f800000, 0xccbebc20, 0);
    CASE(ORIEL_F16, ORIEL_SUM, 3, 0x6800, 0x3c00, 0x3c00, 0x6801);  /* 2048 + 1 + 1 */
    CASE(ORIEL_BF16, ORIEL_SUM, 3, 0x4380, 0x3f80, 0x3f80, 0x4381); /* 256 + 1 + 1 */
    CASE(ORIEL_F8E4M3FN, ORIEL_SUM, 3, 0x58, 0x38, 0x38, 0x59);     /* 16 + 1 + 1 */
    CASE(ORIEL_F8E5M2, ORIEL_SUM, 3, 0x48, 0x3c, 0x3c, 0x49);       /* 8 + 1 + 1 */
    /* Both products of the real part are equal: fused, a rounding error remains. */
    CASE(ORIEL_C64, ORIEL_PROD, 2, 0x3f8001003f800100, 0x3f8001003f800100, 0x4000020000000000);
}

/* ---- the rest -------------------------------------------------------------- */

static void check_environment_kept(void)
{
    /* Subnormals: 1e-40 in f32 twice; and a sum that depends on the rounding. */
    CASE(ORIEL_F32, ORIEL_SUM, 2, 0x000116c2, 0x000116c2, 0x00022d84);
    CASE(ORIEL_F32, ORIEL_MAX, 2, 0, 0x000116c2, 0x000116c2);
    CASE(ORIEL_F32, ORIEL_SUM, 2, 0x3f800000, 0x33000000, 0x3f800000);
}

static void test_any_floating_point_environment(void **state)
{
    (void)state;
    assert_int_equal(fesetround(FE_UPWARD), 0);
    check_environment_kept();
    assert_int_equal(fegetround(), FE_UPWARD);
    assert_int_equal(fesetround(FE_TONEAREST), 0);
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr(), flush = before | 0x8040; /* FTZ, DAZ */

    _mm_setcsr(flush);
    check_environment_kept();
    assert_int_equal(_mm_getcsr() & 0xffc0, flush & 0xffc0);
    _mm_setcsr(before);
#endif
}

static void test_poison(void **state)
{
    static const uint64_t expected[ORIEL_DTYPE_COUNT] = {
        [ORIEL_BOOL] = 0,
        [ORIEL_S8] = 0x80,
        [ORIEL_S16] = 0x8000,
        [ORIEL_S32] = 0x80000000,
        [ORIEL_S64] = UINT64_C(1) << 63,
        [ORIEL_U8] = UINT64_MAX,
        [ORIEL_U16] = UINT64_MAX,
        [ORIEL_U32] = UINT64_MAX,
        [ORIEL_U64] = UINT64_MAX,
        [ORIEL_F16] = 0x7e00,
        [ORIEL_BF16] = 0x7fc0,
        [ORIEL_F32] = 0x7fc00000,
        [ORIEL_F64] = 0x7ff8000000000000,
        [ORIEL_F8E4M3FN] = 0x7f,
        [ORIEL_F8E5M2] = 0x7e,
        [ORIEL_C64] = 0x7fc000007fc00000,
        [ORIEL_C128] = 0x7ff8000000000000,
    };

    (void)state;
    for (int d = 0; d < ORIEL_DTYPE_COUNT; d++) {
        size_t size = oriel_dtype_size((oriel_dtype)d), part = size < 8 ? size : 8;

        for (size_t count = 0; count <= 70; count++) {
            memset(result_bytes, 0xa5, sizeof(result_bytes));
            oriel_poison(result_bytes + 1, count, (oriel_dtype)d);
            assert_int_equal(result_bytes[0], 0xa5);
            assert_int_equal(result_bytes[1 + count * size], 0xa5);
            for (size_t at = 0; at < count * size; at += part)
                assert_memory_equal(result_bytes + 1 + at, &expected[d], part);
        }
    }
}

static void test_supported(void **state)
{
    (void)state;
    for (int d = 0; d < ORIEL_DTYPE_COUNT; d++)
        for (int op = 0; op < ORIEL_REDOP_COUNT; op++)
            assert_true(oriel_reduce_supported((oriel_dtype)d, (oriel_redop)op));
    assert_false(oriel_reduce_supported(ORIEL_DTYPE_COUNT, ORIEL_SUM));
    assert_false(oriel_reduce_supported((oriel_dtype)-1, ORIEL_SUM));
    assert_false(oriel_reduce_supported(ORIEL_F32, ORIEL_REDOP_COUNT));
    assert_false(oriel_reduce_supported(ORIEL_F32, (oriel_redop)-1));
}

static void test_best_kernels(void **state)
{
    static const float a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, sum[3] = {11, 22, 33};
    const void *src[2] = {a, b};
    float result[3];

    (void)state;
    oriel_reduce(result, src, 2, 3, ORIEL_F32, ORIEL_SUM);
    assert_memory_equal(result, sum, sizeof(sum));
    assert_null(oriel_reduce_kernels_get(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_reduction),
        cmocka_unit_test(test_large_counts),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_every_code_comes_back),
        cmocka_unit_test(test_rounding_to_nearest_even),
        cmocka_unit_test(test_rounding_of_random_bits),
        cmocka_unit_test(test_zeros_have_an_order),
        cmocka_unit_test(test_nan_wins_and_is_one),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_sums_run_in_order_and_round_once),
        cmocka_unit_test(test_any_floating_point_environment),
        cmocka_unit_test(test_poison),
        cmocka_unit_test(test_supported),
        cmocka_unit_test(test_best_kernels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
