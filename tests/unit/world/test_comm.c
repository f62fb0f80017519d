/* labels: tsan valgrind */
/* The comm of one process: parameters, what it leaves behind, and every system
 * call of its creation failing once. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sys.h"
#include "core/start/meeting.h"
#include "core/world/comm.h"
#include "support/check.h"
#include "support/failing_sys.h"
#include "support/family.h"
#include "support/ranks.h"
#include "support/resources.h"

static const double patience_s = 30.0;

static oriel_comm_params params_of(int process_id, int num_processes, int local_ranks)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;

    params.process_id = process_id;
    params.num_processes = num_processes;
    params.local_ranks = local_ranks;
    return params;
}

/* A fresh name for a store. */
static const char *fresh_store(void)
{
    static char name[64];
    static int count;

    snprintf(name, sizeof name, "unix:@oriel-test-comm-%d-%d", (int)getpid(), count++);
    return name;
}

static void refuse(const oriel_comm_params *params, oriel_status want, const char *says)
{
    oriel_comm *comm = (oriel_comm *)(uintptr_t)params;

    CHECK_IS(want, oriel_comm_create(params, &comm));
    check_says(says, NULL);
    assert_ptr_equal(comm, params);
}

/* ---- parameters -------------------------------------------------------------------- */

static void test_bad_params(void **state)
{
    static const struct {
        int process_id, num_processes, local_ranks;
        double timeout_s;
        const char *says;
    } bad[] = {
        {0, -1, 1, 1.0, "num_processes is -1"},
        {0, 1 << 20, 1, 1.0, "num_processes is 1048576"},
        {-2, 1, 1, 1.0, "process_id is -2"},
        {1, 1, 1, 1.0, "process_id is 1"},
        {5, 2, 1, 1.0, "process_id is 5"},
        {0, 1, -3, 1.0, "local_ranks is -3"},
        {0, 1, 1 << 20, 1.0, "local_ranks is 1048576"},
        {0, 1, 1, -1.0, "timeout_s is -1"},
        {0, 1, 1, NAN, "timeout_s is"},
    };
    test_resources before = resources_now();

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        oriel_comm_params params =
            params_of(bad[i].process_id, bad[i].num_processes, bad[i].local_ranks);

        params.timeout_s = bad[i].timeout_s;
        refuse(&params, ORIEL_ERR_INVALID, bad[i].says);
    }
    resources_check(before, "after refused parameters");
}

static void test_struct_sizes(void **state)
{
    oriel_comm_params params = params_of(0, 1, 1);
    oriel_store kv = ORIEL_STORE_INIT;

    (void)state;
    for (size_t size = 0; size < 3 * sizeof params; size += 8) {
        params.struct_size = size;
        if (size != sizeof params)
            refuse(&params, ORIEL_ERR_INVALID, "struct_size is");
    }
    params.struct_size = SIZE_MAX;
    refuse(&params, ORIEL_ERR_INVALID, "18446744073709551615");
    params = params_of(0, 2, 1);
    params.kv = &kv; /* without set and get */
    refuse(&params, ORIEL_ERR_INVALID, "kv");
    kv.struct_size = 3;
    refuse(&params, ORIEL_ERR_INVALID, "kv");
}

static void test_nulls(void **state)
{
    (void)state;
    CHECK_IS(ORIEL_ERR_INVALID, oriel_comm_create(NULL, NULL));
    check_says("comm_p is NULL", NULL);
    CHECK_OK(oriel_comm_destroy(NULL));
    oriel_comm_abandon(NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_comm_check(NULL));
    CHECK_IS(ORIEL_ERR_INVALID, oriel_comm_barrier(NULL));
    check_says("comm is NULL", NULL);
    assert_int_equal(oriel_comm_size(NULL), 0);
    assert_int_equal(oriel_comm_first_rank(NULL), -1);
    assert_int_equal(oriel_comm_local_size(NULL), 0);
    assert_int_equal(oriel_comm_process(NULL), -1);
    assert_int_equal(oriel_comm_num_processes(NULL), 0);
}

