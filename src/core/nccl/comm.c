#include "core/nccl/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/sys.h"

_Static_assert(sizeof(nccl_id) <= sizeof(oriel_invitation), "the id is the invitation");

enum { CTAS_MOST = 32 };
#define CLOSE_S  5.0
#define BRIDGE_S 2.0

static struct oriel_nccl *nccl_of(const oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;

    return devices != NULL ? devices->nccl : NULL;
}

static int is_revoked(void *comm)
{
    return oriel_comm_aborted(comm);
}

oriel_nccl_wait oriel_nccl_patience(oriel_comm *comm, double seconds)
{
    return (oriel_nccl_wait){.until = oriel_now() + seconds, .stops = is_revoked, .of = comm};
}

oriel_status oriel_nccl_note(oriel_comm *comm, oriel_status mine, char *why, size_t len)
{
    oriel_status st = oriel_comm_agree(comm, mine, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));

    if (oriel_comm_aborted(comm))
        return oriel_comm_failure(comm);
    if (st != ORIEL_OK)
        snprintf(why, len, "%s", oriel_last_error());
    return ORIEL_OK;
}

void oriel_nccl_break(struct oriel_nccl *nccl)
{
    int none = 0;

    if (atomic_compare_exchange_strong(&nccl->breaks, &none, 1)) {
        snprintf(nccl->why, sizeof nccl->why, "%s", oriel_last_error());
        atomic_store(&nccl->broken, 1);
    }
}

/* ---- one at a time ------------------------------------------------------------------------ */

static void leave_first(struct oriel_nccl *nccl, int n)
{
    while (n-- > 0)
        pthread_mutex_unlock(&nccl->links.links[n].lock);
}

int oriel_nccl_try_all(struct oriel_nccl *nccl)
{
    for (int i = 0; i < nccl->links.n; i++) {
        if (pthread_mutex_trylock(&nccl->links.links[i].lock) != 0) {
            leave_first(nccl, i);
            return 0;
        }
    }
    return 1;
}

void oriel_nccl_leave_all(struct oriel_nccl *nccl)
{
    leave_first(nccl, nccl->links.n);
}

/* ---- connecting --------------------------------------------------------------------------- */

/* Kernels of ranks that share a GPU must all be resident: of its multiprocessors a tenth stays
 * free, and the rest is divided. 0: nobody shares one. */
static int share_ctas(const oriel_comm *comm)
{
    int least = CTAS_MOST;
    int shared = 0;

    for (int r = 0; r < comm->size; r++) {
        const device_card *card = oriel_device_card(&comm->heap, r);
        int fellows = oriel_ranks_on(comm, card->gpu);
        int each = card->sms * 10 / 11 / fellows;

        least = each < least ? each : least;
        shared |= fellows > 1;
    }
    return shared ? (least > 0 ? least : 1) : 0;
}

