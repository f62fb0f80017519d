/* labels: tsan valgrind */
/* Two messages that are one call of XLA's: what it sends stays where it is, the call is over when
 * both are, and its outcome is that of both. One thread makes the calls of both ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/protocol/group.h"
#include "ops/host/engine.h"
#include "support/check.h"
#include "support/ranks.h"
#include "support/resources.h"
#include "support/values.h"

enum { RANKS = 2, SMALL = 8, LARGE = 100000, STEPS = 1000 };
static const double long_s = 60.0, short_s = 0.3;

/* What a rank sends and receives, and its call. */
struct end {
    uint64_t *sends, *got; /* words */
    size_t sent, received; /* how many there are */
    oriel_request *call;   /* the request that stands for both */
};

static oriel_request *begin(oriel_engine *engine, oriel_group *group, int rank, int from, int to,
                            uint64_t *words, size_t count, uint64_t nth)
{
    oriel_request *request = oriel_engine_take(engine);
    oriel_op op = {.kind = ORIEL_KIND_MESSAGE, .dtype = ORIEL_U64, .count = count};
    oriel_group *pair;
    oriel_key key = {.site = 7, .count = nth};

    CHECK(request != NULL, "no request");
    CHECK_OK(oriel_group_pair(group, rank, from, to, &pair));
    key.group = pair->hash;
    *(rank == from ? (void **)&op.send : &op.recv) = words;
    request->op = op;
    CHECK_OK(oriel_request_begin(request, pair, rank, rank == from ? 0 : 1, &key));
    return request;
}

static void end_make(struct end *end, int rank, size_t sent, size_t received)
{
    end->sent = sent;
    end->received = received;
    end->sends = malloc(sent * sizeof *end->sends);
    end->got = calloc(received, sizeof *end->got);
    CHECK(end->sends != NULL && end->got != NULL, "no memory");
    for (size_t k = 0; k < sent; k++)
        end->sends[k] = values_mix((unsigned)rank, k);
}

static void end_free(struct end *end)
{
    free(end->sends);
    free(end->got);
}

static void end_begin(struct end *end, oriel_engine *engine, oriel_group *world, int rank,
                      uint64_t nth)
{
    oriel_request *sent = begin(engine, world, rank, rank, 1 - rank, end->sends, end->sent, nth);

    end->call = begin(engine, world, rank, 1 - rank, rank, end->got, end->received, nth);
    oriel_request_pair(end->call, sent);
}

static void end_check(const struct end *end, int rank)
{
    for (size_t k = 0; k < end->received; k++)
        CHECK(end->got[k] == values_mix((unsigned)(1 - rank), k), "rank %d, word %zu", rank, k);
}

/* Of `a`, while `b` is driven as well; NULL: nothing is. */
static oriel_status until_over(oriel_request *a, oriel_request *b)
{
    oriel_status st;

    while ((st = oriel_request_step(a)) == ORIEL_IN_PROGRESS) {
        if (b != NULL && !b->ended && oriel_request_step(b) != ORIEL_IN_PROGRESS)
            b->ended = 1;
    }
    return st;
}

static void exchange(oriel_comm *comm, size_t there, size_t back)
{
    oriel_group *world = oriel_comm_world(comm);
    oriel_engine *engine;
    struct end ends[RANKS];

    CHECK_OK(oriel_engine_create(comm, &engine));
    for (uint64_t nth = 0; nth < 4; nth++) {
        int first = nth % 2; /* the other one is late */

        end_make(&ends[0], 0, there, back);
        end_make(&ends[1], 1, back, there);
        end_begin(&ends[first], engine, world, first, nth);
        for (int i = 0; i < STEPS; i++)
            CHECK_IS(ORIEL_IN_PROGRESS, oriel_request_step(ends[first].call));
        CHECK(ends[first].call->sent->kept == NULL, "what is sent was copied");
        end_begin(&ends[1 - first], engine, world, 1 - first, nth);
        while (oriel_request_step(ends[first].call) == ORIEL_IN_PROGRESS)
            oriel_request_step(ends[1 - first].call);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_OK(until_over(ends[rank].call, NULL));
        for (int rank = 0; rank < RANKS; rank++) {
            end_check(&ends[rank], rank);
            oriel_engine_give(engine, ends[rank].call);
            end_free(&ends[rank]);
        }
    }
    oriel_engine_destroy(engine, long_s);
    CHECK_OK(oriel_comm_destroy(comm));
}

static void nothing_is_copied_for_the_late(void **state)
{
    (void)state;
    exchange(ranks_comm(RANKS, long_s, NULL), SMALL, SMALL);
    exchange(ranks_comm(RANKS, long_s, NULL), LARGE, LARGE);
    exchange(ranks_comm(RANKS, long_s, NULL), LARGE, SMALL);
    exchange(ranks_comm(RANKS, long_s, "ORIEL_DIRECT", "0", NULL), LARGE, LARGE);
    exchange(ranks_comm(RANKS, long_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "4K", NULL), LARGE, 1);
}

