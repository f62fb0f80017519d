#include "ops/quick.h"

#include "base/copy.h"
#include "base/sys.h"
#include "core/trace.h"

/* In one process the buffers themselves are at hand: from here on copying less pays. */
enum { DIRECT_FROM = 4096 };
/* Looks at the others before a call gets a request, a clock and a deadline. */
enum { QUICK_LOOKS = 200, QUICK_YIELDS = 16 };

int oriel_quick_fits(const oriel_group *group, const oriel_op *op)
{
    size_t bytes = oriel_op_widest(op, group->n);
    int direct = group->one_process && group->comm->heap.header->direct;

    return op->kind != ORIEL_KIND_RAGGED_ALL_TO_ALL && bytes <= group->room &&
           !(direct && bytes >= DIRECT_FROM);
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

void oriel_quick_arrive(oriel_seat *seat, uint64_t call, const oriel_op *op,
                        const oriel_record *record)
{
    if (record->mode == ORIEL_MODE_LANE)
        write_payload(op, seat, oriel_lane_payload(seat, call, seat->index));
    oriel_lane_arrive(seat, call, record);
}

void oriel_quick_consume(const oriel_seat *seat, uint64_t call, const oriel_op *op)
{
    const void *payload[HEAP_MAX_RANKS];

    for (uint32_t i = 0; i < seat->n; i++)
        payload[i] = oriel_lane_payload(seat, call, (int)i);
    oriel_op_consume(op, (int)seat->n, seat->index, payload);
}

/* Returns whether all came while it looked. */
static int look_for_a_while(const oriel_group *group, oriel_seat *seat, uint64_t call)
{
    int yields = group->comm->oversubscribed;
    lane_scan scan = LANE_SCAN_INIT;
    enum lane_view view = oriel_lane_look(seat, call, &scan);

    for (int i = 0; view == LANE_WAITING && i < (yields ? QUICK_YIELDS : QUICK_LOOKS); i++) {
        oriel_relax(yields);
        view = oriel_lane_look(seat, call, &scan);
    }
    if (view == LANE_FULL)
        oriel_group_ring_fenced(group);
    return view == LANE_FULL;
}

oriel_status oriel_quick_run(oriel_group *group, int rank, const oriel_op *op, uint64_t *call_p,
                             oriel_record *record_p)
{
    oriel_comm *comm = group->comm;
    int local = rank - comm->first_rank;
    oriel_seat *seat = &group->seats[local];
    uint64_t call = group->sequence[local];

    /* Started calls must be driven meanwhile; faults strike where a request begins. */
    if (seat->lane == NULL || comm->started[local] != NULL || comm->injects ||
        oriel_comm_aborted(comm) || !oriel_quick_fits(group, op) || !oriel_lane_free(seat, call))
        return ORIEL_IN_PROGRESS;
    oriel_op_describe(group, op, record_p);
    record_p->mode = ORIEL_MODE_LANE;
    group->sequence[local]++;
    *call_p = call;
    oriel_quick_arrive(seat, call, op, record_p);
    if (!look_for_a_while(group, seat, call))
        return ORIEL_IN_PROGRESS;
    oriel_quick_consume(seat, call, op);
    oriel_lane_complete(seat, call); /* there is no later one that could wait for it */
    oriel_trace_past(comm, rank, group->hash, record_p);
    return ORIEL_OK;
}
