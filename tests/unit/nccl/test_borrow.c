/* Buffers on a communicator that is lent, with an NCCL and a driver that do nothing: what ranks
 * register together, what their devices are told, and when they go back to descriptors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <string.h>

#include "base/config.h"
#include "core/nccl/borrow.h"
#include "core/device/register.h"
#include "support/check.h"
#include "support/gpu/fakes.h"
#include "support/ranks.h"

enum { RANKS = 2, MAPPING = 1 << 21 };

/* ---- a driver whose device memory is the host's ---------------------------------------------- */

static cu_driver driver;
static uint64_t ids[64]; /* what the mappings at i * MAPPING mean; 0: nothing */
static _Atomic cu_ptr reserved;

static cu_result pointer_attribute(void *value, int attribute, cu_ptr at)
{
    (void)attribute;
    *(uint64_t *)value = ids[at / MAPPING];
    return CU_OK;
}

static cu_result mem_range(cu_ptr *base, size_t *bytes, cu_ptr at)
{
    *base = at / MAPPING * MAPPING;
    *bytes = MAPPING;
    return CU_OK;
}

static cu_result mem_reserve(cu_ptr *at, size_t bytes, size_t alignment, cu_ptr wanted,
                             unsigned long long flags)
{
    (void)alignment;
    (void)wanted;
    (void)flags;
    *at = atomic_fetch_add(&reserved, bytes);
    return CU_OK;
}

static cu_result granularity(size_t *bytes, const cu_allocation *allocation, int option)
{
    (void)allocation;
    (void)option;
    *bytes = MAPPING;
    return CU_OK;
}

static cu_result copy_in(cu_ptr to, const void *from, size_t bytes, cu_stream stream)
{
    (void)stream;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CU_OK;
}

static cu_result fill_words(cu_ptr at, unsigned value, size_t count, cu_stream stream)
{
    (void)stream;
    while (count-- > 0)
        ((uint32_t *)(uintptr_t)at)[count] = value;
    return CU_OK;
}

/* ---- a world --------------------------------------------------------------------------------- */

static char *called; /* what NCCL was asked to do */
static oriel_comm *comm;
static oriel_group *group;
static oriel_devices devices;
static oriel_device_rank ranks[RANKS];
static oriel_gpu gpu;
static nccl_comm lent[RANKS];

static int open_fakes(void **state)
{
    (void)state;
    called = fakes_open();
    if (called == NULL)
        return -1;
    driver = *oriel_cu;
    driver.pointer_attribute = pointer_attribute;
    driver.mem_range = mem_range;
    driver.mem_reserve = mem_reserve;
    driver.granularity = granularity;
    driver.copy_in = copy_in;
    driver.fill_words = fill_words;
    oriel_cu = &driver;
    return 0;
}

static void make_comms(int size)
{
    nccl_id id = {{0}};
    nccl_config config = {0};
    const nccl_library *nccl;

    CHECK_OK(oriel_nccl_open(&nccl));
    for (int r = 0; r < RANKS; r++) /* the other way round: ranks need not be the group's */
        nccl->comm_create(&lent[r], size, id, RANKS - 1 - r, &config);
}

static int set_up(void **state)
{
    (void)state;
    setenv("FAKE_NCCL", "polls=2", 1);
    setenv("ORIEL_NCCL_COMM", "xla", 1);
    comm = ranks_comm(RANKS, 10.0, "ORIEL_NCCL_COMM", "xla", NULL);
    group = oriel_comm_world(comm);
    group->one_process = 0;
    devices = (oriel_devices){.ranks = ranks, .num_ranks = RANKS};
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (oriel_device_rank){.gpu = &gpu};
        ranks[r].exports = calloc(DEVICE_WINDOWS, sizeof(oriel_export));
        ranks[r].heap.base = (cu_ptr)(uintptr_t)calloc(1, sizeof(device_table));
    }
    comm->devices = &devices;
    reserved = 1ull << 40;
    for (uint64_t i = 0; i < sizeof ids / sizeof *ids; i++)
        ids[i] = 100 + i;
    make_comms(RANKS);
    called[0] = '\0';
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    comm->devices = NULL;
    for (int r = 0; r < RANKS; r++) {
        if (ranks[r].free_lent != NULL)
            ranks[r].free_lent(&ranks[r]);
        free(ranks[r].exports);
        free((void *)(uintptr_t)ranks[r].heap.base);
        free(lent[r]);
    }
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}

