/* labels: tsan valgrind */
/* Ranks of one process that come late, never, or with something else: which is told
 * what, and that nobody's memory is touched afterwards. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sys.h"
#include "core/protocol/cell.h"
#include "core/world/trace.h"
#include "ops/host/request.h"
#include "support/check.h"
#include "support/family.h"
#include "support/ranks.h"

enum { RANKS = 3, LATE = 2, REFILL = 0x77 };
static const double soon_s = 0.4;
static const double patience_s = 60.0;

/* ---- late ------------------------------------------------------------------------------- */

struct late {
    pthread_barrier_t begin;
    pthread_barrier_t failed; /* all but the late one have failed ... */
    pthread_barrier_t came;   /* ... and the late one has come after all */
    size_t count;
    int give_back; /* free the buffers instead of looking at them */
};

static void punctual(oriel_comm *comm, int rank, struct late *late)
{
    size_t bytes = late->count * sizeof(float);
    unsigned char *send = malloc(bytes);
    unsigned char *recv = malloc(bytes);
    char own[32];
    char size[32];

    values_fill(send, late->count, ORIEL_F32, ORIEL_SUM, rank, 0);
    pthread_barrier_wait(&late->begin);
    CHECK_IS(ORIEL_ERR_TIMEOUT, oriel_all_reduce(oriel_comm_world(comm), rank, send, recv,
                                                 late->count, ORIEL_F32, ORIEL_SUM));
    snprintf(own, sizeof own, "on rank %d", rank);
    snprintf(size, sizeof size, "%zu bytes", bytes);
    check_says("all_reduce", own, size, "rank 2", "did not come", NULL);
    CHECK(values_unpoisoned(recv, late->count, ORIEL_F32) < 0, "recv is not poisoned");
    CHECK(values_wrong(send, late->count, ORIEL_F32, ORIEL_SUM, &rank, 1, 0) < 0, "send changed");

    if (late->give_back) {
        free(send);
        free(recv);
    } else {
        memset(send, REFILL, bytes);
        memset(recv, REFILL, bytes);
    }
    pthread_barrier_wait(&late->failed);
    pthread_barrier_wait(&late->came);
    if (late->give_back)
        return;
    for (size_t i = 0; i < bytes; i++)
        CHECK(send[i] == REFILL && recv[i] == REFILL, "rank %d: byte %zu was touched", rank, i);
    free(send);
    free(recv);
}

static void late_body(oriel_comm *comm, int rank, void *arg)
{
    struct late *late = arg;
    test_buffer buffer;
    double begun;

    if (rank != LATE) {
        punctual(comm, rank, late);
        return;
    }
    buffer = buffer_make(late->count * sizeof(float), 0);
    pthread_barrier_wait(&late->begin);
    pthread_barrier_wait(&late->failed);
    begun = oriel_now();
    CHECK_IS(ORIEL_ERR_TIMEOUT, oriel_all_reduce(oriel_comm_world(comm), rank, buffer.data,
                                                 buffer.data, late->count, ORIEL_F32, ORIEL_SUM));
    CHECK(oriel_now() - begun < patience_s / 2, "a revoked comm took %g s", oriel_now() - begun);
    CHECK(oriel_last_error()[0] != '\0', "no sentence");
    CHECK(values_unpoisoned(buffer.data, late->count, ORIEL_F32) < 0, "recv is not poisoned");
    pthread_barrier_wait(&late->came);
    buffer_free(&buffer);
}

static void late_in(oriel_comm *comm, size_t count, int give_back)
{
    struct late late = {.count = count, .give_back = give_back};

    pthread_barrier_init(&late.begin, NULL, RANKS);
    pthread_barrier_init(&late.failed, NULL, RANKS);
    pthread_barrier_init(&late.came, NULL, RANKS);
    ranks_run(comm, late_body, &late);
    pthread_barrier_destroy(&late.begin);
    pthread_barrier_destroy(&late.failed);
    pthread_barrier_destroy(&late.came);
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    check_says("rank 2", NULL);
    assert_int_not_equal(oriel_comm_barrier(comm), ORIEL_OK);
    CHECK_OK(oriel_comm_destroy(comm));
}

static void test_late(void **state)
{
    (void)state;
    for (int give_back = 0; give_back < 2; give_back++) {
        late_in(ranks_comm(RANKS, soon_s, NULL), 100000, give_back); /* direct */
        late_in(ranks_comm(RANKS, soon_s, "ORIEL_DIRECT", "0", NULL), 100000, give_back);
        late_in(ranks_comm(RANKS, soon_s, "ORIEL_DIRECT", "0", NULL), 100, give_back); /* eager */
    }
}

