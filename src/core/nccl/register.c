/* Buffers that NCCL registers: collective over all ranks, so a rank may begin only if all do.
 * The registrars agree on rounds through the heap, led by that of process 0; nobody waits while
 * they do.
 *
 *   lead: OFFER  -> all vote READY (its communicators are locked, its ranks' offers written),
 *                   or BUSY (a call of NCCL's own is under way)
 *   lead: ENTER, if all are ready -> all register, or deregister, and vote DONE
 *   lead: CANCEL, if not; it tries again in a while
 *
 * A round takes from each rank one buffer that is not registered yet. A rank without any brings
 * a piece of scratch memory of its own, so that one rank's new buffer need not wait for another's;
 * before NCCL 2.30, where sizes must be equal, the round waits. What a round has registered is a
 * set; it is deregistered, in a round as well, when all its buffers are withdrawn and all have
 * seen that. So NCCL does the same in the same order on all ranks.
 *
 * A failure ends all rounds: what is registered stays, what is not is staged. */
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "core/device/register.h"
#include "core/nccl/comm.h"
#include "core/nccl/sections.h"

enum { MOST_SETS = 1024, SCRATCH_PIECE = NCCL_WINDOW_ALIGNMENT };
#define RETRY_S  0.02
#define UNLIKE_S 1.0 /* until sizes that differ are compared again */
#define END_S    5.0

enum phase { IDLE, OFFER, ENTER, CANCEL };
enum kind { REGISTER, DROP };
enum vote { BUSY = 1, IS_READY, DONE };

/* A round's word in the heap: number << 32 | set << 16 | kind << 8 | phase. */
struct round {
    uint32_t number;  /* from 1 */
    int set;          /* of windows: which place in `sets` */
    enum kind kind;   /* what is done in it */
    enum phase phase; /* how far it is */
};

/* What a round has registered. */
struct set {
    nccl_window windows[DEVICE_RANKS];     /* per local rank */
    oriel_cuda_memory alias[DEVICE_RANKS]; /* the same: what it has brought */
    cu_ptr inside[DEVICE_RANKS];           /* the same: how far into an allocation that begins */
    heap_offer offers[DEVICE_RANKS];       /* per rank */
};

struct oriel_rounds {
    struct set *sets[MOST_SETS];         /* the same ones on all; NULL: none */
    struct set *next;                    /* of the round at hand */
    int has_scratch;                     /* else sizes must be equal */
    cu_ptr scratch[DEVICE_RANKS];        /* per local rank */
    oriel_export *offered[DEVICE_RANKS]; /* the same, in the round at hand; NULL: scratch */
    uint32_t holds;  /* the round that the communicators are locked for; 0: none */
    int told_full;   /* lead: that there is no room for another set */
    double retry_at; /* lead */
    double ends_at;  /* when the wait for others is over; 0: it has not begun */
};

static struct oriel_rounds *rounds_of(const oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;

    return devices->nccl != NULL ? devices->nccl->rounds : NULL;
}

/* No round will begin, and a process that is in one gives up. */
static int is_over(void *arg)
{
    oriel_comm *comm = arg;

    return oriel_comm_aborted(comm) || atomic_load(&oriel_rounds_word(&comm->heap)->failed);
}

/* Somebody will not vote any more. */
static int has_left(const oriel_comm *comm)
{
    for (int p = 0; p < comm->num_processes; p++) {
        if (atomic_load(&comm->heap.procs[p].state) >= PROC_LEFT)
            return 1;
    }
    return 0;
}

/* ---- the word ----------------------------------------------------------------------------- */

static struct round load_round(const oriel_comm *comm)
{
    uint64_t word = atomic_load(&oriel_rounds_word(&comm->heap)->round);

    return (struct round){.number = (uint32_t)(word >> 32),
                          .set = (int)(word >> 16 & 0xffff),
                          .kind = (enum kind)(word >> 8 & 0xff),
                          .phase = (enum phase)(word & 0xff)};
}

