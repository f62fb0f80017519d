/* labels: tsan */
/* Appointments: that members meet in one and the same call, whichever wants it and however far
 * ahead some are, and that nobody waits for ever. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/sys.h"
#include "core/nccl/appoint.h"
#include "support/check.h"
#include "support/ranks.h"

/* LEAD: how far ahead of the slowest a rank may be. */
enum { RANKS = 4, CALLS = 3000, LEAD = 30 };

struct plan {
    int alone;
    int (*wants)(int rank, int call);
    _Atomic int meetings;
    _Atomic int wrong;
};

static oriel_appointed member(oriel_comm *comm, int rank, int alone)
{
    oriel_group *group = oriel_comm_world(comm);

    return (oriel_appointed){.group = group,
                             .rank = rank,
                             .place = oriel_appoint_find(&comm->heap, group->hash),
                             .alone = alone,
                             .patience = comm->timeout};
}

/* In the meeting, what all have brought is there. */
static void meet(const oriel_appointed *a, uint64_t call, struct plan *plan)
{
    int all = 0;

    oriel_attendance(a, a->rank)->site = call;
    CHECK_OK(oriel_appoint_meet(a, &all));
    assert_int_equal(all, 1);
    for (int i = 0; i < RANKS; i++) {
        if (oriel_attendance(a, i)->site != call)
            atomic_fetch_add(&plan->wrong, 1);
    }
    if (a->rank == 0)
        atomic_fetch_add(&plan->meetings, 1);
    oriel_appoint_leave(a);
}

static int slowest(const oriel_appointed *a)
{
    uint64_t least = CALLS;

    for (int i = 0; i < RANKS; i++) {
        uint64_t calls = atomic_load(&oriel_attendance(a, i)->calls);

        least = calls < least ? calls : least;
    }
    return (int)least;
}

static void make_calls(oriel_comm *comm, int rank, void *arg)
{
    struct plan *plan = arg;
    oriel_appointed a = member(comm, rank, plan->alone);

    for (int call = 1; call <= CALLS; call++) {
        int due = 0;

        CHECK_OK(oriel_appoint_call(&a, plan->wants(rank, call) ? 1 : 0, &due));
        if (due)
            meet(&a, (uint64_t)call, plan);
        while (call > slowest(&a) + LEAD)
            oriel_relax(1);
    }
}

static int run(struct plan *plan)
{
    oriel_comm *comm = ranks_comm(RANKS, 30.0, NULL);

    ranks_run(comm, make_calls, plan);
    assert_int_equal(plan->wrong, 0);
    CHECK_OK(oriel_comm_destroy(comm));
    return plan->meetings;
}

static int one_now_and_then(int rank, int call)
{
    return rank == 2 && call % 7 == 0 && call < CALLS / 2;
}

static int all_now_and_then(int rank, int call)
{
    return (call + 7 * rank) % 100 < 80 && call < CALLS / 2;
}

static int nobody(int rank, int call)
{
    (void)rank;
    (void)call;
    return 0;
}

static int all_but_one(int rank, int call)
{
    (void)call;
    return rank != 1;
}

static void test_one_that_wants_is_enough(void **state)
{
    struct plan plan = {.alone = 1, .wants = one_now_and_then};

    (void)state;
    assert_true(run(&plan) > 0);
}

static void test_all_must_want(void **state)
{
    struct plan some = {.wants = all_but_one};
    struct plan all = {.wants = all_now_and_then};
    struct plan none = {.alone = 1, .wants = nobody};

    (void)state;
    assert_int_equal(run(&some), 0);
    assert_true(run(&all) > 0);
    assert_int_equal(run(&none), 0);
}

/* ---- members that do not come ------------------------------------------------------------------
 */

static int come(oriel_comm *comm, int rank, oriel_status *st_p)
{
    oriel_appointed a = member(comm, rank, 1);
    int due = 0;
    int all = 0;

    CHECK_OK(oriel_appoint_call(&a, 1, &due));
    if (!due)
        CHECK_OK(oriel_appoint_call(&a, 1, &due));
    assert_int_equal(due, 1);
    *st_p = oriel_appoint_meet(&a, &all);
    return all;
}

