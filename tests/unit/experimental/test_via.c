/* Vias of all_reduce, as far as they need no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "core/world/trace.h"
#include "experimental/via.h"
#include "ops/op.h"
#include "oriel/experimental/vias.h"
#include "support/ranks.h"

#define HEAP     0x7f0000000000ull
#define MULTIMEM 0x4200000000ull
#define BYTES    (6ull << 20)

/* The same distance from the begin, in the other mapping. */
static void test_address(void **state)
{
    (void)state;
    assert_int_equal(oriel_multimem_address(MULTIMEM, HEAP, BYTES, HEAP, 16), MULTIMEM);
    assert_int_equal(oriel_multimem_address(MULTIMEM, HEAP, BYTES, HEAP + 4096, BYTES - 4096),
                     MULTIMEM + 4096);
    assert_int_equal(oriel_multimem_address(MULTIMEM, HEAP, BYTES, HEAP + BYTES - 16, 16),
                     MULTIMEM + BYTES - 16);
    assert_int_equal(oriel_multimem_address(MULTIMEM, HEAP, BYTES, HEAP + BYTES, 0),
                     MULTIMEM + BYTES);
    /* No heap below 4 GiB: the distance may be more than 32 bits. */
    assert_int_equal(oriel_multimem_address(MULTIMEM, HEAP, 16ull << 30, HEAP + (9ull << 30), 16),
                     MULTIMEM + (9ull << 30));
}

static void test_no_address(void **state)
{
    (void)state;
    assert_int_equal(oriel_multimem_address(0, HEAP, BYTES, HEAP, 16), 0);
    assert_int_equal(oriel_multimem_address(MULTIMEM, HEAP, BYTES, HEAP - 16, 16), 0);
    assert_int_equal(oriel_multimem_address(MULTIMEM, HEAP, BYTES, HEAP + BYTES - 16, 32), 0);
    assert_int_equal(oriel_multimem_address(MULTIMEM, HEAP, BYTES, HEAP + BYTES + 16, 0), 0);
    assert_int_equal(oriel_multimem_address(MULTIMEM, HEAP, BYTES, HEAP + 16, SIZE_MAX), 0);
    assert_int_equal(oriel_multimem_address(MULTIMEM, HEAP, BYTES, HEAP + 8, 16), 0);
}

/* Products there are none, and nothing that would lose a NaN or round in another way. */
static void test_operations(void **state)
{
    (void)state;
    for (int d = 0; d < ORIEL_DTYPE_COUNT; d++) {
        assert_int_equal(oriel_multimem_op((oriel_dtype)d, ORIEL_PROD), DEVICE_MULTIMEM_NONE);
        if (oriel_dtype_size((oriel_dtype)d) == 1)
            assert_int_equal(oriel_multimem_op((oriel_dtype)d, ORIEL_SUM), DEVICE_MULTIMEM_NONE);
    }
    assert_int_equal(oriel_multimem_op(ORIEL_F32, ORIEL_SUM), DEVICE_MULTIMEM_F32_SUM);
    assert_int_equal(oriel_multimem_op(ORIEL_F32, ORIEL_MAX), DEVICE_MULTIMEM_NONE);
    assert_int_equal(oriel_multimem_op(ORIEL_S32, ORIEL_SUM), DEVICE_MULTIMEM_U32_SUM);
    assert_int_equal(oriel_multimem_op(ORIEL_S32, ORIEL_MAX), DEVICE_MULTIMEM_S32_MAX);
    assert_int_equal(oriel_multimem_op(ORIEL_U64, ORIEL_MIN), DEVICE_MULTIMEM_U64_MIN);
}

/* Ranks that ask for different vias ask for different things. */
static void test_record(void **state)
{
    oriel_comm *comm = ranks_comm(2, 5.0, NULL);
    oriel_op op = {.kind = ORIEL_KIND_ALL_REDUCE, .dtype = ORIEL_F32, .count = 4};
    oriel_record plain;
    oriel_record other;
    char text[128];

    (void)state;
    oriel_op_describe(oriel_comm_world(comm), &op, &plain);
    op.via = ORIEL_VIA_LSA;
    oriel_op_describe(oriel_comm_world(comm), &op, &other);
    assert_memory_not_equal(&plain, &other, sizeof plain);
    oriel_record_describe(&plain, text, sizeof text);
    assert_string_equal(text, "all_reduce sum of 16 bytes of f32");
    oriel_record_describe(&other, text, sizeof text);
    assert_string_equal(text, "all_reduce sum of 16 bytes of f32 via lsa");
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

static void test_cpus(void **state)
{
    oriel_comm *comm = ranks_comm(2, 5.0, NULL);
    oriel_group *world = oriel_comm_world(comm);
    float x = 1;

    (void)state;
    assert_int_equal(oriel_via_check(world, ORIEL_VIA_AUTO, ORIEL_F32, ORIEL_SUM), ORIEL_OK);
    for (int via = ORIEL_VIA_PEER; via < ORIEL_VIA_COUNT; via++) {
        assert_int_equal(oriel_via_check(world, (oriel_via)via, ORIEL_F32, ORIEL_SUM),
                         ORIEL_ERR_UNSUPPORTED);
        assert_non_null(strstr(oriel_last_error(), oriel_via_name((oriel_via)via)));
        assert_non_null(strstr(oriel_last_error(), "CPUs"));
    }
    assert_int_equal(
        oriel_all_reduce_via_on(world, 0, &x, &x, 1, ORIEL_F32, ORIEL_SUM, ORIEL_VIA_NCCL, NULL),
        ORIEL_ERR_INVALID);
    assert_non_null(strstr(oriel_last_error(), "CPUs"));
    assert_int_equal(oriel_via_check(world, (oriel_via)7, ORIEL_F32, ORIEL_SUM), ORIEL_ERR_INVALID);
    assert_int_equal(oriel_via_check(world, ORIEL_VIA_PEER, (oriel_dtype)99, ORIEL_SUM),
                     ORIEL_ERR_INVALID);
    assert_int_equal(oriel_via_check(NULL, ORIEL_VIA_PEER, ORIEL_F32, ORIEL_SUM),
                     ORIEL_ERR_INVALID);
    assert_string_equal(oriel_via_name((oriel_via)99), "unknown via");
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address),    cmocka_unit_test(test_no_address),
        cmocka_unit_test(test_operations), cmocka_unit_test(test_record),
        cmocka_unit_test(test_cpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
