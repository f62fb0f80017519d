/* labels: tsan valgrind */
/* Groups: what is refused, and calls on many of them at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/check.h"
#include "support/family.h"
#include "support/ranks.h"

static const double patience_s = 30.0;

/* ---- one group --------------------------------------------------------------------- */

static void refuse(oriel_comm *comm, const int *ranks, int n, const char *says)
{
    oriel_group *group = (oriel_group *)comm;

    CHECK_IS(ORIEL_ERR_INVALID, oriel_group_create(comm, ranks, n, &group));
    check_says(says, NULL);
    assert_ptr_equal(group, comm);
}

static void test_bad_lists(void **state)
{
    oriel_comm *comm = ranks_comm(4, patience_s, NULL);
    oriel_group *group = NULL;

    (void)state;
    refuse(NULL, (int[]){0}, 1, "comm is NULL");
    refuse(comm, NULL, 1, "ranks is NULL");
    refuse(comm, (int[]){0}, 0, "0 ranks");
    refuse(comm, (int[]){0}, -5, "-5");
    refuse(comm, (int[]){0, 1, 2, 3, 0}, 5, "5");
    refuse(comm, (int[]){0}, INT32_MAX, "2147483647");
    refuse(comm, (int[]){0, 4}, 2, "ranks[1] is 4");
    refuse(comm, (int[]){-1, 1}, 2, "ranks[0] is -1");
    refuse(comm, (int[]){2, 1, 2}, 3, "rank 2");
    CHECK_IS(ORIEL_ERR_INVALID, oriel_group_create(comm, (int[]){0}, 1, NULL));
    check_says("group_p", NULL);
    CHECK_OK(oriel_group_create(comm, (int[]){3, 0}, 2, &group));
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK); /* frees the group */
}

static void test_members(void **state)
{
    oriel_comm *comm = ranks_comm(5, patience_s, NULL);
    oriel_group *group = NULL;

    (void)state;
    CHECK_OK(oriel_group_create(comm, (int[]){4, 0, 2}, 3, &group));
    assert_int_equal(oriel_group_size(group), 3);
    assert_int_equal(oriel_group_index(group, 4), 0);
    assert_int_equal(oriel_group_index(group, 0), 1);
    assert_int_equal(oriel_group_index(group, 2), 2);
    assert_int_equal(oriel_group_index(group, 1), -1);
    assert_int_equal(oriel_group_index(group, -1), -1);
    assert_int_equal(oriel_group_index(group, 5), -1);
    assert_int_equal(oriel_group_size(NULL), 0);
    assert_int_equal(oriel_group_index(NULL, 0), -1);
    oriel_group_destroy(group);
    oriel_group_destroy(NULL);
    assert_int_equal(oriel_group_size(oriel_comm_world(comm)), 5);
    oriel_group_destroy(oriel_comm_world(comm)); /* is the comm's: stays */
    assert_int_equal(oriel_group_size(oriel_comm_world(comm)), 5);
    assert_null(oriel_comm_world(NULL));
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* ---- many groups ------------------------------------------------------------------- */

enum { RANKS = 6, GROUPS = 24, CALLS = 12 };

struct many {
    oriel_group *groups[GROUPS];
};

/* A list of distinct ranks, in any order. */
static int random_list(uint64_t seed, int *ranks)
{
    int n = 0;

    for (int r = 0; r < RANKS; r++) {
        if (values_mix(seed, (uint64_t)r) % 2 == 0)
            ranks[n++] = r;
    }
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(values_mix(seed, 100 + (uint64_t)i) % (uint64_t)(i + 1));
        int kept = ranks[i];
        ranks[i] = ranks[k];
        ranks[k] = kept;
    }
    return n;
}

/* Every fourth list comes twice in a row: two instances of one list. */
static void make_groups(oriel_comm *comm, uint64_t seed, struct many *many)
{
    for (int g = 0; g < GROUPS; g++) {
        int ranks[RANKS];
        int n = random_list(seed * 1000 + (uint64_t)(g % 4 == 1 ? g - 1 : g), ranks);

        if (n == 0)
            ranks[n++] = g % RANKS;
        CHECK_OK(oriel_group_create(comm, ranks, n, &many->groups[g]));
    }
}

/* All ranks call the groups in one order, so blocking calls cannot deadlock. */
static void call_in_turn(oriel_comm *comm, int rank, void *arg)
{
    const struct many *many = arg;

    (void)comm;
    for (unsigned i = 0; i < CALLS * GROUPS; i++) {
        oriel_group *group = many->groups[values_mix(i, 5) % GROUPS];
        family_call call = family_random_of(ORIEL_KIND_ALL_REDUCE, i, 20000);

        if (oriel_group_index(group, rank) >= 0)
            family_check(group, rank, &call);
    }
}

