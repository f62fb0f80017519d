#include "ops/host/quick.h"

#include "base/copy.h"
#include "base/sys.h"
#include "core/protocol/style.h"
#include "core/world/trace.h"
#include "ops/host/ragged.h"

/* In one process the buffers themselves are at hand: from here on copying less pays. */
enum { DIRECT_FROM = 4096 };
enum { MOST_READ = 512 << 10 };
/* Where everybody has a core and may read the others' memory, that is cheaper from here on. */
enum { PULL_FROM = 24 << 10 };
/* Looks at the others before a call gets a request, a clock and a deadline. */
enum { QUICK_LOOKS = 200, QUICK_YIELDS = 16 };

static int better_pulled(const oriel_group *group, const oriel_op *op)
{
    switch (op->kind) {
    case ORIEL_KIND_ALL_GATHER:
    case ORIEL_KIND_BROADCAST:
    case ORIEL_KIND_PERMUTE:
        return oriel_op_block(op) >= PULL_FROM && !group->comm->oversubscribed &&
               oriel_group_reads(group);
    default:
        return 0;
    }
}

/* Many ranks have many cores, and then one copy out of the other's memory beats two. */
static size_t most_of(const oriel_group *group, const oriel_op *op)
{
    return op->kind == ORIEL_KIND_PERMUTE && group->room < HEAP_LANE_ROOM ? group->room
                                                                          : group->most;
}

int oriel_quick_fits(const oriel_group *group, const oriel_op *op)
{
    size_t bytes = oriel_op_widest(op, group->n);
    int direct = group->one_process && group->comm->heap.header->direct;

    /* Every member of an all_reduce would read all of everybody's. */
    if (op->kind == ORIEL_KIND_ALL_REDUCE && bytes * (size_t)group->n > MOST_READ)
        return 0;
    return op->kind != ORIEL_KIND_RAGGED_ALL_TO_ALL && bytes <= most_of(group, op) &&
           !(direct && bytes >= DIRECT_FROM) && !better_pulled(group, op);
}

size_t oriel_quick_brings(const oriel_group *group, const oriel_seat *seat, const oriel_op *op)
{
    if (op->ragged != NULL)
        return oriel_ragged_brings(group, seat, op);
    return oriel_quick_fits(group, op) ? oriel_op_widest(op, group->n) : 0;
}

/* Where member `index` has what it brings. */
static char *payload_of(const oriel_seat *seat, uint64_t call, const oriel_op *op, int index)
{
    return oriel_lane_payload(seat, call, index, oriel_op_widest(op, (int)seat->n));
}

/* The own block of what is scattered nobody reads. */
static void write_payload(const oriel_op *op, const oriel_seat *seat, char *to)
{
    size_t bytes = oriel_op_payload(op, (int)seat->n, seat->index);
    size_t own = oriel_op_part(op, seat->index);
    size_t after = oriel_op_part(op, seat->index + 1);

    if (!oriel_op_scatters(op)) {
        oriel_copy(to, op->send, bytes);
        return;
    }
    oriel_copy(to, op->send, own);
    oriel_copy(to + after, (const char *)op->send + after, bytes - after);
}

static void stream_payload(const oriel_group *group, const oriel_op *op, const oriel_seat *seat,
                           uint32_t style, char *to)
{
    int receiver = oriel_op_destination(op, seat->index);
    size_t block = oriel_op_block(op);

    if (!oriel_op_scatters(op)) {
        oriel_op_copy(to, op->send, oriel_op_payload(op, group->n, seat->index),
                      receiver < 0 || oriel_style_streams(group, style, receiver));
        return;
    }
    for (int i = 0; i < group->n; i++) {
        if (i != seat->index)
            oriel_op_copy(to + oriel_op_part(op, i), (const char *)op->send + oriel_op_part(op, i),
                          block, oriel_style_streams(group, style, i));
    }
}

static void store_payload(const oriel_group *group, oriel_seat *seat, uint64_t call,
                          const oriel_op *op)
{
    char *to = payload_of(seat, call, op, seat->index);
    uint32_t style =
        oriel_style_store(group, seat, call, (uint32_t)op->kind, oriel_op_widest(op, group->n));

    if (style == 0)
        write_payload(op, seat, to);
    else
        stream_payload(group, op, seat, style, to);
    oriel_style_stored(seat, call);
}

void oriel_quick_arrive(const oriel_group *group, oriel_seat *seat, uint64_t call,
                        const oriel_op *op, const oriel_record *record)
{
    size_t bytes = op->ragged != NULL ? oriel_ragged_brings(group, seat, op) : 0;

    if (record->mode == ORIEL_MODE_LANE) {
        bytes = oriel_op_widest(op, group->n);
        store_payload(group, seat, call, op);
    }
    oriel_lane_arrive(seat, call, record, bytes);
}

