/* labels: tsan valgrind */
/* ragged_all_to_all with sizes that only two members together can see to be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/check.h"
#include "support/family.h"
#include "support/ranks.h"

static const double patience_s = 60.0;

enum { MEMBERS = 3, SLICES = 40 }; /* more than one line of them */

struct disagreement {
    size_t rows;            /* of a slice */
    int from, to, slice;    /* where */
    int64_t expect, offset; /* what is added to it there */
    oriel_status status;
    const char *says[2];
};

static const struct disagreement disagreements[] = {
    {3,
     0,
     2,
     7,
     1,
     0,
     ORIEL_ERR_MISMATCH,
     {"rank 0 sends 3 rows to rank 2 in slice 7", "expects 4 rows"}},
    {2000,
     2,
     1,
     39,
     -2000,
     0,
     ORIEL_ERR_MISMATCH,
     {"rank 2 sends 2000 rows to rank 1 in slice 39", "expects 0 rows"}},
    {3, 1, 1, 0, 5, 0, ORIEL_ERR_MISMATCH, {"rank 1 sends 3 rows to rank 1", "expects 8 rows"}},
    {3,
     1,
     0,
     39,
     0,
     1000,
     ORIEL_ERR_INVALID,
     {"rank 1 sends 3 rows to row 1237 of rank 0 in slice 39", "has 360 rows"}},
    {3,
     2,
     2,
     39,
     0,
     1,
     ORIEL_ERR_INVALID,
     {"rank 2 sends 3 rows to row 358 of rank 2 in slice 39", "has 360 rows"}},
    {3,
     0,
     1,
     0,
     0,
     INT64_MAX,
     ORIEL_ERR_INVALID,
     {"rank 0 sends 3 rows to row 9223372036854775807 of rank 1", "has 360 rows"}},
};

static void disagree(oriel_comm *comm, int rank, void *arg)
{
    const struct disagreement *d = arg;
    int64_t input[MEMBERS * SLICES], sizes[MEMBERS * SLICES], output[MEMBERS * SLICES],
        expected[MEMBERS * SLICES];
    size_t rows = MEMBERS * SLICES * d->rows;
    test_buffer send = buffer_make(rows, 0);
    test_buffer recv = buffer_make(rows, 0);
    oriel_ragged ragged = {sizeof ragged, 1, rows, rows, SLICES, input, sizes, output, expected};

    for (int i = 0; i < MEMBERS * SLICES; i++) {
        int at = d->to * SLICES + d->slice;

        input[i] = i * (int64_t)d->rows;
        sizes[i] = expected[i] = (int64_t)d->rows;
        output[i] = (rank * SLICES + i % SLICES) * (int64_t)d->rows;
        if (rank == d->from && i == at)
            output[i] = d->offset == INT64_MAX ? INT64_MAX : output[i] + d->offset;
        if (rank == d->to && i == d->from * SLICES + d->slice)
            expected[i] += d->expect;
    }
    CHECK_IS(d->status, oriel_ragged_all_to_all(oriel_comm_world(comm), rank, send.data, recv.data,
                                                ORIEL_U8, &ragged));
    check_says("ragged_all_to_all of rows of 1 bytes of u8 in 40 slices", d->says[0], d->says[1],
               NULL);
    CHECK(values_unpoisoned(recv.data, rows, ORIEL_U8) < 0, "recv is not poisoned");
    buffer_free(&send);
    buffer_free(&recv);
}

/* The calls after it go by the group's lane. */
static void meet(oriel_comm *comm, int rank, void *arg)
{
    (void)arg;
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
}

static void test_ragged_disagreement(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof disagreements / sizeof *disagreements; i++) {
        for (int mode = 0; mode < 6; mode++) {
            oriel_comm *comm = ranks_comm(MEMBERS, patience_s, "ORIEL_DIRECT", mode % 3 ? "0" : "1",
                                          "ORIEL_CHUNK", mode % 3 == 2 ? "1K" : "128K", NULL);

            if (mode >= 3)
                ranks_run(comm, meet, NULL);
            ranks_run(comm, disagree, (void *)(uintptr_t)&disagreements[i]);
            CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
            CHECK_OK(oriel_comm_destroy(comm));
        }
    }
}

/* A group of one has nobody to revoke the comm for. */
static void test_ragged_alone(void **state)
{
    static const int64_t zero[] = {0}, two[] = {2}, three[] = {3};
    oriel_comm *comm = ranks_comm(1, patience_s, NULL);
    oriel_group *world = oriel_comm_world(comm);
    oriel_ragged good = {sizeof good, 1, 4, 4, 1, zero, two, two, two};
    oriel_ragged bad = {sizeof bad, 1, 4, 4, 1, zero, two, zero, three};
    oriel_ragged outside_it = {sizeof bad, 1, 4, 4, 1, zero, two, three, two};
    int send[4] = {1, 2, 3, 4};
    int recv[4] = {7, 7, 7, 7};

    (void)state;
    CHECK_OK(oriel_ragged_all_to_all(world, 0, send, recv, ORIEL_S32, &good));
    assert_true(recv[0] == 7 && recv[1] == 7 && recv[2] == 1 && recv[3] == 2);
    CHECK_IS(ORIEL_ERR_MISMATCH, oriel_ragged_all_to_all(world, 0, send, recv, ORIEL_S32, &bad));
    check_says("sends 2 rows", "expects 3 rows", NULL);
    assert_true(recv[0] == INT32_MIN && recv[3] == INT32_MIN);
    CHECK_IS(ORIEL_ERR_INVALID,
             oriel_ragged_all_to_all(world, 0, send, recv, ORIEL_S32, &outside_it));
    check_says("row 3", "has 4 rows", NULL);
    CHECK_OK(oriel_comm_check(comm));
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ragged_disagreement),
        cmocka_unit_test(test_ragged_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