static void store_round(oriel_comm *comm, struct round round)
{
    atomic_store(&oriel_rounds_word(&comm->heap)->round,
                 (uint64_t)round.number << 32 | (uint64_t)round.set << 16 |
                     (uint64_t)round.kind << 8 | (uint64_t)round.phase);
    oriel_comm_ring_all(comm);
}

static void cast_vote(oriel_comm *comm, uint32_t number, enum vote vote)
{
    atomic_store(&oriel_vote(&comm->heap, comm->process)->word, (uint64_t)number << 8 | vote);
    oriel_comm_ring(comm, 0);
}

static enum vote vote_of(const oriel_comm *comm, int process, uint32_t number)
{
    uint64_t word = atomic_load(&oriel_vote(&comm->heap, process)->word);

    return word >> 8 == number ? (enum vote)(word & 0xff) : 0;
}

/* ---- the lead ----------------------------------------------------------------------------- */

/* A rank that has withdrawn a buffer waits until the others know. */
static int is_gone(const oriel_comm *comm, int rank, const heap_offer *offer)
{
    const heap_export *shown = shown_of(comm, rank, (int)offer->number - 1);
    uint32_t generation = atomic_load(&shown->generation);

    if (generation == offer->generation)
        return 0;
    return generation != offer->generation + 1 ||
           atomic_load(&shown->released) >= (uint32_t)comm->num_processes - 1;
}

/* A set that nobody needs any more; -1: none. */
static int find_useless(const oriel_comm *comm, const struct oriel_rounds *rounds)
{
    for (int s = 0; s < MOST_SETS; s++) {
        const struct set *set = rounds->sets[s];
        int gone = set != NULL;

        for (int r = 0; gone && r < comm->size; r++)
            gone = set->offers[r].number == 0 || is_gone(comm, r, &set->offers[r]);
        if (gone)
            return s;
    }
    return -1;
}

static int find_free(const struct oriel_rounds *rounds)
{
    for (int s = 0; s < MOST_SETS; s++) {
        if (rounds->sets[s] == NULL)
            return s;
    }
    return -1;
}

/* Ranks that have something to register. */
static int count_wanting(const oriel_comm *comm)
{
    int n = 0;

    for (int r = 0; r < comm->size; r++)
        n += atomic_load(&oriel_offers(&comm->heap, r)->unregistered) > 0;
    return n;
}

static int open_round(oriel_comm *comm, struct oriel_rounds *rounds, struct round round)
{
    int wanting = count_wanting(comm);

    if (oriel_now() < rounds->retry_at)
        return 0;
    round.kind = DROP;
    round.set = find_useless(comm, rounds);
    if (round.set < 0) {
        round.kind = REGISTER;
        round.set = find_free(rounds);
        if (round.set < 0 && wanting > 0 && !rounds->told_full) {
            rounds->told_full = 1;
            oriel_log(ORIEL_LOG_INFO,
                      "%d windows are registered with NCCL: other buffers are staged", MOST_SETS);
        }
        if (round.set < 0 || wanting == 0 || (!rounds->has_scratch && wanting < comm->size))
            return 0;
    }
    round.number++;
    round.phase = OFFER;
    store_round(comm, round);
    return 1;
}

static int offers_fit(const oriel_comm *comm, const struct oriel_rounds *rounds)
{
    const heap_offers *shown = oriel_offers(&comm->heap, 0);
    int offers = 0;
    int alike = 1;

    for (int r = 0; r < comm->size; r++) {
        offers += shown[r].offer.number > 0;
        alike &= shown[r].offer.bytes == shown[0].offer.bytes;
    }
    return rounds->has_scratch ? offers > 0 : offers == comm->size && alike;
}

/* -1: some have not voted yet. */
static int count_votes(const oriel_comm *comm, uint32_t number, enum vote vote)
{
    int n = 0;

    for (int p = 0; p < comm->num_processes; p++) {
        enum vote theirs = vote_of(comm, p, number);

        if (theirs < (vote == DONE ? DONE : BUSY))
            return -1;
        n += theirs == vote;
    }
    return n;
}