static const device_table *table(int rank)
{
    return (const device_table *)(uintptr_t)ranks[rank].heap.base;
}

/* Each rank's call: on which mapping, -1: a call without buffers. */
static int uses[RANKS];
static oriel_place places[RANKS];

static void call(oriel_comm *c, int rank, void *arg)
{
    const void *at = (const void *)(uintptr_t)((cu_ptr)uses[rank] * MAPPING + 64);

    (void)arg;
    oriel_borrow_begin(group, rank, lent[rank], NULL);
    if (uses[rank] >= 0)
        places[rank] = oriel_register(c, rank, at, 1000, NULL);
    CHECK_OK(oriel_borrow_meet(group, rank, 7));
    oriel_borrow_end(c, rank);
}

/* All make a call; the next is that in which they meet, if one of them has something new. */
static void make_calls(int times, int first, int second)
{
    uses[0] = first;
    uses[1] = second;
    for (int i = 0; i < times; i++)
        ranks_run(comm, call, NULL);
}

static oriel_borrow_counts counts_of(int rank)
{
    return ranks[rank].borrowed;
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void test_ranks_register_what_is_new_and_tell_their_devices(void **state)
{
    (void)state;
    make_calls(3, 1, 2);
    for (int r = 0; r < RANKS; r++) {
        int number = (int)(places[r].window >> DEVICE_WINDOW_SHIFT) - 1;

        assert_int_equal(counts_of(r).windows, 1);
        assert_int_equal(counts_of(r).fillers, 0);
        assert_int_equal(counts_of(r).meetings, 1);
        assert_int_equal(counts_of(r).lent, 3);
        assert_int_equal(ranks[r].exports[number].state, SHOWN);
        assert_int_equal(shown_of(comm, r, number)->mapped, 1);
        assert_int_equal(shown_of(comm, r, number)->generation, 0); /* no registrar maps it */
        /* As the fake has it: by the other's rank on the communicator. */
        assert_int_equal(table(1 - r)->window[r][number] >> 32 & 0xff, RANKS - 1 - r);
    }
    make_calls(5, 1, 2);
    assert_int_equal(counts_of(0).meetings, 1);
}

static void test_one_ranks_new_buffer_needs_nothing_new_of_the_other(void **state)
{
    (void)state;
    make_calls(2, 1, 2);
    make_calls(2, 3, 2);
    assert_int_equal(counts_of(0).windows, 2);
    assert_int_equal(counts_of(1).windows, 1);
    assert_int_equal(counts_of(1).fillers, 1);
    make_calls(2, -1, 4); /* it meets in a call without buffers */
    assert_int_equal(counts_of(0).fillers, 1);
    assert_int_equal(counts_of(1).windows, 2);
}

static void test_memory_that_is_gone_on_all_ranks_is_deregistered(void **state)
{
    (void)state;
    make_calls(2, 1, 2);
    ids[1] = 201;
    ids[2] = 202;
    make_calls(1, 1, 2); /* the addresses mean other memory */
    for (int r = 0; r < RANKS; r++) {
        assert_true(places[r].stale);
        assert_int_equal(ranks[r].exports[0].state, STALE);
        assert_int_equal(table(r)->stale[0], 1);
        ranks[r].exports[0].state = FREE; /* as the registrar does */
    }
    make_calls(1, 1, 2);
    assert_int_equal(counts_of(0).dropped, 1);
    assert_int_equal(counts_of(1).dropped, 1);
    assert_int_equal(counts_of(0).registered, 1);
    assert_non_null(strstr(called, "deregister"));
}

static void test_what_is_used_on_one_rank_stays(void **state)
{
    (void)state;
    make_calls(2, 1, 2);
    ids[1] = 201;
    make_calls(1, 1, 2);
    ranks[0].exports[0].state = FREE;
    make_calls(2, 1, 2);
    assert_int_equal(counts_of(0).dropped, 0);
    assert_int_equal(counts_of(0).windows, 2);
    assert_null(strstr(called, "deregister"));
}

static void test_with_another_communicator_all_is_forgotten(void **state)
{
    nccl_comm old[RANKS] = {lent[0], lent[1]};

    (void)state;
    make_calls(2, 1, 2);
    make_comms(RANKS);
    make_calls(1, -1, -1);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(counts_of(r).registered, 0);
        assert_int_equal(ranks[r].exports[0].state, STALE);
        assert_int_equal(table(r)->stale[0], 1);
        free(old[r]);
    }
    assert_null(strstr(called, "deregister")); /* it may be gone */
    assert_null(strstr(called, "abort"));
}

