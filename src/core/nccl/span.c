/* The span fabric: cuda within each machine, NCCL between machines. Connections are made before
 * the first call, which must not wait for peers on the host. */
#include "core/nccl/comm.h"

enum { WARM_BYTES = 64 };

/* One rank's part of an exchange between all pairs; in its stage, which nobody uses yet. */
static nccl_result exchange(const oriel_nccl_links *links, int local, void *arg)
{
    const oriel_comm *comm = arg;
    const oriel_devices *devices = comm->devices;
    const nccl_library *calls = links->nccl;
    nccl_comm link = links->links[local].comm;
    cu_stream stream = devices->nccl->streams[local].stream;
    char *at = (char *)(uintptr_t)(devices->ranks[local].heap.base + devices->stage_at);
    nccl_result result = NCCL_SUCCESS;

    for (int r = 0; r < comm->size && result == NCCL_SUCCESS; r++) {
        char *to = at + (size_t)(r + 1) * WARM_BYTES;

        if (r == comm->first_rank + local)
            continue;
        result = calls->send(at, WARM_BYTES, NCCL_INT8, r, link, stream);
        if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS)
            result = calls->recv(to, WARM_BYTES, NCCL_INT8, r, link, stream);
        if (result == NCCL_IN_PROGRESS)
            result = NCCL_SUCCESS;
    }
    return result;
}

static oriel_status exchange_all(oriel_comm *comm)
{
    return oriel_nccl_call_all(comm, exchange, comm, "connecting the machines");
}

static oriel_status connect_pairs(oriel_comm *comm)
{
    oriel_status st = oriel_nccl_check_calls(comm->devices->nccl->links.nccl);

    return st == ORIEL_OK ? oriel_nccl_first_calls(comm, exchange_all) : st;
}

static oriel_status connect_machines(oriel_comm *comm, oriel_status mine)
{
    return oriel_nccl_connect(comm, oriel_cuda_connect(comm, mine), connect_pairs);
}

const oriel_device_fabric oriel_device_span = {
    .name = "cuda",
    .spans = 1,
    .invite = oriel_nccl_invite,
    .heap_create = oriel_cuda_memory_create,
    .heap_close = oriel_cuda_heap_close,
    .connect = connect_machines,
    .buffer_export = oriel_cuda_buffer_export,
    .buffer_import = oriel_cuda_buffer_import,
    .rounds_open = oriel_no_rounds_open,
    .rounds_step = oriel_no_rounds_step,
    .rounds_may_end = oriel_no_rounds_may_end,
    .look = oriel_nccl_look,
    .part = oriel_nccl_part,
    .close = oriel_nccl_close,
};
