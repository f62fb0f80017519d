/* NCCL between machines: what its calls lack. They wait for peers without limit, so the watch
 * thread looks whether they move, and ends them where the comm is revoked. */
#include <string.h>

#include "base/config.h"
#include "base/sys.h"
#include "core/nccl.h"
#include "core/trace.h"

#define ABORT_S 5.0
enum { WARM_BYTES = 64 };

static struct oriel_nccl *nccl_of(const oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;

    return devices != NULL ? devices->nccl : NULL;
}

/* ---- connecting ----------------------------------------------------------------------------- */

/* One rank's part; in its stage, which nobody uses yet. */
static nccl_result exchange(const oriel_comm *comm, const struct oriel_nccl *nccl, int local,
                            cu_stream stream)
{
    const oriel_devices *devices = comm->devices;
    const nccl_library *calls = nccl->links.nccl;
    nccl_comm link = nccl->links.links[local].comm;
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

static nccl_result exchange_all(const oriel_comm *comm, const struct oriel_nccl *nccl,
                                const cu_stream *streams)
{
    const oriel_devices *devices = comm->devices;
    nccl_result result = nccl->links.nccl->group_start();
    nccl_result ended;

    for (int i = 0; i < comm->local_ranks && result == NCCL_SUCCESS; i++) {
        cu_context back;

        oriel_cu->context_push(devices->ranks[i].gpu->context);
        result = exchange(comm, nccl, i, streams[i]);
        oriel_cu->context_pop(&back);
    }
    ended = nccl->links.nccl->group_end();
    return result != NCCL_SUCCESS ? result : ended;
}

static int all_done(const oriel_comm *comm, const cu_stream *streams)
{
    const oriel_devices *devices = comm->devices;

    for (int i = 0; i < comm->local_ranks; i++) {
        cu_context back;
        cu_result result;

        oriel_cu->context_push(devices->ranks[i].gpu->context);
        result = oriel_cu->stream_query(streams[i]);
        oriel_cu->context_pop(&back);
        if (result == CU_NOT_READY)
            return 0;
    }
    return 1;
}

static oriel_status warm(oriel_comm *comm, struct oriel_nccl *nccl, const cu_stream *streams)
{
    oriel_nccl_wait wait = oriel_nccl_patience(comm, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    nccl_result result = exchange_all(comm, nccl, streams);
    const char *what = "connecting the machines";
    oriel_status st;

    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
        return oriel_nccl_check(nccl->links.nccl, NULL, result, what);
    st = oriel_nccl_links_settle(&nccl->links, 0, nccl->links.n, what, &wait);
    while (st == ORIEL_OK && !all_done(comm, streams)) {
        if (oriel_comm_aborted(comm))
            return oriel_comm_failure(comm);
        if (oriel_now() > wait.until)
            return oriel_fail(ORIEL_ERR_TIMEOUT, "NCCL: %s did not end in time", what);
        oriel_sys_now->poll(NULL, 0, 1);
    }
    return st;
}

/* Each rank has its own: on one stream the ranks of a GPU would wait for who comes after. */
static oriel_status make_streams(const oriel_comm *comm, cu_stream *streams, int destroys)
{
    const oriel_devices *devices = comm->devices;
    cu_result result = CU_OK;

    for (int i = 0; i < comm->local_ranks && result == CU_OK; i++) {
        cu_context back;

        oriel_cu->context_push(devices->ranks[i].gpu->context);
        if (!destroys)
            result = oriel_cu->stream_create(&streams[i], CU_STREAM_NON_BLOCKING_FLAG, 0);
        else if (streams[i] != NULL)
            oriel_cu->stream_destroy(streams[i]);
        oriel_cu->context_pop(&back);
    }
    return oriel_cuda_check(result, "creating a stream");
}

oriel_status oriel_nccl_warm(oriel_comm *comm)
{
    struct oriel_nccl *nccl = nccl_of(comm);
    cu_stream streams[DEVICE_RANKS] = {0};
    oriel_status st = make_streams(comm, streams, 0);

    if (st == ORIEL_OK && !oriel_nccl_try_all(nccl))
        st = oriel_comm_failure(comm); /* just being aborted */
    else if (st == ORIEL_OK) {
        st = warm(comm, nccl, streams);
        oriel_nccl_leave_all(nccl);
    }
    make_streams(comm, streams, 1);
    return st;
}

/* ---- the end of what does not end ---------------------------------------------------------- */

/* NCCL may take its time to abort, so a thread goes there. */
static void *abort_main(void *arg)
{
    struct oriel_nccl *nccl = arg;

    for (int i = 0; i < nccl->links.n; i++) {
        cu_context back;

        if (nccl->doomed[i] == NULL)
            continue;
        oriel_cu->context_push(nccl->links.links[i].gpu->context);
        nccl->links.nccl->comm_abort(nccl->doomed[i]);
        oriel_cu->context_pop(&back);
    }
    atomic_store(&nccl->aborted, 1);
    return NULL;
}

void oriel_nccl_abort(oriel_comm *comm)
{
    struct oriel_nccl *nccl = nccl_of(comm);

    if (nccl == NULL || nccl->aborting || nccl->links.links == NULL ||
        comm->heap.header->num_machines == 1 || !oriel_comm_aborted(comm) ||
        !oriel_nccl_try_all(nccl))
        return;
    nccl->doomed = oriel_sys_now->alloc((size_t)nccl->links.n * sizeof *nccl->doomed);
    for (int i = 0; nccl->doomed != NULL && i < nccl->links.n; i++) {
        nccl->doomed[i] = nccl->links.links[i].comm;
        nccl->links.links[i].comm = NULL; /* nobody uses it any more */
    }
    oriel_nccl_leave_all(nccl);
    if (nccl->doomed == NULL)
        return;
    atomic_store(&nccl->broken, 1);
    nccl->aborting = 1;
    if (oriel_sys_now->thread(&nccl->aborter, abort_main, nccl) != 0) {
        abort_main(nccl);
        nccl->aborting = 2; /* no thread to wait for */
    }
}

int oriel_nccl_abort_end(struct oriel_nccl *nccl)
{
    double until = oriel_now() + ABORT_S;

    while (nccl->aborting == 1 && !atomic_load(&nccl->aborted) && oriel_now() < until)
        oriel_sys_now->poll(NULL, 0, 1);
    if (nccl->aborting && !atomic_load(&nccl->aborted)) {
        pthread_detach(nccl->aborter);
        return 0;
    }
    if (nccl->aborting == 1)
        pthread_join(nccl->aborter, NULL);
    nccl->aborting = 2;
    oriel_sys_now->release(nccl->doomed);
    nccl->doomed = NULL;
    return 1;
}

/* Calls of one rank follow each other, so each that ends is progress. */
static void look_at(oriel_comm *comm, int local)
{
    oriel_devices *devices = comm->devices;
    oriel_device_rank *rank = &devices->ranks[local];
    uint32_t turns = __atomic_load_n(&rank->report->span_turns, __ATOMIC_ACQUIRE);
    uint32_t spanning = __atomic_load_n(&rank->report->spanning, __ATOMIC_ACQUIRE);
    double now = oriel_now();
    char last[200];

    if (!spanning || rank->span_since == 0.0 || turns != rank->span_turns) {
        rank->span_turns = turns;
        rank->span_since = spanning ? now : 0.0;
        return;
    }
    if (now - rank->span_since < comm->timeout)
        return;
    oriel_trace_describe(comm, comm->first_rank + local, last, sizeof last);
    oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, -1, -1,
                     "a call of rank %d that spans machines did not end within %.1f s: somebody of "
                     "its group did not come; %s",
                     comm->first_rank + local, comm->timeout, last);
}

void oriel_nccl_watch(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;

    if (devices == NULL || devices->nccl == NULL || comm->heap.header->num_machines == 1)
        return;
    for (int i = 0; devices->reports != NULL && i < devices->num_ranks; i++)
        look_at(comm, i);
    oriel_nccl_abort(comm);
}
