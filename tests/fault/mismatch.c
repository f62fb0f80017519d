/* labels: valgrind */
/* processes: 3 */
/* Processes that ask for different things are all told who asked for what. */
#include <stdio.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/process.h"
#include "support/resources.h"
#include "support/values.h"

static const double patience_s = 30.0;

static const struct {
    size_t count;
    oriel_dtype dtype;
    oriel_redop op;
    const char *says;
} others[] = {
    {49999, ORIEL_F32, ORIEL_SUM, "sum of 199996 bytes of f32"},
    {0, ORIEL_F32, ORIEL_SUM, "sum of 0 bytes of f32"},
    {10, ORIEL_F32, ORIEL_SUM, "sum of 40 bytes of f32"},
    {50000, ORIEL_U32, ORIEL_SUM, "sum of 200000 bytes of u32"},
    {50000, ORIEL_F32, ORIEL_MIN, "min of 200000 bytes of f32"},
};

static void differ(int odd, size_t which)
{
    char job[32];
    char own[32];
    oriel_comm *comm;
    oriel_dtype dtype = ORIEL_F32;
    oriel_redop op = ORIEL_SUM;
    size_t count = 50000;
    test_buffer buffer;
    double begun;
    int rank;

    snprintf(job, sizeof job, "mismatch-%d-%zu", odd, which);
    comm = process_comm(1, patience_s, job);
    rank = oriel_comm_first_rank(comm);
    if (rank == odd) {
        count = others[which].count;
        dtype = others[which].dtype;
        op = others[which].op;
    }
    buffer = buffer_make(count * oriel_dtype_size(dtype), 0);
    begun = oriel_now();
    CHECK_IS(ORIEL_ERR_MISMATCH, oriel_all_reduce(oriel_comm_world(comm), rank, buffer.data,
                                                  buffer.data, count, dtype, op));
    snprintf(own, sizeof own, "on rank %d (process %d)", rank, rank);
    check_says(own, "sum of 200000 bytes of f32", others[which].says, NULL);
    snprintf(own, sizeof own, "rank %d", odd);
    check_says(own, NULL);
    CHECK(oriel_now() - begun < patience_s / 2, "told after %g s", oriel_now() - begun);
    CHECK(values_unpoisoned(buffer.data, count, dtype) < 0, "recv is not poisoned");
    buffer_free(&buffer);
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(void)
{
    test_resources before = resources_now();

    for (int odd = 0; odd < 3; odd++) {
        for (size_t which = 0; which < sizeof others / sizeof *others; which++)
            differ(odd, which);
    }
    resources_check(before, "at the end");
    return 0;
}
