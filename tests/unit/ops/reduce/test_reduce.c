/* labels: valgrind-soak */
/* oriel_reduce_elements against plain arithmetic on single elements, for every table of
 * kernels that this CPU can run: every dtype, op, number of sources, count and
 * alignment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/reduce/reduce.h"
#include "ops/reduce/kernels.h"
#include "reduce_reference.h"

#define MAX_SOURCES 5
#define MAX_BYTES   (4099 + 16 * 1501)
#define GUARD       64

/* ---- inputs ---------------------------------------------------------------- */

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

static unsigned char source_bytes[MAX_SOURCES][MAX_BYTES + GUARD];
static unsigned char result_bytes[MAX_BYTES + 3 * GUARD];
static unsigned char expected_bytes[MAX_BYTES];

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

    if (!oriel_reduce_supported(dtype, op))
        return;
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

/* The last count is odd and longer than two blocks of accumulators. */
static void test_large_counts(void **state)
{
    const void *src[MAX_SOURCES];

    (void)state;
    for (int d = 0; d < ORIEL_DTYPE_COUNT; d++) {
        const size_t counts[] = {127, 128, 513, 4099 / oriel_dtype_size((oriel_dtype)d) + 1025};

        for (int op = 0; op < ORIEL_REDOP_COUNT; op++) {
            fill_sources(src, counts[3], (oriel_dtype)d);
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

    if (!oriel_reduce_supported(dtype, op))
        return;
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

/* ---- the rest -------------------------------------------------------------- */

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
            assert_int_equal(oriel_reduce_supported((oriel_dtype)d, (oriel_redop)op),
                             op < ORIEL_AND || d <= ORIEL_U64);
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
    oriel_reduce_elements(result, src, 2, 3, ORIEL_F32, ORIEL_SUM);
    assert_memory_equal(result, sum, sizeof(sum));
    assert_null(oriel_reduce_kernels_get(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_reduction), cmocka_unit_test(test_large_counts),
        cmocka_unit_test(test_in_place),        cmocka_unit_test(test_poison),
        cmocka_unit_test(test_supported),       cmocka_unit_test(test_best_kernels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
