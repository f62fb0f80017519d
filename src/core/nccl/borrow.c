#include "core/nccl/borrow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "base/sys.h"
#include "core/nccl/appoint.h"

enum { MOST_WINDOWS = 64 }; /* at a time, each a bit of `done` */
#define HURRY_S 20.0
_Static_assert(MOST_WINDOWS <= 64, "a bit for each window");

/* A window that all members have registered, and what this rank brought to it: number -1 is
 * nothing that anybody asks for. */
typedef struct borrowed_window {
    nccl_window window;    /* NULL: the place is free */
    oriel_brought brought; /* its mapping is closed with the window */
} borrowed_window;

/* One rank's view of a group whose communicator is lent. */
struct oriel_borrowed {
    uint64_t group;                        /* its hash */
    int place;                             /* of its appointments */
    nccl_comm comm;                        /* the last that was lent: to know it again, no more */
    int rank;                              /* on it */
    const nccl_library *nccl;              /* that the communicator is of */
    int registers;                         /* buffers, too */
    int said;                              /* that it was refused */
    borrowed_window windows[MOST_WINDOWS]; /* those without a handle are free */
    struct oriel_borrowed *next;           /* of the rank's list */
};

/* ---- whether it can be asked for -------------------------------------------------------- */

static int shares_gpu(const oriel_group *group)
{
    for (int i = 0; i < group->n; i++) {
        for (int k = 0; k < i; k++) {
            if (oriel_device_shared(&group->comm->heap, group->ranks[i], group->ranks[k]))
                return 1;
        }
    }
    return 0;
}

const char *oriel_borrow_obstacle(const oriel_group *group, char *out, size_t len)
{
    const char *allowed = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    int version = oriel_nccl_loaded();

    if (group->spans)
        return "the group spans machines, and uses a communicator of oriel's own";
    if (!shares_gpu(group))
        return NULL;
    if (version > 0 && version < NCCL_SHARES_GPU)
        snprintf(out, len, "ranks share a GPU, which NCCL %d.%d.%d does not allow: 2.30 does",
                 NCCL_PARTS(version));
    else if (allowed == NULL || strcmp(allowed, "1") != 0)
        snprintf(out, len,
                 "ranks share a GPU, which NCCL allows with NCCL_MULTI_RANK_GPU_ENABLE=1 "
                 "alone");
    else
        return NULL;
    return out;
}

/* ---- which group ------------------------------------------------------------------------ */

/* What is registered stays so until XLA's communicator ends, and NCCL may look at it then: its
 * memory is left there. */
static void free_borrowed(oriel_device_rank *rank)
{
    while (rank->groups != NULL) {
        struct oriel_borrowed *b = rank->groups;

        rank->groups = b->next;
        oriel_sys_now->release(b);
    }
}

static struct oriel_borrowed *find_borrowed(oriel_device_rank *r, const oriel_group *group)
{
    struct oriel_borrowed *b = r->groups;

    while (b != NULL && b->group != group->hash)
        b = b->next;
    if (b != NULL)
        return b;
    b = oriel_sys_now->alloc(sizeof *b);
    if (b == NULL)
        return NULL;
    b->group = group->hash;
    b->place = oriel_appoint_find(&group->comm->heap, group->hash);
    /* Where oriel has communicators of its own, buffers are registered with those. */
    b->registers = group->comm->devices->nccl == NULL &&
                   oriel_config_number(ORIEL_OPT_NCCL_COMM) == ORIEL_COMM_XLA;
    r->free_lent = free_borrowed;
    b->next = r->groups;
    r->groups = b;
    return b;
}

/* Where a process has several GPUs XLA ends it 30 s after the first of them was initialized. */
static oriel_appointed appointed(oriel_group *group, int rank, int place, const nccl_library *nccl)
{
    const oriel_comm *comm = group->comm;
    int hurry = comm->local_ranks > 1 && comm->timeout > HURRY_S;

    return (oriel_appointed){.group = group,
                             .rank = rank,
                             .place = place,
                             .alone = nccl != NULL && nccl->version >= NCCL_SIZES_DIFFER,
                             .patience = hurry ? HURRY_S : comm->timeout};
}