/* Comes, and then does nothing more: of the others only those that need it fail. */
static void stuck_body(oriel_comm *comm, int rank, void *arg)
{
    struct late *late = arg;
    size_t bytes = late->count * sizeof(float);
    test_buffer send = buffer_make(bytes, 0);
    test_buffer recv = buffer_make(bytes, 0);
    oriel_request *request = NULL;

    if (rank == LATE) {
        CHECK_OK(oriel_all_reduce_start(oriel_comm_world(comm), rank, send.data, recv.data,
                                        late->count, ORIEL_F32, ORIEL_SUM, &request));
        pthread_barrier_wait(&late->failed);
        CHECK_IS(ORIEL_ERR_TIMEOUT, oriel_request_wait(request));
    } else {
        CHECK_IS(ORIEL_ERR_TIMEOUT, oriel_all_reduce(oriel_comm_world(comm), rank, send.data,
                                                     recv.data, late->count, ORIEL_F32, ORIEL_SUM));
        check_says("rank 2", NULL);
        pthread_barrier_wait(&late->failed);
    }
    CHECK(values_unpoisoned(recv.data, late->count, ORIEL_F32) < 0, "recv is not poisoned");
    buffer_free(&send);
    buffer_free(&recv);
}

static void test_stuck_after_arrival(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, soon_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "4K", NULL);
    struct late late = {.count = 100000};

    (void)state;
    pthread_barrier_init(&late.failed, NULL, RANKS);
    ranks_run(comm, stuck_body, &late);
    pthread_barrier_destroy(&late.failed);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* ---- a peer in the middle of a copy ------------------------------------------------------- */

struct drain {
    oriel_comm *comm;
    _Atomic int returned;
};

static void *drain_main(void *arg)
{
    struct drain *drain = arg;
    float buffer[16] = {0};

    CHECK_IS(ORIEL_ERR_TIMEOUT, oriel_all_reduce(oriel_comm_world(drain->comm), 0, buffer, buffer,
                                                 16, ORIEL_F32, ORIEL_SUM));
    atomic_store(&drain->returned, 1);
    return NULL;
}

/* The cell of rank 0's first call, once it is there. */
static heap_cell *find_cell(oriel_comm *comm)
{
    oriel_group *world = oriel_comm_world(comm);
    oriel_key key = {.group = world->hash};
    double limit = oriel_now() + patience_s;
    heap_cell *cell = NULL;
    oriel_op op = {.kind = ORIEL_KIND_ALL_REDUCE, .count = 16, .dtype = ORIEL_F32};
    oriel_record record;

    oriel_op_describe(world, &op, &record);
    record.mode = ORIEL_MODE_DIRECT;
    while (cell == NULL || oriel_cell_look(cell).arrived == 0) {
        CHECK(oriel_now() < limit, "rank 0 never came");
        if (atomic_load(&comm->heap.ranks[0].traced) > 0)
            oriel_cell_enter(world, 1, 1, &key, &record, &cell);
        oriel_relax(1);
    }
    return cell;
}

/* Rank 0's deadline fires while somebody touches its buffers: it revokes the
 * operation at once, and returns only after the other has let go. */
static void test_peer_in_the_middle(void **state)
{
    struct drain drain = {.comm = ranks_comm(2, soon_s, NULL)};
    heap_cell *cell;
    pthread_t thread;
    double until;

    (void)state;
    CHECK(pthread_create(&thread, NULL, drain_main, &drain) == 0, "no thread");
    cell = find_cell(drain.comm);
    CHECK(oriel_cell_claim(cell), "revoked too early");
    until = oriel_now() + patience_s;
    while (!oriel_cell_look(cell).revoked)
        CHECK(oriel_now() < until, "the deadline never came");
    for (until = oriel_now() + 0.2; oriel_now() < until; oriel_relax(1))
        CHECK(!atomic_load(&drain.returned), "returned while its buffers were in use");
    oriel_cell_release(cell);
    pthread_join(thread, NULL);
    CHECK_OK(oriel_comm_destroy(drain.comm));
}

/* A peer has done its part of a staged operation and then loses it before it is
 * counted as finished: a rank that is done with all data must not be done. */
