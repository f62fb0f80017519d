/* labels: tsan valgrind */
/* The protocol of one operation, step by step and in every order: see
 * docs/protocol.md for what the steps mean. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/sys.h"
#include "core/protocol/cell.h"
#include "core/world/trace.h"
#include "support/check.h"
#include "support/ranks.h"
#include "support/values.h"

enum { RANKS = 4 };
static const double patience_s = 30.0;

static oriel_record record_of(enum oriel_mode mode, uint64_t bytes)
{
    return (oriel_record){.bytes = bytes,
                          .n = RANKS,
                          .kind = ORIEL_KIND_ALL_REDUCE,
                          .dtype = ORIEL_F32,
                          .redop = ORIEL_SUM,
                          .mode = (uint8_t)mode};
}

/* As docs/protocol.md has it. */
static int is_committed(const heap_cell *cell)
{
    cell_view seen = oriel_cell_look(cell);

    return (cell->record.mode == ORIEL_MODE_EAGER ? seen.arrived : seen.finished) == RANKS;
}

static oriel_key key_of(const oriel_group *group, uint64_t count)
{
    return (oriel_key){.group = group->hash, .count = count};
}

static heap_cell *enter(oriel_group *group, int rank, enum oriel_mode mode, uint64_t count)
{
    oriel_record record = record_of(mode, 64);
    oriel_key key = key_of(group, count);
    heap_cell *cell = NULL;

    CHECK_OK(oriel_cell_enter(group, rank, rank, &key, &record, &cell));
    return cell;
}

static oriel_status try_enter(oriel_group *group, int rank, const oriel_record *record,
                              uint64_t count, heap_cell **cell_p)
{
    oriel_key key = key_of(group, count);

    return oriel_cell_enter(group, rank, rank, &key, record, cell_p);
}

/* Blocks and channels that are taken, over all ranks. */
static int taken(const oriel_comm *comm)
{
    int n = 0;

    for (int r = 0; r < comm->size; r++) {
        for (int w = 0; w < HEAP_BLOCK_WORDS; w++)
            n += __builtin_popcountll(atomic_load(&comm->heap.pool[r].blocks[w]));
        n += __builtin_popcountll(atomic_load(&comm->heap.pool[r].channels));
    }
    return n;
}

static int cells_used(const oriel_comm *comm)
{
    int n = 0;

    for (int b = 0; b < HEAP_BUCKETS; b++)
        n += __builtin_popcount(comm->heap.buckets[b].used);
    return n;
}

static void nothing_held(oriel_comm *comm)
{
    assert_int_equal(taken(comm), 0);
    assert_int_equal(cells_used(comm), 0);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* ---- the good way -------------------------------------------------------------------- */

static void test_eager(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, patience_s, NULL);
    oriel_group *group = oriel_comm_world(comm);
    heap_cell *cell = NULL;

    (void)state;
    for (int r = RANKS - 1; r >= 0; r--) {
        heap_cell *found = enter(group, r, ORIEL_MODE_EAGER, 0);

        assert_true(cell == NULL || cell == found);
        cell = found;
        assert_int_equal(oriel_cell_missing(group, cell), 0);
        assert_false(is_committed(cell));
        assert_int_equal(oriel_cell_arrive(group, cell, r), 1);
    }
    assert_true(is_committed(cell));
    assert_int_equal(oriel_cell_missing(group, cell), -1);
    assert_int_equal(oriel_cell_revoke(cell), 0); /* too late to fail */
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(cells_used(comm), 1);
        oriel_cell_leave(group, cell);
    }
    nothing_held(comm);
}