static int decide(oriel_comm *comm, struct oriel_rounds *rounds, struct round round, int ends)
{
    int ready = count_votes(comm, round.number, IS_READY);

    if (ready < 0 && !ends)
        return 0;
    round.phase = ENTER;
    if (ready < comm->num_processes || (round.kind == REGISTER && !offers_fit(comm, rounds))) {
        round.phase = CANCEL;
        rounds->retry_at =
            oriel_now() +
            (ready == comm->num_processes && !rounds->has_scratch ? UNLIKE_S : RETRY_S);
    }
    if (round.phase == CANCEL)
        oriel_log(ORIEL_LOG_DEBUG, "round %u with NCCL is cancelled: %d of %d processes are ready",
                  round.number, ready, comm->num_processes);
    store_round(comm, round);
    return 1;
}

static int lead_step(oriel_comm *comm, struct oriel_rounds *rounds, int ends)
{
    struct round round = load_round(comm);

    switch (round.phase) {
    case OFFER:
        return decide(comm, rounds, round, ends);
    case ENTER:
        if (count_votes(comm, round.number, DONE) < comm->num_processes)
            return 0;
        round.phase = IDLE;
        store_round(comm, round);
        return 1;
    default:
        return ends ? 0 : open_round(comm, rounds, round);
    }
}

/* ---- all: offering ------------------------------------------------------------------------ */

static oriel_export *find_offer(oriel_device_rank *r, int *number_p)
{
    for (int i = 0; i < r->num_exports; i++) {
        oriel_export *e = &r->exports[i];

        if (atomic_load(&e->state) == SHOWN && !e->registered) {
            *number_p = i + 1;
            return e;
        }
    }
    return NULL;
}

/* Tells the lead whether ranks of this process have something to register. */
static void count_unregistered(oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;

    for (int k = 0; k < devices->num_ranks; k++) {
        _Atomic uint32_t *shown = &oriel_offers(&comm->heap, comm->first_rank + k)->unregistered;
        int number;
        uint32_t now = find_offer(&devices->ranks[k], &number) != NULL;

        if (atomic_load(shown) != now) {
            atomic_store(shown, now);
            oriel_comm_ring(comm, 0);
        }
    }
}

static void offer_all(oriel_comm *comm, struct oriel_rounds *rounds)
{
    oriel_devices *devices = comm->devices;

    for (int k = 0; k < devices->num_ranks; k++) {
        heap_offer *offer = &oriel_offers(&comm->heap, comm->first_rank + k)->offer;
        int number = 0;
        oriel_export *e = find_offer(&devices->ranks[k], &number);

        rounds->offered[k] = e;
        *offer = (heap_offer){0};
        if (e == NULL)
            continue;
        e->offered = 1;
        *offer = (heap_offer){
            .number = (uint32_t)number, .generation = e->generation, .bytes = e->bytes};
    }
}

static void let_go(const oriel_comm *comm, struct oriel_rounds *rounds)
{
    const oriel_devices *devices = comm->devices;

    for (int k = 0; k < devices->num_ranks; k++) {
        if (rounds->offered[k] != NULL)
            rounds->offered[k]->offered = 0;
        rounds->offered[k] = NULL;
    }
    rounds->holds = 0;
    oriel_nccl_leave_all(devices->nccl);
}

static int answer(oriel_comm *comm, struct oriel_rounds *rounds, struct round round, int ends)
{
    if (vote_of(comm, comm->process, round.number) != 0)
        return 0;
    if (rounds->next == NULL)
        rounds->next = oriel_sys_now->alloc(sizeof *rounds->next);
    if (ends || rounds->next == NULL || !oriel_nccl_try_all(comm->devices->nccl)) {
        cast_vote(comm, round.number, BUSY);
        return 1;
    }
    rounds->holds = round.number;
    if (round.kind == REGISTER)
        offer_all(comm, rounds);
    cast_vote(comm, round.number, IS_READY);
    return 1;
}