static void test_peer_almost_done(void **state)
{
    oriel_comm *comm = ranks_comm(2, patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "4K", NULL);
    oriel_group *world = oriel_comm_world(comm);
    oriel_key key = {.group = world->hash};
    test_buffer buffer = buffer_make(100000, 0);
    oriel_request *request = NULL;
    heap_cell *cell = NULL;
    heap_member *peer;
    oriel_op op = {.kind = ORIEL_KIND_ALL_REDUCE, .count = 100000, .dtype = ORIEL_U8};
    oriel_record record;

    (void)state;
    oriel_op_describe(world, &op, &record);
    record.mode = ORIEL_MODE_STAGED;
    CHECK_OK(oriel_all_reduce_start(world, 0, buffer.data, buffer.data, 100000, ORIEL_U8, ORIEL_SUM,
                                    &request));
    CHECK_OK(oriel_cell_enter(world, 1, 1, &key, &record, &cell));
    peer = &oriel_heap_members(&comm->heap, cell)[1];
    atomic_store(&peer->published, UINT32_MAX);
    atomic_store(&peer->reduced, UINT32_MAX);
    atomic_store(&peer->gathered, UINT32_MAX);
    CHECK(oriel_cell_arrive(world, cell, 1), "revoked too early");
    for (int i = 0; i < 100; i++)
        CHECK_IS(ORIEL_IN_PROGRESS, oriel_request_test(request));
    CHECK(oriel_cell_look(cell).finished == 1, "%u", oriel_cell_look(cell).finished);
    CHECK(oriel_cell_revoke(cell), "committed without the peer");
    CHECK(oriel_request_test(request) != ORIEL_OK, "done without the peer");
    CHECK(values_unpoisoned(buffer.data, 100000, ORIEL_U8) < 0, "recv is not poisoned");
    buffer_free(&buffer);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* ---- what a failure leaves ----------------------------------------------------------------- */

static void poison_body(oriel_comm *comm, int rank, void *arg)
{
    oriel_dtype dtype = *(const oriel_dtype *)arg;
    test_buffer buffer = buffer_make(33 * oriel_dtype_size(dtype), 1);

    if (rank == 0) {
        CHECK_IS(ORIEL_ERR_TIMEOUT, oriel_all_reduce(oriel_comm_world(comm), 0, buffer.data,
                                                     buffer.data, 33, dtype, ORIEL_MAX));
        CHECK(values_unpoisoned(buffer.data, 33, dtype) < 0, "%s is not poisoned",
              oriel_dtype_name(dtype));
    }
    buffer_free(&buffer);
}

static void test_poison(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < ORIEL_DTYPE_COUNT; dtype++) {
        oriel_comm *comm = ranks_comm(2, 0.005, "ORIEL_DIRECT", dtype % 2 ? "1" : "0", NULL);
        oriel_dtype given = (oriel_dtype)dtype;

        ranks_run(comm, poison_body, &given);
        CHECK_OK(oriel_comm_destroy(comm));
    }
}

/* After the first failure every call fails at once, also on other groups and
 * windows; a new comm works. */
static void fail_then_more(oriel_comm *comm, int rank, void *arg)
{
    oriel_group *pair = arg;
    float x = 1;
    float y = 0;

    if (rank == LATE)
        return;
    CHECK_IS(ORIEL_ERR_TIMEOUT,
             oriel_all_reduce(oriel_comm_world(comm), rank, &x, &y, 1, ORIEL_F32, ORIEL_SUM));
    for (int i = 0; i < 20; i++) {
        CHECK_IS(ORIEL_ERR_REVOKED, oriel_all_reduce(pair, rank, &x, &y, 1, ORIEL_F32, ORIEL_SUM));
        CHECK(x == 1 && y != y, "send %g, recv %g", x, y);
    }
}

static void good_body(oriel_comm *comm, int rank, void *arg)
{
    family_call call = {
        .kind = ORIEL_KIND_ALL_REDUCE, .dtype = ORIEL_F32, .op = ORIEL_SUM, .count = 1000};

    (void)arg;
    family_check(oriel_comm_world(comm), rank, &call);
}

static void test_revoked(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, soon_s, NULL);
    oriel_comm *next;
    oriel_group *pair = NULL;
    oriel_window *window = NULL;
    oriel_window *none = NULL;

    (void)state;
    CHECK_OK(oriel_group_create(comm, (int[]){1, 0}, 2, &pair));
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), 64, &window));
    ranks_run(comm, fail_then_more, pair);
    assert_int_not_equal(oriel_window_create(oriel_comm_world(comm), 64, &none), ORIEL_OK);
    assert_null(none);
    assert_int_not_equal(oriel_comm_barrier(comm), ORIEL_OK);
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    next = ranks_comm(RANKS, patience_s, NULL);
    ranks_run(next, good_body, NULL);
    CHECK_OK(oriel_comm_destroy(comm));
    ranks_run(next, good_body, NULL);
    CHECK_OK(oriel_comm_destroy(next));
}

