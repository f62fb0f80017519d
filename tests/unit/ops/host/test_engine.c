/* labels: tsan valgrind */
/* The engine: requests it drives end once, whatever their `done` does. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "ops/host/engine.h"
#include "support/check.h"
#include "support/failing_sys.h"
#include "support/ranks.h"
#include "support/resources.h"
#include "support/values.h"

enum { RANKS = 4, OPS = 100 };
static const double patience_s = 30.0;

/* One operation: what each rank brings and gets. */
struct op {
    size_t count;
    float *send[RANKS];
    float *recv[RANKS];
    _Atomic int done; /* ranks */
};

struct work {
    oriel_engine *engine;
    int n; /* operations */
    struct op ops[OPS];
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static void op_make(struct op *op, unsigned seed)
{
    op->count = seed % 3 == 0 ? 30000 : 1 + seed % 50;
    for (int r = 0; r < RANKS; r++) {
        op->send[r] = malloc(op->count * sizeof(float));
        op->recv[r] = malloc(op->count * sizeof(float));
        values_fill(op->send[r], op->count, ORIEL_F32, ORIEL_SUM, r, seed);
    }
    atomic_store(&op->done, 0);
}

static void op_check(struct op *op, unsigned seed)
{
    static const int ids[RANKS] = {0, 1, 2, 3};

    for (int r = 0; r < RANKS; r++) {
        long wrong = values_wrong(op->recv[r], op->count, ORIEL_F32, ORIEL_SUM, ids, RANKS, seed);

        CHECK(wrong < 0, "operation %u, rank %d: element %ld", seed, r, wrong);
        free(op->send[r]);
        free(op->recv[r]);
    }
}

static struct work *work_make(oriel_comm *comm, int n)
{
    struct work *work = calloc(1, sizeof *work);

    work->n = n;
    pthread_mutex_init(&work->lock, NULL);
    pthread_cond_init(&work->changed, NULL);
    CHECK_OK(oriel_engine_create(comm, &work->engine));
    for (int i = 0; i < n; i++)
        op_make(&work->ops[i], (unsigned)i);
    return work;
}

static void submit(oriel_comm *comm, struct work *work, int i, int rank,
                   void (*done)(oriel_request *request, oriel_status status))
{
    oriel_group *world = oriel_comm_world(comm);
    oriel_key key = {.group = world->hash, .site = 7 + (uint64_t)i};
    oriel_request *request = oriel_engine_take(work->engine);
    struct op *op = &work->ops[i];
    oriel_op call = {.kind = ORIEL_KIND_ALL_REDUCE,
                     .dtype = ORIEL_F32,
                     .redop = ORIEL_SUM,
                     .send = op->send[rank],
                     .recv = op->recv[rank],
                     .count = op->count};

    CHECK(request != NULL, "no request");
    request->op = call;
    CHECK_OK(oriel_request_begin(request, world, rank, rank, &key));
    request->done = done;
    request->done_arg[0] = work;
    request->done_arg[1] = op;
    oriel_engine_submit(work->engine, request);
}

/* Waits until every rank has all its operations. */
static void await_all(struct work *work)
{
    struct timespec limit;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += (time_t)patience_s;
    pthread_mutex_lock(&work->lock);
    for (int i = 0; i < work->n; i++) {
        while (atomic_load(&work->ops[i].done) < RANKS)
            CHECK(pthread_cond_timedwait(&work->changed, &work->lock, &limit) == 0,
                  "operation %d is not done", i);
    }
    pthread_mutex_unlock(&work->lock);
}

static void work_end(struct work *work)
{
    oriel_engine_destroy(work->engine, patience_s);
    for (int i = 0; i < work->n; i++) {
        CHECK(atomic_load(&work->ops[i].done) == RANKS, "operation %d was done %d times", i,
              atomic_load(&work->ops[i].done));
        op_check(&work->ops[i], (unsigned)i);
    }
    pthread_cond_destroy(&work->changed);
    pthread_mutex_destroy(&work->lock);
    free(work);
}

static void count_done(struct work *work, struct op *op)
{
    pthread_mutex_lock(&work->lock);
    atomic_fetch_add(&op->done, 1);
    pthread_cond_broadcast(&work->changed);
    pthread_mutex_unlock(&work->lock);
}

/* ---- many, in any order ------------------------------------------------------------------ */

static void done_simply(oriel_request *request, oriel_status status)
{
    CHECK_OK(status);
    count_done(request->done_arg[0], request->done_arg[1]);
}

/* Every rank submits in an order of its own. */
static void submit_all(oriel_comm *comm, int rank, void *arg)
{
    static const int steps[RANKS] = {1, 7, 11, 99}; /* all prime to the count */
    struct work *work = arg;

    for (int i = 0; i < work->n; i++)
        submit(comm, work, (i * steps[rank] + rank) % work->n, rank, done_simply);
}

static void many_in(oriel_comm *comm)
{
    struct work *work = work_make(comm, OPS);

    ranks_run(comm, submit_all, work);
    await_all(work);
    work_end(work);
    CHECK_OK(oriel_comm_destroy(comm));
}

static void test_many(void **state)
{
    test_resources before = resources_now();

    (void)state;
    many_in(ranks_comm(RANKS, patience_s, NULL));
    many_in(ranks_comm(RANKS, patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "4K", NULL));
    /* 2 blocks and a channel per rank for 100 operations in flight */
    many_in(ranks_comm(RANKS, patience_s, "ORIEL_DIRECT", "0", "ORIEL_STAGING", "256K", NULL));
    resources_check(before, "after the engines");
}

/* ---- done that waits ------------------------------------------------------------------------ */

enum { CHAIN = 12 };

/* Ends only after the next operation is done on all ranks, as the rest of a
 * program may. */
static void done_after_next(oriel_request *request, oriel_status status)
{
    struct work *work = request->done_arg[0];
    struct op *op = request->done_arg[1];
    struct timespec limit;

    CHECK_OK(status);
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += (time_t)patience_s;
    pthread_mutex_lock(&work->lock);
    while (op < &work->ops[work->n - 1] && atomic_load(&op[1].done) < RANKS)
        CHECK(pthread_cond_timedwait(&work->changed, &work->lock, &limit) == 0,
              "operation %d is not done", (int)(op - work->ops) + 1);
    pthread_mutex_unlock(&work->lock);
    count_done(work, op);
}

static void submit_chain(oriel_comm *comm, int rank, void *arg)
{
    struct work *work = arg;

    for (int i = 0; i < work->n; i++)
        submit(comm, work, i, rank, done_after_next);
}

static void test_done_that_waits(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, patience_s, NULL);
    struct work *work = work_make(comm, CHAIN);

