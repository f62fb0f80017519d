#include "ffi/attached.h"

#include <string.h>

#include "base/sys.h"
#include "core/protocol/group.h"
#include "ffi/ffi.h"
#include "ops/cuda/launch.h"

oriel_attached_comm oriel_attached = {.lock = PTHREAD_RWLOCK_INITIALIZER};

static const xla_type_info site_type_info = {.struct_size = sizeof(xla_type_info),
                                             .deleter = oriel_site_destroy};
const void *const oriel_ffi_site_type_info = &site_type_info;
const int64_t oriel_ffi_version = 4;

/* ---- coming and going ---------------------------------------------------------------- */

static int is_busy(const oriel_comm *comm)
{
    for (int i = 0; i < comm->local_ranks; i++) {
        void *stream = oriel_attached.gpus[i].stream;

        if (stream != NULL && oriel_stream_busy(comm, comm->first_rank + i, stream))
            return 1;
    }
    return 0;
}

/* Waits until the streams of this process are empty. It gives up when none has moved for as long
 * as the deadline. */
static void wait_for_streams(oriel_comm *comm, double patience_s)
{
    const double every = comm->timeout / 8;
    double until = oriel_now() + patience_s;
    double moved_at = oriel_now();
    double look_at = moved_at + every;
    uint64_t seen = oriel_devices_progress(comm);

    while (is_busy(comm) && oriel_now() < until) {
        oriel_sys_now->poll(NULL, 0, 1);
        if (oriel_now() < look_at)
            continue;
        look_at = oriel_now() + every;
        if (oriel_devices_progress(comm) != seen) {
            seen = oriel_devices_progress(comm);
            moved_at = oriel_now();
        } else if (oriel_now() > moved_at + comm->timeout) {
            oriel_devices_give_up(comm);
            return;
        }
    }
}

/* Ends what runs on GPUs. Fails with what revoked the comm if no program has said that yet. */
static oriel_status settle(oriel_comm *comm, double patience_s)
{
    if (is_busy(comm))
        wait_for_streams(comm, patience_s);
    if (is_busy(comm)) {
        oriel_comm_abort(comm, ORIEL_ERR_PEER, comm->first_rank, comm->process,
                         "process %d left with operations in flight", comm->process);
        ((oriel_devices *)comm->devices)->left_behind = 1;
    }
    oriel_devices_look(comm);
    if ((!oriel_comm_aborted(comm) && !oriel_devices_revoked(comm)) || oriel_attached.told)
        return ORIEL_OK;
    return oriel_comm_failure(comm);
}

oriel_status oriel_ffi_detach(double patience_s)
{
    oriel_comm *comm;
    oriel_engine *engine;
    oriel_crew *crew;

    pthread_rwlock_wrlock(&oriel_attached.lock);
    comm = oriel_attached.comm;
    engine = oriel_attached.engine;
    crew = oriel_attached.crew;
    oriel_attached.comm = NULL;
    oriel_attached.engine = NULL;
    oriel_attached.crew = NULL;
    oriel_calls_free(&oriel_attached.calls);
    pthread_rwlock_unlock(&oriel_attached.lock);
    oriel_engine_destroy(engine, patience_s);
    oriel_crew_destroy(crew);
    if (comm != NULL && comm->devices != NULL)
        return settle(comm, patience_s);
    /* All other calls on CPUs have told their failures. */
    if (comm != NULL && oriel_attached.lost &&
        !atomic_load(&comm->heap.ranks[comm->first_rank].told))
        return oriel_comm_failure(comm);
    return ORIEL_OK;
}

static oriel_status make_threads(oriel_comm *comm, oriel_engine **engine_p, oriel_crew **crew_p)
{
    oriel_status st = oriel_crew_create(crew_p);

    if (st != ORIEL_OK)
        return st;
    st = oriel_engine_create(comm, engine_p);
    if (st != ORIEL_OK)
        oriel_crew_destroy(*crew_p);
    return st;
}

