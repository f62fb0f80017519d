/* labels: valgrind */
/* Processes that share cores: which of them find that they do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/sys.h"
#include "core/world/comm.h"

enum { MOST = 9, FIRST = 3, SECOND = 70 };

static heap_header header;
static heap_control control;
static heap_proc procs[MOST];
static oriel_comm comm;

/* A machine whose processes see two cores, FIRST and SECOND, and have one rank each. */
static int set_up(void **state)
{
    (void)state;
    memset(&control, 0, sizeof control);
    memset(procs, 0, sizeof procs);
    comm = (oriel_comm){.heap = {.header = &header, .procs = procs}};
    comm.heap.section[SECTION_CONTROL] = &control;
    atomic_store(&control.cpus[FIRST / 64], 1ull << FIRST % 64);
    atomic_store(&control.cpus[SECOND / 64], 1ull << SECOND % 64);
    for (int p = 0; p < MOST; p++)
        procs[p].local_ranks = 1;
    return 0;
}

static int shares_cores(int processes)
{
    comm.num_processes = comm.here = processes;
    oriel_spread_begin(&comm);
    return comm.oversubscribed;
}

static void test_as_many_ranks_as_cores(void **state)
{
    (void)state;
    assert_false(shares_cores(2));
    assert_true(shares_cores(3));
}

static void test_a_process_of_several_ranks(void **state)
{
    (void)state;
    procs[0].local_ranks = 2;
    assert_true(shares_cores(2));
}

static void test_those_elsewhere_do_not_count(void **state)
{
    (void)state;
    procs[1].machine = procs[2].machine = 1;
    assert_false(shares_cores(4));
    procs[1].machine = 0;
    assert_true(shares_cores(4));
}

/* What each process sees is the machine's all together. */
static void test_all_cores_count(void **state)
{
    uint64_t cpus[CPU_WORDS];

    (void)state;
    memset(&control, 0, sizeof control);
    oriel_cpus(cpus);
    oriel_spread_show(&comm);
    for (int w = 0; w < CPU_WORDS; w++)
        assert_int_equal(atomic_load(&control.cpus[w]), cpus[w]);
}

/* Moves this thread, where the machine has two cores or more. */
static void test_bound_to_none(void **state)
{
    int cores = oriel_cpu_count();

    (void)state;
    memset(&control, 0, sizeof control);
    oriel_spread_show(&comm);
    procs[0].local_ranks = cores;
    comm.num_processes = 1;
    comm.here = cores + 1;
    comm.process = 1;
    oriel_spread_begin(&comm);
    assert_int_equal(oriel_cpu_count(), cores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_as_many_ranks_as_cores, set_up),
        cmocka_unit_test_setup(test_a_process_of_several_ranks, set_up),
        cmocka_unit_test_setup(test_those_elsewhere_do_not_count, set_up),
        cmocka_unit_test_setup(test_all_cores_count, set_up),
        cmocka_unit_test_setup(test_bound_to_none, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