static oriel_status open_links(oriel_comm *comm, struct oriel_nccl *nccl)
{
    int ctas = share_ctas(comm);
    oriel_nccl_plan plan = {.size = comm->size,
                            .first = comm->first_rank,
                            .n = comm->local_ranks,
                            .shared = ctas > 0,
                            .max_ctas = ctas};
    oriel_nccl_wait wait = oriel_nccl_patience(comm, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    const oriel_gpu *gpus[DEVICE_RANKS];

    memcpy(&plan.id, &comm->invitation, sizeof plan.id);
    for (int i = 0; i < comm->local_ranks; i++)
        gpus[i] = comm->devices->ranks[i].gpu;
    return oriel_nccl_links_open(&plan, gpus, &wait, &nccl->links);
}

static oriel_status register_heaps(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;
    struct oriel_nccl *nccl = devices->nccl;
    oriel_nccl_wait wait = oriel_nccl_patience(comm, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    cu_ptr at[DEVICE_RANKS];
    size_t bytes[DEVICE_RANKS];
    oriel_status st;

    for (int i = 0; i < comm->local_ranks; i++) {
        at[i] = devices->ranks[i].heap.base;
        bytes[i] = devices->ranks[i].heap.bytes;
    }
    st = oriel_nccl_links_register(&nccl->links, at, bytes, NCCL_WINDOW_SYMMETRIC, &wait,
                                   nccl->heaps);
    for (int i = 0; i < comm->local_ranks; i++) {
        for (int r = 0; r < comm->size && st == ORIEL_OK; r++) {
            if (r != comm->first_rank + i)
                st = oriel_nccl_links_pointer(&nccl->links, i, nccl->heaps[i], r,
                                              &devices->ranks[i].heaps[r]);
        }
    }
    return st == ORIEL_OK ? oriel_nccl_streams_open(comm) : st;
}

static struct oriel_nccl *nccl_new(const oriel_comm *comm)
{
    struct oriel_nccl *nccl = oriel_sys_now->alloc(sizeof *nccl);

    if (nccl == NULL)
        return NULL;
    nccl->heaps = oriel_sys_now->alloc((size_t)comm->local_ranks * sizeof *nccl->heaps);
    if (nccl->heaps != NULL)
        return nccl;
    oriel_sys_now->release(nccl);
    return NULL;
}

oriel_status oriel_nccl_invite(oriel_invitation *invitation_p)
{
    oriel_invitation invitation = {{0}};
    nccl_id id;
    oriel_status st = oriel_nccl_id(&id);

    if (st != ORIEL_OK)
        return st;
    memcpy(&invitation, &id, sizeof id);
    *invitation_p = invitation;
    return ORIEL_OK;
}

oriel_status oriel_nccl_connect(oriel_comm *comm, oriel_status mine,
                                oriel_status (*rest)(oriel_comm *comm))
{
    oriel_devices *devices = comm->devices;
    oriel_status st;

    if (mine == ORIEL_OK) {
        devices->nccl = nccl_new(comm);
        if (devices->nccl == NULL)
            mine = oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for NCCL");
    }
    st = oriel_comm_agree(comm, mine, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    if (st != ORIEL_OK)
        return st;
    st = open_links(comm, devices->nccl);
    if (st == ORIEL_OK)
        st = rest(comm);
    if (st == ORIEL_OK)
        return ORIEL_OK;
    oriel_nccl_break(devices->nccl);
    /* Others wait in NCCL for this one. */
    oriel_comm_abort(comm, st, -1, comm->process, "process %d: %s", comm->process,
                     oriel_last_error());
    return oriel_comm_failure(comm);
}

/* ---- the end ------------------------------------------------------------------------------- */

oriel_status oriel_nccl_part(oriel_comm *comm)
{
    struct oriel_nccl *nccl = nccl_of(comm);
    oriel_status st = ORIEL_OK;

    if (nccl == NULL)
        return ORIEL_OK;
    if (!oriel_devices_drain(comm))
        st = oriel_fail(ORIEL_ERR_TIMEOUT, "kernels of process %d do not end", comm->process);
    st = oriel_comm_agree(comm, st, comm->timeout);
    nccl->parted = st == ORIEL_OK;
    return st;
}

int oriel_nccl_is_good(struct oriel_nccl *nccl)
{
    return nccl->parted && !atomic_load(&nccl->broken);
}

int oriel_nccl_close(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;
    struct oriel_nccl *nccl = devices->nccl;
    int good;
    int ended;

    if (nccl == NULL || nccl->lost)
        return nccl == NULL;
    good = oriel_nccl_is_good(nccl);
    oriel_rounds_close(nccl, good);
    oriel_nccl_streams_close(nccl);
    if (good)
        oriel_nccl_links_deregister(&nccl->links, nccl->heaps);
    ended = oriel_nccl_links_close(&nccl->links, good, CLOSE_S);
    nccl->lost = !ended;
    if (!ended)
        return 0;
    for (int i = 0; i < DEVICE_RANKS; i++)
        oriel_cuda_memory_close(&nccl->kept[i]);
    oriel_sys_now->release(nccl->heaps);
    oriel_sys_now->release(nccl);
    devices->nccl = NULL;
    return 1;
}

/* A call of NCCL's has no deadline of its own: all ranks have met for it, and it does not end. */
static void look_at_calls(oriel_comm *comm, int local)
{
    oriel_device_rank *r = &comm->devices->ranks[local];
    uint32_t begun = __atomic_load_n(&r->report->begun, __ATOMIC_ACQUIRE);

    if (begun == __atomic_load_n(&r->report->ended, __ATOMIC_ACQUIRE) || begun != r->begun) {
        r->begun = begun;
        r->begun_at = oriel_now();
    } else if (oriel_now() > r->begun_at + comm->timeout) {
        oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, comm->first_rank + local, comm->process,
                         "%s on rank %d did not end within %.1f s",
                         comm->heap.header->num_machines > 1 ? "a call that spans machines"
                                                             : "all_reduce via nccl",
                         comm->first_rank + local, comm->timeout);
    }
}

/* NCCL sees that a connection between machines has ended before the bridge can say which
 * process died. */
static int has_had_time(const oriel_comm *comm, struct oriel_nccl *nccl)
{
    if (nccl->trouble_at == 0.0)
        nccl->trouble_at = oriel_now();
    return comm->heap.header->num_machines == 1 || oriel_now() > nccl->trouble_at + BRIDGE_S;
}

/* Whether the link has nothing more to tell. */
static int look_at_link(oriel_comm *comm, struct oriel_nccl *nccl, int i)
{
    const nccl_library *calls = nccl->links.nccl;
    nccl_comm link = nccl->links.links[i].comm;
    nccl_result state = NCCL_SUCCESS;

    /* The word, not the comm: what judges NCCL's result must find it there. */
    if (__atomic_load_n(&comm->devices->ranks[i].report->abort, __ATOMIC_ACQUIRE) != 0) {
        atomic_store(&nccl->broken, 1);
        if (calls->comm_revoke != NULL && link != NULL)
            calls->comm_revoke(link, 0);
        return 1;
    }
    look_at_calls(comm, i);
    if (link != NULL && calls->comm_state(link, &state) == NCCL_SUCCESS && state != NCCL_SUCCESS &&
        state != NCCL_IN_PROGRESS && has_had_time(comm, nccl))
        oriel_comm_abort(comm, ORIEL_ERR_PEER, comm->first_rank + i, comm->process,
                         "NCCL says of rank %d: %s", comm->first_rank + i,
                         calls->error_text(state));
    return 0;
}

void oriel_nccl_look(oriel_comm *comm)
{
    struct oriel_nccl *nccl = nccl_of(comm);

    if (nccl == NULL || !atomic_load(&nccl->calls))
        return;
    for (int i = nccl->revoked; i < nccl->links.n; i++) {
        int done;

        /* The thread that holds it sees the revocation, and leaves. */
        if (pthread_mutex_trylock(&nccl->links.links[i].lock) != 0)
            return;
        done = look_at_link(comm, nccl, i);
        pthread_mutex_unlock(&nccl->links.links[i].lock);
        nccl->revoked += done && i == nccl->revoked;
    }
}

/* ---- use ----------------------------------------------------------------------------------- */

static int local_of(const oriel_comm *comm, int rank)
{
    return rank - comm->first_rank;
}

int oriel_nccl_has_windows(const oriel_comm *comm)
{
    const struct oriel_nccl *nccl = nccl_of(comm);

    return nccl != NULL && nccl->heaps[0] != NULL;
}

const nccl_library *oriel_nccl_calls(const oriel_comm *comm)
{
    const struct oriel_nccl *nccl = nccl_of(comm);

    return nccl != NULL ? nccl->links.nccl : NULL;
}

static oriel_status check_use(const oriel_comm *comm, const struct oriel_nccl *nccl)
{
    if (nccl == NULL)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "the comm has no NCCL communicator: set ORIEL_FABRIC=nccl");
    if (oriel_comm_aborted(comm))
        return oriel_comm_failure(comm);
    if (atomic_load(&nccl->broken))
        return oriel_fail(ORIEL_ERR_REVOKED, "NCCL has failed before on this comm: %s", nccl->why);
    return ORIEL_OK;
}

/* Another thread of the rank has it, or the registrar, both for a while only. */
static oriel_status take_link(const oriel_comm *comm, oriel_nccl_link *link)
{
    double until = oriel_now() + comm->timeout;

    for (int turn = 0; pthread_mutex_trylock(&link->lock) != 0; turn++) {
        if (oriel_comm_aborted(comm))
            return oriel_comm_failure(comm);
        if (oriel_now() > until)
            return oriel_fail(ORIEL_ERR_TIMEOUT,
                              "NCCL's communicator was not to be had within %.1f s", comm->timeout);
        if (turn < 1000)
            oriel_relax(1);
        else
            oriel_sys_now->poll(NULL, 0, 1);
    }
    return ORIEL_OK;
}

oriel_status oriel_nccl_enter_all(oriel_comm *comm)
{
    struct oriel_nccl *nccl = nccl_of(comm);

    for (int i = 0; i < nccl->links.n; i++) {
        oriel_status st = take_link(comm, &nccl->links.links[i]);

        if (st != ORIEL_OK) {
            leave_first(nccl, i);
            return st;
        }
    }
    return ORIEL_OK;
}

oriel_status oriel_nccl_enter(oriel_comm *comm, int rank, nccl_comm *nccl_p)
{
    struct oriel_nccl *nccl = nccl_of(comm);
    oriel_status st = check_use(comm, nccl);
    oriel_nccl_link *link;

    if (st != ORIEL_OK)
        return st;
    link = &nccl->links.links[local_of(comm, rank)];
    st = take_link(comm, link);
    if (st == ORIEL_OK)
        st = check_use(comm, nccl); /* the thread that had it may have failed */
    else
        return st;
    if (st != ORIEL_OK)
        pthread_mutex_unlock(&link->lock);
    else
        *nccl_p = link->comm;
    return st;
}

oriel_status oriel_nccl_leave(oriel_comm *comm, int rank, nccl_result result, const char *what)
{
    struct oriel_nccl *nccl = nccl_of(comm);
    oriel_nccl_wait wait = oriel_nccl_patience(comm, comm->timeout);
    int i = local_of(comm, rank);
    oriel_status st;

    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS)
        st = oriel_nccl_links_settle(&nccl->links, i, i + 1, what, &wait);
    else
        st = oriel_nccl_check(nccl->links.nccl, nccl->links.links[i].comm, result, what);
    if (st != ORIEL_OK) {
        oriel_nccl_break(nccl);
        while (!oriel_comm_aborted(comm) && !has_had_time(comm, nccl))
            oriel_sys_now->poll(NULL, 0, 1);
        /* Others wait in the same call. */
        oriel_comm_abort(comm, st, rank, comm->process, "%s on rank %d: %s", what, rank,
                         oriel_last_error());
    }
    pthread_mutex_unlock(&nccl->links.links[i].lock);
    return st;
}