/* ---- all: registering ---------------------------------------------------------------------- */

static oriel_status register_set(oriel_comm *comm, struct oriel_rounds *rounds, int number)
{
    oriel_devices *devices = comm->devices;
    struct set *set = rounds->next;
    oriel_nccl_wait wait = {.until = oriel_now() + comm->timeout, .stops = is_over, .of = comm};
    cu_ptr at[DEVICE_RANKS];
    size_t bytes[DEVICE_RANKS];

    for (int k = 0; k < devices->num_ranks; k++) {
        const oriel_export *e = rounds->offered[k];

        set->inside[k] = e != NULL ? 0 : (cu_ptr)number * SCRATCH_PIECE;
        at[k] = (e != NULL ? e->alias.base : rounds->scratch[k]) + set->inside[k];
        bytes[k] = e != NULL ? e->alias.bytes : SCRATCH_PIECE;
        set->alias[k] = e != NULL ? e->alias : (oriel_cuda_memory){.fd = -1};
    }
    rounds->sets[number] = set;
    rounds->next = NULL;
    for (int r = 0; r < comm->size; r++)
        set->offers[r] = oriel_offers(&comm->heap, r)->offer;
    for (int k = 0; k < devices->num_ranks; k++) {
        if (rounds->offered[k] != NULL)
            rounds->offered[k]->registered = 1; /* its memory is the set's now */
    }
    return oriel_nccl_links_register(&devices->nccl->links, at, bytes, NCCL_WINDOW_SYMMETRIC, &wait,
                                     set->windows);
}

static int is_local(const oriel_comm *comm, int rank)
{
    return comm->heap.ranks[rank].process == comm->process;
}

/* What local ranks see of a buffer of another process. */
static oriel_status see_offer(oriel_comm *comm, const struct set *set, int rank)
{
    const oriel_devices *devices = comm->devices;
    int number = (int)set->offers[rank].number - 1;
    oriel_status st = ORIEL_OK;

    for (int k = 0; k < devices->num_ranks && st == ORIEL_OK; k++) {
        cu_ptr at = 0;

        st = oriel_nccl_links_pointer(&devices->nccl->links, k, set->windows[k], rank, &at);
        /* NCCL takes it for granted that all begin equally far into their allocations. */
        if (st == ORIEL_OK)
            st = oriel_window_tell(&devices->ranks[k], rank, number, at - set->inside[k]);
    }
    if (st != ORIEL_OK)
        return st;
    devices->imports[rank][number].generation = set->offers[rank].generation;
    atomic_fetch_add(&shown_of(comm, rank, number)->mapped, 1);
    oriel_comm_ring(comm, comm->heap.ranks[rank].process);
    return ORIEL_OK;
}

static oriel_status see_offers(oriel_comm *comm, const struct set *set)
{
    oriel_status st = ORIEL_OK;

    for (int r = 0; r < comm->size && st == ORIEL_OK; r++) {
        if (set->offers[r].number > 0 && !is_local(comm, r))
            st = see_offer(comm, set, r);
    }
    return st;
}

static void drop_set(struct oriel_nccl *nccl, int number, int deregister)
{
    struct set *set = nccl->rounds->sets[number];

    if (deregister)
        oriel_nccl_links_deregister(&nccl->links, set->windows);
    for (int k = 0; k < nccl->links.n; k++)
        oriel_cuda_memory_close(&set->alias[k]);
    oriel_sys_now->release(set);
    nccl->rounds->sets[number] = NULL;
}

static void fail_rounds(oriel_comm *comm)
{
    oriel_nccl_break(comm->devices->nccl);
    atomic_store(&oriel_rounds_word(&comm->heap)->failed, 1);
    oriel_comm_ring_all(comm);
    oriel_log(oriel_comm_aborted(comm) ? ORIEL_LOG_INFO : ORIEL_LOG_WARN,
              "buffers that NCCL has not registered yet are staged from now on: %s",
              oriel_last_error());
}