/* All members go back to descriptors, each when it sees it. */
static void refuse(oriel_group *group, int rank, const struct oriel_borrowed *b)
{
    oriel_appointed a = appointed(group, rank, b->place, NULL);

    oriel_log(ORIEL_LOG_INFO,
              "rank %d: buffers of a group of %d are no windows of XLA's "
              "communicator: %s",
              rank, group->n, oriel_last_error());
    oriel_appoint_call_off(&a);
}

static int is_refused(oriel_device_rank *r, const oriel_group *group, int rank,
                      struct oriel_borrowed *b)
{
    if (b->place >= 0 && !oriel_appoint_is_off(&group->comm->heap, b->place))
        return 0;
    if (!b->said) {
        b->said = 1;
        r->borrowed.refused++;
        oriel_log(ORIEL_LOG_INFO,
                  "rank %d: buffers of a group of %d are shown to peers without "
                  "NCCL",
                  rank, group->n);
    }
    return 1;
}

/* ---- a communicator that is new ---------------------------------------------------------- */

static oriel_status check(const oriel_group *group, struct oriel_borrowed *b)
{
    const nccl_library *nccl;
    int size = 0;
    oriel_status st = oriel_nccl_open(&nccl);

    if (st == ORIEL_OK && nccl->lsa_pointer == NULL)
        st = oriel_fail(ORIEL_ERR_UNSUPPORTED, "NCCL %d.%d.%d does not tell addresses: 2.29.2 does",
                        NCCL_PARTS(nccl->version));
    if (st == ORIEL_OK)
        st = oriel_nccl_check(nccl, b->comm, nccl->comm_size(b->comm, &size),
                              "asking for the number of ranks");
    if (st == ORIEL_OK)
        st = oriel_nccl_check(nccl, b->comm, nccl->comm_rank(b->comm, &b->rank),
                              "asking for the rank");
    if (st == ORIEL_OK && size != group->n)
        st = oriel_fail(ORIEL_ERR_UNSUPPORTED, "it has %d ranks", size);
    if (st != ORIEL_OK)
        return st;
    b->nccl = nccl;
    oriel_log(ORIEL_LOG_INFO, "a group of %d borrows XLA's communicator, NCCL %d.%d.%d, as rank %d",
              group->n, NCCL_PARTS(nccl->version), b->rank);
    return ORIEL_OK;
}

/* Windows went with the communicator that they were on: what comes next on the stream finds
 * none of them. XLA has one for each list of devices, as long as it runs, and a group names them
 * in one order: so this is rare. */
static void take(oriel_device_rank *r, oriel_group *group, int rank, struct oriel_borrowed *b,
                 nccl_comm lent, cu_stream stream)
{
    oriel_cuda_enter(r->gpu);
    oriel_unregister(r, b->group, stream);
    oriel_cuda_leave();
    for (int i = 0; i < MOST_WINDOWS; i++) {
        r->borrowed.registered -= b->windows[i].window != NULL;
        oriel_cuda_memory_close(&b->windows[i].brought.alias);
    }
    memset(b->windows, 0, sizeof b->windows);
    b->comm = lent;
    if (b->registers && !is_refused(r, group, rank, b) && check(group, b) != ORIEL_OK)
        refuse(group, rank, b);
}

void oriel_borrow_begin(oriel_group *group, int rank, nccl_comm lent, cu_stream stream)
{
    oriel_device_rank *r = oriel_device_of(group->comm, rank);
    struct oriel_borrowed *b = find_borrowed(r, group);

    oriel_borrow_end(group->comm, rank);
    if (b == NULL) {
        oriel_borrow_give_up(group, rank);
        return;
    }
    if (lent != NULL && lent != b->comm)
        take(r, group, rank, b, lent, stream);
    if (b->comm == NULL)
        return;
    r->borrowed.lent += lent != NULL;
    r->group = b;
    r->lent = lent;
    if (b->registers && !is_refused(r, group, rank, b))
        r->shown_to = b->group;
}