/* Options that make no sense are refused by name, before anything is made. */
static void test_bad_options(void **state)
{
    static const char *const bad[][2] = {
        {"ORIEL_TIMEOUT", "soon"}, {"ORIEL_TIMEOUT", "-1"},   {"ORIEL_STAGING", "1"},
        {"ORIEL_STAGING", "1e30"}, {"ORIEL_CHUNK", "1"},      {"ORIEL_CHUNK", "64G"},
        {"ORIEL_DIRECT", "yes"},   {"ORIEL_PROCESS_ID", "x"}, {"ORIEL_NUM_PROCESSES", "0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv(bad[i][0], bad[i][1], 1);
        refuse(NULL, ORIEL_ERR_INVALID, bad[i][0]);
        check_says(bad[i][1], NULL);
        unsetenv(bad[i][0]);
    }
}

/* ---- a world of one process ----------------------------------------------------------- */

static void test_alone(void **state)
{
    oriel_comm *comm = NULL;
    float in[3] = {1, 2, 3};
    float out[3] = {0};

    (void)state;
    CHECK_OK(oriel_comm_create(NULL, &comm));
    assert_int_equal(oriel_comm_size(comm), 1);
    assert_int_equal(oriel_comm_first_rank(comm), 0);
    assert_int_equal(oriel_comm_local_size(comm), 1);
    assert_int_equal(oriel_comm_process(comm), 0);
    assert_int_equal(oriel_comm_num_processes(comm), 1);
    assert_int_equal(oriel_group_size(oriel_comm_world(comm)), 1);
    CHECK_OK(oriel_comm_barrier(comm));
    CHECK_OK(oriel_comm_check(comm));
    CHECK_OK(oriel_all_reduce(oriel_comm_world(comm), 0, in, out, 3, ORIEL_F32, ORIEL_SUM));
    assert_memory_equal(in, out, sizeof in);
    CHECK_OK(oriel_comm_destroy(comm));
}

static void one_call(oriel_comm *comm, int rank, void *arg)
{
    family_call call = {
        .kind = ORIEL_KIND_ALL_REDUCE, .dtype = ORIEL_F32, .op = ORIEL_SUM, .count = 1000};

    (void)arg;
    family_check(oriel_comm_world(comm), rank, &call);
}

static void test_many_ranks(void **state)
{
    oriel_comm *comm = ranks_comm(7, patience_s, NULL);
    oriel_comm *large = ranks_comm(1024, patience_s, "ORIEL_STAGING", "1M", NULL);
    oriel_comm_params params = params_of(0, 1, 1025);

    (void)state;
    assert_int_equal(oriel_comm_size(comm), 7);
    assert_int_equal(oriel_comm_local_size(comm), 7);
    assert_int_equal(oriel_comm_num_processes(comm), 1);
    ranks_run(comm, one_call, NULL);
    CHECK_OK(oriel_comm_destroy(comm));
    assert_int_equal(oriel_comm_size(large), 1024);
    CHECK_OK(oriel_comm_destroy(large));
    refuse(&params, ORIEL_ERR_INVALID, "1025");
}

/* Several at once in one process, each a world of its own. */
static void test_several_comms(void **state)
{
    oriel_comm *comms[5];

    (void)state;
    for (int i = 0; i < 5; i++)
        comms[i] = ranks_comm(i + 1, patience_s, NULL);
    for (int i = 4; i >= 0; i--)
        ranks_run(comms[i], one_call, NULL);
    CHECK_OK(oriel_comm_destroy(comms[2]));
    ranks_run(comms[1], one_call, NULL);
    ranks_run(comms[3], one_call, NULL);
    for (int i = 0; i < 5; i++) {
        if (i != 2)
            CHECK_OK(oriel_comm_destroy(comms[i]));
    }
}

static void test_nothing_left(void **state)
{
    test_resources before = resources_now();

    (void)state;
    for (int i = 0; i < 200; i++) {
        oriel_comm *comm = ranks_comm(2, patience_s, "ORIEL_STAGING", "256K", NULL);

        if (i % 50 == 0)
            ranks_run(comm, one_call, NULL);
        if (i % 2)
            oriel_comm_abandon(comm);
        else
            CHECK_OK(oriel_comm_destroy(comm));
    }
    resources_check(before, "after 200 comms");
}

/* What was started and not waited for goes with the comm. */
static void test_abandon_in_flight(void **state)
{
    float x[2][8] = {{0}};
    test_resources before = resources_now();

    (void)state;
    for (int i = 0; i < 2; i++) {
        oriel_comm *comm = ranks_comm(2, patience_s, "ORIEL_DIRECT", i ? "1" : "0", NULL);
        oriel_request *request = NULL;

        CHECK_OK(oriel_all_reduce_start(oriel_comm_world(comm), 0, x[0], x[1], 8, ORIEL_F32,
                                        ORIEL_SUM, &request));
        CHECK_IS(ORIEL_IN_PROGRESS, oriel_request_test(request));
        oriel_comm_abandon(comm);
    }
    resources_check(before, "after an abandoned operation");
}

/* ---- no peers -------------------------------------------------------------------------- */

static void test_no_store(void **state)
{
    oriel_comm_params params = params_of(0, 2, 1);

    (void)state;
    refuse(&params, ORIEL_ERR_INVALID, "store");
    check_says("num_processes is 2", "oriel run", "ORIEL_STORE", NULL);
    params.process_id = 1;
    refuse(&params, ORIEL_ERR_INVALID, "store");
}

static void test_bad_stores(void **state)
{
    static const char *const bad[] = {"nonsense",    "unix:", "unix:/tmp/x",     "unix:@",
                                      "127.0.0.1:0", "host:", "127.0.0.1:99999", "127.0.0.1:x"};
    oriel_comm_params params = params_of(0, 2, 1);

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double begun = oriel_now();

        params.store = bad[i];
        params.secret = "s";
        params.process_id = (int)i % 2;
        refuse(&params, ORIEL_ERR_INVALID, bad[i]);
        CHECK(oriel_now() - begun < patience_s, "%s took %g s", bad[i], oriel_now() - begun);
    }
    params.process_id = 0;
    params.store = "127.0.0.1:0";
    params.secret = "";
    refuse(&params, ORIEL_ERR_INVALID, "secret");
}

