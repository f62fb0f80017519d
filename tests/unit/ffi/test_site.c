/* Call sites as XLA makes them, and what their calls are counted by. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/world/comm.h"
#include "ffi/ffi.h"
#include "ffi/site.h"
#include "support/check.h"
#include "support/ranks.h"

enum { RANKS = 2 };

static oriel_comm *comm;
static oriel_calls calls; /* of the world */
static uint64_t world;    /* its number */

static int set_up(void **state)
{
    (void)state;
    comm = ranks_comm(RANKS, 10.0, NULL);
    world = 1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    oriel_calls_free(&calls);
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}

enum { PROGRAM = 77 };

static oriel_site *make(uint64_t name)
{
    static const int64_t ranks[RANKS] = {0, 1};
    site_attrs attrs = {.kind = ORIEL_KIND_BARRIER,
                        .name = (int64_t)name,
                        .module = PROGRAM,
                        .world = RANKS,
                        .group_size = RANKS,
                        .num_ranks = RANKS,
                        .ranks = ranks};
    oriel_site *site = NULL;

    CHECK_OK(oriel_site_create(&attrs, &site));
    return site;
}

/* As lowered: one call, and one site that XLA makes of it. */
static oriel_site *compile(uint64_t name)
{
    oriel_ffi_lowered(name);
    return make(name);
}

static uint16_t execution; /* of the last that arrived */

static oriel_status arrive(oriel_site *site, int rank, int64_t run, uint64_t *count_p)
{
    site_member *member;

    CHECK_OK(
        oriel_site_add_member(site, rank, world, &calls, oriel_comm_world(comm), rank, &member));
    return oriel_site_arrive(site, member, run, count_p, &execution);
}

static void check_count(oriel_site *site, int rank, int64_t run, uint64_t expected)
{
    uint64_t count = UINT64_MAX;

    CHECK_OK(arrive(site, rank, run, &count));
    assert_int_equal(count, expected);
}

/* A function compiled for two shapes, then anew. */
static void test_programs_share_the_count_of_a_call(void **state)
{
    oriel_site *sites[] = {compile(11), compile(11), compile(11)};

    (void)state;
    check_count(sites[0], 0, 500, 0);
    check_count(sites[1], 0, 900, 1);
    check_count(sites[0], 0, 501, 2);
    check_count(sites[0], 0, 501, 3); /* a loop */
    check_count(sites[0], 1, 500, 0); /* each rank counts for itself */
    oriel_site_destroy(sites[0]);
    check_count(sites[2], 0, 500, 4);
    oriel_site_destroy(sites[1]);
    oriel_site_destroy(sites[2]);
}

static void check_execution(oriel_site *site, int rank, int64_t run, uint16_t expected)
{
    uint64_t count;

    CHECK_OK(arrive(site, rank, run, &count));
    assert_int_equal(execution, expected);
}

/* Two calls, one of them in a loop. */
static void test_executions_of_a_program_are_counted(void **state)
{
    oriel_site *sites[] = {compile(17), compile(18)};

    (void)state;
    oriel_calls_free(&calls);
    world++;
    check_execution(sites[0], 0, 0, 1); /* a run may have any number */
    check_execution(sites[0], 0, 0, 1);
    check_execution(sites[1], 0, 0, 1);
    check_execution(sites[0], 0, 1, 2);
    check_execution(sites[1], 0, 2, 3); /* in which the other was not made */
    check_execution(sites[1], 1, 0, 1); /* each rank counts for itself */
    oriel_site_destroy(sites[0]);
    oriel_site_destroy(sites[1]);
}

/* Programs of a factory have the same run ids. */
static void test_programs_of_one_name_are_no_copies(void **state)
{
    oriel_site *sites[] = {compile(12), compile(12)};

    (void)state;
    check_count(sites[0], 0, 7, 0);
    check_count(sites[1], 0, 7, 1);
    oriel_site_destroy(sites[0]);
    oriel_site_destroy(sites[1]);
}

static void test_a_copied_call_is_refused(void **state)
{
    oriel_site *original = compile(13);
    oriel_site *copy = make(13);
    uint64_t count;

    (void)state;
    check_count(original, 0, 7, 0);
    assert_int_equal(arrive(copy, 0, 7, &count), ORIEL_ERR_INVALID);
    assert_non_null(strstr(oriel_last_error(), "XLA has copied the call"));
    oriel_site_destroy(original);
    oriel_site_destroy(copy);
}

static void test_a_run_that_comes_late_is_refused(void **state)
{
    oriel_site *site = compile(14);
    uint64_t count;

    (void)state;
    check_count(site, 0, 0xffffffff, 0);
    check_count(site, 0, 0x100000000, 1); /* 32 bits go round */
    assert_int_equal(arrive(site, 0, 0xfffffffe, &count), ORIEL_ERR_INVALID);
    assert_non_null(strstr(oriel_last_error(), "several threads launch one jitted function"));
    check_count(site, 1, 0xfffffffe, 0); /* another rank's runs are its own */
    oriel_site_destroy(site);
}

