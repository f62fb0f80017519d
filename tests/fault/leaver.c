/* One process leaves while the others still call: leaver how [calls]
 *
 * Process 1 makes `calls` calls and then leaves by `how`: abandon, exit, flight
 * (abandon with a large operation started), eager (with a small one), barrier
 * (abandon while the others are in a barrier), finalize (it waits there for the others), early
 * (the same, and nobody needs it any more). The others are told who has left, and so is process 1
 * in finalize. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "core/world/comm.h"
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

/* It waits in finalize until the others have no more to do, or need it. */
static void finalize(oriel_comm *comm, const char *how)
{
    if (strcmp(how, "early") == 0) {
        CHECK_OK(oriel_comm_destroy(comm));
        return;
    }
    CHECK_IS(ORIEL_ERR_PEER, oriel_comm_destroy(comm));
    check_says("process 1 (pid", "is in finalize", "waits for it in all_reduce", NULL);
}

/* Calls among themselves, until process 1 has been in finalize for long. */
static void stay_without(oriel_comm *comm, const double seconds)
{
    oriel_group *others = NULL;
    double until = 0.0;
    float ends = 0;

    CHECK_OK(oriel_group_create(comm, (int[]){0, 2}, 2, &others));
    while (ends == 0) {
        int waits = oriel_control_missing(&comm->heap, LEAVER) >= 0;

        until = until == 0.0 && waits ? oriel_now() + seconds : until;
        ends = until > 0.0 && oriel_now() > until;
        CHECK_OK(oriel_all_reduce(others, oriel_comm_first_rank(comm), &ends, &ends, 1, ORIEL_F32,
                                  ORIEL_MIN));
    }
    CHECK_OK(oriel_comm_destroy(comm));
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
               strcmp(how, "exit") == 0       ? "process 1 (pid"
               : strcmp(how, "finalize") == 0 ? "is in finalize"
                                              : "has left the comm",
               strcmp(how, "exit") == 0 ? "is gone" : "process 1 (pid", NULL);
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
    if (rank == LEAVER && (strcmp(how, "finalize") == 0 || strcmp(how, "early") == 0))
        finalize(comm, how);
    else if (rank == LEAVER)
        leave(comm, how);
    else if (strcmp(how, "early") == 0)
        stay_without(comm, 0.5);
    else if (strcmp(how, "barrier") == 0)
        stay_in_barrier(comm);
    else
        stay(comm, how);
    resources_check(before, "at the end");
    return 0;
}