/* Nobody else comes: an error in time that names the missing process. */
static void test_peer_never_comes(void **state)
{
    oriel_comm_params params = params_of(0, 3, 1);
    test_resources before = resources_now();
    double begun;

    (void)state;
    setenv("ORIEL_INIT_TIMEOUT", "0.2", 1);
    params.store = fresh_store();
    begun = oriel_now();
    refuse(&params, ORIEL_ERR_TIMEOUT, "process 1");
    check_says("ORIEL_INIT_TIMEOUT", NULL);
    CHECK(oriel_now() - begun < patience_s, "%g s", oriel_now() - begun);
    resources_check(before, "after a missing peer");

    params.process_id = 2;
    begun = oriel_now();
    refuse(&params, ORIEL_ERR_TIMEOUT, "process 0");
    CHECK(oriel_now() - begun < patience_s, "%g s", oriel_now() - begun);
    unsetenv("ORIEL_INIT_TIMEOUT");
    resources_check(before, "after a missing lead");
}

/* ---- a store of the caller ------------------------------------------------------------- */

struct bad_kv {
    oriel_status set, get;
    size_t extra; /* bytes it claims beyond the capacity */
    unsigned seed;
    int lead; /* process 0 has begun the first meeting, and nobody said how it ended */
    int calls;
};

static oriel_status bad_set(void *ctx, const char *key, const void *value, size_t len)
{
    struct bad_kv *kv = ctx;

    CHECK(key != NULL && value != NULL && len > 0, "%p %p %zu", (const void *)key, value, len);
    kv->calls++;
    return kv->set;
}

static oriel_status bad_get(void *ctx, const char *key, double timeout_s, void *value,
                            size_t capacity, size_t *len_p)
{
    struct bad_kv *kv = ctx;
    const oriel_hello lead = {.version = ORIEL_VERSION_STRING, .num_processes = 2};

    CHECK(key != NULL && timeout_s >= 0, "timeout %g", timeout_s);
    kv->calls++;
    *len_p = capacity + kv->extra;
    if (kv->lead && strcmp(key, "oriel/0/hello/0") == 0) {
        memcpy(value, &lead, sizeof lead);
        return ORIEL_OK;
    }
    if (kv->lead && (strstr(key, "hello") != NULL || strstr(key, "outcome") != NULL))
        return ORIEL_ERR_TIMEOUT;
    for (size_t i = 0; i < capacity; i++)
        ((unsigned char *)value)[i] = kv->seed ? (unsigned char)values_mix(i, kv->seed) : 0;
    return kv->get;
}

