#include "core/world/comm.h"

void oriel_comm_leave(oriel_comm *comm)
{
    atomic_store(&comm->heap.procs[comm->process].leaving, LEAVING_PROGRAM);
}

int oriel_comm_leaving(const oriel_comm *comm)
{
    int n = 0;

    for (int p = 0; p < comm->num_processes; p++)
        n += atomic_load(&comm->heap.procs[p].leaving) != LEAVING_NOT;
    return n;
}

int oriel_comm_cannot_call(const oriel_comm *comm, int process)
{
    const heap_proc *proc = &comm->heap.procs[process];

    return atomic_load(&proc->state) >= PROC_LEFT ||
           atomic_load(&proc->leaving) == LEAVING_FINALIZE;
}

int oriel_comm_num_machines(const oriel_comm *comm)
{
    return comm ? (int)comm->heap.header->num_machines : 0;
}

int oriel_comm_machine(const oriel_comm *comm, int process)
{
    if (comm == NULL || process < 0 || process >= comm->num_processes)
        return -1;
    return comm->heap.procs[process].machine;
}

int oriel_comm_size(const oriel_comm *comm)
{
    return comm ? comm->size : 0;
}

int oriel_comm_first_rank(const oriel_comm *comm)
{
    return comm ? comm->first_rank : -1;
}

int oriel_comm_local_size(const oriel_comm *comm)
{
    return comm ? comm->local_ranks : 0;
}

int oriel_comm_process(const oriel_comm *comm)
{
    return comm ? comm->process : -1;
}

int oriel_comm_num_processes(const oriel_comm *comm)
{
    return comm ? comm->num_processes : 0;
}
