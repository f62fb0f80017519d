/* labels: tsan */
/* processes: 3 */
/* Messages between processes: messages [seeds] [how], with how of plain, or kill: rank 1 dies, and
 * those that wait for its messages, or for it to take theirs, are told. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/world/comm.h"
#include "support/calls/messages.h"
#include "support/check.h"
#include "support/process.h"
#include "support/resources.h"

enum { LARGE = 1 << 20, VICTIM = 1 };
static const double patience_s = 60.0;
static char large[LARGE];

static void in_any_order(oriel_group *world, int rank, unsigned seeds)
{
    for (unsigned seed = 0; seed < seeds; seed++) {
        messages_started(world, rank, seed, LARGE);
        messages_blocking(world, rank, seed, seed % 2 ? 1000 : LARGE);
        messages_exchanged(world, rank, seed, LARGE);
    }
}

/* Rank 0 waits to be received, the last one to receive; the others have no part in either. */
static void with_the_dead(oriel_group *world, int rank)
{
    int last = oriel_group_size(world) - 1;
    oriel_status st = ORIEL_OK;

    if (rank == VICTIM)
        kill(getpid(), SIGKILL);
    if (rank == 0)
        st = oriel_send(world, rank, large, LARGE, ORIEL_U8, VICTIM);
    else if (rank == last)
        st = oriel_recv(world, rank, large, LARGE, ORIEL_U8, VICTIM);
    printf("%s %s\n", oriel_status_name(st), oriel_last_error());
}

int main(int argc, char **argv)
{
    const char *how = argc > 2 ? argv[2] : "plain";
    test_resources before = resources_now();
    oriel_comm *comm = process_comm(1, patience_s, NULL);
    oriel_group *world = oriel_comm_world(comm);
    int rank = oriel_comm_first_rank(comm);

    in_any_order(world, rank, (unsigned)process_argument(argc, argv, 1, 3));
    CHECK_OK(oriel_barrier(world, rank));
    CHECK_OK(oriel_barrier(world, rank)); /* now all have left the first */
    if (strcmp(how, "kill") == 0)
        with_the_dead(world, rank);
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "at the end");
    printf("clean\n");
    return 0;
}
