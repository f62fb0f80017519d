/* labels: tsan valgrind */
/* The doorbell: rings reach every thread that sleeps, and cost nothing when nobody
 * does. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sys.h"
#include "core/world/comm.h"
#include "support/check.h"
#include "support/ranks.h"

enum { TURNS = 5000, WAITERS = 3, MEETINGS = 2000 };
static const double long_s = 60.0;

/* The real table, with the futex calls counted. */
static oriel_sys counting;
static _Atomic int wakes;
static _Atomic int timeouts;

static void count_wake(_Atomic uint32_t *word)
{
    atomic_fetch_add(&wakes, 1);
    oriel_sys_real.futex_wake(word);
}

static int count_wait(_Atomic uint32_t *word, uint32_t expected, double seconds)
{
    int late = oriel_sys_real.futex_wait(word, expected, seconds);

    atomic_fetch_add(&timeouts, late);
    return late;
}

static int install(void **state)
{
    (void)state;
    counting = oriel_sys_real;
    counting.futex_wake = count_wake;
    counting.futex_wait = count_wait;
    oriel_sys_now = &counting;
    atomic_store(&wakes, 0);
    atomic_store(&timeouts, 0);
    return 0;
}

static int restore(void **state)
{
    (void)state;
    oriel_sys_now = &oriel_sys_real;
    return 0;
}

static heap_proc *own(const oriel_comm *comm)
{
    return &comm->heap.procs[comm->process];
}

/* Ringers read `sleepers` all the time: nothing else may dirty its line. */
static void test_sleepers_have_a_line(void **state)
{
    size_t line = offsetof(heap_proc, sleepers);

    (void)state;
    assert_int_equal(line % HEAP_LINE, 0);
    assert_true(offsetof(heap_proc, bell) < line + HEAP_LINE);
    assert_true(offsetof(heap_proc, local_ranks) < line);
    assert_int_equal(sizeof(heap_proc), line + HEAP_LINE);
}

static void test_ring_without_sleepers(void **state)
{
    oriel_comm *comm = ranks_comm(2, 10, NULL);
    uint32_t bell = atomic_load(&own(comm)->bell);

    (void)state;
    for (int i = 0; i < 10; i++) {
        oriel_comm_ring(comm, 0);
        oriel_comm_ring_all(comm);
        oriel_group_ring(comm->world);
    }
    assert_int_equal(atomic_load(&own(comm)->bell), bell);
    assert_int_equal(atomic_load(&wakes), 0);
    oriel_comm_destroy(comm);
}

static void test_announce_look_sleep(void **state)
{
    oriel_comm *comm = ranks_comm(2, 10, NULL);
    oriel_waiter waiter = {0};

    (void)state;
    assert_int_equal(oriel_waiter_sleep(comm, &waiter, long_s), 0);
    assert_int_equal(atomic_load(&own(comm)->sleepers), 1);
    oriel_comm_ring(comm, 0); /* while the waiter looks */
    assert_int_equal(atomic_load(&wakes), 1);
    assert_int_equal(oriel_waiter_sleep(comm, &waiter, long_s), 1);
    assert_int_equal(atomic_load(&own(comm)->sleepers), 0);
    assert_int_equal(atomic_load(&timeouts), 0);

    assert_int_equal(oriel_waiter_sleep(comm, &waiter, long_s), 0);
    oriel_waiter_end(comm, &waiter); /* the look found what it was for */
    assert_int_equal(atomic_load(&own(comm)->sleepers), 0);
    oriel_waiter_end(comm, &waiter);
    assert_int_equal(atomic_load(&own(comm)->sleepers), 0);
    oriel_comm_destroy(comm);
}

/* Spins, announces, sleeps, and spins again: only the looks in between need be
 * thorough. */
static void test_pause_takes_turns(void **state)
{
    oriel_comm *comm = ranks_comm(2, 10, "ORIEL_SPIN", "1000", NULL);
    oriel_waiter waiter = {0};

    (void)state;
    for (int round = 1; round <= 2; round++) {
        double start = oriel_now();

        assert_int_equal(oriel_comm_pause(comm, &waiter), 0);
        while (oriel_comm_pause(comm, &waiter) == 0)
            assert_int_equal(atomic_load(&own(comm)->sleepers), 0);
        assert_true(oriel_now() - start >= 1000e-6);
        assert_int_equal(atomic_load(&own(comm)->sleepers), 1);
        assert_int_equal(oriel_comm_pause(comm, &waiter), 1);
        assert_int_equal(atomic_load(&own(comm)->sleepers), 0);
        assert_int_equal(atomic_load(&timeouts), round);
    }
    oriel_waiter_end(comm, &waiter);
    oriel_comm_destroy(comm);
}

struct turns {
    oriel_comm *comm;
    int me; /* of 1 + WAITERS; 0 rings all */
    _Atomic int *at;
};

