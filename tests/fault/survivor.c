/* A process of a job one of whose processes is killed or stopped:
 *
 *     survivor victim new_store [local ranks] [timeout in ms] [operation]
 *
 * Calls the operation, all_reduce where none is named, with sizes of all kinds until
 * one call fails, says when and how, leaves nothing behind and meets the other
 * survivors in a new comm, unless the new store is "none". */
#include <stdio.h>
#include <string.h>

#include "base/sys.h"
#include "core/world/comm.h"
#include "support/check.h"
#include "support/family.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/resources.h"

enum { MANY = 100 * 1000 * 1000 };

static oriel_status call_once(oriel_group *group, int rank, enum oriel_kind kind, unsigned i)
{
    family_call call = family_random_of(kind, i, i % 4 == 0 ? 600 * 1000 : 3000);

    return family_try(group, rank, &call);
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    oriel_group *world = oriel_comm_world(comm);
    enum oriel_kind kind = *(const enum oriel_kind *)arg;
    oriel_status st = call_once(world, rank, kind, 0);

    if (st == ORIEL_OK && rank == oriel_comm_first_rank(comm))
        printf("ready\n");
    fflush(stdout);
    for (unsigned i = 1; st == ORIEL_OK && i < MANY; i++)
        st = call_once(world, rank, kind, i);
    printf("failed %.6f rank %d %s %s\n", oriel_now(), rank, oriel_status_name(st),
           oriel_last_error());
    st = call_once(world, rank, kind, 0);
    CHECK(st != ORIEL_OK, "a revoked comm still works");
}

/* Those who are left, renumbered. */
static void meet_again(int process, int num_processes, int victim, const char *store,
                       int local_ranks, enum oriel_kind kind)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;
    oriel_comm *comm = NULL;

    params.process_id = process - (process > victim);
    params.num_processes = num_processes - 1;
    params.local_ranks = local_ranks;
    params.store = store;
    params.job = "again";
    params.timeout_s = 30.0;
    CHECK_OK(oriel_comm_create(&params, &comm));
    for (int r = 0; r < local_ranks && local_ranks == 1; r++) {
        for (unsigned i = 0; i < 20; i++)
            CHECK_OK(call_once(oriel_comm_world(comm), oriel_comm_first_rank(comm), kind, i));
    }
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    int victim = process_argument(argc, argv, 1, -1);
    int local_ranks = process_argument(argc, argv, 3, 1);
    double timeout_s = process_argument(argc, argv, 4, 60000) * 1e-3;
    enum oriel_kind kind = family_kind(argc > 5 ? argv[5] : "all_reduce");
    test_resources before = resources_now();
    oriel_comm *comm = process_comm(local_ranks, timeout_s, NULL);
    int process = oriel_comm_process(comm);
    int num_processes = oriel_comm_num_processes(comm);

    CHECK(argc > 2, "survivor victim new_store [local ranks] [timeout in ms] [operation]");
    ranks_run(comm, body, &kind);
    CHECK(oriel_comm_check(comm) != ORIEL_OK, "the comm is not revoked");
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "after the failure");
    if (process != victim && strcmp(argv[2], "none") != 0)
        meet_again(process, num_processes, victim, argv[2], local_ranks, kind);
    resources_check(before, "after the second comm");
    printf("clean\n");
    return 0;
}