    (void)state;
    ranks_run(comm, submit_chain, work);
    await_all(work);
    work_end(work);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* `done` submits the next one itself, on its own thread. */
static void done_submits(oriel_request *request, oriel_status status)
{
    struct work *work = request->done_arg[0];
    struct op *op = request->done_arg[1];
    int next = (int)(op - work->ops) + 1;

    CHECK_OK(status);
    if (next < work->n)
        submit(request->comm, work, next, request->rank, done_submits);
    count_done(work, op);
}

static void submit_first(oriel_comm *comm, int rank, void *arg)
{
    submit(comm, arg, 0, rank, done_submits);
}

static void test_done_that_submits(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, patience_s, NULL);
    struct work *work = work_make(comm, OPS);

    (void)state;
    ranks_run(comm, submit_first, work);
    await_all(work);
    work_end(work);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* ---- the end ------------------------------------------------------------------------------- */

static _Atomic int failed_count;

static void done_failed(oriel_request *request, oriel_status status)
{
    (void)request;
    CHECK(status != ORIEL_OK && status != ORIEL_IN_PROGRESS, "%s", oriel_status_name(status));
    CHECK(strstr(oriel_last_error(), "all_reduce") != NULL, "\"%s\"", oriel_last_error());
    atomic_fetch_add(&failed_count, 1);
}

/* Rank 3 never comes; the engine ends all the same, and every request with it. */
static void test_destroy_pending(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, patience_s, NULL);
    struct work *work = work_make(comm, CHAIN);
    double begun = oriel_now();

    (void)state;
    atomic_store(&failed_count, 0);
    for (int i = 0; i < CHAIN; i++) {
        for (int r = 0; r < RANKS - 1; r++)
            submit(comm, work, i, r, done_failed);
    }
    oriel_engine_destroy(work->engine, 0.05);
    assert_int_equal(atomic_load(&failed_count), CHAIN * (RANKS - 1));
    CHECK(oriel_now() - begun < patience_s / 2, "%g s", oriel_now() - begun);
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    for (int i = 0; i < CHAIN; i++) {
        for (int r = 0; r < RANKS; r++) {
            free(work->ops[i].send[r]);
            free(work->ops[i].recv[r]);
        }
    }
    pthread_cond_destroy(&work->changed);
    pthread_mutex_destroy(&work->lock);
    free(work);
    CHECK_OK(oriel_comm_destroy(comm));
}

static void test_destroy_idle(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, patience_s, NULL);
    oriel_engine *engine = NULL;
    test_resources before = resources_now();

    (void)state;
    oriel_engine_destroy(NULL, 1.0);
    for (int i = 0; i < 50; i++) {
        CHECK_OK(oriel_engine_create(comm, &engine));
        oriel_engine_destroy(engine, 1.0);
    }
    resources_check(before, "after 50 engines");
    CHECK_OK(oriel_comm_destroy(comm));
}

/* ---- requests ----------------------------------------------------------------------------- */

static void test_requests(void **state)
{
    enum { MANY = 300 };
    oriel_comm *comm = ranks_comm(RANKS, patience_s, NULL);
    oriel_engine *engine = NULL;
    oriel_request *taken[MANY];

    (void)state;
    CHECK_OK(oriel_engine_create(comm, &engine));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            taken[i] = oriel_engine_take(engine);
            assert_non_null(taken[i]);
            memset(taken[i], 0xee, sizeof *taken[i]); /* distinct: none overlaps another */
            taken[i]->rank = i;
            taken[i]->sent = NULL; /* it is no sendrecv */
        }
        for (int i = 0; i < MANY; i++) {
            assert_int_equal(taken[i]->rank, i);
            oriel_engine_give(engine, taken[i]);
        }
    }
    oriel_engine_destroy(engine, 1.0);
    CHECK_OK(oriel_comm_destroy(comm));
}

static void test_no_memory(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, patience_s, NULL);
    oriel_engine *engine = (oriel_engine *)comm;

    (void)state;
    failing_sys_install();
    failing_sys_arm(1, ENOMEM);
    CHECK_IS(ORIEL_ERR_SYSTEM, oriel_engine_create(comm, &engine));
    assert_ptr_equal(engine, comm);
    CHECK_OK(oriel_engine_create(comm, &engine));
    failing_sys_arm(1, ENOMEM);
    assert_null(oriel_engine_take(engine));
    assert_non_null(oriel_engine_take(engine));
    oriel_engine_destroy(engine, 1.0);
    assert_int_equal(failing_sys_held(), 0);
    failing_sys_remove();
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_done_that_waits),
        cmocka_unit_test(test_done_that_submits),
        cmocka_unit_test(test_destroy_pending),
        cmocka_unit_test(test_destroy_idle),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_no_memory),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
