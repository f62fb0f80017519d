/* labels: valgrind */
/* processes: 3 */
/* A process that is alive but comes after the others have given up: late_process
 * [count]. It gets an error and touches nobody's memory. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/process.h"
#include "support/resources.h"
#include "support/values.h"

enum { LATE = 2, REFILL = 0x77 };
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

static void punctual(oriel_comm *comm, oriel_window *window, int rank, size_t count)
{
    size_t bytes = count * sizeof(float);
    test_buffer send = buffer_make(bytes, 0);
    test_buffer recv = buffer_make(bytes, 0);
    double begun = oriel_now();

    values_fill(send.data, count, ORIEL_F32, ORIEL_SUM, rank, 0);
    CHECK_IS(ORIEL_ERR_TIMEOUT, oriel_all_reduce(oriel_comm_world(comm), rank, send.data, recv.data,
                                                 count, ORIEL_F32, ORIEL_SUM));
    check_says("all_reduce", "bytes", rank == 0 ? "on rank 0" : "on rank 1", "rank 2 (process 2)",
               "last operation was all_reduce #1 of 4 bytes", NULL);
    CHECK(oriel_now() - begun < soon_s + 3.0, "told after %g s", oriel_now() - begun);
    CHECK(values_unpoisoned(recv.data, count, ORIEL_F32) < 0, "recv is not poisoned");
    memset(send.data, REFILL, bytes);
    memset(recv.data, REFILL, bytes);
    atomic_store(flag_of(window, rank), 1);
    wait_for(window, LATE);
    for (size_t i = 0; i < bytes; i++)
        CHECK(send.data[i] == REFILL && recv.data[i] == REFILL, "byte %zu was touched", i);
    buffer_free(&send);
    buffer_free(&recv);
}

static void late(oriel_comm *comm, oriel_window *window, size_t count)
{
    test_buffer buffer = buffer_make(count * sizeof(float), 0);
    double begun;

    wait_for(window, 0);
    wait_for(window, 1);
    begun = oriel_now();
    CHECK(oriel_all_reduce(oriel_comm_world(comm), LATE, buffer.data, buffer.data, count, ORIEL_F32,
                           ORIEL_SUM) != ORIEL_OK,
          "the late rank succeeded");
    CHECK(oriel_now() - begun < soon_s, "told after %g s", oriel_now() - begun);
    check_says("rank 2", NULL);
    atomic_store(flag_of(window, LATE), 1);
    buffer_free(&buffer);
}

int main(int argc, char **argv)
{
    size_t count = (size_t)process_argument(argc, argv, 1, 100000);
    test_resources before = resources_now();
    oriel_comm *comm = process_comm(1, soon_s, NULL);
    int rank = oriel_comm_first_rank(comm);
    oriel_window *window = NULL;
    float x = 1;

    CHECK_OK(oriel_window_create(comm, sizeof(uint32_t), &window));
    CHECK_OK(oriel_all_reduce(oriel_comm_world(comm), rank, &x, &x, 1, ORIEL_F32, ORIEL_SUM));
    if (rank == LATE)
        late(comm, window, count);
    else
        punctual(comm, window, rank, count);
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "at the end");
    return 0;
}