static void test_staged_and_direct(void **state)
{
    static const enum oriel_mode modes[] = {ORIEL_MODE_STAGED, ORIEL_MODE_DIRECT};
    oriel_comm *comm = ranks_comm(RANKS, patience_s, NULL);
    oriel_group *group = oriel_comm_world(comm);

    (void)state;
    for (int m = 0; m < 2; m++) {
        heap_cell *cell = NULL;

        for (int r = 0; r < RANKS; r++) {
            cell = enter(group, r, modes[m], 9);
            assert_int_equal(oriel_cell_arrive(group, cell, r), 1);
        }
        assert_int_equal(oriel_cell_look(cell).arrived, RANKS);
        assert_false(is_committed(cell)); /* arriving is not enough here */
        assert_int_equal(oriel_cell_claim(cell), 1);
        assert_int_equal(oriel_cell_look(cell).active, 1);
        oriel_cell_release(cell);
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(oriel_cell_finish(cell, 1), 1);
        assert_true(is_committed(cell));
        assert_int_equal(oriel_cell_revoke(cell), 0);
        for (int r = 0; r < RANKS; r++)
            oriel_cell_leave(group, cell);
    }
    nothing_held(comm);
}

/* ---- failure --------------------------------------------------------------------------- */

/* After a revocation nobody arrives, claims or finishes any more. */
static void test_revoke(void **state)
{
    static const enum oriel_mode modes[] = {ORIEL_MODE_EAGER, ORIEL_MODE_STAGED, ORIEL_MODE_DIRECT};
    oriel_comm *comm = ranks_comm(RANKS, patience_s, NULL);
    oriel_group *group = oriel_comm_world(comm);

    (void)state;
    for (int m = 0; m < 3; m++) {
        heap_cell *cell = enter(group, 0, modes[m], (uint64_t)m);

        assert_int_equal(oriel_cell_arrive(group, cell, 0), 1);
        assert_int_equal(oriel_cell_revoke(cell), 1);
        assert_int_equal(oriel_cell_revoke(cell), 1);
        assert_ptr_equal(enter(group, 1, modes[m], (uint64_t)m), cell);
        assert_int_equal(oriel_cell_arrive(group, cell, 1), 0);
        assert_int_equal(oriel_cell_claim(cell), 0);
        assert_int_equal(oriel_cell_finish(cell, RANKS), 0);
        assert_false(is_committed(cell));
        assert_true(oriel_cell_look(cell).revoked);
        assert_false(oriel_cell_look(cell).mismatch);
        oriel_cell_drain(cell); /* nobody is active: returns */
    }
    CHECK_OK(oriel_comm_destroy(comm));
}

static void test_mismatch(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, patience_s, NULL);
    oriel_group *group = oriel_comm_world(comm);
    oriel_record first = record_of(ORIEL_MODE_EAGER, 64);
    oriel_record others[] = {first, first, first, first};

    (void)state;
    others[0].bytes = 68;
    others[1].dtype = ORIEL_S32;
    others[2].redop = ORIEL_MAX;
    others[3].call = 2;
    for (uint64_t k = 0; k < 4; k++) {
        heap_cell *cell = NULL;
        heap_cell *found = NULL;

        CHECK_OK(try_enter(group, 2, &first, k, &cell));
        assert_int_equal(oriel_cell_arrive(group, cell, 2), 1);
        assert_int_equal(try_enter(group, 1, &others[k], k, &found), ORIEL_ERR_MISMATCH);
        assert_ptr_equal(found, cell);
        assert_true(oriel_cell_look(cell).revoked && oriel_cell_look(cell).mismatch);
        assert_int_equal(cell->record_rank, 2);
        assert_int_equal(cell->second_rank, 1);
        assert_memory_equal(&cell->second, &others[k], sizeof first);
        /* A third opinion does not replace the second. */
        first.bytes = 72;
        assert_int_equal(try_enter(group, 0, &first, k, &found), ORIEL_ERR_MISMATCH);
        assert_int_equal(cell->second_rank, 1);
        first.bytes = 64;
    }
    CHECK_OK(oriel_comm_destroy(comm));
}

/* ---- one key again ----------------------------------------------------------------------- */

/* The key comes again before all have left its first use: a member that was there waits,
 * whatever it brings this time. */