/* Whatever the caller's store does: a status, no crash, nothing left. */
static void test_bad_kv(void **state)
{
    static const struct {
        struct bad_kv kv;
        int process;
        oriel_status want;
    } cases[] = {
        {{.set = ORIEL_ERR_PEER, .get = ORIEL_ERR_TIMEOUT}, 1, ORIEL_ERR_PEER},
        {{.get = ORIEL_ERR_SYSTEM}, 0, ORIEL_ERR_SYSTEM},
        {{.get = ORIEL_ERR_TIMEOUT}, 0, ORIEL_ERR_TIMEOUT},
        {{.get = ORIEL_ERR_TIMEOUT, .lead = 1}, 1, ORIEL_ERR_TIMEOUT},
        {{.extra = 1}, 0, ORIEL_ERR_MISMATCH},
        {{.extra = 1}, 1, ORIEL_ERR_MISMATCH},
        {{.extra = (size_t)-1}, 0, ORIEL_ERR_MISMATCH},
        {{.seed = 0}, 0, ORIEL_ERR_MISMATCH}, /* whatever is asked for is there */
        {{.seed = 5}, 1, ORIEL_ERR_MISMATCH},
        {{.seed = 0, .lead = 1}, 1, ORIEL_ERR_INVALID}, /* zeros: an empty ticket */
    };
    test_resources before = resources_now();

    (void)state;
    setenv("ORIEL_INIT_TIMEOUT", "0.1", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bad_kv ctx = cases[i].kv;
        oriel_store kv = ORIEL_STORE_INIT;
        oriel_comm_params params = params_of(cases[i].process, 2, 1);
        oriel_comm *comm = NULL;

        kv.ctx = &ctx;
        kv.set = bad_set;
        kv.get = bad_get;
        params.kv = &kv;
        CHECK_IS(cases[i].want, oriel_comm_create(&params, &comm));
        assert_null(comm);
        assert_true(oriel_last_error()[0] != '\0' && ctx.calls > 0);
    }
    for (unsigned seed = 1; seed < 40; seed++) { /* garbage where the plan should be */
        struct bad_kv ctx = {.seed = seed, .lead = 1};
        oriel_store kv = {sizeof kv, &ctx, bad_set, bad_get};
        oriel_comm_params params = params_of(1, 2, 1);
        oriel_comm *comm = NULL;

        params.kv = &kv;
        assert_true(oriel_comm_create(&params, &comm) != ORIEL_OK);
        assert_null(comm);
    }
    unsetenv("ORIEL_INIT_TIMEOUT");
    resources_check(before, "after bad stores");
}

/* ---- every call fails once --------------------------------------------------------------- */

static const int errors[] = {ENOMEM, EMFILE, EINTR};

/* Fails call N of `work`, then N+1, until none is left to fail. */
static void fail_each(oriel_status (*work)(void), const char *what)
{
    test_resources before = resources_now();
    int failures = 0;

    for (long n = 1;; n++) {
        oriel_status st;
        const char *victim;

        failing_sys_arm(n, errors[n % 3]);
        st = work();
        victim = failing_sys_victim();
        failing_sys_arm(0, 0);
        if (victim == NULL) {
            CHECK_OK(st);
            break;
        }
        CHECK(st != ORIEL_OK && st != ORIEL_IN_PROGRESS, "%s: call %ld (%s) failed unnoticed", what,
              n, victim);
        CHECK(oriel_last_error()[0] != '\0', "%s: call %ld (%s): no sentence", what, n, victim);
        CHECK(failing_sys_held() == 0, "%s: call %ld (%s): %ld left", what, n, victim,
              failing_sys_held());
        failures++;
    }
    CHECK(failures > 0, "%s calls nothing", what);
    CHECK(failing_sys_held() == 0, "%s: %ld left", what, failing_sys_held());
    resources_check(before, what);
}

