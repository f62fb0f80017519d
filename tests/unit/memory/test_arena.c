/* labels: valgrind */
/* The arena: areas that are given back are used again, and too much is an error. Names
 * of kernels: known to all ranks, a number where there is no room for them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory/arena.h"
#include "core/world/names.h"
#include "support/check.h"
#include "support/failing_sys.h"
#include "support/ranks.h"
#include "support/resources.h"

enum { MANY = 200 };

static void test_reuse(void **state)
{
    test_resources before = resources_now();
    oriel_comm *comm = ranks_comm(3, 10.0, "ORIEL_ARENA", "1M", NULL);
    oriel_area areas[4];

    (void)state;
    for (int round = 0; round < MANY; round++) {
        for (int i = 0; i < 4; i++) {
            CHECK_OK(oriel_arena_take(comm, 1, 1000 + 100 * (size_t)i, &areas[i]));
            memset(oriel_arena_at(comm, 1, areas[i].at), i, areas[i].bytes);
        }
        /* Always in the same order, always at the same place. */
        assert_int_equal(areas[0].at, 0);
        assert_true(areas[3].at < 4096);
        oriel_arena_give(comm, 1, &areas[1]);
        oriel_arena_give(comm, 1, &areas[1]); /* nothing */
        CHECK_OK(oriel_arena_take(comm, 1, 1100, &areas[1]));
        assert_true(areas[1].at < areas[2].at); /* the gap */
        for (int i = 3; i >= 0; i--) {
            CHECK(*oriel_arena_at(comm, 1, areas[i].at) == i, "area %d was overwritten", i);
            oriel_arena_give(comm, 1, &areas[i]);
        }
    }
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "after the arena");
}

static void test_full(void **state)
{
    oriel_comm *comm = ranks_comm(2, 10.0, "ORIEL_ARENA", "1M", NULL);
    oriel_area most;
    oriel_area more;
    oriel_area theirs;

    (void)state;
    CHECK_OK(oriel_arena_take(comm, 0, 1 << 20, &most));
    CHECK_IS(ORIEL_ERR_NO_RESOURCE, oriel_arena_take(comm, 0, 64, &more));
    check_says("kernels of rank 0 need 64 bytes more than the 1048576 of ORIEL_ARENA", NULL);
    oriel_arena_give(comm, 0, &more);                      /* it was not taken */
    CHECK_OK(oriel_arena_take(comm, 1, 1 << 20, &theirs)); /* each rank has its own */
    memset(oriel_arena_at(comm, 0, most.at), 1, 1 << 20);
    memset(oriel_arena_at(comm, 1, theirs.at), 2, 1 << 20);
    assert_int_equal(oriel_arena_at(comm, 0, most.at)[(1 << 20) - 1], 1);
    oriel_arena_give(comm, 0, &most);
    CHECK_OK(oriel_arena_take(comm, 0, 64, &more));
    oriel_arena_give(comm, 0, &more);
    oriel_arena_give(comm, 1, &theirs);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* Where a process may not have so many addresses, and later may. */
static void test_few_addresses(void **state)
{
    oriel_comm *comm = ranks_comm(2, 10.0, "ORIEL_ARENA", "1M", "ORIEL_WINDOWS", "3M", NULL);
    oriel_area area = {0};

    (void)state;
    failing_sys_install();
    failing_sys_only("map");
    failing_sys_arm(1, ENOMEM);
    CHECK_IS(ORIEL_ERR_SYSTEM, oriel_arena_take(comm, 0, 64, &area));
    check_says("the arena, 8388608 bytes of addresses", "ORIEL_WINDOWS of each of 2 ranks (lower",
               "Cannot allocate memory", NULL);
    failing_sys_disarm();
    failing_sys_only(NULL);
    CHECK_OK(oriel_arena_take(comm, 0, 64, &area));
    oriel_arena_give(comm, 0, &area);
    failing_sys_remove();
    CHECK_OK(oriel_comm_destroy(comm));
}

static void test_names(void **state)
{
    oriel_comm *comm = ranks_comm(1, 10.0, NULL);
    char text[64];
    int known = 0;

    (void)state;
    for (uint64_t i = 1; i <= 2 * HEAP_NAMES; i++) {
        snprintf(text, sizeof text, "kernel k%llu", (unsigned long long)i);
        oriel_name_keep(&comm->heap, i * 7, text);
        oriel_name_keep(&comm->heap, i * 7, "another");
    }
    for (uint64_t i = 1; i <= 2 * HEAP_NAMES; i++) {
        char expected[64];

        oriel_name_find(&comm->heap, i * 7, text, sizeof text);
        snprintf(expected, sizeof expected, "kernel k%llu", (unsigned long long)i);
        known += strcmp(text, expected) == 0;
        if (strcmp(text, expected) != 0) {
            snprintf(expected, sizeof expected, "kernel %016llx", (unsigned long long)(i * 7));
            assert_string_equal(text, expected);
        }
    }
    assert_int_equal(known, HEAP_NAMES);
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_few_addresses),
        cmocka_unit_test(test_names),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
