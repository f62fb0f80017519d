#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/sys.h"
#include "experimental/nccl_device.h"
#include "support/gpu/fakes.h"

static const oriel_gpu gpu = {.ordinal = 0, .name = "fake"};
static const oriel_gpu *const gpus[] = {&gpu, &gpu};
static char *called; /* what NCCL was asked to do */

static int open_fakes(void **state)
{
    (void)state;
    called = fakes_open();
    return called != NULL ? 0 : -1;
}

static void behave(const char *how)
{
    setenv("FAKE_NCCL", how, 1);
    called[0] = '\0';
}

static void says(const char *words)
{
    if (strstr(oriel_last_error(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", oriel_last_error(), words);
}

static oriel_nccl_wait seconds(double s)
{
    return (oriel_nccl_wait){.until = oriel_now() + s};
}

static oriel_status open_two(double wait_s, oriel_nccl_links *links_p)
{
    oriel_nccl_plan plan = {.size = 4, .first = 2, .n = 2, .max_ctas = 30, .shared = 1};
    oriel_nccl_wait wait = seconds(wait_s);

    return oriel_nccl_links_open(&plan, gpus, &wait, links_p);
}

/* The first to open it: a failure is not remembered. */
static void test_too_old(void **state)
{
    const nccl_library *nccl;

    (void)state;
    behave("version=22707");
    assert_int_equal(oriel_nccl_open(&nccl), ORIEL_ERR_UNSUPPORTED);
    says("is NCCL 2.27.7; 2.28.3 is needed");
}

static void test_good(void **state)
{
    oriel_nccl_wait wait = seconds(5);
    oriel_nccl_links links;
    cu_ptr at[] = {1 << 20, 2 << 20};
    size_t bytes[] = {4096, 8192};
    nccl_window windows[2];
    cu_ptr seen = 0;

    (void)state;
    behave("polls=5");
    assert_int_equal(open_two(5, &links), ORIEL_OK);
    assert_string_equal(called, "create 2\nctas 30\nblocking 0\ncreate 3\nctas 30\nblocking 0\n");
    assert_string_equal(getenv("NCCL_MULTI_RANK_GPU_ENABLE"), "1");
    assert_int_equal(
        oriel_nccl_links_register(&links, at, bytes, NCCL_WINDOW_SYMMETRIC, &wait, windows),
        ORIEL_OK);
    assert_int_equal(oriel_nccl_links_pointer(&links, 1, windows[1], 0, &seen), ORIEL_OK);
    assert_true(seen == at[1]);
    assert_int_equal(oriel_nccl_links_pointer(&links, 1, windows[1], 3, &seen), ORIEL_OK);
    assert_true(seen == at[1] + (3ull << 32));
    called[0] = '\0';
    oriel_nccl_links_deregister(&links, windows);
    assert_int_equal(oriel_nccl_links_close(&links, 1, 5), 1);
    assert_string_equal(called, "deregister 2\nderegister 3\nfinalize 2\nfinalize 3\n"
                                "destroy 2\ndestroy 3\n");
    assert_int_equal(oriel_nccl_links_close(&links, 1, 5), 1); /* there is none any more */
}

static int stops(void *of)
{
    return ++*(int *)of > 3;
}

/* Nobody waits for NCCL beyond the deadline, or when there is no reason to any more. */
static void test_never_ready(void **state)
{
    oriel_nccl_plan plan = {.size = 2, .n = 1};
    oriel_nccl_links links;
    int asked = 0;
    oriel_nccl_wait wait = {.until = oriel_now() + 60, .stops = stops, .of = &asked};

    (void)state;
    behave("stuck=1");
    assert_int_equal(open_two(0.05, &links), ORIEL_ERR_TIMEOUT);
    says("making a communicator did not end in time on rank 2");
    assert_non_null(strstr(called, "abort 2\nabort 3\n"));
    assert_int_equal(oriel_nccl_links_open(&plan, gpus, &wait, &links), ORIEL_ERR_REVOKED);
    behave("error=3");
    assert_int_equal(open_two(5, &links), ORIEL_ERR_SYSTEM);
    says("making a communicator failed: a fake error (3)");
    assert_non_null(strstr(called, "abort 3\n"));
}

static void test_no_symmetric_memory(void **state)
{
    oriel_nccl_wait wait = seconds(5);
    oriel_nccl_links links;
    cu_ptr at[] = {1 << 20, 2 << 20};
    size_t bytes[] = {4096, 4096};
    nccl_window windows[2];
    cu_ptr seen;

    (void)state;
    behave("null=1");
    assert_int_equal(open_two(5, &links), ORIEL_OK);
    assert_int_equal(
        oriel_nccl_links_register(&links, at, bytes, NCCL_WINDOW_SYMMETRIC, &wait, windows),
        ORIEL_ERR_UNSUPPORTED);
    says("NCCL has no symmetric memory for rank 2: it gave no window");
    behave("lsa=2");
    assert_int_equal(
        oriel_nccl_links_register(&links, at, bytes, NCCL_WINDOW_SYMMETRIC, &wait, windows),
        ORIEL_OK);
    assert_int_equal(oriel_nccl_links_pointer(&links, 0, windows[0], 3, &seen), ORIEL_OK);
    assert_int_equal(oriel_nccl_links_pointer(&links, 0, windows[0], 1, &seen),
                     ORIEL_ERR_UNSUPPORTED);
    says("rank 2 does not reach the memory of rank 1: NCCL finds 2 of 4 ranks within reach");
    assert_int_equal(oriel_nccl_links_close(&links, 1, 5), 1);
}

/* Which of what it needs lacks. */
static void test_no_gin(void **state)
{
    oriel_nccl_links links;
    nccl_library *table;
    int version;

    (void)state;
    behave("");
    assert_int_equal(open_two(5, &links), ORIEL_OK);
    assert_int_equal(oriel_nccl_gin_check(&links), ORIEL_ERR_UNSUPPORTED);
    says("finds no GIN between all ranks: each machine needs an RDMA NIC");
    behave("gin=3");
    assert_int_equal(oriel_nccl_gin_check(&links), ORIEL_ERR_UNSUPPORTED);
    says("has GIN of type 3 here, kernels use the proxy's: set NCCL_GIN_TYPE=2 on all");
    table = (nccl_library *)(uintptr_t)links.nccl;
    version = table->version;
    table->version = 23004;
    assert_int_equal(oriel_nccl_gin_check(&links), ORIEL_ERR_UNSUPPORTED);
    says("GIN is used from NCCL 2.30.5 on;");
    says("is 2.30.4");
    table->version = version;
    assert_int_equal(oriel_nccl_links_close(&links, 1, 5), 1);
}

static void test_gin(void **state)
{
    oriel_nccl_wait wait = seconds(5);
    nccl_device_comm made[2];
    oriel_nccl_links links;

    (void)state;
    behave("gin=2");
    assert_int_equal(open_two(5, &links), ORIEL_OK);
    assert_int_equal(oriel_nccl_gin_check(&links), ORIEL_OK);
    behave("gin=2 polls=3");
    assert_int_equal(oriel_nccl_gin_open(&links, 128, &wait, made), ORIEL_OK);
    assert_int_equal(made[1].rank, 3);
    assert_non_null(strstr(called, "signals 128\ncontexts 1\nconnection 1\ntraffic 1\nstrong 1\n"));
    behave("gin=2 other=1");
    assert_int_equal(oriel_nccl_gin_open(&links, 128, &wait, made), ORIEL_ERR_UNSUPPORTED);
    says("lays its device side out in another way than 2.30.5");
    assert_int_equal(oriel_nccl_links_close(&links, 1, 5), 1);
}

static void test_before_2_30(void **state)
{
    const nccl_library *nccl;
    oriel_nccl_links links;
    nccl_library *table;

    (void)state;
    behave("");
    assert_int_equal(oriel_nccl_open(&nccl), ORIEL_OK);
    table = (nccl_library *)(uintptr_t)nccl;
    table->version = 22809;
    assert_int_equal(open_two(5, &links), ORIEL_ERR_UNSUPPORTED);
    says("ranks share a GPU, which NCCL allows from 2.30 on; ");
    says("is 2.28.9");
    table->version = 23007;
}

/* NCCL may never come back: then what it uses is lost, and the caller knows. */
static void test_no_end(void **state)
{
    oriel_nccl_links links;

    (void)state;
    behave("hang=1");
    assert_int_equal(open_two(5, &links), ORIEL_OK);
    assert_int_equal(oriel_nccl_links_close(&links, 0, 0.1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_too_old),     cmocka_unit_test(test_good),
        cmocka_unit_test(test_never_ready), cmocka_unit_test(test_no_symmetric_memory),
        cmocka_unit_test(test_no_gin),      cmocka_unit_test(test_gin),
        cmocka_unit_test(test_before_2_30), cmocka_unit_test(test_no_end),
    };

    return cmocka_run_group_tests(tests, open_fakes, NULL);
}