/* The others count on it otherwise. */
void oriel_borrow_give_up(oriel_group *group, int rank)
{
    int place = oriel_appoint_find(&group->comm->heap, group->hash);
    oriel_appointed a = appointed(group, rank, place, NULL);

    if (place >= 0)
        oriel_appoint_call_off(&a);
}

void oriel_borrow_end(oriel_comm *comm, int rank)
{
    oriel_device_rank *r = oriel_device_of(comm, rank);

    r->group = NULL;
    r->lent = NULL;
    r->shown_to = 0;
}

nccl_comm oriel_borrow_comm(const oriel_comm *comm, int rank)
{
    return comm->devices != NULL ? oriel_device_of(comm, rank)->lent : NULL;
}

/* ---- registering together --------------------------------------------------------------- */

/* Between all have come and all have left. */
typedef struct gathering {
    oriel_appointed a;                   /* as the calls of appoint.h want it */
    oriel_comm *comm;                    /* of the group */
    oriel_device_rank *r;                /* this member, as a device */
    struct oriel_borrowed *b;            /* its view of the group */
    const nccl_library *nccl;            /* that made the communicator */
    oriel_brought brought[HEAP_BROUGHT]; /* by this rank: what is left of it */
} gathering;

static int is_done(const oriel_device_rank *r, const oriel_brought *b)
{
    return b->number < 0 || !oriel_register_holds(r, b->number, b->generation);
}

/* What the others read. */
static void bring(gathering *g, uint64_t site)
{
    heap_attendance *mine = oriel_attendance_of(&g->comm->heap, g->a.rank, g->a.place);
    int n = oriel_register_bring(g->comm, g->a.rank, g->b->group, (uint32_t)g->a.group->n - 1,
                                 HEAP_BROUGHT, g->brought);

    mine->site = site;
    mine->member = g->b->rank;
    mine->num_brought = (uint32_t)n;
    for (int i = 0; i < n; i++)
        mine->brought[i] = (heap_brought){.window = g->brought[i].number,
                                          .generation = g->brought[i].generation,
                                          .bytes = g->brought[i].alias.bytes};
    mine->done = 0;
    for (int i = 0; i < MOST_WINDOWS; i++) {
        const borrowed_window *w = &g->b->windows[i];

        if (w->window != NULL && is_done(g->r, &w->brought))
            mine->done |= 1ull << i;
    }
}

/* From what all see alike: `n_p` windows are to be registered, those in `done_p` are not needed
 * any more. Before NCCL 2.30 lengths must be the same, so nobody can come without anything. */
static oriel_status compare(const gathering *g, uint32_t *n_p, uint64_t *done_p)
{
    const heap_attendance *first = oriel_attendance(&g->a, 0);
    uint64_t members = 0;
    uint32_t n = first->num_brought;

    *done_p = ~0ull;
    for (int i = 0; i < g->a.group->n; i++) {
        const heap_attendance *member = oriel_attendance(&g->a, i);

        if (member->member < 0 || member->member >= g->a.group->n)
            return oriel_fail(ORIEL_ERR_UNSUPPORTED, "a rank on it is %d", member->member);
        if (member->site != first->site)
            return oriel_fail(ORIEL_ERR_MISMATCH, "ranks came to it in different calls");
        if (g->a.alone ? member->num_brought > n : member->num_brought < n)
            n = member->num_brought;
        for (uint32_t k = 0; !g->a.alone && k < n; k++) {
            if (member->brought[k].bytes != first->brought[k].bytes)
                return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                                  "lengths differ, which NCCL allows from 2.30 on");
        }
        members |= 1ull << member->member;
        *done_p &= member->done;
    }
    if (members != (g->a.group->n < 64 ? (1ull << g->a.group->n) - 1 : ~0ull))
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "its ranks are not those of the group");
    *n_p = n;
    return ORIEL_OK;
}

/* Something small, which a rank brings that has nothing new. */
static oriel_status filler(oriel_device_rank *r)
{
    return r->filler.base != 0 ? ORIEL_OK : oriel_cuda_memory_create(r->gpu, 1, &r->filler);
}

