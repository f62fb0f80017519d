/* Whether processes can read each other's memory (process_vm_readv): the same user,
 * one pid namespace, and no hardening that forbids it. Found out by doing it, so that
 * no operation has to fail for it. */
#include "base/sys.h"
#include "core/world/comm.h"
#include "base/hash.h"

#include <string.h>

void oriel_reads_show(oriel_comm *comm)
{
    heap_proc *proc = &comm->heap.procs[comm->process];

    comm->token = oriel_mix((uint64_t)(uintptr_t)comm ^ (uint64_t)comm->pid << 32 ^
                            (uint64_t)(oriel_now() * 1e9));
    proc->token = comm->token;
    proc->token_at = (uint64_t)(uintptr_t)&comm->token;
}

/* When the thread ends, which is before its process gives its pid back, the system puts
 * FUTEX_OWNER_DIED in place of its id. */
void oriel_reads_hold_robust(oriel_comm *comm, oriel_robust *robust)
{
    _Atomic uint32_t *watcher = &comm->heap.procs[comm->process].watcher;

    memset(robust, 0, sizeof *robust);
    if (oriel_sys_now->get_robust(&robust->before) != 0)
        return;
    robust->head.list.next = &robust->word;
    robust->word.next = &robust->head.list;
    robust->head.futex_offset = (long)((uintptr_t)watcher - (uintptr_t)&robust->word);
    if (oriel_sys_now->set_robust(&robust->head) == 0)
        atomic_store(watcher, (uint32_t)oriel_thread_id());
}

void oriel_reads_drop_robust(oriel_comm *comm, const oriel_robust *robust)
{
    if (atomic_exchange(&comm->heap.procs[comm->process].watcher, 0) != 0)
        oriel_sys_now->set_robust(robust->before);
}

/* If so, it has been, and its pid was its own. */
static int is_alive(const heap_proc *proc)
{
    return (atomic_load_explicit(&proc->watcher, memory_order_acquire) & FUTEX_TID_MASK) != 0;
}

static oriel_status gone(const heap_proc *proc, int process)
{
    return oriel_fail(ORIEL_ERR_PEER, "pid %d is not process %d any more", (int)proc->pid, process);
}

/* The token tells the process that the memory was of, without a thread that stands for it. */
static oriel_status copy_with_token(const oriel_comm *comm, int process, void *dst, const void *src,
                                    size_t bytes)
{
    const heap_proc *proc = &comm->heap.procs[process];
    uint64_t token = 0;
    oriel_status st = comm->fabric->memory_read(proc->pid, dst, src, bytes,
                                                (const void *)(uintptr_t)proc->token_at, &token);

    return st == ORIEL_OK && token != proc->token ? gone(proc, process) : st;
}

oriel_status oriel_reads_copy(const oriel_comm *comm, int process, void *dst, const void *src,
                              size_t bytes)
{
    const heap_proc *proc = &comm->heap.procs[process];
    oriel_status st;

    if (!is_alive(proc))
        return copy_with_token(comm, process, dst, src, bytes);
    st = comm->fabric->memory_read(proc->pid, dst, src, bytes, NULL, NULL);
    return st == ORIEL_OK && !is_alive(proc) ? gone(proc, process) : st;
}

void oriel_reads_probe(oriel_comm *comm)
{
    uint32_t reads = comm->here > 1 && comm->heap.header->direct;

    for (int p = 0; reads && p < comm->num_processes; p++)
        reads = !oriel_comm_is_here(comm, p) || copy_with_token(comm, p, NULL, NULL, 0) == ORIEL_OK;
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
