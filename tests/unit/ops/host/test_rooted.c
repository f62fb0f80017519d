/* labels: valgrind */
/* Small calls wait for those alone whom they need: broadcasts for their root, permutations for
 * their source and so on. One thread makes the
 * calls of all ranks, one after the other: a call that waited for another would never end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/protocol/lane.h"
#include "support/check.h"
#include "support/ranks.h"
#include "support/values.h"

enum { RANKS = 4, WORDS = 100 };
static const double long_s = 30.0, short_s = 0.3;
static const int ring[] = {0, 1, 1, 2, 2, 3, 3, 0};
static const int some[] = {0, 1, 3, 3}; /* nobody for 0 and 2 */

/* The first call of a group meets in a cell; the others have a lane. */
static void settle(oriel_comm *comm)
{
    oriel_request *requests[RANKS];

    for (int r = 0; r < RANKS; r++)
        CHECK_OK(oriel_barrier_start(oriel_comm_world(comm), r, &requests[r]));
    for (int r = 0; r < RANKS; r++)
        CHECK_OK(oriel_request_wait(requests[r]));
}

static oriel_comm *comm_of(double timeout_s)
{
    oriel_comm *comm = ranks_comm(RANKS, timeout_s, NULL);

    settle(comm);
    return comm;
}

static void fill(uint64_t *words, int rank, unsigned call)
{
    for (unsigned k = 0; k < WORDS; k++)
        words[k] = values_mix(call, (uint64_t)rank) + k;
}

/* What `rank` has sent in `call`; nothing: of -1. */
static void check_words(const uint64_t *words, int rank, unsigned call)
{
    uint64_t want[WORDS] = {0};

    if (rank >= 0)
        fill(want, rank, call);
    CHECK(memcmp(words, want, sizeof want) == 0, "not what rank %d has sent in call %u", rank,
          call);
}

static oriel_status broadcast(oriel_comm *comm, int rank, uint64_t *words)
{
    return oriel_broadcast(oriel_comm_world(comm), rank, words, words, WORDS, ORIEL_U64, 0);
}

static oriel_request *start_broadcast(oriel_comm *comm, int rank, uint64_t *words)
{
    oriel_request *request = NULL;

    CHECK_OK(oriel_broadcast_start(oriel_comm_world(comm), rank, words, words, WORDS, ORIEL_U64, 0,
                                   &request));
    return request;
}

static void receive(oriel_comm *comm, int rank, unsigned call)
{
    uint64_t words[WORDS];

    CHECK_OK(broadcast(comm, rank, words));
    check_words(words, 0, call);
}

