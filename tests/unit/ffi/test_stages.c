/* The stages of a call in hand-made frames, with a driver that does nothing: what a graph that XLA
 * has captured, and replays without execute, may do; and which locks an execution takes. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/device/fabric.h"
#include "ffi/ffi.h"
#include "ffi/site.h"
#include "support/check.h"
#include "support/failing_sys.h"
#include "support/gpu/fakes.h"
#include "support/ranks.h"

/* ---- locks -------------------------------------------------------------------------------------
 */

static _Atomic int read_locks;             /* taken, of any kind */
static const pthread_mutex_t *groups_lock; /* of the comm */
static _Atomic int group_looks;            /* how often that was taken */

/* Instead of the C library's. */
int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    int (*real)(pthread_rwlock_t *);

    *(void **)&real = dlsym(RTLD_NEXT, "pthread_rwlock_rdlock");
    read_locks++;
    return real(lock);
}

int pthread_mutex_lock(pthread_mutex_t *lock)
{
    int (*real)(pthread_mutex_t *);

    *(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    if (lock == groups_lock)
        group_looks++;
    return real(lock);
}

/* ---- a driver ---------------------------------------------------------------------------------
 */

static cu_driver driver;
static int captures; /* whether streams are being captured */
static int touches;  /* of the GPU */

static cu_result stream_captured(cu_stream stream, int *captured)
{
    (void)stream;
    *captured = captures;
    return CU_OK;
}

static cu_result context_push(cu_context context)
{
    (void)context;
    touches++;
    return CU_OK;
}

static int open_driver(void **state)
{
    (void)state;
    if (fakes_open() == NULL)
        return -1;
    driver = *oriel_cu;
    driver.stream_captured = stream_captured;
    driver.context_push = context_push;
    oriel_cu = &driver;
    return 0;
}

/* ---- XLA --------------------------------------------------------------------------------------
 */

static char said[256];
static void *site; /* what XLA keeps for the program */

static xla_error *error_create(xla_error_args *args)
{
    snprintf(said, sizeof said, "%s", args->message);
    return (xla_error *)said;
}

static xla_error *state_set(xla_state_args *args)
{
    site = args->state;
    return NULL;
}

static xla_error *state_get(xla_state_args *args)
{
    args->state = site;
    return NULL;
}

static xla_error *ordinal_get(xla_ordinal_args *args)
{
    args->ordinal = 0;
    return NULL;
}

static xla_error *stream_get(xla_stream_args *args)
{
    args->stream = &driver;
    return NULL;
}

static xla_error *run_id_get(xla_run_id_args *args)
{
    static int64_t runs;

    args->run_id = ++runs;
    return NULL;
}

static const xla_api api = {.struct_size = sizeof api,
                            .error_create = error_create,
                            .stream_get = stream_get,
                            .state_set = state_set,
                            .state_get = state_get,
                            .run_id_get = run_id_get,
                            .ordinal_get = ordinal_get};

static int borrows; /* whether the call may borrow XLA's communicator */
static int newer;   /* by how much the version of the attributes is not the library's */

/* A barrier of one rank, of which XLA runs one stage. */
static void *run(void *(*stage)(xla_frame *))
{
    static const char *const texts[] = {"version", "kind",       "name",   "program",
                                        "world",   "group_size", "groups", "places"};
    int64_t values[] = {oriel_ffi_version + newer, ORIEL_KIND_BARRIER, 7, 1, 1, 1, 0, 0};
    enum { ATTRS = sizeof values / sizeof *values, SCALARS = ATTRS - 2 };
    xla_array arrays[ATTRS];
    xla_scalar scalars[ATTRS];
    xla_span spans[ATTRS];
    xla_span *names[ATTRS];
    void *items[ATTRS];
    int types[ATTRS];
    xla_frame frame = {.struct_size = sizeof frame, .api = &api, .ctx = (xla_context *)&driver};

    for (int i = 0; i < ATTRS; i++) {
        scalars[i] = (xla_scalar){.dtype = XLA_S64, .value = &values[i]};
        arrays[i] = (xla_array){.dtype = XLA_S64, .size = 1, .data = &values[i]};
        spans[i] = (xla_span){.ptr = texts[i], .len = strlen(texts[i])};
        names[i] = &spans[i];
        items[i] = i < SCALARS ? (void *)&scalars[i] : &arrays[i];
        types[i] = i < SCALARS ? XLA_ATTR_SCALAR : XLA_ATTR_ARRAY;
    }
    frame.attrs = (xla_attrs){
        .size = borrows ? ATTRS : ATTRS - 1, .types = types, .names = names, .items = items};
    return stage(&frame);
}

/* The read locks that a stage takes, which must go well. */
static int locks_of(void *(*stage)(xla_frame *))
{
    read_locks = group_looks = 0;
    assert_null(run(stage));
    return read_locks;
}

static void compile(void)
{
    assert_null(run(oriel_ffi_cuda_instantiate));
}

static void discard(void)
{
    oriel_site_destroy(site);
}

/* An execution: with a graph that is there, XLA replays that. */
static void execute(int replays)
{
    assert_null(run(oriel_ffi_cuda_prepare));
    assert_null(run(oriel_ffi_cuda_initialize));
    if (!replays)
        assert_null(run(oriel_ffi_cuda_execute));
}

/* ---- worlds -----------------------------------------------------------------------------------
 */

static oriel_comm *comm;
static oriel_gpu gpu;
static oriel_device_code code;
static device_report report;
static oriel_device_rank rank;
static oriel_devices devices;
static int ctas = 1; /* of the next world's kernels */

static void init(int on_gpu)
{
    static const int ordinal = 0;

    comm = ranks_comm(1, 5.0, NULL);
    groups_lock = &comm->lock;
    rank = (oriel_device_rank){.gpu = &gpu, .code = &code, .report = &report};
    devices = (oriel_devices){.ranks = &rank,
                              .num_ranks = 1,
                              .ctas = ctas,
                              .stage_bytes = 1 << 20,
                              .fabric = &oriel_device_cuda};
    comm->devices = on_gpu ? &devices : NULL;
    CHECK_OK(oriel_ffi_attach(comm, &ordinal, 1));
}

static void finalize(void)
{
    CHECK_OK(oriel_ffi_detach(0));
    comm->devices = NULL;
    CHECK_OK(oriel_comm_destroy(comm));
}

/* ---- tests ------------------------------------------------------------------------------------
 */

/* The heaps lie where they lay. */
static void test_a_graph_goes_on_in_a_world_of_the_same_layout(void **state)
{
    (void)state;
    init(1);
    compile();
    captures = 1;
    execute(0);
    finalize();
    init(1);
    assert_int_equal(oriel_ffi_cuda_stale(), 0);
    execute(1);
    discard();
    finalize();
}

static void test_a_graph_of_another_layout_is_refused(void **state)
{
    (void)state;
    init(1);
    compile();
    captures = 1;
    execute(0);
    execute(1);
    finalize();
    ctas = 2;
    init(1);
    ctas = 1;
    touches = 0;
    assert_null(run(oriel_ffi_cuda_prepare));
    assert_non_null(run(oriel_ffi_cuda_initialize));
    assert_string_equal(
        said, "barrier: the program was captured in a CUDA graph in a world that has been "
              "finalized, and cannot run in another: compile it anew");
    assert_int_equal(touches, 0);
    assert_int_equal(oriel_ffi_cuda_stale(), 1); /* for init, to compile what it can anew */
    assert_int_equal(oriel_ffi_cuda_stale(), 0);
    discard();
    compile();
    execute(0);
    execute(1);
    assert_true(touches > 0);
    discard();
    finalize();
}

static void test_what_was_not_captured_goes_on(void **state)
{
    (void)state;
    init(1);
    compile();
    captures = 0;
    execute(0);
    finalize();
    init(1);
    execute(0);
    captures = 1; /* now it is */
    execute(0);
    execute(1);
    discard();
    finalize();
}

static void test_a_stage_on_a_gpu_takes_one_read_lock(void **state)
{
    (void)state;
    captures = 0;
    init(1);
    compile();
    execute(0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(locks_of(oriel_ffi_cuda_prepare), 0);
        assert_int_equal(locks_of(oriel_ffi_cuda_initialize), 1);
        assert_int_equal(group_looks, 0);
        assert_int_equal(locks_of(oriel_ffi_cuda_execute), 1);
        assert_int_equal(group_looks, 0);
    }
    discard();
    finalize();
}

static void test_a_call_on_a_cpu_takes_one_read_lock(void **state)
{
    (void)state;
    init(0);
    assert_null(run(oriel_ffi_instantiate));
    assert_null(run(oriel_ffi_execute));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(locks_of(oriel_ffi_execute), 1);
        assert_int_equal(group_looks, 0);
    }
    finalize();
    assert_non_null(run(oriel_ffi_execute));
    assert_string_equal(said, "barrier: oriel is not initialised; call oriel.init()");
    init(0);
    assert_int_equal(locks_of(oriel_ffi_execute), 1);
    assert_int_equal(group_looks, 1); /* of another comm */
    discard();
    finalize();
}