/* ---- the fabric ----------------------------------------------------------------------------- */

static oriel_status heap_create(const oriel_gpu *gpu, size_t bytes, oriel_cuda_memory *heap_p)
{
    oriel_cuda_memory heap = {.bytes = bytes, .fd = -1};
    const nccl_library *nccl;
    oriel_status st = oriel_nccl_open(&nccl);

    if (st == ORIEL_OK)
        st = oriel_nccl_memory_create(nccl, gpu, bytes, &heap.base);
    if (st == ORIEL_OK)
        *heap_p = heap;
    return st;
}

static void heap_close(const oriel_gpu *gpu, oriel_cuda_memory *heap)
{
    const nccl_library *nccl;

    if (heap->base != 0 && oriel_nccl_open(&nccl) == ORIEL_OK)
        oriel_nccl_memory_free(nccl, gpu, heap->base);
    *heap = (oriel_cuda_memory){.fd = -1};
}

static oriel_status connect_windows(oriel_comm *comm, oriel_status mine)
{
    return oriel_nccl_connect(comm, mine, register_heaps);
}

/* The mapping must not vanish while all ranks register theirs: so what they register is one of
 * oriel's own. */
static oriel_status buffer_export(const oriel_device_rank *rank, oriel_export *buffer)
{
    return oriel_cuda_memory_alias(rank->gpu, buffer->base, buffer->bytes, &buffer->alias);
}

/* It comes with a round. */
static int buffer_import(oriel_comm *comm, int rank, int number, uint32_t generation)
{
    (void)comm;
    (void)rank;
    (void)number;
    (void)generation;
    return 0;
}

const oriel_device_fabric oriel_device_nccl = {
    .name = "nccl",
    .spans = 0,
    .invite = oriel_nccl_invite,
    .heap_create = heap_create,
    .heap_close = heap_close,
    .connect = connect_windows,
    .buffer_export = buffer_export,
    .buffer_import = buffer_import,
    .rounds_open = oriel_rounds_open,
    .rounds_step = oriel_rounds_step,
    .rounds_may_end = oriel_rounds_may_end,
    .look = oriel_nccl_look,
    .part = oriel_nccl_part,
    .close = oriel_nccl_close,
};