/* ---- different calls --------------------------------------------------------------------------
 */

struct different {
    size_t count;
    oriel_dtype dtype;
    oriel_redop op;
    const char *says;
};

static void different_body(oriel_comm *comm, int rank, void *arg)
{
    const struct different *different = arg;
    size_t count = rank == 1 ? different->count : 50000;
    oriel_dtype dtype = rank == 1 ? different->dtype : ORIEL_F32;
    oriel_redop op = rank == 1 ? different->op : ORIEL_SUM;
    test_buffer buffer = buffer_make(count * oriel_dtype_size(dtype), 0);
    char own[32];

    snprintf(own, sizeof own, "on rank %d", rank);
    CHECK_IS(ORIEL_ERR_MISMATCH, oriel_all_reduce(oriel_comm_world(comm), rank, buffer.data,
                                                  buffer.data, count, dtype, op));
    check_says(own, "rank 1", "sum of 200000 bytes of f32", different->says, NULL);
    CHECK(values_unpoisoned(buffer.data, count, dtype) < 0, "recv is not poisoned");
    buffer_free(&buffer);
}

static void test_different(void **state)
{
    static const struct different cases[] = {
        {49999, ORIEL_F32, ORIEL_SUM, "sum of 199996 bytes of f32"},
        {0, ORIEL_F32, ORIEL_SUM, "sum of 0 bytes of f32"},
        {1, ORIEL_F32, ORIEL_SUM, "sum of 4 bytes of f32"},
        {50000, ORIEL_S32, ORIEL_SUM, "sum of 200000 bytes of s32"},
        {50000, ORIEL_F32, ORIEL_MAX, "max of 200000 bytes of f32"},
        {12500, ORIEL_C128, ORIEL_PROD, "prod of 200000 bytes of c128"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int direct = 0; direct < 2; direct++) {
            struct different different = cases[i];
            oriel_comm *comm =
                ranks_comm(RANKS, patience_s, "ORIEL_DIRECT", direct ? "1" : "0", NULL);
            double begun = oriel_now();

            ranks_run(comm, different_body, &different);
            CHECK(oriel_now() - begun < patience_s / 2, "case %zu took %g s", i,
                  oriel_now() - begun);
            CHECK_OK(oriel_comm_destroy(comm));
        }
    }
}

/* ---- the same end for all -----------------------------------------------------------------------
 */

struct contest {
    unsigned seed;
    size_t count;
    double deadline_s;
    oriel_status outcome[4];
};

static void contest_body(oriel_comm *comm, int rank, void *arg)
{
    struct contest *contest = arg;
    uint64_t luck = values_mix(contest->seed, 77);
    size_t bytes = contest->count * sizeof(float);
    test_buffer send = buffer_make(bytes, 0);
    test_buffer recv = buffer_make(bytes, 0);
    double until = 0.0;
    long wrong;

    values_fill(send.data, contest->count, ORIEL_F32, ORIEL_SUM, rank, contest->seed);
    if ((int)(luck % 4) == rank) /* comes around the others' deadline */
        until = oriel_now() + contest->deadline_s * (0.7 + (double)(luck / 4 % 1000) / 1666.0);
    while (oriel_now() < until)
        oriel_relax(1);
    contest->outcome[rank] = oriel_all_reduce(oriel_comm_world(comm), rank, send.data, recv.data,
                                              contest->count, ORIEL_F32, ORIEL_SUM);
    if (contest->outcome[rank] == ORIEL_OK)
        wrong = values_wrong(recv.data, contest->count, ORIEL_F32, ORIEL_SUM, (int[]){0, 1, 2, 3},
                             4, contest->seed);
    else
        wrong = values_unpoisoned(recv.data, contest->count, ORIEL_F32);
    CHECK(wrong < 0, "rank %d, %s: element %ld", rank, oriel_status_name(contest->outcome[rank]),
          wrong);
    buffer_free(&send);
    buffer_free(&recv);
}

