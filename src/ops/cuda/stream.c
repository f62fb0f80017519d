#include "ops/cuda/launch.h"

oriel_status oriel_stream_copy(const oriel_comm *comm, int rank, void *to, const void *from,
                               size_t bytes, void *stream)
{
    oriel_status st;

    oriel_cuda_enter(oriel_device_of(comm, rank)->gpu);
    st = oriel_cuda_check(
        oriel_cu->copy((cu_ptr)(uintptr_t)to, (cu_ptr)(uintptr_t)from, bytes, stream),
        "copying an operand");
    oriel_cuda_leave();
    return st;
}

int oriel_stream_busy(const oriel_comm *comm, int rank, void *stream)
{
    cu_result result;

    oriel_cuda_enter(oriel_device_of(comm, rank)->gpu);
    result = oriel_cu->stream_query(stream);
    oriel_cuda_leave();
    return result == CU_NOT_READY;
}

oriel_status oriel_stream_settle(oriel_comm *comm, int rank, void *stream)
{
    oriel_status st;

    oriel_cuda_enter(oriel_device_of(comm, rank)->gpu);
    st = oriel_cuda_check(oriel_cu->stream_sync(stream), "waiting for a stream");
    oriel_cuda_leave();
    if (st == ORIEL_OK && oriel_launch_failed(oriel_comm_world(comm), rank))
        st = oriel_comm_failure(comm);
    return st;
}

oriel_status oriel_buffer_offer(oriel_comm *comm, int rank, const void *ptr, size_t bytes)
{
    const oriel_gpu *gpu;
    oriel_status st = ORIEL_OK;

    if (comm == NULL || comm->devices == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "comm is NULL, or its ranks are CPUs");
    if (rank < comm->first_rank || rank >= comm->first_rank + comm->local_ranks)
        return oriel_fail(ORIEL_ERR_INVALID, "rank is %d; process %d holds ranks %d to %d", rank,
                          comm->process, comm->first_rank,
                          comm->first_rank + comm->local_ranks - 1);
    gpu = oriel_device_of(comm, rank)->gpu;
    oriel_cuda_enter(gpu);
    if (oriel_register(comm, rank, ptr, bytes, gpu->stream).stale)
        st = oriel_cuda_check(oriel_cu->stream_sync(gpu->stream), "marking a buffer that is gone");
    oriel_cuda_leave();
    return st;
}
