/* All-reduces one after the other, until there is a file of the given name; rank 0
 * looks, and the sum tells the others: looper file [comms] [mode rank]
 *
 *     idle rank   makes five calls, then none until the file is there
 *     stop rank   stops itself before it gives its comms up */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/check.h"
#include "support/process.h"

enum { COUNT = 256, MAX_COMMS = 4, CALLS_BEFORE_IDLE = 5 };

static void wait_for_file(const char *name)
{
    while (access(name, F_OK) != 0)
        poll(NULL, 0, 5);
}

int main(int argc, char **argv)
{
    int comms = process_argument(argc, argv, 2, 1);
    const char *mode = argc > 3 ? argv[3] : "";
    oriel_comm *comm[MAX_COMMS];
    int values[COUNT] = {0};
    int rank;
    int special;

    CHECK(argc > 1 && comms >= 1 && comms <= MAX_COMMS, "looper file [comms] [mode rank]");
    for (int i = 0; i < comms; i++)
        comm[i] = process_comm(1, 60.0, NULL);
    rank = oriel_comm_first_rank(comm[0]);
    special = rank == process_argument(argc, argv, 4, -1);
    printf("pid %d rank %d\n", (int)getpid(), rank);
    fflush(stdout);
    for (int call = 0; values[0] == 0; call++) {
        if (special && strcmp(mode, "idle") == 0 && call == CALLS_BEFORE_IDLE)
            wait_for_file(argv[1]);
        values[0] = rank == 0 && access(argv[1], F_OK) == 0;
        CHECK_OK(oriel_all_reduce(oriel_comm_world(comm[0]), rank, values, values, COUNT, ORIEL_S32,
                                  ORIEL_SUM));
    }
    if (special && strcmp(mode, "stop") == 0)
        raise(SIGSTOP);
    for (int i = 0; i < comms; i++)
        CHECK_OK(oriel_comm_destroy(comm[i]));
    return 0;
}