oriel_status oriel_borrow_settle(oriel_comm *comm, nccl_comm lent, nccl_result result,
                                 const char *what)
{
    double until = oriel_now() + comm->timeout;
    const nccl_library *nccl;
    oriel_status st = oriel_nccl_open(&nccl);

    while (st == ORIEL_OK && result == NCCL_IN_PROGRESS && oriel_now() < until) {
        if (oriel_comm_aborted(comm))
            return oriel_comm_failure(comm);
        oriel_relax(1);
        st = oriel_nccl_check(nccl, lent, nccl->comm_state(lent, &result), what);
    }
    return st == ORIEL_OK ? oriel_nccl_check(nccl, lent, result, what) : st;
}

/* One that blocks would wait for it for ever. */
static oriel_status check_lives(const gathering *g)
{
    for (int i = 0; i < g->a.group->num_procs; i++) {
        if (atomic_load(&g->comm->heap.procs[g->a.group->procs[i]].state) >= PROC_LEFT)
            return oriel_fail(ORIEL_ERR_PEER, "process %d is gone", g->a.group->procs[i]);
    }
    return ORIEL_OK;
}

/* Not as symmetric memory: what NCCL finds in such a window it takes to be at the same offset on
 * all ranks, and XLA's own collectives run on this communicator. */
static oriel_status register_one(const gathering *g, const oriel_cuda_memory *memory,
                                 nccl_window *window_p)
{
    nccl_window window = NULL;
    oriel_status st = check_lives(g);

    if (st == ORIEL_OK)
        st = oriel_borrow_settle(
            g->comm, g->r->lent,
            g->nccl->window_register(g->r->lent, (void *)(uintptr_t)memory->base, memory->bytes,
                                     &window, NCCL_WINDOW_DEFAULT),
            "registering a window");
    if (st != ORIEL_OK)
        return st;
    if (window == NULL)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "NCCL has no windows here: symmetric memory is not supported");
    *window_p = window;
    return ORIEL_OK;
}

static oriel_status address_of(const gathering *g, nccl_window window, int member, int rank,
                               cu_ptr *at_p)
{
    nccl_team near = g->nccl->team_lsa(g->r->lent);
    int place = near.rank + member - g->b->rank;
    void *at = NULL;
    oriel_status st;

    if (place < 0 || place >= near.size)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "rank %d is out of reach of load and store", rank);
    st = oriel_nccl_check(g->nccl, g->r->lent, g->nccl->lsa_pointer(window, 0, place, &at),
                          "asking for an address");
    if (st == ORIEL_OK)
        *at_p = (cu_ptr)(uintptr_t)at;
    return st;
}

/* Where this rank sees what the others have brought. */
static oriel_status look_up(const gathering *g, uint32_t k, nccl_window window)
{
    oriel_status st = ORIEL_OK;

    for (int i = 0; i < g->a.group->n && st == ORIEL_OK; i++) {
        const heap_attendance *member = oriel_attendance(&g->a, i);
        int rank = g->a.group->ranks[i];
        cu_ptr at = 0;

        if (rank == g->a.rank || k >= member->num_brought)
            continue;
        st = address_of(g, window, member->member, rank, &at);
        if (st == ORIEL_OK)
            st = oriel_register_reach(g->comm, g->a.rank, rank, member->brought[k].window, at);
    }
    return st;
}

static borrowed_window *free_window(struct oriel_borrowed *b)
{
    for (int i = 0; i < MOST_WINDOWS; i++) {
        if (b->windows[i].window == NULL)
            return &b->windows[i];
    }
    return NULL;
}

/* All register their k-th, or something in its place: nobody stays away, since the others would
 * wait. */
