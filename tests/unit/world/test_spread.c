/* labels: valgrind */
/* Processes that share cores: who goes to which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/sys.h"
#include "core/world/comm.h"

enum { MOST = 9, FIRST = 3, SECOND = 70, FAR = 1000 };

static heap_header header;
static heap_proc procs[MOST];
static oriel_comm comm;

/* Processes of a machine with two cores, FIRST and SECOND. */
static int set_up(void **state)
{
    (void)state;
    memset(&header, 0, sizeof header);
    memset(procs, 0, sizeof procs);
    comm = (oriel_comm){.heap = {.header = &header, .procs = procs}, .spreads = 2};
    atomic_store(&header.cpus[FIRST / 64], 1ull << FIRST % 64);
    atomic_store(&header.cpus[SECOND / 64], 1ull << SECOND % 64);
    return 0;
}

/* The next `count` processes wait on `cpu`; -1: they have not waited yet. */
static void wait_on(int cpu, int count)
{
    for (int i = 0; i < count; i++)
        atomic_store(&procs[comm.num_processes++].core, (uint32_t)(cpu + 1));
}

static int target_of(int process)
{
    comm.process = process;
    return oriel_spread_target(&comm);
}

static void expect_all_to_stay(void)
{
    for (int p = 0; p < comm.num_processes; p++)
        assert_int_equal(target_of(p), -1);
}

static void one_of_five_goes(void **state)
{
    (void)state;
    wait_on(FIRST, 2);
    wait_on(SECOND, 3);
    wait_on(FIRST, 3);
    for (int p = 0; p < 8; p++)
        assert_int_equal(target_of(p), p == 7 ? 1 : -1);
    atomic_store(&procs[7].core, SECOND + 1);
    expect_all_to_stay();
}

static void all_on_one_core(void **state)
{
    (void)state;
    wait_on(SECOND, 4);
    assert_int_equal(target_of(3), 0);
    atomic_store(&procs[3].core, FIRST + 1);
    assert_int_equal(target_of(2), 0);
    atomic_store(&procs[2].core, FIRST + 1);
    expect_all_to_stay();
}

static void five_and_four_stay(void **state)
{
    (void)state;
    wait_on(FIRST, 5);
    wait_on(SECOND, 4);
    expect_all_to_stay();
}

static void the_unknown_and_those_elsewhere_do_not_count(void **state)
{
    (void)state;
    wait_on(FIRST, 3);
    wait_on(-1, 2);
    wait_on(SECOND, 2);
    wait_on(FIRST, 2);
    procs[7].machine = procs[8].machine = 1;
    expect_all_to_stay();
    procs[5].machine = 1; /* now there are three and one */
    assert_int_equal(target_of(2), 1);
}

static int mine(void)
{
    return (int)atomic_load(&procs[comm.process].core) - 1;
}

/* Moves this thread, where the machine has two cores. */
static void who_waits_goes(void **state)
{
    uint64_t cpus[CPU_WORDS];
    int there;

    (void)state;
    if (oriel_cpu_count() < 2) {
        print_message("skipped: one core\n");
        skip();
    }
    oriel_cpus(cpus);
    for (int w = 0; w < CPU_WORDS; w++)
        atomic_store(&header.cpus[w], cpus[w]);
    comm.spreads = oriel_cpu_count();
    comm.process = 2;
    oriel_cpu_visit(1);
    wait_on(oriel_cpu_now(), 3);
    there = mine();
    oriel_spread_keep(&comm);
    assert_int_not_equal(mine(), there);
    assert_int_equal(oriel_cpu_count(), comm.spreads); /* bound to none */
    assert_true(atomic_load(&comm.spread_at) > 0);     /* and not again at once */
}

static void looks_are_far_between(void **state)
{
    double later = oriel_now_coarse() + 1000;

    (void)state;
    wait_on(FAR, 3);
    atomic_store(&comm.spread_at, later);
    oriel_spread_keep(&comm);
    assert_true(atomic_load(&comm.spread_at) == later);
    assert_int_not_equal(mine(), FAR); /* but others see where it is */
    atomic_store(&comm.spread_at, 0);
    oriel_spread_keep(&comm); /* not every wait */
    assert_true(atomic_load(&comm.spread_at) == 0);
}

static void who_does_not_share_shows_nothing(void **state)
{
    (void)state;
    wait_on(-1, 1);
    comm.spreads = 0;
    oriel_spread_keep(&comm);
    assert_int_equal(mine(), -1);
}

static void together_on_one_core(void **state)
{
    (void)state;
    wait_on(FIRST, 2);
    wait_on(SECOND, 1);
    wait_on(-1, 2);
    for (int p = 0; p < comm.num_processes; p++)
        assert_int_equal(oriel_spread_together(&comm, p), p < 2);
    comm.process = 3; /* nobody knows where those are */
    assert_false(oriel_spread_together(&comm, 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_of_five_goes, set_up),
        cmocka_unit_test_setup(all_on_one_core, set_up),
        cmocka_unit_test_setup(five_and_four_stay, set_up),
        cmocka_unit_test_setup(the_unknown_and_those_elsewhere_do_not_count, set_up),
        cmocka_unit_test_setup(who_waits_goes, set_up),
        cmocka_unit_test_setup(looks_are_far_between, set_up),
        cmocka_unit_test_setup(who_does_not_share_shows_nothing, set_up),
        cmocka_unit_test_setup(together_on_one_core, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