oriel_status oriel_ffi_attach(oriel_comm *comm, const int *ordinals, int n)
{
    oriel_engine *engine = NULL;
    oriel_crew *crew = NULL;
    oriel_status st;

    if (comm == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "comm is NULL");
    if (oriel_attached.comm != NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "a comm is attached already; detach it first");
    if (ordinals == NULL || n != comm->local_ranks || n > ATTACHED_RANKS)
        return oriel_fail(ORIEL_ERR_INVALID, "n is %d; the comm has %d ranks here", n,
                          comm->local_ranks);
    st = comm->devices == NULL ? make_threads(comm, &engine, &crew) : ORIEL_OK;
    if (st != ORIEL_OK)
        return st;
    pthread_rwlock_wrlock(&oriel_attached.lock);
    oriel_attached.comm = comm;
    atomic_fetch_add(&oriel_attached.world, 1);
    oriel_attached.layout = comm->devices != NULL ? oriel_devices_layout(comm) : 0;
    oriel_attached.engine = engine;
    oriel_attached.crew = crew;
    oriel_attached.num_devices = n;
    oriel_attached.told = 0;
    oriel_attached.lost = 0;
    memcpy(oriel_attached.ordinals, ordinals, (size_t)n * sizeof *ordinals);
    for (int i = 0; comm->devices != NULL && i < n; i++)
        oriel_attached.gpus[i] = (attached_gpu){.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_rwlock_unlock(&oriel_attached.lock);
    return ORIEL_OK;
}

/* ---- a look ----------------------------------------------------------------------------- */

/* Returns the comm and holds the lock for reading; NULL: there is no comm, and the lock is free. */
static oriel_comm *hold(void)
{
    pthread_rwlock_rdlock(&oriel_attached.lock);
    if (oriel_attached.comm != NULL)
        return oriel_attached.comm;
    pthread_rwlock_unlock(&oriel_attached.lock);
    oriel_fail(ORIEL_ERR_INVALID, "there is no world: call oriel.init() first");
    return NULL;
}

oriel_status oriel_ffi_check(void)
{
    oriel_comm *comm = hold();
    oriel_status st;

    if (comm == NULL)
        return ORIEL_ERR_INVALID;
    st = oriel_comm_check(comm);
    if (st != ORIEL_OK)
        oriel_attached.told = 1;
    pthread_rwlock_unlock(&oriel_attached.lock);
    return st;
}

oriel_status oriel_ffi_via_check(oriel_via via, oriel_dtype dtype, oriel_redop redop)
{
    oriel_comm *comm = hold();
    oriel_status st;

    if (comm == NULL)
        return ORIEL_ERR_INVALID;
    st = oriel_via_check(oriel_comm_world(comm), via, dtype, redop);
    pthread_rwlock_unlock(&oriel_attached.lock);
    return st;
}

/* ---- a call ---------------------------------------------------------------------------- */

static const char *name_of(const oriel_site *site)
{
    return oriel_kind_name(site->op.kind);
}

oriel_status oriel_attached_check(const oriel_site *site, int gpus)
{
    const oriel_comm *comm = oriel_attached.comm;

    if (comm == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "%s: oriel is not initialised; call oriel.init()",
                          name_of(site));
    if ((comm->devices != NULL) != gpus)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "%s: the program runs on a %s, but the ranks of this world are %s",
                          name_of(site), gpus ? "GPU" : "CPU", gpus ? "CPUs" : "GPUs");
    if (gpus && site->into > 0)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "%s: into= is for windows of host memory",
                          name_of(site));
    return ORIEL_OK;
}

int oriel_attached_rank(int ordinal)
{
    for (int i = 0; i < oriel_attached.num_devices; i++) {
        if (oriel_attached.ordinals[i] == ordinal)
            return oriel_attached.comm->first_rank + i;
    }
    return -1;
}