/* The root is LANE_SLOTS calls ahead and not one more; nobody waits for another receiver. */
static void test_the_root_runs_ahead(void **state)
{
    oriel_comm *comm = comm_of(long_s);
    uint64_t sent[WORDS], got[WORDS];
    oriel_request *root, *first;

    (void)state;
    for (unsigned call = 1; call <= LANE_SLOTS; call++) {
        fill(sent, 0, call);
        CHECK_OK(broadcast(comm, 0, sent));
        memset(sent, 0, sizeof sent); /* it is the root's again */
    }
    for (unsigned call = 1; call <= LANE_SLOTS; call++) {
        receive(comm, 1, call);
        receive(comm, 3, call);
    }
    fill(sent, 0, LANE_SLOTS + 1);
    root = start_broadcast(comm, 0, sent);
    first = start_broadcast(comm, 1, got);
    for (int i = 0; i < 100; i++) { /* rank 2 has read nothing yet */
        CHECK_IS(ORIEL_IN_PROGRESS, oriel_request_test(root));
        CHECK_IS(ORIEL_IN_PROGRESS, oriel_request_test(first));
    }
    receive(comm, 2, 1);
    CHECK_OK(oriel_request_wait(root));
    CHECK_OK(oriel_request_wait(first));
    check_words(got, 0, LANE_SLOTS + 1);
    for (unsigned call = 2; call <= LANE_SLOTS + 1; call++)
        receive(comm, 2, call);
    receive(comm, 3, LANE_SLOTS + 1);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* Many, with every receiver at another distance, never beyond a lane's slots. */
static void test_nobody_is_lapped(void **state)
{
    enum { CALLS = 400 };
    oriel_comm *comm = comm_of(long_s);
    unsigned done[RANKS] = {0};
    uint64_t sent[WORDS];

    (void)state;
    for (uint64_t turn = 0; done[0] + done[1] + done[2] + done[3] < RANKS * CALLS; turn++) {
        int rank = (int)(values_mix(turn, 7) % RANKS);
        unsigned least = CALLS;

        for (int r = 0; r < RANKS; r++)
            least = done[r] < least ? done[r] : least;
        if (done[rank] == CALLS || (rank > 0 && done[rank] == done[0]) ||
            done[rank] == least + LANE_SLOTS)
            continue;
        fill(sent, 0, ++done[rank]);
        if (rank == 0)
            CHECK_OK(broadcast(comm, 0, sent));
        else
            receive(comm, rank, done[rank]);
    }
    CHECK_OK(oriel_comm_destroy(comm));
}

/* The source of each comes before it; those without one need nobody. */
static void test_a_permutation_needs_its_sources(void **state)
{
    static const int order[] = {2, 3, 0, 1}; /* rank 1 last; not the order of the ring */
    oriel_comm *comm = comm_of(long_s);
    oriel_group *world = oriel_comm_world(comm);
    uint64_t sent[RANKS][WORDS], got[RANKS][WORDS];
    oriel_request *request = NULL;

    (void)state;
    for (int r = 0; r < RANKS; r++)
        fill(sent[r], r, 1);
    CHECK_OK(oriel_permute(world, 0, sent[0], got[0], WORDS, ORIEL_U64, some, 2));
    CHECK_OK(oriel_permute(world, 3, sent[3], sent[3], WORDS, ORIEL_U64, some, 2));
    CHECK_OK(oriel_permute(world, 2, sent[2], got[2], WORDS, ORIEL_U64, some, 2));
    CHECK_OK(oriel_permute(world, 1, sent[1], sent[1], WORDS, ORIEL_U64, some, 2));
    check_words(got[0], -1, 1);
    check_words(sent[1], 0, 1);
    check_words(got[2], -1, 1);
    check_words(sent[3], 3, 1);

    for (int r = 0; r < RANKS; r++)
        fill(sent[r], r, 2);
    CHECK_OK(oriel_permute_start(world, 1, sent[1], got[1], WORDS, ORIEL_U64, ring, 4, &request));
    CHECK_IS(ORIEL_IN_PROGRESS, oriel_request_test(request)); /* 0 is missing */
    CHECK_OK(oriel_permute(world, 2, sent[2], got[2], WORDS, ORIEL_U64, ring, 4));
    for (int i = 1; i < 3; i++)
        CHECK_OK(oriel_permute(world, order[i], sent[order[i]], got[order[i]], WORDS, ORIEL_U64,
                               ring, 4));
    CHECK_OK(oriel_request_wait(request));
    for (int r = 0; r < RANKS; r++)
        check_words(got[r], (r + RANKS - 1) % RANKS, 2);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* A gather and a reduction wait at the root alone, a scan for those before, a scatter for the
 * root; the calls are made one after the other, and none that waited would end. */
static void test_others_wait_for_what_they_need(void **state)
{
    oriel_comm *comm = comm_of(long_s);
    oriel_group *world = oriel_comm_world(comm);
    uint64_t sent[RANKS][WORDS], all[RANKS][WORDS], got[WORDS];
    oriel_request *request = NULL;

    (void)state;
    for (int r = 0; r < RANKS; r++)
        fill(sent[r], r, 1);
    CHECK_OK(oriel_gather_start(world, 2, sent[2], all, WORDS, ORIEL_U64, 2, &request));
    for (int r = 0; r < RANKS; r++) {
        CHECK_IS(ORIEL_IN_PROGRESS, r <= 2 ? oriel_request_test(request) : ORIEL_IN_PROGRESS);
        if (r != 2)
            CHECK_OK(oriel_gather(world, r, sent[r], NULL, WORDS, ORIEL_U64, 2));
    }
    CHECK_OK(oriel_request_wait(request));
    for (int r = 0; r < RANKS; r++)
        check_words(all[r], r, 1);

    for (int r = 0; r < RANKS; r++)
        CHECK_OK(oriel_scan(world, r, sent[r], all[r], WORDS, ORIEL_U64, ORIEL_MAX));
    for (int r = RANKS - 1; r >= 0; r--)
        CHECK_OK(oriel_reduce(world, r, sent[r], got, WORDS, ORIEL_U64, ORIEL_MAX, 0));
    CHECK(memcmp(got, all[RANKS - 1], sizeof got) == 0, "the last of a scan is the reduction");
    check_words(all[0], 0, 1);

    CHECK_OK(oriel_scatter_start(world, 3, NULL, got, WORDS, ORIEL_U64, 1, &request));
    CHECK_IS(ORIEL_IN_PROGRESS, oriel_request_test(request));
    CHECK_OK(oriel_scatter(world, 1, sent, sent[1], WORDS, ORIEL_U64, 1));
    CHECK_OK(oriel_scatter(world, 0, NULL, all[0], WORDS, ORIEL_U64, 1));
    CHECK_OK(oriel_request_wait(request));
    check_words(got, 3, 1);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* Fails by the timeout and names the missing rank; the others are told at their next call,
 * the missing one too. */
static void test_a_source_that_never_comes(void **state)
{
    (void)state;
    for (int permutes = 0; permutes <= 1; permutes++) {
        oriel_comm *comm = comm_of(short_s);
        oriel_group *world = oriel_comm_world(comm);
        uint64_t words[WORDS];

        if (permutes) /* needs nobody */
            CHECK_OK(oriel_permute(world, 2, words, words, WORDS, ORIEL_U64, some, 2));
        CHECK_IS(ORIEL_ERR_TIMEOUT,
                 permutes ? oriel_permute(world, 1, words, words, WORDS, ORIEL_U64, some, 2)
                          : broadcast(comm, 1, words));
        check_says(permutes ? "permute of 800 bytes" : "broadcast of 800 bytes",
                   "rank 0 (process 0)", NULL);
        CHECK(values_unpoisoned(words, WORDS, ORIEL_U64) < 0, "recv is not poisoned");
        CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
        for (int r = 0; r < RANKS; r++) {
            oriel_status st = oriel_barrier(world, r);

            CHECK(st == ORIEL_ERR_TIMEOUT || st == ORIEL_ERR_REVOKED, "rank %d: %s", r,
                  oriel_status_name(st));
            check_says("rank 0 (process 0)", NULL);
        }
        CHECK_OK(oriel_comm_destroy(comm));
    }
}

/* A receiver that never comes is missed by the root when its slots are used up. */
static void test_a_receiver_that_never_comes(void **state)
{
    oriel_comm *comm = comm_of(short_s);
    uint64_t words[WORDS];

    (void)state;
    for (unsigned call = 1; call <= LANE_SLOTS; call++) {
        fill(words, 0, call);
        CHECK_OK(broadcast(comm, 0, words));
        receive(comm, 1, call);
        receive(comm, 2, call);
    }
    CHECK_IS(ORIEL_ERR_TIMEOUT, broadcast(comm, 0, words));
    check_says("broadcast of 800 bytes", "rank 3 (process 0)", NULL);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* A source and a receiver that do not mean the same. */
static void test_different_calls(void **state)
{
    oriel_comm *comm = comm_of(long_s);
    oriel_group *world = oriel_comm_world(comm);
    uint64_t words[WORDS];

    (void)state;
    fill(words, 0, 1);
    CHECK_OK(broadcast(comm, 0, words));
    CHECK_IS(ORIEL_ERR_MISMATCH, oriel_broadcast(world, 1, words, words, WORDS - 1, ORIEL_U64, 0));
    check_says("800 bytes", "792 bytes", "rank 0", "rank 1", NULL);
    CHECK(broadcast(comm, 2, words) != ORIEL_OK, "rank 2 was not told");
    CHECK_OK(oriel_comm_destroy(comm));
}

/* A staged broadcast is decided in its cell, for all members: its root, which has all it needs
 * before the others have come there, waits for them. */
static void test_staged_root_awaits_all(void **state)
{
    enum { MANY = 20000 };
    static uint64_t words[RANKS][MANY];
    oriel_comm *comm = ranks_comm(RANKS, long_s, "ORIEL_DIRECT", "0", NULL);
    oriel_group *world = oriel_comm_world(comm);
    oriel_request *requests[RANKS];
    int done[RANKS] = {0};

    (void)state;
    world->facts.crowded = 0; /* as with a core for each: no place in the lane is large enough */
    settle(comm);
    for (int r = 0; r < RANKS; r++) {
        words[r][MANY - 1] = (uint64_t)r;
        CHECK_OK(oriel_broadcast_start(world, r, words[r], words[r], MANY, ORIEL_U64, RANKS - 1,
                                       &requests[r]));
    }
    for (int i = 0; i < 100; i++)
        CHECK_IS(ORIEL_IN_PROGRESS, oriel_request_test(requests[RANKS - 1]));
    for (int r = 0, left = RANKS; left > 0; r = (r + 1) % RANKS) {
        if (!done[r] && oriel_request_test(requests[r]) == ORIEL_OK)
            left -= done[r] = 1;
    }
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(words[r][MANY - 1], RANKS - 1);
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_root_runs_ahead),
        cmocka_unit_test(test_nobody_is_lapped),
        cmocka_unit_test(test_a_permutation_needs_its_sources),
        cmocka_unit_test(test_others_wait_for_what_they_need),
        cmocka_unit_test(test_a_source_that_never_comes),
        cmocka_unit_test(test_a_receiver_that_never_comes),
        cmocka_unit_test(test_different_calls),
        cmocka_unit_test(test_staged_root_awaits_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
