/* labels: valgrind */
/* processes: 3 */
/* A process that is alive but comes after the others have given up: late_process
 * [count] [operation]. It gets an error and touches nobody's memory. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/family.h"
#include "support/process.h"
#include "support/resources.h"

enum { RANKS = 3, LATE = 2, REFILL = 0x77, CALLS = 100 };
static const double soon_s = 0.5;
static const double patience_s = 30.0;

static _Atomic uint32_t *flag_of(oriel_window *window, int rank)
{
    void *ptr = NULL;

    CHECK_OK(oriel_window_ptr(window, rank, &ptr));
    return ptr;
}

static void wait_for(oriel_window *window, int rank)
{
    double limit = oriel_now() + patience_s;

    while (atomic_load(flag_of(window, rank)) == 0) {
        CHECK(oriel_now() < limit, "rank %d never came", rank);
        oriel_relax(1);
    }
}

static void check_refill(const test_buffer *buffer)
{
    for (size_t i = 0; i < buffer->bytes; i++)
        CHECK(buffer->data[i] == REFILL, "byte %zu was touched", i);
}

/* A rank that needs nothing of the late one learns of it in a later call: at the latest in one that
 * finds no room, since the late one has not read those before. */
static oriel_status call_in_time(family_flight *flight, oriel_group *world, int rank,
                                 const family_call *call)
{
    oriel_status st;

    family_open(flight, world, rank, call);
    st = family_run(flight);
    for (int i = 0; i < CALLS && st == ORIEL_OK && !family_needs(call, RANKS, rank, LATE); i++) {
        family_close(flight);
        family_open(flight, world, rank, call);
        st = family_run(flight);
    }
    family_check_poison(flight);
    return st;
}

static void punctual(oriel_comm *comm, oriel_window *window, int rank, const family_call *call)
{
    double begun = oriel_now();
    family_flight flight;

    CHECK_IS(ORIEL_ERR_TIMEOUT, call_in_time(&flight, oriel_comm_world(comm), rank, call));
    check_says(oriel_kind_name(call->kind), rank == 0 ? "on rank 0" : "on rank 1",
               "rank 2 (process 2)", "last operation was all_reduce #1 of 4 bytes", NULL);
    printf("told after %.3f s\n", oriel_now() - begun);
    memset(flight.send.data, REFILL, flight.send.bytes);
    memset(flight.recv.data, REFILL, flight.recv.bytes);
    atomic_store(flag_of(window, rank), 1);
    wait_for(window, LATE);
    check_refill(&flight.send);
    check_refill(&flight.recv);
    family_close(&flight);
}

static void late(oriel_comm *comm, oriel_window *window, const family_call *call)
{
    family_flight flight;
    double begun;

    wait_for(window, 0);
    wait_for(window, 1);
    family_open(&flight, oriel_comm_world(comm), LATE, call);
    begun = oriel_now();
    CHECK_IS(ORIEL_ERR_TIMEOUT, family_run(&flight)); /* the others' */
    printf("refused after %.3f s\n", oriel_now() - begun);
    check_says("rank 2", NULL);
    atomic_store(flag_of(window, LATE), 1);
    family_close(&flight);
}

/* Rank 0 gets what the late rank sends; in a scan nobody does, as that one is the last. */
static family_call late_call(enum oriel_kind kind, size_t count)
{
    family_call call = {.kind = kind, .dtype = ORIEL_F32, .count = count, .row = 1, .slices = 1};

    call.seed = LATE;
    while (kind != ORIEL_KIND_SCAN && !family_needs(&call, RANKS, 0, LATE))
        call.seed++;
    return call;
}

int main(int argc, char **argv)
{
    size_t count = (size_t)process_argument(argc, argv, 1, 100000);
    family_call call = late_call(family_kind(argc > 2 ? argv[2] : "all_reduce"), count);
    test_resources before = resources_now();
    oriel_comm *comm = process_comm(1, soon_s, NULL);
    int rank = oriel_comm_first_rank(comm);
    oriel_window *window = NULL;
    float x = 1;

    CHECK_OK(oriel_window_create(oriel_comm_world(comm), sizeof(uint32_t), &window));
    CHECK_OK(oriel_all_reduce(oriel_comm_world(comm), rank, &x, &x, 1, ORIEL_F32, ORIEL_SUM));
    if (rank == LATE)
        late(comm, window, &call);
    else
        punctual(comm, window, rank, &call);
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "at the end");
    return 0;
}