static oriel_status find_rank(const oriel_site *site, int ordinal, int *rank_p)
{
    const oriel_comm *comm = oriel_attached.comm;

    if (site->world != comm->size)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "%s: the program was compiled for a world of "
                          "%lld ranks, this one has %d; compile it after oriel.init()",
                          name_of(site), (long long)site->world, comm->size);
    *rank_p = oriel_attached_rank(ordinal);
    if (*rank_p >= 0)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_INVALID, "%s: device %d is no rank of this world", name_of(site),
                      ordinal);
}

/* A graph that XLA captured in an earlier world holds addresses, and XLA replays it without
 * execute. Where the heaps lie at other places now, or the call has memory of its own in them, the
 * stages before that refuse. They cannot know whether XLA is
 * about to capture it anew, and refuse then as well. */
static oriel_status check_graph(const oriel_site *site)
{
    uint64_t world = atomic_load(&site->captured);

    if (world == 0 || world == oriel_attached.world ||
        atomic_load(&site->layout) == oriel_attached.layout)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_INVALID,
                      "%s: the program was captured in a CUDA graph in a world that has been "
                      "finalized, and cannot run in another: compile it anew",
                      name_of(site));
}

static oriel_status find_group(const oriel_site *site, int rank, oriel_group **group_p)
{
    int n;
    const int *ranks = oriel_site_ranks(site, rank, &n);

    if (ranks == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "%s: rank %d is in none of the call's groups",
                          name_of(site), rank);
    return oriel_group_intern(oriel_attached.comm, ranks, n, group_p);
}

static oriel_status find_member(oriel_site *site, int ordinal, site_member **member_p)
{
    oriel_group *group;
    int rank;
    oriel_status st = find_rank(site, ordinal, &rank);

    if (st == ORIEL_OK)
        st = check_graph(site);
    if (st == ORIEL_OK)
        st = find_group(site, rank, &group);
    if (st == ORIEL_OK)
        st = oriel_site_add_member(site, ordinal, oriel_attached.world, &oriel_attached.calls,
                                   group, rank, member_p);
    if (st == ORIEL_OK)
        oriel_name_keep(&oriel_attached.comm->heap, site->op.call, site->told);
    return st;
}

oriel_status oriel_attached_member(const xla_frame *frame, oriel_site *site, site_member **member_p)
{
    int ordinal;
    oriel_status st = oriel_xla_ordinal(frame, &ordinal);

    if (st != ORIEL_OK)
        return st;
    /* Where the site has the member already, no earlier world has captured the call: that was
     * looked at when the member was found. */
    *member_p = oriel_site_member(site, ordinal, oriel_attached.world);
    return *member_p != NULL ? ORIEL_OK : find_member(site, ordinal, member_p);
}

static oriel_status create_site(const xla_frame *frame, oriel_site **site_p)
{
    site_attrs attrs;
    site_attrs received;
    int halves = 0;
    oriel_status st = oriel_xla_attrs(frame, &attrs);

    if (st == ORIEL_OK)
        halves = oriel_xla_halves(frame, &attrs, &received);
    if (st == ORIEL_OK)
        st = oriel_site_create(&attrs, site_p);
    if (st != ORIEL_OK || !halves)
        return st;
    st = oriel_site_create(&received, &(*site_p)->received);
    if (st != ORIEL_OK)
        oriel_site_destroy(*site_p);
    return st;
}

xla_error *oriel_attached_instantiate(xla_frame *frame, int64_t *type_id)
{
    oriel_site *site;
    oriel_status st = create_site(frame, &site);

    if (st != ORIEL_OK)
        return oriel_xla_error(frame->api, st);
    st = oriel_xla_set_site(frame, type_id, site);
    if (st != ORIEL_OK) {
        oriel_site_destroy(site);
        return oriel_xla_error(frame->api, st);
    }
    return NULL;
}
