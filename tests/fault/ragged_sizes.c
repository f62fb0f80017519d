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

/* Everybody sends `rows` rows to everybody, but rank 2 expects more of rank 0, or
 * rank 0 writes past the end of rank 2's. */
static void disagree(size_t rows, int past_the_end)
{
    oriel_status want = past_the_end ? ORIEL_ERR_INVALID : ORIEL_ERR_MISMATCH;
    test_buffer send = buffer_make(MEMBERS * rows * sizeof(float), 0);
    test_buffer recv = buffer_make(MEMBERS * rows * sizeof(float), 0);
    int64_t at[MEMBERS], sizes[MEMBERS], to[MEMBERS], expected[MEMBERS];
    oriel_ragged ragged = ORIEL_RAGGED_INIT;
    oriel_comm *comm;
    char job[64];
    int rank;

    snprintf(job, sizeof job, "ragged-%zu-%d", rows, past_the_end);
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
    CHECK_IS(want, oriel_ragged_all_to_all(oriel_comm_world(comm), rank, send.data, recv.data,
                                           ORIEL_F32, &ragged));
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

    disagree(1, 0);
    disagree(1, 1);
    disagree(300 * 1000, 0);
    disagree(300 * 1000, 1);
    resources_check(before, "at the end");
    return 0;
}
