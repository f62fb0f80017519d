/* labels: valgrind */
/* processes: 3 */
/* A sender and a receiver in different processes who do not mean the same sizes: every
 * process is told which two, and what each of them meant. */
#include <stdio.h>

#include "support/check.h"
#include "support/process.h"
#include "support/resources.h"
#include "support/values.h"

enum { MEMBERS = 3 };
static const double patience_s = 30.0;

/* The operation, blocking or started. */
static oriel_status exchange(oriel_group *world, int rank, const test_buffer *send,
                             const test_buffer *recv, const oriel_ragged *ragged, int start)
{
    oriel_request *request = NULL;

    if (!start)
        return oriel_ragged_all_to_all(world, rank, send->data, recv->data, ORIEL_F32, ragged);
    CHECK_OK(oriel_ragged_all_to_all_start(world, rank, send->data, recv->data, ORIEL_F32, ragged,
                                           &request));
    return oriel_request_wait(request);
}

/* Everybody sends `rows` rows to everybody, but rank 2 expects more of rank 0, or
 * rank 0 writes past the end of rank 2's. In the group's first call, or by its lane. */
static void disagree(size_t rows, int past_the_end, int by_lane, int start)
{
    oriel_status want = past_the_end ? ORIEL_ERR_INVALID : ORIEL_ERR_MISMATCH;
    test_buffer send = buffer_make(MEMBERS * rows * sizeof(float), 0);
    test_buffer recv = buffer_make(MEMBERS * rows * sizeof(float), 0);
    int64_t at[MEMBERS], sizes[MEMBERS], to[MEMBERS], expected[MEMBERS];
    oriel_ragged ragged = ORIEL_RAGGED_INIT;
    oriel_comm *comm;
    char job[64];
    int rank;

    snprintf(job, sizeof job, "ragged-%zu-%d-%d-%d", rows, past_the_end, by_lane, start);
    comm = process_comm(1, patience_s, job);
    rank = oriel_comm_first_rank(comm);
    for (int i = 0; i < MEMBERS; i++) {
        at[i] = i * (int64_t)rows;
        to[i] = rank * (int64_t)rows + (past_the_end && rank == 0 && i == 2) * 3 * (int64_t)rows;
        sizes[i] = (int64_t)rows;
        expected[i] = (int64_t)rows + (!past_the_end && rank == 2 && i == 0);
    }
    ragged.send_rows = ragged.recv_rows = MEMBERS * rows;
    ragged.input_offsets = at;
    ragged.send_sizes = sizes;
    ragged.output_offsets = to;
    ragged.recv_sizes = expected;
    if (by_lane)
        CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    CHECK_IS(want, exchange(oriel_comm_world(comm), rank, &send, &recv, &ragged, start));
    check_says("ragged_all_to_all", "rank 0 sends", "rank 2 in slice 0",
               past_the_end ? "which has" : "which expects", NULL);
    CHECK(values_unpoisoned(recv.data, MEMBERS * rows, ORIEL_F32) < 0, "recv is not poisoned");
    buffer_free(&send);
    buffer_free(&recv);
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(void)
{
    test_resources before = resources_now();

    for (int kind = 0; kind < 8; kind++) {
        disagree(1, kind & 1, kind & 2, kind & 4);
        disagree(300 * 1000, kind & 1, kind & 2, kind & 4);
    }
    resources_check(before, "at the end");
    return 0;
}
