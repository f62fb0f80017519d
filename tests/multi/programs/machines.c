/* A process of a job on several machines:
 *
 *     machines [once|forever]
 *
 * Within its machine everything works; what spans machines is refused in host memory. Meets
 * the others once, or until that fails. */
#include <stdio.h>
#include <string.h>

#include "base/sys.h"
#include "core/world/comm.h"
#include "support/check.h"
#include "support/process.h"

enum { COUNT = 1000, MEETINGS = 20 };

static oriel_group *machine_group(oriel_comm *comm)
{
    oriel_group *group = NULL;
    int ranks[HEAP_MAX_RANKS];
    int n = 0;

    for (int r = 0; r < comm->size; r++) {
        if (oriel_comm_is_here(comm, comm->heap.ranks[r].process))
            ranks[n++] = r;
    }
    CHECK_OK(oriel_group_create(comm, ranks, n, &group));
    return group;
}

/* Sums of the ranks' numbers. */
static void use_machine(oriel_comm *comm, oriel_group *group, int count)
{
    int rank = oriel_comm_first_rank(comm);
    int32_t send[COUNT], recv[COUNT];
    int sum = 0;

    for (int i = 0; i < group->n; i++)
        sum += group->ranks[i];
    for (int i = 0; i < count; i++)
        send[i] = rank;
    CHECK_OK(oriel_all_reduce(group, rank, send, recv, (size_t)count, ORIEL_S32, ORIEL_SUM));
    for (int i = 0; i < count; i++)
        CHECK(recv[i] == sum, "element %d is %d instead of %d", i, recv[i], sum);
    CHECK_OK(oriel_barrier(group, rank));
}

static void try_across(oriel_comm *comm)
{
    int rank = oriel_comm_first_rank(comm);
    float send = 1, recv = 0;
    oriel_window *window = NULL;

    CHECK_IS(ORIEL_ERR_UNSUPPORTED,
             oriel_all_reduce(oriel_comm_world(comm), rank, &send, &recv, 1, ORIEL_F32, ORIEL_SUM));
    check_says("all_reduce", "spans machines", "UCX", NULL);
    CHECK_IS(ORIEL_ERR_UNSUPPORTED, oriel_window_create(oriel_comm_world(comm), 4096, &window));
    check_says("machines", "UCX", NULL);
    CHECK_OK(oriel_comm_check(comm)); /* nothing is broken by that */
}

/* One process votes against: all hear its sentence; then process 0 shares something. */
static void vote(oriel_comm *comm)
{
    int last = oriel_comm_num_processes(comm) - 1;
    int mine = oriel_comm_process(comm);
    char word[32] = "nothing";
    oriel_status st = mine == last ? oriel_fail(ORIEL_ERR_INVALID, "no, says %d", mine) : ORIEL_OK;

    CHECK_IS(ORIEL_ERR_INVALID, oriel_comm_agree(comm, st, 30.0));
    check_says("no, says", NULL);
    if (mine == 0)
        strcpy(word, "something");
    CHECK_OK(oriel_comm_share(comm, ORIEL_OK, word, sizeof word, 30.0));
    CHECK(strcmp(word, "something") == 0, "process 0 shared \"%.32s\"", word);
}

static oriel_status meet_until_failure(oriel_comm *comm)
{
    oriel_status st = ORIEL_OK;

    printf("ready\n");
    fflush(stdout);
    while (st == ORIEL_OK)
        st = oriel_comm_barrier(comm);
    printf("failed %.6f %s %s\n", oriel_now(), oriel_status_name(st), oriel_last_error());
    return st;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "once";
    oriel_comm *comm = process_comm(1, 60.0, NULL);
    oriel_group *group = machine_group(comm);
    int machines = (int)comm->heap.header->num_machines;
    int n = group->n;

    use_machine(comm, group, 1);
    use_machine(comm, group, COUNT);
    if (machines > 1)
        try_across(comm);
    for (int i = 0; i < MEETINGS; i++)
        CHECK_OK(oriel_comm_barrier(comm));
    vote(comm);
    if (strcmp(how, "forever") == 0)
        CHECK(meet_until_failure(comm) != ORIEL_OK, "the comm is not revoked");
    oriel_group_destroy(group);
    CHECK_OK(oriel_comm_destroy(comm));
    printf("clean: %d machines, %d ranks here\n", machines, n);
    return 0;
}
