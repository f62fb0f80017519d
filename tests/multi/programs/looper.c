/* All-reduces one after the other, until there is a file of the given name; rank 0
 * looks, and the sum tells the others: looper file [comms] [mode rank]
 *
 *     idle rank   makes five calls, then none until the file is there
 *     stop rank   stops itself before it gives its comms up
 *     gather 0    makes all_gathers instead
 *     windows rank  all have a window of 5,000 bytes, and all but the rank one of 100,000
 *     making rank   stops itself before it makes a window, as the others do */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/check.h"
#include "support/process.h"

enum { COUNT = 256, MAX_COMMS = 4, MAX_RANKS = 8, CALLS_BEFORE_IDLE = 5 };

static void wait_for_file(const char *name)
{
    while (access(name, F_OK) != 0)
        poll(NULL, 0, 5);
}

/* Whether rank 0 has found the file. */
static int call_once(oriel_comm *comm, int rank, const char *mode, int found)
{
    int values[MAX_RANKS][COUNT] = {{0}};
    oriel_group *world = oriel_comm_world(comm);
    int *mine = values[strcmp(mode, "gather") == 0 ? rank : 0];

    mine[0] = found;
    if (strcmp(mode, "gather") == 0)
        CHECK_OK(oriel_all_gather(world, rank, mine, values, COUNT, ORIEL_S32));
    else
        CHECK_OK(oriel_all_reduce(world, rank, mine, mine, COUNT, ORIEL_S32, ORIEL_SUM));
    return values[0][0];
}

/* They go with the comm. */
static void make_windows(oriel_comm *comm, const char *mode, int special)
{
    oriel_window *window = NULL;
    oriel_window *other = NULL;
    void *part = NULL;

    if (strcmp(mode, "windows") != 0 && strcmp(mode, "making") != 0)
        return;
    if (strcmp(mode, "making") == 0 && special)
        raise(SIGSTOP);
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), 5000, &window));
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), 100000, &other));
    CHECK_OK(oriel_window_ptr(other, oriel_comm_first_rank(comm), &part));
    memset(part, 1, 100000);
    if (special)
        oriel_window_free(other);
}

int main(int argc, char **argv)
{
    int comms = process_argument(argc, argv, 2, 1);
    const char *mode = argc > 3 ? argv[3] : "";
    oriel_comm *comm[MAX_COMMS];
    int found = 0;
    int rank;
    int special;

    CHECK(argc > 1 && comms >= 1 && comms <= MAX_COMMS, "looper file [comms] [mode rank]");
    for (int i = 0; i < comms; i++)
        comm[i] = process_comm(1, 60.0, NULL);
    rank = oriel_comm_first_rank(comm[0]);
    special = rank == process_argument(argc, argv, 4, -1);
    printf("pid %d rank %d\n", (int)getpid(), rank);
    fflush(stdout);
    CHECK(oriel_comm_size(comm[0]) <= MAX_RANKS, "%d ranks", oriel_comm_size(comm[0]));
    make_windows(comm[0], mode, special);
    for (int call = 0; !found; call++) {
        if (special && strcmp(mode, "idle") == 0 && call == CALLS_BEFORE_IDLE)
            wait_for_file(argv[1]);
        found = call_once(comm[0], rank, mode, rank == 0 && access(argv[1], F_OK) == 0);
    }
    if (special && strcmp(mode, "stop") == 0)
        raise(SIGSTOP);
    for (int i = 0; i < comms; i++)
        CHECK_OK(oriel_comm_destroy(comm[i]));
    return 0;
}
