/* A process of a job one of whose processes is killed or stopped:
 *
 *     survivor victim new_store [local ranks] [timeout in ms]
 *
 * Calls all_reduce with sizes of all kinds until one fails, says when and how,
 * leaves nothing behind and meets the other survivors in a new comm, unless the
 * new store is "none". */
#include <stdio.h>
#include <string.h>

#include "base/sys.h"
#include "core/comm.h"
#include "support/calls.h"
#include "support/check.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/resources.h"

enum { MANY = 100 * 1000 * 1000 };

/* One random call; the status of its all_reduce. */
static oriel_status call_once(oriel_group *group, int rank, unsigned i)
{
    test_call call = call_random(i, i % 4 == 0 ? 600 * 1000 : 3000);
    size_t bytes = call.count * oriel_dtype_size(call.dtype);
    test_buffer send = buffer_make(bytes, call.send_shift);
    test_buffer recv = buffer_make(bytes, call.recv_shift);
    oriel_status st;
    long wrong;

    values_fill(send.data, call.count, call.dtype, call.op, rank, call.seed);
    st = oriel_all_reduce(group, rank, send.data, recv.data, call.count, call.dtype, call.op);
    if (st == ORIEL_OK)
        wrong = values_wrong(recv.data, call.count, call.dtype, call.op, group->ranks, group->n,
                             call.seed);
    else
        wrong = values_unpoisoned(recv.data, call.count, call.dtype);
    CHECK(wrong < 0, "rank %d, call %u, %s: element %ld", rank, i, oriel_status_name(st), wrong);
    buffer_free(&send);
    buffer_free(&recv);
    return st;
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    oriel_group *world = oriel_comm_world(comm);
    oriel_status st = call_once(world, rank, 0);

    (void)arg;
    if (st == ORIEL_OK && rank == oriel_comm_first_rank(comm))
        printf("ready\n");
    fflush(stdout);
    for (unsigned i = 1; st == ORIEL_OK && i < MANY; i++)
        st = call_once(world, rank, i);
    printf("failed %.6f rank %d %s %s\n", oriel_now(), rank, oriel_status_name(st),
           oriel_last_error());
    st = call_once(world, rank, 0);
    CHECK(st != ORIEL_OK, "a revoked comm still works");
}

/* Those who are left, renumbered. */
static void meet_again(int process, int num_processes, int victim, const char *store,
                       int local_ranks)
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
            CHECK_OK(call_once(oriel_comm_world(comm), oriel_comm_first_rank(comm), i));
    }
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    int victim = process_argument(argc, argv, 1, -1);
    int local_ranks = process_argument(argc, argv, 3, 1);
    double timeout_s = process_argument(argc, argv, 4, 60000) * 1e-3;
    test_resources before = resources_now();
    oriel_comm *comm = process_comm(local_ranks, timeout_s, NULL);
    int process = oriel_comm_process(comm);
    int num_processes = oriel_comm_num_processes(comm);

    CHECK(argc > 2, "survivor victim new_store [local ranks] [timeout in ms]");
    ranks_run(comm, body, NULL);
    CHECK(oriel_comm_check(comm) != ORIEL_OK, "the comm is not revoked");
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "after the failure");
    if (process != victim && strcmp(argv[2], "none") != 0)
        meet_again(process, num_processes, victim, argv[2], local_ranks);
    resources_check(before, "after the second comm");
    printf("clean\n");
    return 0;
}