/* From then on registrars show the buffers. */
static void goes_without(const char *nccl)
{
    setenv("FAKE_NCCL", nccl, 1);
    make_calls(3, 1, 2);
    for (int r = 0; r < RANKS; r++) {
        int number = (int)(places[r].window >> DEVICE_WINDOW_SHIFT) - 1;

        assert_int_equal(counts_of(r).refused, 1);
        assert_int_equal(ranks[r].exports[number].group, 0);
        assert_int_equal(ranks[r].exports[number].state, WANTED);
    }
}

static void test_without_windows_buffers_go_without(void **state)
{
    (void)state;
    goes_without("null=1");
}

static void test_out_of_reach_buffers_go_without(void **state)
{
    (void)state;
    goes_without("lsa=1");
}

static void test_what_fails_in_nccl_goes_without(void **state)
{
    (void)state;
    goes_without("error=3");
}

static void test_a_communicator_of_others_is_not_used(void **state)
{
    (void)state;
    for (int r = 0; r < RANKS; r++)
        free(lent[r]);
    make_comms(RANKS + 1);
    goes_without("polls=0");
}

static void test_who_cannot_take_part_says_so(void **state)
{
    (void)state;
    make_calls(1, 1, 2);
    oriel_borrow_give_up(group, 1);
    goes_without("polls=0");
    assert_int_equal(counts_of(0).meetings, 0);
}

static void test_a_rank_at_a_time_has_what_it_is_lent(void **state)
{
    (void)state;
    assert_null(oriel_borrow_comm(comm, 0));
    oriel_borrow_begin(group, 0, lent[0], NULL);
    assert_ptr_equal(oriel_borrow_comm(comm, 0), lent[0]);
    assert_null(oriel_borrow_comm(comm, 1));
    oriel_borrow_end(comm, 0);
    assert_null(oriel_borrow_comm(comm, 0));
    oriel_borrow_begin(group, 0, NULL, NULL); /* a stage without */
    assert_null(oriel_borrow_comm(comm, 0));
    oriel_borrow_end(comm, 0);
}

int main(void)
{
#define BORROWING(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        BORROWING(test_ranks_register_what_is_new_and_tell_their_devices),
        BORROWING(test_one_ranks_new_buffer_needs_nothing_new_of_the_other),
        BORROWING(test_memory_that_is_gone_on_all_ranks_is_deregistered),
        BORROWING(test_what_is_used_on_one_rank_stays),
        BORROWING(test_with_another_communicator_all_is_forgotten),
        BORROWING(test_without_windows_buffers_go_without),
        BORROWING(test_out_of_reach_buffers_go_without),
        BORROWING(test_what_fails_in_nccl_goes_without),
        BORROWING(test_a_communicator_of_others_is_not_used),
        BORROWING(test_who_cannot_take_part_says_so),
        BORROWING(test_a_rank_at_a_time_has_what_it_is_lent),
    };

    return cmocka_run_group_tests(tests, open_fakes, NULL);
}
