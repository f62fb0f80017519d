/* Where ranks outnumber the cores. Processes that yield to each other look alike to the
 * scheduler however they are spread; five on one core and three on the other stay so for
 * long, and those five make every call a quarter slower, three and one by half. So they
 * begin evenly. Nobody is bound: what else runs on the machine is the scheduler's matter. */
#include "base/sys.h"
#include "core/world/comm.h"

void oriel_spread_show(oriel_comm *comm)
{
    uint64_t cpus[CPU_WORDS];

    oriel_cpus(cpus);
    for (int w = 0; w < CPU_WORDS; w++)
        atomic_fetch_or(&oriel_control(&comm->heap)->cpus[w], cpus[w]);
}

/* Where each process is bound to a core of its own, none may yield, though each sees one
 * core alone. */
void oriel_spread_begin(oriel_comm *comm)
{
    int cores = 0;
    int ranks = 0;
    int before = 0;

    for (int w = 0; w < CPU_WORDS; w++)
        cores += __builtin_popcountll(atomic_load(&oriel_control(&comm->heap)->cpus[w]));
    for (int p = 0; p < comm->num_processes; p++) {
        int here = oriel_comm_is_here(comm, p);

        ranks += here ? comm->heap.procs[p].local_ranks : 0;
        before += here && p < comm->process;
    }
    comm->oversubscribed = ranks > cores;
    if (comm->oversubscribed && comm->here > cores && oriel_cpu_count() == cores)
        oriel_cpu_visit(before % cores);
}
