/* labels: tsan valgrind-soak */
/* Kernels by threads: the promises about order, and failures. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oriel/kernel.h"
#include "oriel/op.h"
#include "support/check.h"
#include "support/failing_sys.h"
#include "support/launch.h"
#include "support/litmus.h"
#include "support/ranks.h"
#include "support/resources.h"

enum { RANKS = 3, ROUNDS = 12, COUNT = 5 };
static const double patience_s = 60.0;

static int rounds(void)
{
    return getenv("SOAK") != NULL ? 40 * ROUNDS : ROUNDS;
}

static void end(launch *how)
{
    oriel_crew_destroy(how->crew);
    CHECK_OK(oriel_comm_destroy(how->comm));
}

static void test_litmus(void **state)
{
    static const char *const ways[][4] = {
        /* threads, jitter in microseconds, spin, more ranks than ... */
        {"4", "0", "10", NULL},
        {"4", "40", "10", NULL},
        {"1", "20", "0", NULL},
        {"7", "5", "200", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        launch how = {.comm =
                          ranks_comm(i == 3 ? 1 : RANKS, patience_s, "ORIEL_TEAM", ways[i][0],
                                     "ORIEL_JITTER", ways[i][1], "ORIEL_SPIN", ways[i][2], NULL)};

        CHECK_OK(oriel_crew_create(&how.crew));
        launch_litmus(&how, rounds());
        end(&how);
    }
}

/* ---- failures ------------------------------------------------------------------------------ */

static void copy_entry(oriel_team *team)
{
    const float *x = team->frame->buffers[0].peers[team->frame->rank];
    float *y = team->frame->buffers[1].peers[team->frame->rank];

    team->frame->calls->barrier(team);
    if (team->thread == 0)
        memcpy(y, x, COUNT * sizeof *y);
}

/* Rank 1 waits for what nobody sends. */
static void stuck_entry(oriel_team *team)
{
    if (team->frame->rank == 1)
        CHECK(team->frame->calls->wait(team, 9, 3) != 0, "nobody has signalled");
}

/* The same on one thread, while another waits long enough to say so, and gets it. */
static void busy_entry(oriel_team *team)
{
    const oriel_team_calls *calls = team->frame->calls;
    double until = oriel_now() + 0.1;

    if (team->frame->rank == 1 && team->thread == 0)
        calls->wait(team, 9, 3);
    if (team->frame->rank == 1 && team->thread == 1)
        calls->wait(team, 5, 1);
    while (team->frame->rank == 0 && oriel_now() < until)
        calls->failed(team);
    if (team->frame->rank == 0)
        calls->signal(team, 1, 5, 1);
}

static void bad_rank_entry(oriel_team *team)
{
    team->frame->calls->trouble(team, ORIEL_TROUBLE_RANK, 77);
}

struct attempt {
    launch how;
    const oriel_kernel *kernel;
    oriel_status want;
    const char *says;
    const int64_t *values;
};

static void attempt_rank(oriel_comm *comm, int rank, void *arg)
{
    const struct attempt *attempt = arg;
    float x[COUNT] = {1, 2, 3, 4, 5};
    float y[COUNT] = {0};
    kernel_buffer buffers[] = {{.data = x, .count = COUNT, .dtype = ORIEL_F32},
                               {.data = y, .count = COUNT, .dtype = ORIEL_F32}};
    oriel_status st =
        launch_kernel(&attempt->how, rank, attempt->kernel, buffers, 1, 1, attempt->values, 0);

    (void)comm;
    CHECK(st == attempt->want, "rank %d: %s: %s", rank, oriel_status_name(st), oriel_last_error());
    if (st != ORIEL_OK)
        check_says(attempt->says, NULL);
    for (int i = 0; i < COUNT; i++)
        CHECK(st == ORIEL_OK ? y[i] == x[i] : y[i] != y[i], "element %d is %g", i, (double)y[i]);
}

static void attempt_run(struct attempt *attempt, const char *name, oriel_kernel_entry entry)
{
    uint64_t hash = 1000 + (uint64_t)name[0];

    CHECK_OK(oriel_kernel_register(hash, name, entry));
    attempt->kernel = oriel_kernel_find(hash);
    ranks_run(attempt->how.comm, attempt_rank, attempt);
    attempt->how.count++;
}

