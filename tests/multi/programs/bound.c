/* Processes bound to one core each: bound SPREAD. The n-th takes core n % SPREAD of
 * those it may have; they yield to each other only where cores are shared. */
#include <sched.h>
#include <stdlib.h>

#include "core/world/comm.h"
#include "support/check.h"
#include "support/process.h"

static void bind_to(int nth)
{
    cpu_set_t all, one;

    CHECK(sched_getaffinity(0, sizeof all, &all) == 0, "no affinity");
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all) && nth-- == 0)
            CPU_SET(cpu, &one);
    }
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "cannot bind");
}

int main(int argc, char **argv)
{
    int spread = process_argument(argc, argv, 1, 1);
    oriel_comm *comm;

    bind_to(atoi(getenv("ORIEL_PROCESS_ID")) % spread);
    CHECK(oriel_cpu_count() == 1, "bound to %d cores", oriel_cpu_count());
    comm = process_comm(1, 30.0, NULL);
    CHECK(comm->oversubscribed == (oriel_comm_size(comm) > spread), "oversubscribed: %d",
          comm->oversubscribed);
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), oriel_comm_first_rank(comm)));
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
