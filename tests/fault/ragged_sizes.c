/* labels: valgrind */
/* processes: 3 */
/* A sender and a receiver in different processes who do not mean the same sizes: every
 * process is told which two, and what each of them meant. And sizes where the numbers that
 * members show each other just fit one form or the other, on all of them or on one alone. */
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

/* Everybody sends `rows` rows to everybody. */
struct exchange {
    int64_t at[MEMBERS], sizes[MEMBERS], to[MEMBERS], expected[MEMBERS];
    oriel_ragged ragged;
};

static void fill(struct exchange *e, int rank, size_t rows)
{
    for (int i = 0; i < MEMBERS; i++) {
        e->at[i] = i * (int64_t)rows;
        e->to[i] = rank * (int64_t)rows;
        e->sizes[i] = e->expected[i] = (int64_t)rows;
    }
    e->ragged = (oriel_ragged)ORIEL_RAGGED_INIT;
    e->ragged.send_rows = e->ragged.recv_rows = MEMBERS * rows;
    e->ragged.input_offsets = e->at;
    e->ragged.send_sizes = e->sizes;
    e->ragged.output_offsets = e->to;
    e->ragged.recv_sizes = e->expected;
}

static float value_of(int from, int to, size_t row)
{
    return (float)(from * 100 + to * 10) + (float)(row % 7);
}

/* `more` rows are in rank 1's `recv` that nobody writes. Twice by the group's lane. */
static void agree(size_t rows, size_t more)
{
    test_buffer send = buffer_make(MEMBERS * rows * sizeof(float), 0);
    test_buffer recv = buffer_make((MEMBERS * rows + more) * sizeof(float), 0);
    float *sent = (float *)(void *)send.data;
    float *got = (float *)(void *)recv.data;
    struct exchange e;
    oriel_comm *comm;
    char job[64];
    int rank;

    snprintf(job, sizeof job, "agree-%zu-%zu", rows, more);
    comm = process_comm(1, patience_s, job);
    rank = oriel_comm_first_rank(comm);
    fill(&e, rank, rows);
    e.ragged.recv_rows += rank == 1 ? more : 0;
    for (size_t i = 0; i < MEMBERS * rows; i++)
        sent[i] = value_of(rank, (int)(i / rows), i % rows);
    for (int turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < MEMBERS * rows + more; i++)
            got[i] = -1;
        CHECK_OK(exchange(oriel_comm_world(comm), rank, &send, &recv, &e.ragged, 0));
        for (size_t i = 0; i < MEMBERS * rows + more; i++)
            CHECK(got[i] ==
                      (i < MEMBERS * rows ? value_of((int)(i / rows), rank, i % rows) : -1.0f),
                  "%zu rows and %zu more: row %zu is %g", rows, more, i, (double)got[i]);
    }
    buffer_free(&send);
    buffer_free(&recv);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* All do, but rank 2 expects more of rank 0, or
 * rank 0 writes past the end of rank 2's. In the group's first call, or by its lane. */
static void disagree(size_t rows, int past_the_end, int by_lane, int start)
{
    oriel_status want = past_the_end ? ORIEL_ERR_INVALID : ORIEL_ERR_MISMATCH;
    test_buffer send = buffer_make(MEMBERS * rows * sizeof(float), 0);
    test_buffer recv = buffer_make(MEMBERS * rows * sizeof(float), 0);
    struct exchange e;
    oriel_comm *comm;
    char job[64];
    int rank;

    snprintf(job, sizeof job, "ragged-%zu-%d-%d-%d", rows, past_the_end, by_lane, start);
    comm = process_comm(1, patience_s, job);
    rank = oriel_comm_first_rank(comm);
    fill(&e, rank, rows);
    if (past_the_end && rank == 0)
        e.to[2] += 3 * (int64_t)rows;
    if (!past_the_end && rank == 2)
        e.expected[0]++;
    if (by_lane)
        CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    CHECK_IS(want, exchange(oriel_comm_world(comm), rank, &send, &recv, &e.ragged, start));
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
        disagree(255, kind & 1, kind & 2, kind & 4);
        disagree(300 * 1000, kind & 1, kind & 2, kind & 4);
    }
    agree(8, 0);
    agree(8, 65535 - 24);
    agree(8, 65536 - 24);
    agree(255, 0);
    agree(256, 0);
    agree(21845, 0);
    agree(21846, 0);
    resources_check(before, "at the end");
    return 0;
}