static void test_same_key_again(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, patience_s, NULL);
    oriel_group *group = oriel_comm_world(comm);
    oriel_record same = record_of(ORIEL_MODE_EAGER, 64);
    oriel_record other = record_of(ORIEL_MODE_EAGER, 4);
    heap_cell *cell = NULL;
    heap_cell *again = NULL;

    (void)state;
    for (int r = 0; r < RANKS; r++) {
        cell = enter(group, r, ORIEL_MODE_EAGER, 5);
        oriel_cell_arrive(group, cell, r);
        assert_int_equal(try_enter(group, r, &same, 5, &again), ORIEL_IN_PROGRESS);
        assert_int_equal(try_enter(group, r, &other, 5, &again), ORIEL_IN_PROGRESS);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(try_enter(group, 0, &other, 5, &again), ORIEL_IN_PROGRESS);
        oriel_cell_leave(group, cell);
    }
    assert_false(oriel_cell_look(cell).revoked);
    CHECK_OK(try_enter(group, 0, &other, 5, &again));
    assert_int_equal(oriel_cell_look(again).arrived, 0);
    assert_int_equal(oriel_cell_missing(group, again), 0);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* ---- full tables --------------------------------------------------------------------------- */

static void leave_all(oriel_group *group, heap_cell *cell)
{
    for (int r = 0; r < RANKS; r++)
        oriel_cell_leave(group, cell);
}

/* A full pool turns newcomers away and takes them in again afterwards. */
static void test_full_pool(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, patience_s, "ORIEL_STAGING", "256K", NULL);
    oriel_group *group = oriel_comm_world(comm);
    uint64_t blocks = comm->heap.header->num_blocks;
    oriel_record record = record_of(ORIEL_MODE_EAGER, 64);
    oriel_record large = record_of(ORIEL_MODE_STAGED, 1 << 20);
    heap_cell *cells[64];
    heap_cell *more = NULL;

    (void)state;
    assert_true(blocks < 60);
    for (uint64_t k = 0; k < blocks; k++)
        CHECK_OK(try_enter(group, 0, &record, k, &cells[k]));
    assert_int_equal(try_enter(group, 0, &record, blocks, &more), ORIEL_IN_PROGRESS);
    assert_int_equal(try_enter(group, 0, &large, blocks, &more), ORIEL_IN_PROGRESS);
    CHECK_OK(try_enter(group, 1, &record, blocks, &more)); /* has a pool of its own */
    CHECK_OK(try_enter(group, 0, &record, blocks, &more)); /* and this one is there now */
    leave_all(group, cells[0]);
    CHECK_OK(try_enter(group, 0, &record, blocks + 1, &cells[0]));
    for (uint64_t k = 0; k < blocks; k++)
        leave_all(group, cells[k]);
    leave_all(group, more);
    nothing_held(comm);
}

/* Without a channel the block is given back too. */
static void test_full_channels(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, patience_s, "ORIEL_STAGING", "256K", NULL);
    oriel_group *group = oriel_comm_world(comm);
    oriel_record large = record_of(ORIEL_MODE_STAGED, 1 << 20);
    heap_cell *first = NULL;
    heap_cell *second = NULL;

    (void)state;
    assert_int_equal(comm->heap.header->num_channels, 1);
    CHECK_OK(try_enter(group, 0, &large, 0, &first));
    assert_int_equal(taken(comm), 2);
    for (int i = 0; i < 100; i++)
        assert_int_equal(try_enter(group, 0, &large, 1, &second), ORIEL_IN_PROGRESS);
    assert_int_equal(taken(comm), 2);
    leave_all(group, first);
    CHECK_OK(try_enter(group, 0, &large, 1, &second));
    leave_all(group, second);
    nothing_held(comm);
}

/* More operations than all ways of all buckets: some wait, none is lost. */
static void test_full_buckets(void **state)
{
    enum { MANY = 6000 };
    oriel_comm *comm = ranks_comm(RANKS, patience_s, "ORIEL_STAGING", "400M", NULL);
    oriel_group *group = oriel_comm_world(comm);
    oriel_record record = record_of(ORIEL_MODE_EAGER, 64);
    heap_cell **cells = calloc(MANY, sizeof *cells);
    int entered = 0;

    (void)state;
    for (uint64_t k = 0; k < MANY; k++) {
        heap_cell *cell = NULL;
        oriel_status st = try_enter(group, (int)(k % RANKS), &record, k, &cell);

        CHECK(st == ORIEL_OK || st == ORIEL_IN_PROGRESS, "%s", oriel_status_name(st));
        if (st != ORIEL_OK)
            continue;
        for (int i = entered - 1; i >= 0 && i > entered - 50; i--)
            CHECK(cells[i] != cell, "two operations share a cell");
        cells[entered++] = cell;
    }
    assert_int_equal(cells_used(comm), entered);
    assert_true(entered < MANY);
    for (int i = 0; i < entered; i++)
        leave_all(group, cells[i]);
    free(cells);
    nothing_held(comm);
}

