/* One process leaves while the others still call: leaver how [calls]
 *
 * Process 1 makes `calls` calls and then leaves by `how`: abandon, exit, flight
 * (abandon with a large operation started), eager (with a small one), barrier
 * (abandon while the others are in a barrier). The others are told who has left. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/family.h"
#include "support/process.h"
#include "support/resources.h"

enum { LEAVER = 1, LARGE = 300 * 1000 };
static const double timeout_s = 30.0;
static float input[LARGE];
static float output[LARGE];

static void leave(oriel_comm *comm, const char *how)
{
    oriel_request *request = NULL;
    size_t count = strcmp(how, "flight") == 0 ? LARGE : 10;

    if (strcmp(how, "exit") == 0)
        exit(0);
    if (strcmp(how, "flight") == 0 || strcmp(how, "eager") == 0)
        CHECK_OK(oriel_all_reduce_start(oriel_comm_world(comm), LEAVER, input, output, count,
                                        ORIEL_F32, ORIEL_SUM, &request));
    oriel_comm_abandon(comm);
}

static void stay_in_barrier(oriel_comm *comm)
{
    double begun = oriel_now();

    CHECK_IS(ORIEL_ERR_PEER, oriel_comm_barrier(comm));
    check_says("process 1", NULL);
    printf("told after %.3f s\n", oriel_now() - begun);
    CHECK_OK(oriel_comm_destroy(comm));
}

static void stay(oriel_comm *comm, const char *how)
{
    size_t count = strcmp(how, "eager") == 0 ? 10 : LARGE;
    int rank = oriel_comm_first_rank(comm);
    double begun = oriel_now();
    oriel_status st = ORIEL_OK;

    /* What the leaver had started and sent may still succeed. */
    for (int i = 0; i < 2 && st == ORIEL_OK; i++)
        st = oriel_all_reduce(oriel_comm_world(comm), rank, input, output, count, ORIEL_F32,
                              ORIEL_SUM);
    CHECK_IS(ORIEL_ERR_PEER, st);
    check_says("all_reduce", "bytes", rank == 0 ? "on rank 0" : "on rank 2", "rank 1 is missing",
               strcmp(how, "exit") == 0 ? "is gone" : "has left the comm", NULL);
    printf("told after %.3f s\n", oriel_now() - begun);
    CHECK(oriel_comm_barrier(comm) != ORIEL_OK, "a barrier without process 1");
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "abandon";
    int calls = process_argument(argc, argv, 2, 10);
    test_resources before = resources_now();
    oriel_comm *comm = process_comm(1, timeout_s, NULL);
    int rank = oriel_comm_first_rank(comm);

    for (unsigned i = 0; i < (unsigned)calls; i++) {
        family_call call = family_random_of(ORIEL_KIND_ALL_REDUCE, i, 50000);
        family_check(oriel_comm_world(comm), rank, &call);
    }
    if (rank == LEAVER)
        leave(comm, how);
    else if (strcmp(how, "barrier") == 0)
        stay_in_barrier(comm);
    else
        stay(comm, how);
    resources_check(before, "at the end");
    return 0;
}
