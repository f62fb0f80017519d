/* labels: valgrind */
/* The values of oriel_reduce_elements: conversions to and from f32, and cases worked out
 * by hand for zeros, NaN, overflow, order and the floating point environment. */
#include <fenv.h>
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

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define MAX_SOURCES 3

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
    for (int op = 0; op < ORIEL_AND; op++) {
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

/* ---- the caller's floating point environment ------------------------------- */

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
    unsigned before = _mm_getcsr(), flush;

    _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
    flush = _mm_getcsr();        /* valgrind keeps neither */
    check_environment_kept();
    assert_int_equal(_mm_getcsr() & 0xffc0, flush & 0xffc0);
    _mm_setcsr(before);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_comes_back),
        cmocka_unit_test(test_rounding_to_nearest_even),
        cmocka_unit_test(test_rounding_of_random_bits),
        cmocka_unit_test(test_zeros_have_an_order),
        cmocka_unit_test(test_nan_wins_and_is_one),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_sums_run_in_order_and_round_once),
        cmocka_unit_test(test_any_floating_point_environment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
