/* Where ranks outnumber the cores. Processes that yield to each other look alike to the
 * scheduler however they are spread; five on one core and three on the other stay so for
 * long, and those five make every call a quarter slower, three and one by half. So they
 * begin evenly, and who finds that it is one too many on its core goes to another. Nobody
 * is bound: what else runs on the machine is the scheduler's matter. */
#include "base/sys.h"
#include "core/world/comm.h"

/* Between two looks at the others: the scheduler may have reasons of its own. */
#define REST_S 0.01
/* One wait in so many looks at the clock: small calls wait for less than a microsecond. */
enum { WAITS = 8 };

void oriel_spread_show(oriel_comm *comm)
{
    uint64_t cpus[CPU_WORDS];

    oriel_cpus(cpus);
    for (int w = 0; w < CPU_WORDS; w++)
        atomic_fetch_or(&comm->heap.header->cpus[w], cpus[w]);
}

static void show_core(oriel_comm *comm)
{
    _Atomic uint32_t *shown = &comm->heap.procs[comm->process].core;
    uint32_t core = (uint32_t)(oriel_cpu_now() + 1);

    if (atomic_load_explicit(shown, memory_order_relaxed) != core)
        atomic_store_explicit(shown, core, memory_order_relaxed);
}

/* Where each process is bound to a core of its own, none may yield, though each sees one
 * core alone. */
void oriel_spread_begin(oriel_comm *comm)
{
    int cores = 0;
    int ranks = 0;
    int before = 0;

    for (int w = 0; w < CPU_WORDS; w++)
        cores += __builtin_popcountll(atomic_load(&comm->heap.header->cpus[w]));
    for (int p = 0; p < comm->num_processes; p++) {
        int here = oriel_comm_is_here(comm, p);

        ranks += here ? comm->heap.procs[p].local_ranks : 0;
        before += here && p < comm->process;
    }
    comm->oversubscribed = ranks > cores;
    if (comm->oversubscribed && oriel_cpu_count() == 1)
        show_core(comm); /* for good */
    if (!comm->oversubscribed || comm->here <= cores || oriel_cpu_count() != cores)
        return;
    oriel_cpu_visit(before % cores);
    comm->spreads = comm->here == ranks ? cores : 0;
}

/* Which of the cores that the machine's processes see a process was last seen on; -1: none. */
static int core_of(const oriel_comm *comm, int process)
{
    const heap_header *header = comm->heap.header;
    uint32_t seen = atomic_load_explicit(&comm->heap.procs[process].core, memory_order_relaxed);
    uint32_t cpu = seen - 1;
    int nth = 0;

    if (seen == 0 || cpu >= 64 * CPU_WORDS || !oriel_comm_is_here(comm, process))
        return -1;
    for (uint32_t w = 0; w < cpu / 64; w++)
        nth += __builtin_popcountll(atomic_load(&header->cpus[w]));
    return nth +
           __builtin_popcountll(atomic_load(&header->cpus[cpu / 64]) & ((1ull << cpu % 64) - 1));
}

int oriel_spread_together(const oriel_comm *comm, int process)
{
    const heap_proc *procs = comm->heap.procs;
    uint32_t mine = atomic_load_explicit(&procs[comm->process].core, memory_order_relaxed);

    return mine != 0 && atomic_load_explicit(&procs[process].core, memory_order_relaxed) == mine;
}

int oriel_spread_target(const oriel_comm *comm)
{
    uint16_t on[64 * CPU_WORDS] = {0};
    int mine = core_of(comm, comm->process);
    int last = -1;
    int least = 0;

    for (int p = 0; p < comm->num_processes; p++) {
        int core = core_of(comm, p);

        if (core >= 0)
            on[core]++;
        if (core == mine)
            last = p;
    }
    for (int core = 1; core < comm->spreads; core++)
        least = on[core] < on[least] ? core : least;
    /* One alone goes, the last of them. */
    return mine >= 0 && last == comm->process && on[mine] > on[least] + 1 ? least : -1;
}

void oriel_spread_keep(oriel_comm *comm)
{
    unsigned waits;
    double now;
    int target;

    if (!comm->spreads)
        return;
    waits = atomic_load_explicit(&comm->spread_waits, memory_order_relaxed);
    atomic_store_explicit(&comm->spread_waits, waits + 1, memory_order_relaxed);
    if (waits % WAITS != 0)
        return;
    now = oriel_now_coarse();
    show_core(comm);
    if (now < atomic_load_explicit(&comm->spread_at, memory_order_relaxed))
        return;
    atomic_store_explicit(&comm->spread_at, now + REST_S, memory_order_relaxed);
    target = oriel_spread_target(comm);
    if (target < 0 || oriel_cpu_count() != comm->spreads) /* it may have been bound since */
        return;
    oriel_cpu_visit(target);
    show_core(comm);
}