static oriel_status register_kth(gathering *g, uint32_t k)
{
    const heap_attendance *mine = oriel_attendance_of(&g->comm->heap, g->a.rank, g->a.place);
    borrowed_window *w = free_window(g->b);
    borrowed_window made = {.brought = {.number = -1}};
    oriel_status st = ORIEL_OK;

    if (w == NULL) /* on all: they have registered and dropped the same */
        return oriel_fail(ORIEL_ERR_NO_RESOURCE, "there are %d already", MOST_WINDOWS);
    if (k < mine->num_brought) {
        made.brought = g->brought[k];
        st = register_one(g, &made.brought.alias, &made.window);
        oriel_register_brought(g->r, made.brought.number, st == ORIEL_OK);
    } else {
        st = filler(g->r);
        if (st == ORIEL_OK)
            st = register_one(g, &g->r->filler, &made.window);
    }
    if (st != ORIEL_OK)
        return st;
    g->brought[k].alias = (oriel_cuda_memory){0}; /* is the window's */
    *w = made;
    g->r->borrowed.windows += made.brought.number >= 0;
    g->r->borrowed.fillers += made.brought.number < 0;
    g->r->borrowed.registered++;
    return look_up(g, k, made.window);
}

/* Their owners' devices have been told before, and so have ended what they did there. */
static void drop(const gathering *g, uint64_t done)
{
    for (int i = 0; i < MOST_WINDOWS; i++) {
        borrowed_window *w = &g->b->windows[i];

        if (!(done >> i & 1) || w->window == NULL)
            continue;
        if (oriel_nccl_check(g->nccl, g->r->lent, g->nccl->window_deregister(g->r->lent, w->window),
                             "deregistering a window") != ORIEL_OK)
            oriel_log(ORIEL_LOG_WARN, "rank %d: %s", g->a.rank, oriel_last_error());
        oriel_cuda_memory_close(&w->brought.alias);
        *w = (borrowed_window){0};
        g->r->borrowed.dropped++;
        g->r->borrowed.registered--;
    }
}

/* Whatever fails, all come to the end: the others would wait. */
static oriel_status register_all(gathering *g)
{
    uint64_t done;
    uint32_t n;
    oriel_status st = compare(g, &n, &done);

    if (st != ORIEL_OK)
        return st;
    drop(g, done);
    g->r->borrowed.meetings++;
    for (uint32_t k = 0; k < n; k++) {
        oriel_status one = register_kth(g, k);

        st = st == ORIEL_OK ? one : st;
    }
    return st;
}

static oriel_status keep_appointment(gathering *g, uint64_t site)
{
    int all = 0;
    oriel_status st;

    bring(g, site);
    st = oriel_appoint_meet(&g->a, &all);
    if (all && register_all(g) != ORIEL_OK)
        refuse(g->a.group, g->a.rank, g->b);
    if (all)
        oriel_appoint_leave(&g->a);
    for (int i = 0; i < HEAP_BROUGHT; i++)
        oriel_cuda_memory_close(&g->brought[i].alias);
    return st;
}

oriel_status oriel_borrow_meet(oriel_group *group, int rank, uint64_t site)
{
    oriel_device_rank *r = oriel_device_of(group->comm, rank);
    gathering g = {.comm = group->comm, .r = r, .b = r->group};
    int due = 0;
    oriel_status st;

    if (r->exports == NULL || group->one_process || r->shown_to == 0)
        return ORIEL_OK;
    if (r->lent == NULL) {
        oriel_borrow_give_up(group, rank);
        return ORIEL_OK;
    }
    g.nccl = r->group->nccl;
    g.a = appointed(group, rank, r->group->place, g.nccl);
    st = oriel_appoint_call(&g.a, oriel_register_wanted(r, r->shown_to), &due);
    if (st != ORIEL_OK || !due)
        return st;
    oriel_cuda_enter(r->gpu);
    st = keep_appointment(&g, site);
    oriel_cuda_leave();
    return st;
}

/* ---- what came of it -------------------------------------------------------------------- */

void oriel_borrow_count(const oriel_comm *comm, oriel_borrow_counts *sum_p)
{
    const oriel_devices *devices = comm->devices;
    oriel_borrow_counts sum = {0};

    for (int i = 0; devices != NULL && i < devices->num_ranks; i++) {
        const oriel_borrow_counts *c = &devices->ranks[i].borrowed;

        sum.lent += c->lent;
        sum.meetings += c->meetings;
        sum.windows += c->windows;
        sum.fillers += c->fillers;
        sum.dropped += c->dropped;
        sum.refused += c->refused;
        sum.registered += c->registered;
        sum.ready += oriel_register_ready(&devices->ranks[i]);
    }
    *sum_p = sum;
}
