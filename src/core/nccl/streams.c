/* Streams of NCCL's own calls, which the host launches; and the first calls on them. What an
 * algorithm of NCCL's needs is connected at its first use, which waits for all ranks: so that
 * happens while the comm is made. */
#include "base/config.h"
#include "base/sys.h"
#include "core/nccl/comm.h"

/* Sizes that NCCL moves by different algorithms. */
static const size_t first_counts[] = {1, 64 << 10, 1 << 20};

/* ---- streams ------------------------------------------------------------------------------- */

static oriel_status make_stream(const oriel_gpu *gpu, oriel_nccl_stream *s)
{
    oriel_status st;

    oriel_cuda_enter(gpu);
    st = oriel_cuda_check(oriel_cu->stream_create(&s->stream, CU_STREAM_NON_BLOCKING_FLAG, -5),
                          "creating a stream");
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->event_create(&s->fork, CU_EVENT_NO_TIMING),
                              "creating an event");
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->event_create(&s->join, CU_EVENT_NO_TIMING),
                              "creating an event");
    oriel_cuda_leave();
    return st;
}

static oriel_status make_streams(struct oriel_nccl *nccl)
{
    oriel_status st = ORIEL_OK;

    nccl->streams = oriel_sys_now->alloc((size_t)nccl->links.n * sizeof *nccl->streams);
    if (nccl->streams == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for NCCL's streams");
    for (int i = 0; i < nccl->links.n && st == ORIEL_OK; i++)
        st = make_stream(nccl->links.links[i].gpu, &nccl->streams[i]);
    return st;
}

void oriel_nccl_streams_close(struct oriel_nccl *nccl)
{
    for (int i = 0; nccl->streams != NULL && i < nccl->links.n; i++) {
        oriel_nccl_stream *s = &nccl->streams[i];

        oriel_cuda_enter(nccl->links.links[i].gpu);
        if (s->fork != NULL)
            oriel_cu->event_destroy(s->fork);
        if (s->join != NULL)
            oriel_cu->event_destroy(s->join);
        if (s->stream != NULL)
            oriel_cu->stream_destroy(s->stream);
        oriel_cuda_leave();
    }
    oriel_sys_now->release(nccl->streams);
    nccl->streams = NULL;
}

/* ---- first calls --------------------------------------------------------------------------- */

/* A call that hangs must be ended without what it is mapped in going away. */
oriel_status oriel_nccl_check_calls(const nccl_library *nccl)
{
    if (nccl->comm_revoke != NULL)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                      "%s has no ncclCommRevoke, so that a call could not be ended: 2.28.9 has it",
                      nccl->file);
}

/* What was started has ended on the GPU as well. */
static oriel_status drain(const struct oriel_nccl *nccl, int i, const char *what,
                          const oriel_nccl_wait *wait)
{
    cu_result result;

    oriel_cuda_enter(nccl->links.links[i].gpu);
    while ((result = oriel_cu->stream_query(nccl->streams[i].stream)) == CU_NOT_READY &&
           oriel_now() < wait->until && !wait->stops(wait->of))
        oriel_sys_now->poll(NULL, 0, 1);
    oriel_cuda_leave();
    if (result == CU_NOT_READY)
        return oriel_fail(ORIEL_ERR_TIMEOUT, "NCCL: %s did not end in time on rank %d", what,
                          nccl->links.first + i);
    return oriel_cuda_check(result, what);
}

oriel_status oriel_nccl_call_all(oriel_comm *comm, oriel_nccl_call call, void *arg,
                                 const char *what)
{
    oriel_nccl_wait wait = oriel_nccl_patience(comm, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    const struct oriel_nccl *nccl = comm->devices->nccl;
    oriel_status st = oriel_nccl_links_each(&nccl->links, call, arg, what, &wait);

    for (int i = 0; i < nccl->links.n && st == ORIEL_OK; i++)
        st = drain(nccl, i, what, &wait);
    return st;
}

oriel_status oriel_nccl_first_calls(oriel_comm *comm, oriel_status (*calls)(oriel_comm *comm))
{
    struct oriel_nccl *nccl = comm->devices->nccl;
    oriel_status st = make_streams(nccl);

    atomic_store(&nccl->calls, 1);
    if (st == ORIEL_OK)
        st = oriel_nccl_enter_all(comm);
    if (st != ORIEL_OK)
        return st;
    st = calls(comm);
    oriel_nccl_leave_all(nccl);
    return st;
}

/* ---- an all-reduce by NCCL ----------------------------------------------------------------- */

struct reduction {
    const oriel_nccl_stream *streams; /* per local rank */
    const cu_ptr *at;                 /* per local rank: in place */
    size_t count;                     /* of floats */
};

static nccl_result reduce_one(const oriel_nccl_links *links, int i, void *arg)
{
    const struct reduction *r = arg;
    void *at = (void *)(uintptr_t)r->at[i];

    return links->nccl->all_reduce(at, at, r->count, NCCL_FLOAT32, NCCL_SUM, links->links[i].comm,
                                   r->streams[i].stream);
}

/* Once in the heap's window, where nobody looks yet, and once in memory of no window. */
static oriel_status reduce_all(oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;
    const struct oriel_nccl *nccl = devices->nccl;
    oriel_cuda_memory plain[DEVICE_RANKS] = {{0}};
    cu_ptr at[2][DEVICE_RANKS];
    oriel_status st = ORIEL_OK;

    for (int i = 0; i < nccl->links.n && st == ORIEL_OK; i++) {
        st = oriel_cuda_memory_create(devices->ranks[i].gpu, sizeof(float) << 20, &plain[i]);
        at[0][i] = devices->ranks[i].heap.base + devices->stage_at;
        at[1][i] = plain[i].base;
    }
    for (size_t c = 0; c < 2 * sizeof first_counts / sizeof *first_counts && st == ORIEL_OK; c++) {
        struct reduction r = {
            .streams = nccl->streams, .at = at[c % 2], .count = first_counts[c / 2]};

        if (c % 2 == 1 ||
            r.count * sizeof(float) <= devices->ranks[0].heap.bytes - devices->stage_at)
            st = oriel_nccl_call_all(comm, reduce_one, &r, "the first all-reduce");
    }
    for (int i = 0; i < nccl->links.n; i++)
        oriel_cuda_memory_close(&plain[i]);
    return st;
}

oriel_status oriel_nccl_streams_open(oriel_comm *comm)
{
    struct oriel_nccl *nccl = comm->devices->nccl;
    oriel_status st = oriel_nccl_note(comm, oriel_nccl_check_calls(nccl->links.nccl),
                                      nccl->no_calls, sizeof nccl->no_calls);

    return st == ORIEL_OK && nccl->no_calls[0] == '\0' ? oriel_nccl_first_calls(comm, reduce_all)
                                                       : st;
}