/* ---- failures ------------------------------------------------------------------------- */

/* Rank 0 exchanges `there` for `back` words, rank 1 comes with requests of the test's own. */
static void fails(double timeout_s, size_t there, size_t back, oriel_status want,
                  oriel_request *(*other)(oriel_engine *engine, oriel_group *world,
                                          uint64_t *words),
                  const char *said)
{
    test_resources before = resources_now();
    oriel_comm *comm = ranks_comm(RANKS, timeout_s, NULL);
    oriel_group *world = oriel_comm_world(comm);
    uint64_t *words = calloc(LARGE, sizeof *words);
    oriel_engine *engine;
    oriel_request *theirs;
    struct end end;

    CHECK(words != NULL, "no memory");
    CHECK_OK(oriel_engine_create(comm, &engine));
    end_make(&end, 0, there, back);
    end_begin(&end, engine, world, 0, 0);
    theirs = other(engine, world, words);
    CHECK_IS(want, until_over(end.call, theirs));
    check_says("message of", said, NULL);
    if (theirs != NULL && !theirs->ended)
        until_over(theirs, NULL);
    oriel_engine_give(engine, end.call);
    if (theirs != NULL)
        oriel_engine_give(engine, theirs);
    oriel_engine_destroy(engine, long_s);
    CHECK_OK(oriel_comm_destroy(comm));
    end_free(&end);
    free(words);
    resources_check(before, said);
}

static oriel_request *nobody(oriel_engine *engine, oriel_group *world, uint64_t *words)
{
    (void)engine, (void)world, (void)words;
    return NULL;
}

static oriel_request *sends_another_size(oriel_engine *engine, oriel_group *world, uint64_t *words)
{
    return begin(engine, world, 1, 1, 0, words, SMALL + 1, 0);
}

static oriel_request *sends_alone(oriel_engine *engine, oriel_group *world, uint64_t *words)
{
    return begin(engine, world, 1, 1, 0, words, SMALL, 0);
}

static oriel_request *receives_alone(oriel_engine *engine, oriel_group *world, uint64_t *words)
{
    return begin(engine, world, 1, 0, 1, words, LARGE, 0);
}

static void the_outcome_is_that_of_both(void **state)
{
    (void)state;
    fails(short_s, LARGE, LARGE, ORIEL_ERR_TIMEOUT, nobody, "did not come to");
    fails(long_s, LARGE, SMALL, ORIEL_ERR_MISMATCH, sends_another_size, "72 bytes");
    /* What was received is there, what was sent is not. */
    fails(short_s, LARGE, SMALL, ORIEL_ERR_TIMEOUT, sends_alone, "did not come to receive");
    fails(short_s, LARGE, SMALL, ORIEL_ERR_TIMEOUT, receives_alone, "did not come to send");
}

/* ---- the engine ------------------------------------------------------------------------- */

static _Atomic int over;

static void count_over(oriel_request *request, oriel_status status)
{
    (void)request;
    CHECK_OK(status);
    atomic_fetch_add(&over, 1);
}

/* More than the engine has room for at first: both requests of a call come back. */
static void the_engine_takes_both_back(void **state)
{
    enum { MANY = 200 };
    oriel_comm *comm = ranks_comm(RANKS, long_s, NULL);
    oriel_engine *engine;
    oriel_request *taken[MANY];
    struct end ends[RANKS];
    double until = oriel_now() + long_s;

    (void)state;
    CHECK_OK(oriel_engine_create(comm, &engine));
    for (uint64_t nth = 0; nth < MANY; nth++) {
        atomic_store(&over, 0);
        for (int rank = 0; rank < RANKS; rank++) {
            end_make(&ends[rank], rank, SMALL, SMALL);
            end_begin(&ends[rank], engine, oriel_comm_world(comm), rank, nth);
            ends[rank].call->done = count_over;
            oriel_engine_submit(engine, ends[rank].call);
        }
        while (atomic_load(&over) < RANKS)
            CHECK(oriel_now() < until, "call %d is not over", (int)nth);
        for (int rank = 0; rank < RANKS; rank++) {
            end_check(&ends[rank], rank);
            end_free(&ends[rank]);
        }
    }
    for (int i = 0; i < MANY; i++) {
        taken[i] = oriel_engine_take(engine);
        CHECK(taken[i] != NULL, "no request");
        for (int j = 0; j < i; j++)
            CHECK(taken[j] != taken[i], "request %d is %d", i, j);
    }
    oriel_engine_destroy(engine, long_s);
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_copied_for_the_late),
        cmocka_unit_test(the_outcome_is_that_of_both),
        cmocka_unit_test(the_engine_takes_both_back),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