/* Launches one run after the other from two threads, and lets them arrive at the same time. */
enum { PAIRS = 200000, SPINS = 2000 };

typedef struct race {
    oriel_site *site;
    site_member *member;
    _Atomic int pair, done;
    uint64_t count[2];
    uint16_t execution; /* of the second */
    oriel_status st[2];
} race;

/* Spins, so that both arrive at once; but the other thread may need the core. */
static void wait_for(_Atomic int *word, int value)
{
    for (int i = 0; atomic_load(word) != value; i++) {
        if (i > SPINS)
            sched_yield();
    }
}

static void *arrive_second(void *arg)
{
    race *both = arg;

    for (int pair = 1; pair <= PAIRS; pair++) {
        wait_for(&both->pair, pair);
        both->st[1] = oriel_site_arrive(both->site, both->member, 2 * pair + 1, &both->count[1],
                                        &both->execution);
        atomic_store(&both->done, pair);
    }
    return NULL;
}

static void test_threads_never_change_places_unseen(void **state)
{
    race both = {.site = compile(16)};
    pthread_t thread;
    int unseen = 0;

    (void)state;
    CHECK_OK(oriel_site_add_member(both.site, 0, world, &calls, oriel_comm_world(comm), 0,
                                   &both.member));
    assert_int_equal(pthread_create(&thread, NULL, arrive_second, &both), 0);
    for (int pair = 1; pair <= PAIRS; pair++) {
        atomic_store(&both.pair, pair);
        for (volatile int i = 0; i < pair % 64; i++) /* the other thread is on its way */
            ;
        both.st[0] =
            oriel_site_arrive(both.site, both.member, 2 * pair, &both.count[0], &execution);
        wait_for(&both.done, pair);
        unseen += both.st[0] == ORIEL_OK && both.st[1] == ORIEL_OK && both.count[0] > both.count[1];
    }
    pthread_join(thread, NULL);
    assert_int_equal(unseen, 0);
    oriel_site_destroy(both.site);
}

static void test_a_world_counts_from_zero(void **state)
{
    oriel_site *site = compile(15);

    (void)state;
    check_count(site, 0, 1, 0);
    check_count(site, 0, 2, 1);
    oriel_calls_free(&calls);
    world++;
    check_count(site, 0, 3, 0);
    oriel_site_destroy(site);
}

static void test_a_call_needs_a_name(void **state)
{
    static const int64_t ranks[] = {0};
    site_attrs attrs = {
        .kind = ORIEL_KIND_BARRIER, .world = 1, .group_size = 1, .num_ranks = 1, .ranks = ranks};
    oriel_site *site = NULL;

    (void)state;
    assert_int_equal(oriel_site_create(&attrs, &site), ORIEL_ERR_INVALID);
    assert_non_null(strstr(oriel_last_error(), "a call of oriel has no name"));
}

/* Two groups of a world of five, the second of which has fewer ranks than there is room for. */
static oriel_status make_groups(const int64_t ranks[6], oriel_site **site_p)
{
    site_attrs attrs = {.kind = ORIEL_KIND_BARRIER,
                        .name = 16,
                        .world = 5,
                        .group_size = 3,
                        .num_ranks = 6,
                        .ranks = ranks};

    return oriel_site_create(&attrs, site_p);
}

static void test_groups_of_different_size(void **state)
{
    static const int64_t ranks[] = {4, 0, 2, 3, 1, -1};
    oriel_site *site;
    const int *group;
    int n;

    (void)state;
    CHECK_OK(make_groups(ranks, &site));
    group = oriel_site_ranks(site, 0, &n);
    assert_true(n == 3 && group[0] == 4 && group[1] == 0 && group[2] == 2);
    group = oriel_site_ranks(site, 1, &n);
    assert_true(n == 2 && group[0] == 3 && group[1] == 1);
    assert_null(oriel_site_ranks(site, 5, &n));
    oriel_site_destroy(site);
}

static void test_a_hole_in_a_group_is_refused(void **state)
{
    static const int64_t ranks[] = {4, -1, 2, 3, 1, 0};
    oriel_site *site = NULL;

    (void)state;
    assert_int_equal(make_groups(ranks, &site), ORIEL_ERR_INVALID);
    assert_non_null(strstr(oriel_last_error(), "attribute groups names -1 of 5"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs_share_the_count_of_a_call),
        cmocka_unit_test(test_executions_of_a_program_are_counted),
        cmocka_unit_test(test_programs_of_one_name_are_no_copies),
        cmocka_unit_test(test_a_copied_call_is_refused),
        cmocka_unit_test(test_a_run_that_comes_late_is_refused),
        cmocka_unit_test(test_threads_never_change_places_unseen),
        cmocka_unit_test(test_a_world_counts_from_zero),
        cmocka_unit_test(test_a_call_needs_a_name),
        cmocka_unit_test(test_groups_of_different_size),
        cmocka_unit_test(test_a_hole_in_a_group_is_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
