/* Doorbells. Every process has one futex word in the heap, its bell, and a count
 * of the threads that sleep or are about to. A thread that changes what a peer may
 * wait for reads that count afterwards and touches the bell only if it is not 0,
 * so while everybody is awake a ring is one fence and a load that hits the cache.
 *
 * A sleeper counts itself, reads the bell, looks once more at everything it waits
 * for, and only then sleeps while the bell is unchanged. Between the change and
 * the ringer's read there is a sequentially consistent fence, and one between the
 * count and the sleeper's last look: so either the ringer sees the sleeper, or the
 * sleeper sees the change. */
#include "base/sys.h"
#include "core/world/comm.h"

#define NAP_S 0.05
/* A thread that waits in a call of its own has nothing better to do, and being woken
 * costs it more than many small operations: it spins longer than one of XLA's. */
#define PATIENT_SPINS 100.0

/* Called after the fence that follows the change. */
static void ring(const oriel_comm *comm, int process)
{
    heap_proc *proc = &comm->heap.procs[process];

    if (atomic_load_explicit(&proc->sleepers, memory_order_seq_cst) == 0)
        return;
    atomic_fetch_add(&proc->bell, 1);
    oriel_sys_now->futex_wake(&proc->bell);
}

void oriel_comm_ring(oriel_comm *comm, int process)
{
    atomic_thread_fence(memory_order_seq_cst);
    ring(comm, process);
}

void oriel_comm_ring_all(oriel_comm *comm)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (int p = 0; p < comm->num_processes; p++)
        ring(comm, p);
}

void oriel_group_ring(const oriel_group *group)
{
    atomic_thread_fence(memory_order_seq_cst);
    oriel_group_ring_fenced(group);
}

void oriel_group_ring_fenced(const oriel_group *group)
{
    for (int i = 0; i < group->num_procs; i++)
        ring(group->comm, group->procs[i]);
}

int oriel_waiter_sleep(oriel_comm *comm, oriel_waiter *waiter, double seconds)
{
    heap_proc *proc = &comm->heap.procs[comm->process];

    if (!waiter->announced) {
        waiter->announced = 1;
        atomic_fetch_add(&proc->sleepers, 1);
        atomic_thread_fence(memory_order_seq_cst);
        /* Acquire: the look comes after it. */
        waiter->bell = atomic_load_explicit(&proc->bell, memory_order_acquire);
        return 0;
    }
    oriel_sys_now->futex_wait(&proc->bell, waiter->bell, seconds);
    oriel_waiter_end(comm, waiter);
    return 1;
}

void oriel_waiter_end(oriel_comm *comm, oriel_waiter *waiter)
{
    if (waiter->announced)
        atomic_fetch_sub(&comm->heap.procs[comm->process].sleepers, 1);
    *waiter = (oriel_waiter){.patient = waiter->patient};
}

/* Whether the waiter has spun for its time. The clock is read once in 32 turns: it
 * costs more than a turn. */
static int spun(const oriel_comm *comm, oriel_waiter *waiter)
{
    double now;

    if (++waiter->turns % 32 != 0)
        return 0;
    now = oriel_now();
    if (waiter->spin_until == 0.0)
        waiter->spin_until = now + comm->spin * (waiter->patient ? PATIENT_SPINS : 1.0);
    return now >= waiter->spin_until;
}

int oriel_comm_pause(oriel_comm *comm, oriel_waiter *waiter)
{
    if (!waiter->announced && !spun(comm, waiter)) {
        oriel_relax(comm->oversubscribed);
        return 0;
    }
    oriel_waiter_sleep(comm, waiter, NAP_S);
    return 1;
}
