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

static int finds_token(const oriel_comm *comm, const heap_proc *proc)
{
    uint64_t found = 0;

    return comm->fabric->memory_read(proc->pid, &found, (const void *)(uintptr_t)proc->token_at,
                                     sizeof found) == ORIEL_OK &&
           found == proc->token;
}

void oriel_reads_probe(oriel_comm *comm)
{
    uint32_t reads = comm->num_processes > 1 && comm->heap.header->direct;

    for (int p = 0; reads && p < comm->num_processes; p++)
        reads = p == comm->process || finds_token(comm, &comm->heap.procs[p]);
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
