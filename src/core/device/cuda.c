/* The cuda fabric of device memory: a heap or a buffer is exported as a descriptor, which peers
 * fetch from the port of its process and map. */
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "core/device/fabric.h"
#include "core/device/register.h"
#include "fabric/port.h"

#define FETCH_S 2.0 /* a peer's port answers a registrar in this time, or the buffer is staged */

/* ---- heaps ---------------------------------------------------------------------------------- */

void oriel_cuda_heap_close(const oriel_gpu *gpu, oriel_cuda_memory *heap)
{
    (void)gpu;
    oriel_cuda_memory_close(heap);
}

/* Maps what the process of `rank` has under `id`, where all GPUs of this process see it. */
static oriel_status map(const oriel_comm *comm, int rank, uint64_t id, size_t bytes,
                        double timeout_s, oriel_cuda_memory *memory_p)
{
    const oriel_devices *devices = comm->devices;
    const oriel_ticket *ticket = &comm->heap.procs[comm->heap.ranks[rank].process].ticket;
    oriel_cuda_memory memory;
    int fd = -1;
    oriel_status st = oriel_port_fetch(ticket, DEVICE_SEGMENT | id, timeout_s, &fd);

    if (st != ORIEL_OK)
        return st;
    st = oriel_cuda_memory_import(fd, bytes, id < HEAP_MAX_RANKS, &memory); /* a heap lasts */
    oriel_sys_now->close(fd);
    if (st != ORIEL_OK)
        return st;
    st = oriel_cuda_memory_open(&memory, devices->gpus, devices->num_gpus);
    if (st == ORIEL_OK)
        *memory_p = memory;
    else
        oriel_cuda_memory_close(&memory);
    return st;
}

static oriel_status map_heap(oriel_comm *comm, int rank)
{
    oriel_devices *devices = comm->devices;
    const heap_rank *shown = &comm->heap.ranks[rank];
    oriel_status st = map(comm, rank, (uint64_t)rank, oriel_device_card(&comm->heap, rank)->bytes,
                          comm->timeout, &devices->mapped[rank]);

    if (st != ORIEL_OK)
        return oriel_fail_in(st, "the device memory of rank %d (process %d)", rank, shown->process);
    oriel_heap_see(devices, rank, devices->mapped[rank].base);
    return ORIEL_OK;
}

oriel_status oriel_cuda_connect(oriel_comm *comm, oriel_status mine)
{
    oriel_devices *devices = comm->devices;
    oriel_status st = mine;

    for (int r = 0; r < comm->size && st == ORIEL_OK; r++) {
        int local = r - comm->first_rank;

        if (!oriel_comm_is_here(comm, comm->heap.ranks[r].process))
            continue;
        if (local >= 0 && local < comm->local_ranks)
            st = oriel_cuda_memory_open(&devices->ranks[local].heap, devices->gpus,
                                        devices->num_gpus);
        else
            st = map_heap(comm, r);
    }
    return st;
}

/* ---- buffers -------------------------------------------------------------------------------- */

oriel_status oriel_cuda_buffer_export(const oriel_device_rank *rank, oriel_export *buffer)
{
    cu_handle handle;
    cu_result result = oriel_cu->mem_retain(&handle, (void *)(uintptr_t)buffer->base);

    (void)rank;
    if (result == CU_OK) {
        result = oriel_cu->mem_export(&buffer->fd, handle, CU_HANDLE_POSIX_FD, 0);
        oriel_cu->mem_release(handle);
    }
    return oriel_cuda_check(result, "exporting a buffer");
}

static oriel_status map_window(oriel_comm *comm, int rank, int number, oriel_cuda_memory *memory)
{
    oriel_status st = map(comm, rank, (uint64_t)(number + 1) << 32 | (uint64_t)rank,
                          shown_of(comm, rank, number)->bytes, FETCH_S, memory);

    if (st == ORIEL_OK)
        st = oriel_windows_tell(comm->devices, rank, number, memory->base);
    if (st != ORIEL_OK)
        oriel_cuda_memory_close(memory);
    return st;
}

int oriel_cuda_buffer_import(oriel_comm *comm, int rank, int number, uint32_t generation)
{
    oriel_import *import = &comm->devices->imports[rank][number];
    heap_export *shown = shown_of(comm, rank, number);

    import->generation = generation;
    oriel_cuda_memory_close(&import->memory);
    if (map_window(comm, rank, number, &import->memory) == ORIEL_OK)
        atomic_fetch_add(&shown->mapped, 1);
    else
        oriel_log(ORIEL_LOG_INFO, "a buffer of rank %d is staged: %s", rank, oriel_last_error());
    oriel_comm_ring(comm, comm->heap.ranks[rank].process);
    return 1;
}

/* ---- what there is nothing to do for ------------------------------------------------------- */

static oriel_status invite(oriel_invitation *invitation_p)
{
    *invitation_p = (oriel_invitation){{0}};
    return ORIEL_OK;
}

oriel_status oriel_no_rounds_open(oriel_comm *comm)
{
    (void)comm;
    return ORIEL_OK;
}

int oriel_no_rounds_step(oriel_comm *comm)
{
    (void)comm;
    return 0;
}

int oriel_no_rounds_may_end(oriel_comm *comm)
{
    (void)comm;
    return 1;
}

static void look(oriel_comm *comm)
{
    (void)comm;
}

static oriel_status part(oriel_comm *comm)
{
    (void)comm;
    return ORIEL_OK;
}

static int close_fabric(oriel_comm *comm)
{
    (void)comm;
    return 1;
}

const oriel_device_fabric oriel_device_cuda = {
    .name = "cuda",
    .spans = 0,
    .invite = invite,
    .heap_create = oriel_cuda_memory_create,
    .heap_close = oriel_cuda_heap_close,
    .connect = oriel_cuda_connect,
    .buffer_export = oriel_cuda_buffer_export,
    .buffer_import = oriel_cuda_buffer_import,
    .rounds_open = oriel_no_rounds_open,
    .rounds_step = oriel_no_rounds_step,
    .rounds_may_end = oriel_no_rounds_may_end,
    .look = look,
    .part = part,
    .close = close_fabric,
};