static oriel_status create_destroy(void)
{
    oriel_comm_params params = params_of(0, 1, 3);
    oriel_comm *comm = NULL;
    oriel_status st = oriel_comm_create(&params, &comm);

    return st == ORIEL_OK ? oriel_comm_destroy(comm) : st;
}

/* A group of one rank, so that one thread can do it all. */
static oriel_status use(oriel_comm *comm)
{
    oriel_group *group = NULL;
    oriel_window *window = NULL;
    oriel_request *request = NULL;
    float x[2] = {1, 2};
    oriel_status st = oriel_group_create(comm, (int[]){1}, 1, &group);

    if (st == ORIEL_OK)
        st = oriel_window_create(oriel_comm_world(comm), 100, &window);
    if (st == ORIEL_OK)
        st = oriel_all_reduce_start(group, 1, x, x + 1, 1, ORIEL_F32, ORIEL_SUM, &request);
    if (st == ORIEL_OK)
        st = oriel_request_wait(request);
    oriel_window_free(window);
    oriel_group_destroy(group);
    return st;
}

static oriel_status create_use_destroy(void)
{
    oriel_comm_params params = params_of(0, 1, 3);
    oriel_comm *comm = NULL;
    oriel_status st = oriel_comm_create(&params, &comm);

    if (st != ORIEL_OK)
        return st;
    st = use(comm);
    if (st != ORIEL_OK)
        CHECK_OK(oriel_comm_check(comm)); /* a local failure revokes nothing */
    CHECK_OK(oriel_comm_destroy(comm));
    return st;
}

static void test_failing_calls(void **state)
{
    (void)state;
    failing_sys_install();
    fail_each(create_destroy, "comm_create");
    fail_each(create_use_destroy, "group, window and request");
    failing_sys_remove();
}

static oriel_status read_own(oriel_comm *comm)
{
    char from[] = "what is read";
    char to[sizeof from] = "";
    oriel_status st = oriel_reads_copy(comm, 0, to, from, sizeof from);

    assert_true(st != ORIEL_OK || memcmp(to, from, sizeof from) == 0);
    return st;
}

static oriel_robust robust;

static void *hold_and_end(void *comm)
{
    oriel_reads_hold_robust(comm, &robust);
    CHECK_OK(read_own(comm));
    return NULL;
}

static void *hold_and_drop(void *comm)
{
    oriel_reads_hold_robust(comm, &robust);
    oriel_reads_drop_robust(comm, &robust);
    return NULL;
}

/* Another process may have the pid by now: the token tells, or a thread that is still there. */
static void test_pid_of_another(void **state)
{
    oriel_comm *comm = ranks_comm(1, patience_s, NULL);
    _Atomic uint32_t *watcher = &comm->heap.procs[0].watcher;
    pthread_t thread;

    (void)state;
    CHECK_OK(read_own(comm));
    comm->token++;
    assert_int_equal(read_own(comm), ORIEL_ERR_PEER);
    CHECK(strstr(oriel_last_error(), "is not process 0 any more") != NULL, "%s",
          oriel_last_error());
    assert_int_equal(pthread_create(&thread, NULL, hold_and_end, comm), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(watcher), FUTEX_OWNER_DIED); /* the system has said so */
    assert_int_equal(read_own(comm), ORIEL_ERR_PEER);
    assert_int_equal(pthread_create(&thread, NULL, hold_and_drop, comm), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(watcher), 0);
    comm->token--;
    CHECK_OK(read_own(comm));
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_params),
        cmocka_unit_test(test_struct_sizes),
        cmocka_unit_test(test_nulls),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_several_comms),
        cmocka_unit_test(test_nothing_left),
        cmocka_unit_test(test_abandon_in_flight),
        cmocka_unit_test(test_no_store),
        cmocka_unit_test(test_bad_stores),
        cmocka_unit_test(test_peer_never_comes),
        cmocka_unit_test(test_bad_kv),
        cmocka_unit_test(test_pid_of_another),
        cmocka_unit_test(test_failing_calls),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