/* A rank without memory for its call tells the others, which would wait for it otherwise. */
static void test_a_call_without_memory_revokes_the_comm(void **state)
{
    (void)state;
    init(0);
    assert_null(run(oriel_ffi_instantiate));
    failing_sys_install();
    failing_sys_arm(1, ENOMEM);
    assert_non_null(run(oriel_ffi_execute));
    failing_sys_remove();
    assert_string_equal(said, "out of memory for a request");
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    check_says("process 0 could not begin an operation: out of memory for a request", NULL);
    discard();
    finalize();
}

/* Whether XLA lends its communicator is decided once in each world. */
static void test_what_may_borrow_takes_a_lock_once_to_prepare(void **state)
{
    (void)state;
    borrows = 1;
    init(1);
    compile();
    assert_int_equal(locks_of(oriel_ffi_cuda_prepare), 1);
    assert_int_equal(locks_of(oriel_ffi_cuda_prepare), 0);
    finalize();
    init(1);
    assert_int_equal(locks_of(oriel_ffi_cuda_prepare), 1);
    assert_int_equal(locks_of(oriel_ffi_cuda_prepare), 0);
    discard();
    finalize();
    borrows = 0;
}

static void test_a_program_of_another_version_is_refused(void **state)
{
    char expected[sizeof said];

    (void)state;
    newer = 1;
    snprintf(expected, sizeof expected,
             "the program was compiled by another version of oriel, whose calls have version %lld "
             "instead of %lld: compile it anew",
             (long long)oriel_ffi_version + 1, (long long)oriel_ffi_version);
    assert_non_null(run(oriel_ffi_instantiate));
    assert_string_equal(said, expected);
    assert_non_null(run(oriel_ffi_cuda_instantiate));
    newer = 0;
}