/* Calls on different groups are started in an order of each rank's own. */
static void call_at_once(oriel_comm *comm, int rank, void *arg)
{
    const struct many *many = arg;
    family_flight flights[GROUPS];

    (void)comm;
    for (unsigned round = 0; round < CALLS; round++) {
        int pending[GROUPS];
        int left = 0;

        for (int i = 0; i < GROUPS; i++) {
            int g = (i * 5 + 7 * rank + (int)round) % GROUPS;
            family_call call =
                family_random_of(ORIEL_KIND_ALL_REDUCE, round * GROUPS + (unsigned)g, 20000);

            if (oriel_group_index(many->groups[g], rank) < 0)
                continue;
            family_start(&flights[g], many->groups[g], rank, &call);
            pending[left++] = g;
        }
        while (left > 0) {
            for (int i = 0; i < left; i++) {
                if (family_test(&flights[pending[i]]))
                    pending[i--] = pending[--left];
            }
        }
    }
}

static void with_groups(oriel_comm *comm, uint64_t seed,
                        void (*body)(oriel_comm *comm, int rank, void *arg))
{
    struct many many;

    make_groups(comm, seed, &many);
    ranks_run(comm, body, &many);
    for (int g = 0; g < GROUPS; g++)
        oriel_group_destroy(many.groups[g]);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

static void test_many_groups(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        with_groups(ranks_comm(RANKS, patience_s, NULL), seed, call_in_turn);
        with_groups(ranks_comm(RANKS, patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "1K", NULL),
                    seed, call_in_turn);
    }
}

static void test_groups_at_once(void **state)
{
    (void)state;
    with_groups(ranks_comm(RANKS, patience_s, NULL), 4, call_at_once);
    with_groups(ranks_comm(RANKS, patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "1K",
                           "ORIEL_STAGING", "256K", NULL),
                5, call_at_once);
}

/* ---- instances ---------------------------------------------------------------------- */

/* Two groups over one list are two groups: calls on them match apart, even when
 * the ranks make them in opposite order. */
static void opposite(oriel_comm *comm, int rank, void *arg)
{
    oriel_group **groups = arg;
    family_call calls[2] = {{.kind = ORIEL_KIND_ALL_REDUCE,
                             .dtype = ORIEL_F32,
                             .op = ORIEL_SUM,
                             .count = 10,
                             .seed = 1},
                            {.kind = ORIEL_KIND_ALL_REDUCE,
                             .dtype = ORIEL_S16,
                             .op = ORIEL_MAX,
                             .count = 99,
                             .seed = 2}};
    int first = rank % 2;

    (void)comm;
    for (int i = 0; i < 50; i++) {
        family_flight flights[2];
        int done[2] = {0, 0};

        family_start(&flights[first], groups[first], rank, &calls[first]);
        family_start(&flights[!first], groups[!first], rank, &calls[!first]);
        while (!done[0] || !done[1]) {
            for (int g = 0; g < 2; g++)
                done[g] = done[g] || family_test(&flights[g]);
        }
    }
}

static void test_instances(void **state)
{
    oriel_comm *comm = ranks_comm(2, patience_s, NULL);
    oriel_group *groups[2];
    oriel_group *old = NULL;

    (void)state;
    for (int i = 0; i < 100; i++) { /* a destroyed one does not come back */
        CHECK_OK(oriel_group_create(comm, (int[]){1, 0}, 2, &old));
        oriel_group_destroy(old);
    }
    CHECK_OK(oriel_group_create(comm, (int[]){1, 0}, 2, &groups[0]));
    CHECK_OK(oriel_group_create(comm, (int[]){1, 0}, 2, &groups[1]));
    ranks_run(comm, opposite, groups);
    groups[1] = oriel_comm_world(comm);
    oriel_group_destroy(groups[0]);
    CHECK_OK(oriel_group_create(comm, (int[]){0, 1}, 2, &groups[0]));
    ranks_run(comm, opposite, groups);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* The order of the list is the order of the sum: 1e30 + -1e30 + 1 against
 * 1e30 + 1 + -1e30. */
static void sum_in_order(oriel_comm *comm, int rank, void *arg)
{
    static const float values[] = {1e30f, -1e30f, 1.0f};
    oriel_group **groups = arg;
    float out = 7;

    (void)comm;
    CHECK_OK(oriel_all_reduce(groups[0], rank, &values[rank], &out, 1, ORIEL_F32, ORIEL_SUM));
    CHECK(out == 1.0f, "%g", out);
    CHECK_OK(oriel_all_reduce(groups[1], rank, &values[rank], &out, 1, ORIEL_F32, ORIEL_SUM));
    CHECK(out == 0.0f, "%g", out);
}

static void test_order(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        oriel_comm *comm = ranks_comm(3, patience_s, "ORIEL_DIRECT", direct ? "1" : "0", NULL);
        oriel_group *groups[2];

        CHECK_OK(oriel_group_create(comm, (int[]){1, 0, 2}, 3, &groups[0]));
        CHECK_OK(oriel_group_create(comm, (int[]){0, 2, 1}, 3, &groups[1]));
        ranks_run(comm, sum_in_order, groups);
        assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_lists),   cmocka_unit_test(test_members),
        cmocka_unit_test(test_many_groups), cmocka_unit_test(test_groups_at_once),
        cmocka_unit_test(test_instances),   cmocka_unit_test(test_order),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