/* ---- agreement --------------------------------------------------------------------------- */

enum { ROUNDS = 2000 };

struct contest {
    pthread_barrier_t start;
    enum oriel_mode mode;
    int succeeded[ROUNDS][RANKS];
};

/* Each member arrives and finishes, or loses patience after a random number of
 * looks; whatever happens, all come to the same end. */
static int take_part(oriel_group *group, heap_cell *cell, int rank, enum oriel_mode mode,
                     uint64_t luck)
{
    int looks = luck % 4 == 0 ? (int)(luck / 4 % 16) : INT32_MAX;

    if (!oriel_cell_arrive(group, cell, rank))
        return 0;
    while (oriel_cell_look(cell).arrived < RANKS) {
        if (oriel_cell_look(cell).revoked)
            return 0;
        if (looks-- == 0 && oriel_cell_revoke(cell))
            return 0;
        oriel_relax(1);
    }
    if (mode != ORIEL_MODE_EAGER && !oriel_cell_finish(cell, 1))
        return 0;
    while (!is_committed(cell)) {
        if (oriel_cell_look(cell).revoked)
            return 0;
        if (looks-- == 0 && oriel_cell_revoke(cell))
            return 0;
        oriel_relax(1);
    }
    return 1;
}

static void contest_body(oriel_comm *comm, int rank, void *arg)
{
    struct contest *contest = arg;
    oriel_group *group = oriel_comm_world(comm);

    for (int round = 0; round < ROUNDS; round++) {
        oriel_record record = record_of(contest->mode, 64);
        heap_cell *cell = NULL;

        pthread_barrier_wait(&contest->start);
        while (try_enter(group, rank, &record, (uint64_t)round, &cell) == ORIEL_IN_PROGRESS) {
        }
        contest->succeeded[round][rank] = take_part(group, cell, rank, contest->mode,
                                                    values_mix((uint64_t)round, (uint64_t)rank));
        pthread_barrier_wait(&contest->start);
        /* A revoked cell is never freed; here it is, to have room for all rounds. */
        oriel_cell_leave(group, cell);
    }
}

static void test_agreement(void **state)
{
    static const enum oriel_mode modes[] = {ORIEL_MODE_EAGER, ORIEL_MODE_STAGED};
    struct contest *contest = calloc(1, sizeof *contest);

    (void)state;
    for (int m = 0; m < 2; m++) {
        oriel_comm *comm = ranks_comm(RANKS, patience_s, NULL);
        int good = 0;

        contest->mode = modes[m];
        pthread_barrier_init(&contest->start, NULL, RANKS);
        ranks_run(comm, contest_body, contest);
        pthread_barrier_destroy(&contest->start);
        for (int round = 0; round < ROUNDS; round++) {
            for (int r = 1; r < RANKS; r++)
                CHECK(contest->succeeded[round][r] == contest->succeeded[round][0],
                      "round %d, mode %d: rank %d and rank 0 disagree", round, modes[m], r);
            good += contest->succeeded[round][0];
        }
        CHECK(good > 0 && good < ROUNDS, "%d of %d succeeded: not a contest", good, ROUNDS);
        nothing_held(comm);
    }
    free(contest);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eager),          cmocka_unit_test(test_staged_and_direct),
        cmocka_unit_test(test_revoke),         cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_same_key_again), cmocka_unit_test(test_full_pool),
        cmocka_unit_test(test_full_channels),  cmocka_unit_test(test_full_buckets),
        cmocka_unit_test(test_agreement),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