static void all_but_the_last(oriel_comm *comm, int rank, void *arg)
{
    oriel_status st;

    (void)arg;
    if (rank == RANKS - 1)
        return;
    assert_int_equal(come(comm, rank, &st), 0);
    assert_int_equal(st, ORIEL_ERR_TIMEOUT);
    assert_non_null(strstr(oriel_last_error(), "rank 3 (process 0) did not come within 0.2 s"));
}

/* All make one call that wants, so that the second is the one. */
static void first_calls(oriel_comm *comm)
{
    for (int rank = 0; rank < RANKS; rank++) {
        oriel_appointed a = member(comm, rank, 1);
        int due = 0;

        CHECK_OK(oriel_appoint_call(&a, 0, &due));
    }
}

static void test_a_member_that_does_not_come_is_named(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, 0.2, NULL);

    (void)state;
    first_calls(comm);
    ranks_run(comm, all_but_the_last, NULL);
    oriel_comm_abandon(comm);
}

static void calls_off(oriel_comm *comm, int rank, void *arg)
{
    oriel_appointed a = member(comm, rank, 1);
    oriel_status st;

    (void)arg;
    if (rank == RANKS - 1) {
        oriel_appoint_call_off(&a);
        return;
    }
    assert_int_equal(come(comm, rank, &st), 0);
    assert_int_equal(st, ORIEL_OK);
}

static void test_called_off_nobody_waits(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, 30.0, NULL);
    oriel_appointed a = member(comm, 0, 1);
    int due = 0;

    (void)state;
    first_calls(comm);
    CHECK_OK(oriel_appoint_call(&a, 1, &due)); /* makes it */
    for (int rank = 1; rank < RANKS; rank++) {
        oriel_appointed b = member(comm, rank, 1);

        CHECK_OK(oriel_appoint_call(&b, 1, &due));
        assert_int_equal(due, 0);
    }
    ranks_run(comm, calls_off, NULL);
    assert_true(oriel_appoint_is_off(&comm->heap, a.place));
    CHECK_OK(oriel_comm_destroy(comm));
}

static void comes_for_a_while(oriel_comm *comm, int rank, void *arg)
{
    oriel_appointed a = member(comm, rank, 1);
    int due = 0;
    int all = 1;

    (void)arg;
    if (rank == RANKS - 1)
        return;
    a.patience = 0.1;
    CHECK_OK(oriel_appoint_call(&a, 1, &due));
    if (!due)
        CHECK_OK(oriel_appoint_call(&a, 1, &due));
    CHECK_OK(oriel_appoint_meet(&a, &all));
    assert_int_equal(all, 0);
}

static void test_short_of_the_deadline_it_is_called_off(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, 30.0, NULL);

    (void)state;
    first_calls(comm);
    ranks_run(comm, comes_for_a_while, NULL);
    assert_true(oriel_appoint_is_off(&comm->heap, member(comm, 0, 1).place));
    CHECK_OK(oriel_comm_destroy(comm));
}

static void test_revoked_the_comm_says_so(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, 30.0, NULL);
    oriel_status st;

    (void)state;
    oriel_comm_abort(comm, ORIEL_ERR_PEER, 1, 0, "process 7 (pid 1) is gone");
    assert_int_equal(come(comm, 0, &st), 0);
    assert_int_equal(st, ORIEL_ERR_PEER);
    assert_non_null(strstr(oriel_last_error(), "process 7"));
    oriel_comm_abandon(comm);
}

static void test_groups_have_places_of_their_own(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, 30.0, NULL);
    int seen[HEAP_APPOINTMENTS] = {0};

    (void)state;
    for (uint64_t group = 1; group <= HEAP_APPOINTMENTS; group++) {
        int place = oriel_appoint_find(&comm->heap, group * 1000);

        assert_in_range(place, 0, HEAP_APPOINTMENTS - 1);
        assert_int_equal(seen[place]++, 0);
        assert_int_equal(oriel_appoint_find(&comm->heap, group * 1000), place);
    }
    assert_int_equal(oriel_appoint_find(&comm->heap, 7), -1);
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_that_wants_is_enough),
        cmocka_unit_test(test_all_must_want),
        cmocka_unit_test(test_a_member_that_does_not_come_is_named),
        cmocka_unit_test(test_called_off_nobody_waits),
        cmocka_unit_test(test_short_of_the_deadline_it_is_called_off),
        cmocka_unit_test(test_revoked_the_comm_says_so),
        cmocka_unit_test(test_groups_have_places_of_their_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