/* Sleeps at every turn, without a spin: a wake-up that is lost lasts a minute. */
static void wait_for(struct turns *turns, int turn)
{
    oriel_waiter waiter = {0};

    while (atomic_load_explicit(turns->at, memory_order_acquire) < turn)
        oriel_waiter_sleep(turns->comm, &waiter, long_s);
    oriel_waiter_end(turns->comm, &waiter);
}

/* The threads have every (1 + WAITERS)-th turn: all but one sleep, each waits for
 * another turn, and all on one bell. */
static void *take_turns(void *arg)
{
    struct turns *turns = arg;

    for (int turn = turns->me; turn < TURNS; turn += 1 + WAITERS) {
        wait_for(turns, turn);
        atomic_store_explicit(turns->at, turn + 1, memory_order_release);
        oriel_comm_ring(turns->comm, 0);
    }
    return NULL;
}

static void test_no_ring_is_lost(void **state)
{
    oriel_comm *comm = ranks_comm(2, 10, NULL);
    pthread_t threads[1 + WAITERS];
    struct turns turns[1 + WAITERS];
    _Atomic int at = 0;

    (void)state;
    for (int i = 0; i <= WAITERS; i++) {
        turns[i] = (struct turns){comm, i, &at};
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, &turns[i]), 0);
    }
    for (int i = 0; i <= WAITERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&at), TURNS);
    assert_int_equal(atomic_load(&timeouts), 0);
    assert_int_equal(atomic_load(&own(comm)->sleepers), 0);
    oriel_comm_destroy(comm);
}

/* A ringer and a waiter that meet at the same moment, again and again. */
struct meeting {
    oriel_comm *comm;
    _Atomic int there; /* threads that came to a meeting, in all */
    _Atomic int changed;
};

static void meet(struct meeting *meeting, int round)
{
    atomic_fetch_add(&meeting->there, 1);
    for (int i = 0; atomic_load(&meeting->there) < 2 * round; i++)
        oriel_relax(i > 1000); /* both at the same moment, unless there is no core */
}

static void *ring_at_meetings(void *arg)
{
    struct meeting *meeting = arg;

    for (int i = 0; i < MEETINGS; i++) {
        meet(meeting, 2 * i + 1);
        atomic_store_explicit(&meeting->changed, i + 1, memory_order_release);
        oriel_comm_ring(meeting->comm, 0);
        meet(meeting, 2 * i + 2);
    }
    return NULL;
}

static void test_either_sees_the_other(void **state)
{
    oriel_comm *comm = ranks_comm(2, 10, NULL);
    struct meeting meeting = {.comm = comm};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, ring_at_meetings, &meeting), 0);
    for (int i = 0; i < MEETINGS; i++) {
        int rung = atomic_load(&wakes);
        oriel_waiter waiter = {0};
        int seen;

        meet(&meeting, 2 * i + 1);
        oriel_waiter_sleep(comm, &waiter, long_s);
        seen = atomic_load_explicit(&meeting.changed, memory_order_acquire) == i + 1;
        meet(&meeting, 2 * i + 2);
        CHECK(seen || atomic_load(&wakes) > rung, "meeting %d: both went unseen", i);
        oriel_waiter_end(comm, &waiter);
    }
    pthread_join(thread, NULL);
    oriel_comm_destroy(comm);
}

static void reduce_some(oriel_comm *comm, int rank, void *arg)
{
    oriel_group *world = oriel_comm_world(comm);
    float send[4] = {1, 2, 3, 4}, recv[4], other[4];
    oriel_request *request;

    (void)arg;
    for (int i = 0; i < 200; i++) {
        CHECK_OK(
            oriel_all_reduce_start(world, rank, send, other, 4, ORIEL_F32, ORIEL_SUM, &request));
        CHECK_OK(oriel_all_reduce(world, rank, send, recv, 4, ORIEL_F32, ORIEL_SUM));
        CHECK_OK(oriel_request_wait(request));
    }
    if (rank == 0) /* the others' deadline fires */
        return;
    CHECK_IS(ORIEL_ERR_TIMEOUT, oriel_all_reduce(world, rank, send, recv, 4, ORIEL_F32, ORIEL_SUM));
}

static void test_operations_take_their_announcement_back(void **state)
{
    oriel_comm *comm = ranks_comm(3, 0.5, "ORIEL_SPIN", "0", NULL);

    (void)state;
    ranks_run(comm, reduce_some, NULL);
    assert_true(atomic_load(&wakes) + atomic_load(&timeouts) > 0); /* somebody slept */
    assert_int_equal(atomic_load(&own(comm)->sleepers), 0);
    oriel_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sleepers_have_a_line),
        cmocka_unit_test_setup_teardown(test_ring_without_sleepers, install, restore),
        cmocka_unit_test_setup_teardown(test_announce_look_sleep, install, restore),
        cmocka_unit_test_setup_teardown(test_pause_takes_turns, install, restore),
        cmocka_unit_test_setup_teardown(test_either_sees_the_other, install, restore),
        cmocka_unit_test_setup_teardown(test_no_ring_is_lost, install, restore),
        cmocka_unit_test_setup_teardown(test_operations_take_their_announcement_back, install,
                                        restore),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
