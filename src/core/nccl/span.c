/* The span fabric: cuda within each machine, NCCL between machines. Connections are made before
 * the first call, which must not wait for peers on the host. */
#include "base/config.h"
#include "base/sys.h"
#include "core/nccl/comm.h"

enum { WARM_BYTES = 64 };

static struct oriel_nccl *nccl_of(const oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;

    return devices != NULL ? devices->nccl : NULL;
}

/* ---- connecting ----------------------------------------------------------------------------- */

struct exchange {
    const oriel_comm *comm;
    const cu_stream *streams; /* per local rank */
};

/* One rank's part; in its stage, which nobody uses yet. */
static nccl_result exchange(const oriel_nccl_links *links, int local, void *arg)
{
    const struct exchange *x = arg;
    const oriel_comm *comm = x->comm;
    const oriel_devices *devices = comm->devices;
    const nccl_library *calls = links->nccl;
    nccl_comm link = links->links[local].comm;
    cu_stream stream = x->streams[local];
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

static int all_done(const oriel_comm *comm, const cu_stream *streams)
{
    for (int i = 0; i < comm->local_ranks; i++) {
        cu_result result;

        oriel_cuda_enter(comm->devices->ranks[i].gpu);
        result = oriel_cu->stream_query(streams[i]);
        oriel_cuda_leave();
        if (result == CU_NOT_READY)
            return 0;
    }
    return 1;
}

static oriel_status warm(oriel_comm *comm, struct oriel_nccl *nccl, const cu_stream *streams)
{
    oriel_nccl_wait wait = oriel_nccl_patience(comm, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    struct exchange x = {.comm = comm, .streams = streams};
    const char *what = "connecting the machines";
    oriel_status st = oriel_nccl_links_each(&nccl->links, exchange, &x, what, &wait);

    while (st == ORIEL_OK && !all_done(comm, streams)) {
        if (oriel_comm_aborted(comm))
            return oriel_comm_failure(comm);
        if (oriel_now() > wait.until)
            return oriel_fail(ORIEL_ERR_TIMEOUT, "NCCL: %s did not end in time", what);
        oriel_sys_now->poll(NULL, 0, 1);
    }
    return st;
}

/* Each rank has its own: on one stream a rank of a GPU would wait for those that come after. */
static oriel_status make_streams(const oriel_comm *comm, cu_stream *streams, int destroys)
{
    cu_result result = CU_OK;

    for (int i = 0; i < comm->local_ranks && result == CU_OK; i++) {
        oriel_cuda_enter(comm->devices->ranks[i].gpu);
        if (!destroys)
            result = oriel_cu->stream_create(&streams[i], CU_STREAM_NON_BLOCKING_FLAG, 0);
        else if (streams[i] != NULL)
            oriel_cu->stream_destroy(streams[i]);
        oriel_cuda_leave();
    }
    return oriel_cuda_check(result, "creating a stream");
}

/* Connects each pair of ranks, so that no call has to wait for it. */
static oriel_status connect_pairs(oriel_comm *comm)
{
    struct oriel_nccl *nccl = nccl_of(comm);
    cu_stream streams[DEVICE_RANKS] = {0};
    oriel_status st;

    if (nccl->links.nccl->comm_revoke == NULL)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "%s has no ncclCommRevoke, so that a call could not be ended: 2.28.9 has "
                          "it",
                          nccl->links.nccl->file);
    st = make_streams(comm, streams, 0);
    atomic_store(&nccl->calls, 1);
    if (st == ORIEL_OK)
        st = oriel_nccl_enter_all(comm);
    if (st == ORIEL_OK) {
        st = warm(comm, nccl, streams);
        oriel_nccl_leave_all(nccl);
    }
    make_streams(comm, streams, 1);
    return st;
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