static struct attempt attempt_make(double timeout_s, oriel_status want, const char *says)
{
    struct attempt attempt = {.want = want, .says = says};

    attempt.how.comm = ranks_comm(RANKS, timeout_s, "ORIEL_TEAM", "4", "ORIEL_JITTER", "0", NULL);
    CHECK_OK(oriel_crew_create(&attempt.how.crew));
    return attempt;
}

static void test_failures(void **state)
{
    static const struct {
        const char *name;
        oriel_kernel_entry entry;
        double timeout_s;
        oriel_status want;
        const char *says;
    } cases[] = {
        {"copy", copy_entry, 60.0, ORIEL_OK, NULL},
        /* Long enough for all threads to get a core and say what they wait for. */
        {"stuck", stuck_entry, 2.0, ORIEL_ERR_TIMEOUT,
         "(process 0): rank 1 waits in oriel_wait for signal 9 to reach 3, it is 0, after 2.0 s"},
        {"xbusy", busy_entry, 2.0, ORIEL_ERR_TIMEOUT,
         "rank 1 waits in oriel_wait for signal 9 to reach 3, it is 0, after 2.0 s"},
        {"bad", bad_rank_entry, 60.0, ORIEL_ERR_INVALID, "kernel bad named rank 77 of 3"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct attempt attempt = attempt_make(cases[i].timeout_s, cases[i].want, cases[i].says);

        attempt_run(&attempt, cases[i].name, cases[i].entry);
        if (cases[i].want != ORIEL_OK) { /* and so does the next call, which says why */
            attempt.want = ORIEL_ERR_REVOKED;
            attempt.says = "kernel copy(f32[5]) -> f32[5] on rank";
            attempt_run(&attempt, "copy", copy_entry);
        }
        end(&attempt.how);
    }
}

/* ---- what ranks must have alike ----------------------------------------------------------- */

struct difference {
    struct attempt attempt;
    int values, shapes;
};

static void differ_rank(oriel_comm *comm, int rank, void *arg)
{
    const struct difference *difference = arg;
    const struct attempt *attempt = &difference->attempt;
    float x[6] = {0};
    float y[6] = {0};
    int64_t value = difference->values ? rank == 1 : 0;
    int64_t rows = difference->shapes && rank == 1 ? 3 : 2;
    kernel_buffer buffers[] = {
        {.data = x, .count = 6, .dtype = ORIEL_F32, .ndim = 2, .dims = {rows, 6 / rows}},
        {.data = y, .count = 6, .dtype = ORIEL_F32, .ndim = 1, .dims = {6}}};

    (void)comm;
    CHECK_IS(ORIEL_ERR_MISMATCH,
             launch_kernel(&attempt->how, rank, attempt->kernel, buffers, 1, 1, &value, 1));
    check_says(attempt->says, NULL);
}

static void test_differences(void **state)
{
    static const char *const says[] = {"asked for kernel copy(f32[2,3]) -> f32[6] with different",
                                       "kernel copy(f32[3,2]) -> f32[6]"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct difference difference = {.values = i == 0, .shapes = i == 1};

        difference.attempt = attempt_make(patience_s, ORIEL_ERR_MISMATCH, says[i]);
        CHECK_OK(oriel_kernel_register(5002, "copy", copy_entry));
        difference.attempt.kernel = oriel_kernel_find(5002);
        ranks_run(difference.attempt.how.comm, differ_rank, &difference);
        end(&difference.attempt.how);
    }
}

/* ---- host functions ------------------------------------------------------------------------ */

static oriel_status unsure_op(oriel_call *call)
{
    return call->rank == 1 ? ORIEL_IN_PROGRESS : ORIEL_OK;
}

static void test_op_that_is_unsure(void **state)
{
    static const int64_t none;
    struct attempt attempt =
        attempt_make(patience_s, ORIEL_ERR_INVALID, "op unsure returned 1, which is no status");

    (void)state;
    attempt.values = &none;
    CHECK_OK(oriel_host_op_register(5003, "unsure", unsure_op));
    attempt.kernel = oriel_kernel_find(5003);
    ranks_run(attempt.how.comm, attempt_rank, &attempt);
    end(&attempt.how);
}

/* ---- buffers ------------------------------------------------------------------------------- */

/* XLA may put an empty array anywhere, also where another begins. */
static void test_empty_buffer(void **state)
{
    float x[COUNT] = {0};
    void *peers[] = {x};
    oriel_buffer buffers[] = {{.bytes = 0, .peers = peers}, {.bytes = sizeof x, .peers = peers}};
    oriel_frame frame = {.size = 1, .num_buffers = 2, .buffers = buffers};
    oriel_team team = {.frame = &frame, .threads = 1};
    oriel_call_buffer seen[] = {{.data = x, .peers = peers},
                                {.data = x, .bytes = sizeof x, .peers = peers}};
    oriel_call call = {.size = 1, .num_operands = 2, .operands = seen};

    (void)state;
    assert_int_equal(oriel_count(&team, x), COUNT);
    assert_ptr_equal(oriel_call_peer(&call, x + 1, 0), x + 1);
    frame.num_buffers = 1;
    call.num_operands = 1;
    assert_int_equal(oriel_count(&team, x), 0);
    assert_ptr_equal(oriel_call_peer(&call, x, 0), x);
    assert_null(oriel_call_peer(&call, x + 1, 0));
}

struct outcome {
    struct attempt attempt;
    _Atomic int succeeded;
};

static void sweep_rank(oriel_comm *comm, int rank, void *arg)
{
    struct outcome *outcome = arg;
    float x[COUNT] = {0};
    float y[COUNT] = {0};
    kernel_buffer buffers[] = {{.data = x, .count = COUNT, .dtype = ORIEL_F32},
                               {.data = y, .count = COUNT, .dtype = ORIEL_F32}};

    (void)comm;
    if (launch_kernel(&outcome->attempt.how, rank, outcome->attempt.kernel, buffers, 1, 1, NULL,
                      0) == ORIEL_OK)
        atomic_fetch_add(&outcome->succeeded, 1);
}

/* Every system call of a kernel's call fails once: on all ranks or on none, and nothing
 * is left behind. */
static void test_system_calls(void **state)
{
    int failures = 0;

    (void)state;
    CHECK_OK(oriel_kernel_register(1, "copy", copy_entry));
    for (long n = 1;; n++) {
        struct outcome outcome = {.attempt = {.kernel = oriel_kernel_find(1)}};
        const char *victim;
        long held;

        outcome.attempt.how.comm = ranks_comm(RANKS, patience_s, NULL);
        failing_sys_install();
        held = failing_sys_held();
        failing_sys_arm(n, EAGAIN);
        if (oriel_crew_create(&outcome.attempt.how.crew) == ORIEL_OK)
            ranks_run(outcome.attempt.how.comm, sweep_rank, &outcome);
        failing_sys_disarm();
        oriel_crew_destroy(outcome.attempt.how.crew);
        victim = failing_sys_victim();
        CHECK(outcome.succeeded == 0 || outcome.succeeded == RANKS, "%d succeeded without %s",
              outcome.succeeded, victim ? victim : "anything");
        CHECK(failing_sys_held() == held, "%ld held after %s failed", failing_sys_held() - held,
              victim ? victim : "nothing");
        failures += outcome.succeeded == 0;
        failing_sys_remove();
        oriel_comm_abandon(outcome.attempt.how.comm);
        if (victim == NULL)
            break;
    }
    CHECK(failures > 10, "%d failures", failures); /* the crew, 3 calls, 12 threads */
}

static void test_many(void **state)
{
    struct attempt attempt = attempt_make(60.0, ORIEL_OK, NULL);
    test_resources before;

    (void)state;
    attempt_run(&attempt, "copy", copy_entry);
    before = resources_now();
    for (int i = 0; i < 50; i++)
        attempt_run(&attempt, "copy", copy_entry);
    resources_check(before, "after 50 kernels");
    end(&attempt.how);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_litmus),       cmocka_unit_test(test_failures),
        cmocka_unit_test(test_differences),  cmocka_unit_test(test_op_that_is_unsure),
        cmocka_unit_test(test_empty_buffer), cmocka_unit_test(test_system_calls),
        cmocka_unit_test(test_many),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