/* What orders calls gives each result an operand. */
static void test_a_result_without_an_operand_is_refused(void **state)
{
    xla_buffer buffer = {.struct_size = sizeof buffer, .dtype = XLA_F32};
    void *items[] = {&buffer};
    xla_frame frame = {.struct_size = sizeof frame,
                       .api = &api,
                       .ctx = (xla_context *)&driver,
                       .rets = {.size = 1, .items = items}};

    (void)state;
    assert_non_null(oriel_ffi_after(&frame));
    assert_string_equal(said, "barrier: the call has 0 operands and 1 results");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_graph_goes_on_in_a_world_of_the_same_layout),
        cmocka_unit_test(test_a_graph_of_another_layout_is_refused),
        cmocka_unit_test(test_what_was_not_captured_goes_on),
        cmocka_unit_test(test_a_stage_on_a_gpu_takes_one_read_lock),
        cmocka_unit_test(test_a_call_on_a_cpu_takes_one_read_lock),
        cmocka_unit_test(test_a_call_without_memory_revokes_the_comm),
        cmocka_unit_test(test_what_may_borrow_takes_a_lock_once_to_prepare),
        cmocka_unit_test(test_a_program_of_another_version_is_refused),
        cmocka_unit_test(test_a_result_without_an_operand_is_refused),
    };

    return cmocka_run_group_tests(tests, open_driver, NULL);
}