static void enter(oriel_comm *comm, struct oriel_rounds *rounds, struct round round)
{
    double began = oriel_now();
    oriel_status st = ORIEL_OK;

    if (round.kind == REGISTER)
        st = register_set(comm, rounds, round.set);
    else
        drop_set(comm->devices->nccl, round.set, 1);
    let_go(comm, rounds);
    if (st == ORIEL_OK && round.kind == REGISTER)
        st = see_offers(comm, rounds->sets[round.set]);
    if (st != ORIEL_OK)
        fail_rounds(comm);
    oriel_log(ORIEL_LOG_DEBUG, "round %u with NCCL: %s set %d in %.1f ms", round.number,
              round.kind == REGISTER ? "registered" : "dropped", round.set,
              1e3 * (oriel_now() - began));
    count_unregistered(comm); /* before the lead looks again */
    cast_vote(comm, round.number, DONE);
}

/* ---- the registrar's step ------------------------------------------------------------------ */

static int follow(oriel_comm *comm, struct oriel_rounds *rounds, int ends)
{
    struct round round = load_round(comm);

    if (rounds->holds != 0 && (rounds->holds != round.number || round.phase == CANCEL)) {
        let_go(comm, rounds);
        return 1;
    }
    if (round.phase == OFFER)
        return answer(comm, rounds, round, ends);
    if (round.phase == ENTER && rounds->holds == round.number) {
        enter(comm, rounds, round);
        return 1;
    }
    return 0;
}

int oriel_rounds_step(oriel_comm *comm)
{
    struct oriel_rounds *rounds = rounds_of(comm);
    int ends = atomic_load(&comm->devices->registrar_ends);
    int moved;

    if (rounds == NULL)
        return 0;
    if (is_over(comm) || (has_left(comm) && load_round(comm).phase != ENTER)) {
        if (rounds->holds != 0)
            let_go(comm, rounds);
        return 0;
    }
    count_unregistered(comm);
    moved = comm->process == 0 ? lead_step(comm, rounds, ends) : 0;
    return follow(comm, rounds, ends) | moved;
}

/* Processes that are ready wait for each other, once the lead has decided. */
int oriel_rounds_may_end(oriel_comm *comm)
{
    struct oriel_rounds *rounds = rounds_of(comm);

    if (rounds == NULL || is_over(comm))
        return 1;
    if (rounds->ends_at == 0)
        rounds->ends_at = oriel_now() + END_S;
    return oriel_now() > rounds->ends_at ||
           (rounds->holds == 0 && (comm->process != 0 || load_round(comm).phase != OFFER));
}

/* ---- life ------------------------------------------------------------------------------------ */

oriel_status oriel_rounds_open(oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;
    const oriel_nccl_links *links = &devices->nccl->links;
    struct oriel_rounds *rounds = oriel_sys_now->alloc(sizeof *rounds);
    oriel_status st = ORIEL_OK;

    devices->nccl->rounds = rounds;
    if (rounds == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for what NCCL registers");
    rounds->has_scratch = links->nccl->version >= NCCL_SIZES_DIFFER;
    for (int k = 0; k < links->n && rounds->has_scratch && st == ORIEL_OK; k++)
        st = oriel_nccl_memory_create(links->nccl, links->links[k].gpu,
                                      (size_t)MOST_SETS * SCRATCH_PIECE, &rounds->scratch[k]);
    return st;
}

void oriel_rounds_close(struct oriel_nccl *nccl, int deregister)
{
    struct oriel_rounds *rounds = nccl->rounds;
    const oriel_nccl_links *links = &nccl->links;

    if (rounds == NULL)
        return;
    for (int s = 0; s < MOST_SETS; s++) {
        if (rounds->sets[s] != NULL)
            drop_set(nccl, s, deregister);
    }
    for (int k = 0; k < links->n; k++)
        oriel_nccl_memory_free(links->nccl, links->links[k].gpu, rounds->scratch[k]);
    oriel_sys_now->release(rounds->next);
    oriel_sys_now->release(rounds);
    nccl->rounds = NULL;
}
