/* Whether processes can read each other's memory (process_vm_readv): the same user,
 * one pid namespace, and no hardening that forbids it. Found out by doing it, so that
 * no operation has to fail for it. */
#include "base/sys.h"
#include "core/comm.h"
#include "core/hash.h"

void oriel_reads_show(oriel_comm *comm)
{
    heap_proc *proc = &comm->heap.procs[comm->process];

    comm->token = oriel_mix((uint64_t)(uintptr_t)comm ^ (uint64_t)comm->pid << 32 ^
                            (uint64_t)(oriel_now() * 1e9));
    proc->token = comm->token;
    proc->token_at = (uint64_t)(uintptr_t)&comm->token;
}

/* The number of a process that has ended is given to another once it comes round, after tens of
 * thousands of others: no machine starts these in so few milliseconds. */
#define SAME_PID_S 5e-3

oriel_status oriel_reads_copy(const oriel_comm *comm, int process, double alive, void *dst,
                              const void *src, size_t bytes)
{
    const heap_proc *proc = &comm->heap.procs[process];
    uint64_t token = 0;
    oriel_status st;

    if (alive > 0) {
        st = comm->fabric->memory_read(proc->pid, dst, src, bytes, NULL, NULL);
        if (st != ORIEL_OK || oriel_now_coarse() - alive < SAME_PID_S)
            return st;
        bytes = 0; /* the token is still to be seen */
    }
    st = comm->fabric->memory_read(proc->pid, dst, src, bytes,
                                   (const void *)(uintptr_t)proc->token_at, &token);
    if (st == ORIEL_OK && token != proc->token)
        return oriel_fail(ORIEL_ERR_PEER, "pid %d is not process %d any more", (int)proc->pid,
                          process);
    return st;
}

void oriel_reads_probe(oriel_comm *comm)
{
    uint32_t reads = comm->here > 1 && comm->heap.header->direct;

    for (int p = 0; reads && p < comm->num_processes; p++)
        reads =
            !oriel_comm_is_here(comm, p) || oriel_reads_copy(comm, p, 0, NULL, NULL, 0) == ORIEL_OK;
    atomic_store(&comm->heap.procs[comm->process].reads, reads);
}

int oriel_group_reads(const oriel_group *group)
{
    for (int i = 0; i < group->num_procs; i++) {
        if (!atomic_load_explicit(&group->comm->heap.procs[group->procs[i]].reads,
                                  memory_order_relaxed))
            return 0;
    }
    return 1;
}