static void take_payloads(const oriel_seat *seat, uint64_t call, const oriel_op *op)
{
    size_t part = oriel_op_part(op, seat->index);
    size_t block = oriel_op_block(op);
    int from = oriel_op_source(op, seat->index);
    const void *src[HEAP_MAX_RANKS];

    if (block == 0)
        return;
    if (from >= 0)
        src[from] = payload_of(seat, call, op, from) + part;
    for (int i = 0; from == OP_EVERYBODY && i < (int)seat->n; i++)
        src[i] = payload_of(seat, call, op, i) + part;
    src[seat->index] = (const char *)op->send + part;
    oriel_op_take(op, (int)seat->n, seat->index, src, 0, block, 0);
}

void oriel_quick_consume(const oriel_group *group, oriel_seat *seat, uint64_t call,
                         const oriel_op *op)
{
    oriel_style_take(seat, call);
    take_payloads(seat, call, op);
    oriel_style_taken(group, seat, call);
}

lane_scan oriel_quick_scan(const oriel_seat *seat, const oriel_op *op)
{
    int from;

    if (!oriel_op_rooted(op))
        return oriel_lane_all(seat);
    from = oriel_op_source(op, seat->index);
    return oriel_lane_one(from == seat->index ? OP_NOBODY : from);
}

/* Returns whether all whom it needs came while it looked. Who needs some alone rings for its
 * arrival: when it completes, if that is at once, since the fence of the ring is dear while
 * the arrival is on its way; but before it gives the core away. */
static int look_for_a_while(const oriel_group *group, oriel_seat *seat, uint64_t call,
                            const oriel_op *op)
{
    int yields = group->comm->oversubscribed;
    lane_scan scan = oriel_quick_scan(seat, op);
    enum lane_view view = oriel_lane_look(seat, call, &scan);

    if (view == LANE_WAITING && scan.some && yields)
        oriel_group_ring(group);
    if (view == LANE_WAITING && yields)
        oriel_spread_keep(group->comm);
    for (int i = 0; view == LANE_WAITING && i < (yields ? QUICK_YIELDS : QUICK_LOOKS); i++) {
        oriel_relax(yields);
        view = oriel_lane_look(seat, call, &scan);
    }
    if (view != LANE_FULL && scan.some)
        oriel_group_ring(group);
    if (view == LANE_FULL && !scan.some)
        oriel_group_ring_fenced(group);
    return view == LANE_FULL;
}

/* Whether nothing stands against it: started calls must be driven meanwhile, faults strike
 * where a request begins, and it is there that rows are set aside. */
static int may_run(const oriel_group *group, int local, const oriel_op *op)
{
    const oriel_comm *comm = group->comm;
    oriel_seat *seat = &group->seats[local];

    return seat->lane != NULL && comm->started[local] == NULL && !comm->injects &&
           !oriel_comm_aborted(comm) && (op->ragged == NULL || op->send != op->recv) &&
           (op->ragged != NULL ? oriel_ragged_lanes(group, op) : oriel_quick_fits(group, op)) &&
           oriel_lane_free(seat, group->sequence[local],
                           op->ragged != NULL ? oriel_ragged_brings(group, seat, op)
                                              : oriel_op_widest(op, group->n));
}

/* As oriel_request_order numbers it, and with the record that a request would have. */
static void arrive(oriel_group *group, oriel_seat *seat, uint64_t call, const oriel_op *op,
                   oriel_record *record_p)
{
    if (op->ragged == NULL) {
        oriel_op_describe(group, op, record_p);
        record_p->mode = ORIEL_MODE_LANE;
        oriel_quick_arrive(group, seat, call, op, record_p);
        return;
    }
    oriel_op_record(group, op, record_p);
    oriel_ragged_show(group, seat, call, op);
    oriel_quick_arrive(group, seat, call, op, record_p);
    seat->arrived++; /* the second number is taken */
}

/* Once all have arrived: 0, if that does not end the call. */
static int finish(const oriel_group *group, oriel_seat *seat, uint64_t call, const oriel_op *op)
{
    int rings = oriel_op_rooted(op);
    ragged_fault fault;

    if (op->ragged == NULL) {
        oriel_quick_consume(group, seat, call, op);
    } else {
        if (oriel_ragged_look(group, seat, call, op, &fault) != RAGGED_FITS)
            return 0;
        oriel_ragged_see(group, seat, call, op);
    }
    if (op->ragged != NULL) /* the later one first: then nothing is left open */
        oriel_lane_complete(seat, call + 1);
    rings |= oriel_lane_complete(seat, call);
    if (rings)
        oriel_group_ring(group);
    return 1;
}

oriel_status oriel_quick_run(oriel_group *group, int rank, const oriel_op *op, uint64_t *call_p,
                             oriel_record *record_p)
{
    int local = rank - group->comm->first_rank;
    oriel_seat *seat = &group->seats[local];
    uint64_t call = group->sequence[local];

    if (!may_run(group, local, op))
        return ORIEL_IN_PROGRESS;
    group->sequence[local] += op->ragged != NULL ? 2 : 1;
    *call_p = call;
    arrive(group, seat, call, op, record_p);
    if (!look_for_a_while(group, seat, call, op) || !finish(group, seat, call, op))
        return ORIEL_IN_PROGRESS;
    if (op->ragged != NULL)
        record_p->bytes = oriel_ragged_sent(op, group->n);
    oriel_trace_past(group->comm, rank, group->hash, record_p);
    return ORIEL_OK;
}
