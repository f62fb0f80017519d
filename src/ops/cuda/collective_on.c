/* The public operations on a stream: describe the call, launch it. */
#include "ops/cuda/launch.h"

static oriel_op describe(enum oriel_kind kind, const void *send, void *recv, size_t count,
                         oriel_dtype dtype)
{
    return (oriel_op){.kind = kind, .dtype = dtype, .send = send, .recv = recv, .count = count};
}

oriel_status oriel_all_reduce_on(oriel_group *group, int rank, const void *send, void *recv,
                                 size_t count, oriel_dtype dtype, oriel_redop redop, void *stream)
{
    return oriel_all_reduce_via_on(group, rank, send, recv, count, dtype, redop, ORIEL_VIA_AUTO,
                                   stream);
}

oriel_status oriel_all_reduce_via_on(oriel_group *group, int rank, const void *send, void *recv,
                                     size_t count, oriel_dtype dtype, oriel_redop redop,
                                     oriel_via via, void *stream)
{
    oriel_op call = describe(ORIEL_KIND_ALL_REDUCE, send, recv, count, dtype);

    call.redop = redop;
    call.via = via;
    return oriel_launch(group, rank, &call, stream);
}

oriel_status oriel_all_gather_on(oriel_group *group, int rank, const void *send, void *recv,
                                 size_t count, oriel_dtype dtype, void *stream)
{
    oriel_op call = describe(ORIEL_KIND_ALL_GATHER, send, recv, count, dtype);

    return oriel_launch(group, rank, &call, stream);
}

oriel_status oriel_reduce_scatter_on(oriel_group *group, int rank, const void *send, void *recv,
                                     size_t count, oriel_dtype dtype, oriel_redop redop,
                                     void *stream)
{
    oriel_op call = describe(ORIEL_KIND_REDUCE_SCATTER, send, recv, count, dtype);

    call.redop = redop;
    return oriel_launch(group, rank, &call, stream);
}

oriel_status oriel_all_to_all_on(oriel_group *group, int rank, const void *send, void *recv,
                                 size_t count, oriel_dtype dtype, void *stream)
{
    oriel_op call = describe(ORIEL_KIND_ALL_TO_ALL, send, recv, count, dtype);

    return oriel_launch(group, rank, &call, stream);
}

oriel_status oriel_broadcast_on(oriel_group *group, int rank, const void *send, void *recv,
                                size_t count, oriel_dtype dtype, int root, void *stream)
{
    oriel_op call = describe(ORIEL_KIND_BROADCAST, send, recv, count, dtype);

    call.root = root;
    return oriel_launch(group, rank, &call, stream);
}

oriel_status oriel_permute_on(oriel_group *group, int rank, const void *send, void *recv,
                              size_t count, oriel_dtype dtype, const int *pairs, int num_pairs,
                              void *stream)
{
    oriel_op call = describe(ORIEL_KIND_PERMUTE, send, recv, count, dtype);

    call.pairs = pairs;
    call.num_pairs = num_pairs;
    return oriel_launch(group, rank, &call, stream);
}

oriel_status oriel_barrier_on(oriel_group *group, int rank, void *stream)
{
    oriel_op call = {.kind = ORIEL_KIND_BARRIER};

    return oriel_launch(group, rank, &call, stream);
}

oriel_status oriel_ragged_all_to_all_on(oriel_group *group, int rank, const void *send, void *recv,
                                        oriel_dtype dtype, const oriel_ragged_on *ragged,
                                        void *stream)
{
    oriel_ragged rows = ORIEL_RAGGED_INIT;
    oriel_op call = describe(ORIEL_KIND_RAGGED_ALL_TO_ALL, send, recv, 0, dtype);

    if (ragged == NULL || ragged->struct_size != sizeof *ragged)
        return oriel_fail(ORIEL_ERR_INVALID, "ragged is NULL or its struct_size wrong: start from "
                                             "ORIEL_RAGGED_ON_INIT");
    rows.row = ragged->row;
    rows.send_rows = ragged->send_rows;
    rows.recv_rows = ragged->recv_rows;
    rows.slices = ragged->slices;
    call.ragged = &rows;
    return oriel_launch_ragged(group, rank, &call, ragged, stream);
}