static void test_same_end(void **state)
{
    static const size_t counts[] = {10, 40000, 40000};
    int rounds = getenv("SOAK") ? 2000 : 90;
    int good = 0;

    (void)state;
    for (int i = 0; i < rounds; i++) {
        struct contest contest = {.seed = (unsigned)i, .deadline_s = 0.02};
        oriel_comm *comm;

        contest.count = counts[i % 3];
        comm = ranks_comm(4, contest.deadline_s, "ORIEL_DIRECT", i % 3 == 2 ? "1" : "0",
                          "ORIEL_CHUNK", "4K", NULL);
        ranks_run(comm, contest_body, &contest);
        for (int r = 1; r < 4; r++)
            CHECK((contest.outcome[r] == ORIEL_OK) == (contest.outcome[0] == ORIEL_OK),
                  "seed %d, count %zu: %s on rank 0, %s on rank %d", i, contest.count,
                  oriel_status_name(contest.outcome[0]), oriel_status_name(contest.outcome[r]), r);
        good += contest.outcome[0] == ORIEL_OK;
        CHECK_OK(oriel_comm_destroy(comm));
    }
    print_message("%d of %d succeeded\n", good, rounds);
}

/* ---- the warning -------------------------------------------------------------------------------
 */

static void warn_body(oriel_comm *comm, int rank, void *arg)
{
    float x = 1;

    (void)arg;
    if (rank == 0)
        CHECK_IS(ORIEL_ERR_TIMEOUT,
                 oriel_all_reduce(oriel_comm_world(comm), 0, &x, &x, 1, ORIEL_F32, ORIEL_SUM));
}

static void test_warning(void **state)
{
    oriel_comm *comm = ranks_comm(2, 0.3, "ORIEL_WARN_AFTER", "0.05", NULL);
    int log_fd = memfd_create("log", MFD_CLOEXEC);
    int stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    char log[8192];
    ssize_t n;

    (void)state;
    ranks_run(comm, good_body, NULL);
    dup2(log_fd, STDERR_FILENO);
    ranks_run(comm, warn_body, NULL);
    dup2(stderr_fd, STDERR_FILENO);
    n = pread(log_fd, log, sizeof log - 1, 0);
    log[n > 0 ? n : 0] = '\0';
    CHECK(strstr(log, "rank 0 waits for rank 1") != NULL, "the log is \"%s\"", log);
    CHECK(strstr(log, "all_reduce") != NULL, "the log is \"%s\"", log);
    CHECK(strstr(log, "last operation was all_reduce #1 of 4000 bytes") != NULL,
          "the log is \"%s\"", log);
    close(stderr_fd);
    close(log_fd);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* A process that is stopped while it enters its cell keeps the others out of theirs, also
 * one that is no member. */
static void test_stopped_at_the_door(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, soon_s, NULL);
    static const int two[] = {0, 1};
    oriel_group *group = NULL;
    float x = 1;

    (void)state;
    CHECK_OK(oriel_group_create(comm, two, 2, &group));
    for (int b = 0; b < HEAP_BUCKETS; b++)
        atomic_store(&comm->heap.buckets[b].lock, LATE + 1);
    CHECK_IS(ORIEL_ERR_TIMEOUT, oriel_all_reduce(group, 0, &x, &x, 1, ORIEL_F32, ORIEL_SUM));
    check_says("rank 2 (process 0) did not come", NULL);
    for (int b = 0; b < HEAP_BUCKETS; b++)
        atomic_store(&comm->heap.buckets[b].lock, 0);
    oriel_group_destroy(group);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* A rank that is in many calls has its last one in its trace, which may be over. */
static void test_nobody_waits_for_itself(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, soon_s, NULL);
    const oriel_record record = {.kind = ORIEL_KIND_BARRIER, .n = RANKS};
    heap_trace *waits = oriel_trace_add(comm, 1, 0, &record, TRACE_ARRIVED);

    (void)state;
    oriel_trace_add(comm, 0, 0, &record, TRACE_DONE);
    oriel_trace_wait(waits, 0, oriel_now());
    assert_int_equal(oriel_trace_culprit(comm, 1, 2), 0);
    assert_int_equal(oriel_trace_culprit(comm, 1, 0), 1);
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_stuck_after_arrival),
        cmocka_unit_test(test_peer_in_the_middle),
        cmocka_unit_test(test_peer_almost_done),
        cmocka_unit_test(test_poison),
        cmocka_unit_test(test_revoked),
        cmocka_unit_test(test_different),
        cmocka_unit_test(test_same_end),
        cmocka_unit_test(test_warning),
        cmocka_unit_test(test_stopped_at_the_door),
        cmocka_unit_test(test_nobody_waits_for_itself),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
