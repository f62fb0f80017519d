/* Doorbells. Every process has one futex word in the heap. Whoever changes
 * something a peer may wait for rings the peer's bell afterwards; a waiter reads
 * the bell, looks at its condition, and sleeps only while the bell is unchanged.
 * Both sides use sequentially consistent operations: either the ringer sees the
 * sleeper, or the sleeper sees the new bell. */
#include "base/sys.h"
#include "core/comm.h"

#define NAP_S 0.05

void oriel_comm_ring(oriel_comm *comm, int process)
{
    heap_proc *proc = &comm->heap.procs[process];

    atomic_fetch_add(&proc->bell, 1);
    if (atomic_load(&proc->sleepers) != 0)
        oriel_sys_now->futex_wake(&proc->bell);
}

void oriel_comm_ring_all(oriel_comm *comm)
{
    for (int p = 0; p < comm->num_processes; p++)
        oriel_comm_ring(comm, p);
}

void oriel_group_ring(const oriel_group *group)
{
    for (int i = 0; i < group->num_procs; i++)
        oriel_comm_ring(group->comm, group->procs[i]);
}

uint32_t oriel_comm_bell(const oriel_comm *comm)
{
    return atomic_load(&comm->heap.procs[comm->process].bell);
}

void oriel_comm_sleep(oriel_comm *comm, uint32_t bell, double seconds)
{
    heap_proc *proc = &comm->heap.procs[comm->process];

    atomic_fetch_add(&proc->sleepers, 1);
    oriel_sys_now->futex_wait(&proc->bell, bell, seconds);
    atomic_fetch_sub(&proc->sleepers, 1);
}

int oriel_comm_pause(oriel_comm *comm, oriel_waiter *waiter, uint32_t bell)
{
    /* The clock is read once in 32 turns: it costs more than a turn. */
    if (waiter->turns++ % 32 == 0) {
        double now = oriel_now();
        if (waiter->spin_until == 0.0)
            waiter->spin_until = now + comm->spin;
        else if (now >= waiter->spin_until)
            waiter->spin_until = -1.0;
    }
    if (waiter->spin_until >= 0.0) {
        oriel_relax(comm->oversubscribed);
        return 0;
    }
    waiter->turns = 0;
    waiter->spin_until = 0.0;
    oriel_comm_sleep(comm, bell, NAP_S);
    return 1;
}
