#include "ops/host/request.h"

#include <string.h>

#include "base/sys.h"
#include "ops/arrays.h"
#include "ops/host/transfer.h"
#include "ops/host/verdict.h"
#include "ops/ragged.h"

/* Deadline and neighbours are looked at once in this many idle steps. */
enum { LIMIT_POLLS = 64 };
/* Looks at the others before a blocking call gets a clock and a deadline. */
enum { FIRST_LOOKS = 200, FIRST_YIELDS = 16 };

/* ---- its life ---------------------------------------------------------------------- */

void oriel_request_choose(oriel_request *request, enum oriel_meeting meeting)
{
    oriel_question question = request->moves->ask(request, meeting);
    oriel_choice choice = oriel_choose(&request->group->facts, &question);

    request->record.mode = (uint8_t)choice.mode;
    request->stream = choice.stream;
}

/* Of ragged_all_to_all a person wants to see the bytes that are sent. */
static heap_trace *trace_as(oriel_request *request, enum trace_state state)
{
    oriel_record sent;

    if (request->op.ragged == NULL)
        return oriel_trace_add(request->comm, request->rank, request->group->hash, &request->record,
                               state);
    sent = request->record;
    sent.bytes = oriel_ragged_sent(&request->op, request->group->n);
    return oriel_trace_add(request->comm, request->rank, request->group->hash, &sent, state);
}

/* The request waits from now on: others may ask what for. */
static void note(oriel_request *request)
{
    const oriel_comm *comm = request->comm;

    if (request->trace != NULL)
        return;
    memset(&request->begun, 0, sizeof *request - offsetof(oriel_request, begun));
    request->trace =
        trace_as(request, request->state == REQUEST_QUEUE || request->state == REQUEST_ENTER
                              ? TRACE_ENTERED
                              : TRACE_ARRIVED);
    request->begun = request->trace->begun;
    request->warn_at = request->begun + comm->warn_after;
    request->compare_at = request->begun + oriel_verdict_patience(comm);
    request->told =
        (int)atomic_load_explicit(&comm->heap.ranks[request->rank].told, memory_order_relaxed);
    request->polls = 1; /* most calls end before the first look at the limits */
}

oriel_status oriel_request_begin(oriel_request *request, const oriel_group *group, int rank,
                                 int index, const oriel_key *key)
{
    const oriel_op *op = &request->op;
    oriel_status st;

    request->comm = group->comm;
    request->group = group;
    request->rank = rank;
    request->index = index;
    request->state = REQUEST_ENTER;
    request->member = NULL;
    request->brings = 0;
    request->scan.some = 0;
    request->rung = 0;
    request->trace = NULL;
    request->cell = NULL;
    request->leaves = key != NULL && op->kind == ORIEL_KIND_MESSAGE && index == op->root;
    request->left = 0;
    request->sent = NULL;
    request->kept = request->arrays = request->slices = NULL;
    request->moves = op->ragged != NULL ? &oriel_moves_ragged : &oriel_moves_fixed;
    oriel_op_describe(group, op, &request->record);
    st = request->moves->begin(request);
    if (st != ORIEL_OK) {
        oriel_request_drop(request);
        return st;
    }
    oriel_comm_operation(group->comm);
    if (key == NULL)
        return ORIEL_OK;
    request->key = *key;
    oriel_request_choose(request, MEET_CELL);
    note(request);
    return ORIEL_OK;
}

/* Calls from C are matched by their order on the group: run 0 is theirs alone,
 * since no call of a program has the name 0. The first one meets in a
 * cell, and the others go by the lane that it has found. */
void oriel_request_order(oriel_request *request)
{
    int local = request->rank - request->comm->first_rank;
    uint64_t count = request->group->sequence[local]++;

    request->key = (oriel_key){.group = request->group->hash, .count = count};
    request->member = request->record.n > 1 ? &request->group->members[local] : NULL;
    request->state = count > 0 && request->member != NULL ? REQUEST_QUEUE : REQUEST_ENTER;
    request->brings = request->moves->brings(request);
    request->stream = 0;
    request->record.mode = ORIEL_MODE_LANE;
    if (request->state == REQUEST_QUEUE && request->op.ragged == NULL &&
        request->brings <= request->member->small)
        return;
    oriel_request_choose(request, count == 0 ? MEET_CELL : MEET_LANE);
    if (request->record.mode != ORIEL_MODE_LANE)
        request->brings = 0;
}

/* A started call does not look for a while. */
oriel_status oriel_request_keep(oriel_request *request)
{
    note(request);
    if (request->moves->keep(request))
        return ORIEL_OK;
    oriel_trace_end(request->trace, TRACE_FAILED);
    oriel_request_drop(request);
    return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for the arrays of %s",
                      oriel_kind_name(request->record.kind));
}

void oriel_request_drop(oriel_request *request)
{
    oriel_sys_now->release(request->arrays);
    oriel_sys_now->release(request->slices);
    oriel_sys_now->release(request->kept);
    if (request->op.kernel != NULL)
        oriel_op_custom(&request->op)->moves->destroy(oriel_op_custom(&request->op));
    request->kept = NULL;
    request->arrays = NULL;
    request->slices = NULL;
    request->op.kernel = NULL;
}

static void unpark(oriel_request *request)
{
    if (request->parked)
        atomic_fetch_sub(&request->comm->heap.header->parked, 1);
    request->parked = 0;
}

/* ---- its end ------------------------------------------------------------------------ */

static oriel_status succeed(oriel_request *request)
{
    if (request->trace != NULL)
        oriel_trace_end(request->trace, TRACE_DONE);
    else
        trace_as(request, TRACE_DONE);
    oriel_request_drop(request);
    /* That place is given back. */
    if (oriel_request_in_lane(request) &&
        (oriel_lane_complete(request->member, request->key.count) || request->scan.some))
        oriel_group_ring(request->group);
    return ORIEL_OK;
}

/* Nobody may look at the buffers after this rank has returned, so direct mode
 * waits for members that are just doing so. */
static oriel_status fail(oriel_request *request, oriel_status code)
{
    note(request);
    if (request->cell != NULL && request->record.mode == ORIEL_MODE_DIRECT)
        oriel_cell_drain(request->cell);
    unpark(request);
    oriel_op_poison(&request->op, request->group->n, request->index);
    if (request->op.kernel != NULL)
        oriel_op_custom(&request->op)->moves->fail(request);
    oriel_request_drop(request);
    oriel_trace_end(request->trace, TRACE_FAILED);
    return code;
}

/* The operation was revoked, here or elsewhere: say why. A kernel is still running for
 * a moment, and may need this rank's memory. */
static oriel_status revoked(oriel_request *request)
{
    note(request);
    if (request->op.kernel != NULL && !oriel_op_custom(&request->op)->moves->quiet(request))
        return ORIEL_IN_PROGRESS;
    return fail(request, oriel_verdict_revoked(request));
}

/* A member has arrived in the lane with another call. */
static oriel_status differ(oriel_request *request, int index)
{
    oriel_verdict_differ(request, index);
    oriel_group_ring(request->group);
    return revoked(request);
}

/* Two that have arrived with different records while a third is missing. */
static oriel_status check_lane(oriel_request *request)
{
    int index = oriel_request_in_lane(request) && request->state != REQUEST_QUEUE
                    ? oriel_lane_differs(request->member, request->key.count)
                    : -1;

    if (index < 0 || (request->cell != NULL && !oriel_cell_revoke(request->cell)))
        return ORIEL_IN_PROGRESS;
    return differ(request, index);
}

/* Nothing moved: has somebody died, is it too late, is a warning due? Fails only
 * through the words of the cell or the lane, so that all members agree. */
static oriel_status check_limits(oriel_request *request)
{
    int why = oriel_verdict_look(request);

    if (why == VERDICT_WAIT)
        return check_lane(request);
    /* Committed meanwhile: the next step succeeds. */
    if (request->state > REQUEST_ENTER && !oriel_cell_revoke(request->cell))
        return ORIEL_IN_PROGRESS;
    if (request->state == REQUEST_LANE && !oriel_lane_seal(request->member, request->key.count))
        return ORIEL_IN_PROGRESS;
    oriel_verdict_abort(request, why);
    oriel_group_ring(request->group);
    return revoked(request);
}

static oriel_status idle(oriel_request *request)
{
    note(request);
    if (request->polls++ % LIMIT_POLLS != 0 && !oriel_comm_aborted(request->comm))
        return ORIEL_IN_PROGRESS;
    return check_limits(request);
}

/* ---- ordered calls: the lane ------------------------------------------------------ */

/* Field by field: a wider load of what was just stored in parts waits for all stores before it,
 * and a payload on its way to another core takes long. */
static void begin_scan(oriel_request *request)
{
    lane_scan *scan = &request->scan;
    int n = request->group->n;
    int needed = oriel_op_needed(&request->op, n, request->index);
    int from = oriel_op_source(&request->op, request->index);

    scan->some = from != OP_EVERYBODY || needed < n;
    scan->at = from < 0 || from == request->index ? 0 : from;
    scan->end = from == OP_EVERYBODY                          ? needed
                : from == OP_NOBODY || from == request->index ? 0
                                                              : from + 1;
    scan->least = UINT64_MAX;
}

/* A member that has found no room for the call's cell may find some once all have begun it: see
 * share_of in cell.c. It parks before its last try, so that either this sees it, or that try the
 * arrival. */
static void ring_parked(const oriel_request *request)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&request->comm->heap.header->parked, memory_order_relaxed) != 0)
        oriel_group_ring_fenced(request->group);
}

/* What does not fit the lane arrives there all the same, for its record: so a rank that makes
 * another call finds out. It waits for the others in its cell. */
static oriel_status queue(oriel_request *request)
{
    oriel_member *member = request->member;
    uint64_t count = request->key.count;

    if (oriel_comm_aborted(request->comm))
        return revoked(request);
    if (!member->settled ||
        (member->lane != NULL && (!oriel_lane_free(member, count, request->brings) ||
                                  count != member->arrived + 1))) /* a started one comes first */
        return idle(request);
    if (request->trace != NULL)
        atomic_store_explicit(&request->trace->state, TRACE_ARRIVED, memory_order_relaxed);
    request->state = REQUEST_ENTER;
    if (member->lane == NULL) {
        oriel_request_choose(request, MEET_CELL);
        return ORIEL_OK;
    }
    if (request->record.mode == ORIEL_MODE_LANE) {
        request->moves->put(request);
        begin_scan(request);
        request->state = REQUEST_LANE;
    }
    oriel_lane_arrive(member, count, &request->record, request->brings);
    if (request->state == REQUEST_ENTER)
        ring_parked(request);
    return ORIEL_OK;
}

static void ring_once(oriel_request *request)
{
    if (request->scan.some && !request->rung)
        oriel_group_ring(request->group);
    request->rung = 1;
}

/* A blocking call looks for a while before it gets a clock. A call that needs some members
 * alone rings for its arrival when it completes, if that is at once, since the fence of the ring
 * is dear while the arrival is on its way; but before it gives the core away. */
static enum lane_view look(oriel_request *request)
{
    int yields = request->comm->oversubscribed;
    int looks = yields ? FIRST_YIELDS : FIRST_LOOKS;
    enum lane_view view = oriel_lane_look(request->member, request->key.count, &request->scan);

    if (request->trace != NULL) /* it has looked before, or does not block */
        looks = 0;
    if (view == LANE_WAITING && yields)
        ring_once(request);
    for (int i = 0; view == LANE_WAITING && i < looks; i++) {
        oriel_relax(yields);
        view = oriel_lane_look(request->member, request->key.count, &request->scan);
    }
    if (view != LANE_FULL)
        ring_once(request);
    else if (!request->scan.some)
        oriel_group_ring_fenced(request->group);
    return view;
}

static oriel_status lane(oriel_request *request)
{
    oriel_status st = ORIEL_ERR_REVOKED;

    switch (look(request)) {
    case LANE_WAITING:
        return idle(request);
    case LANE_MISMATCH:
        return differ(request, request->scan.at);
    case LANE_FULL:
        st = request->moves->take(request);
        break;
    case LANE_REVOKED:
        break;
    }
    if (st == ORIEL_OK)
        return succeed(request);
    if (st != ORIEL_IN_PROGRESS)
        return revoked(request);
    request->state = REQUEST_ENTER;
    return ORIEL_OK;
}

/* ---- all others, and the first ordered one: the cell -------------------------------- */

static int is_staged_in_lane(const oriel_request *request)
{
    return request->record.mode == ORIEL_MODE_STAGED && oriel_request_in_lane(request);
}

static oriel_status expose(oriel_request *request)
{
    oriel_status st = oriel_transfer_expose(request);

    if (st == ORIEL_OK)
        return st;
    oriel_cell_revoke(request->cell);
    oriel_comm_abort(request->comm, st, request->rank, request->comm->process, "rank %d: %s",
                     request->rank, oriel_last_error());
    oriel_group_ring(request->group);
    return st;
}

void oriel_request_leave(oriel_request *request)
{
    size_t bytes = request->record.bytes;

    if (!request->leaves || request->left)
        return;
    if (request->cell != NULL &&
        (request->record.mode == ORIEL_MODE_EAGER || oriel_cell_look(request->cell).arrived > 0))
        return;
    request->kept = oriel_sys_now->alloc(bytes);
    if (request->kept == NULL)
        return; /* it waits */
    oriel_transfer_advise(request->kept, bytes);
    request->op.send = memcpy(request->kept, request->op.send, bytes);
    request->left = 1;
}

/* What is staged needs a channel, and there may be one alone. So an ordered call takes none
 * before all have begun it. */
static int is_early(const oriel_request *request)
{
    return is_staged_in_lane(request) &&
           oriel_lane_missing(request->member, request->key.count) >= 0;
}

static oriel_status enter(oriel_request *request)
{
    oriel_status st = ORIEL_IN_PROGRESS;

    note(request);
    if (oriel_comm_aborted(request->comm))
        return revoked(request);
    if (!is_early(request))
        st = oriel_cell_enter(request->group, request->rank, request->index, &request->key,
                              &request->record, &request->cell);
    if (st == ORIEL_IN_PROGRESS) {
        if (!request->parked)
            atomic_fetch_add(&request->comm->heap.header->parked, 1);
        request->parked = 1;
        return idle(request);
    }
    unpark(request);
    if (st == ORIEL_ERR_MISMATCH) {
        oriel_verdict_mismatch(request->group, request->cell);
        oriel_group_ring(request->group);
        return revoked(request);
    }
    oriel_request_leave(request);
    if (expose(request) != ORIEL_OK ||
        !oriel_cell_arrive(request->group, request->cell, request->index))
        return revoked(request);
    request->state = REQUEST_ARRIVED;
    atomic_store_explicit(&request->trace->state, TRACE_ARRIVED, memory_order_relaxed);
    if (oriel_cell_look(request->cell).arrived == request->record.n)
        oriel_group_ring(request->group);
    return ORIEL_OK;
}

/* The sender of a message that lies beside the cell needs nothing of the other. */
static int gives_alone(const oriel_request *request)
{
    return request->op.kind == ORIEL_KIND_MESSAGE && request->record.mode == ORIEL_MODE_EAGER &&
           request->index == request->op.root;
}

/* A staged call was begun by all before any of them came to the cell, and needs no second
 * meeting there, but for a ragged one: its members show each other how many chunks they have. */
static int has_met(const oriel_request *request)
{
    return is_staged_in_lane(request) && request->op.ragged == NULL;
}

/* Each member has come to the lane before it came to the cell. There it is compared whether all
 * calls before were the same: broadcasts and permutations end without that. */
static oriel_status wait_arrivals(oriel_request *request)
{
    cell_view seen = oriel_cell_look(request->cell);
    int index;

    if (seen.revoked)
        return revoked(request);
    if (seen.arrived < request->record.n && !has_met(request) && !gives_alone(request))
        return idle(request);
    index = oriel_request_in_lane(request) ? oriel_lane_differs(request->member, request->key.count)
                                           : -1;
    if (index >= 0) {
        oriel_cell_revoke(request->cell);
        return differ(request, index);
    }
    request->state = REQUEST_TRANSFER;
    return ORIEL_OK;
}

/* The group's first call: its cell says which lane there is. */
static void settle(const oriel_request *request)
{
    const heap_cell *cell = request->cell;

    if (cell->lane >= 0)
        oriel_lane_join(request->member, &request->comm->heap, cell->owner, cell->lane,
                        request->group->n);
    request->member->small = oriel_choose_small(&request->group->facts);
    request->member->settled = 1;
}

static oriel_status transfer(oriel_request *request)
{
    oriel_status st = oriel_transfer_step(request);

    if (st == ORIEL_IN_PROGRESS)
        return idle(request);
    if (st != ORIEL_OK)
        return revoked(request);
    if (request->member != NULL && !request->member->settled)
        settle(request);
    oriel_cell_leave(request->group, request->cell);
    return succeed(request);
}

static oriel_status alone(oriel_request *request)
{
    oriel_status st;

    if (oriel_comm_aborted(request->comm))
        return revoked(request);
    st = request->moves->alone(request);
    return st == ORIEL_OK ? succeed(request) : fail(request, st);
}

static oriel_status step_one(oriel_request *request)
{
    oriel_status st = ORIEL_OK;

    if (request->record.n == 1 && request->op.kernel == NULL)
        return alone(request);
    if (request->state == REQUEST_QUEUE)
        st = queue(request);
    if (st == ORIEL_OK && request->state == REQUEST_LANE) {
        st = lane(request);
        if (request->state == REQUEST_LANE) /* not yet, or its result is there */
            return st;
    }
    if (st == ORIEL_OK && request->state == REQUEST_ENTER)
        st = enter(request);
    if (st == ORIEL_OK && request->state == REQUEST_ARRIVED)
        st = wait_arrivals(request);
    if (st == ORIEL_OK && request->state == REQUEST_TRANSFER)
        st = transfer(request);
    return st;
}

void oriel_request_pair(oriel_request *received, oriel_request *sent)
{
    sent->leaves = 0; /* the call waits, and with it the operand */
    received->sent = sent;
}

static void step_until_ended(oriel_request *request)
{
    if (request->ended)
        return;
    request->outcome = step_one(request);
    request->ended = request->outcome != ORIEL_IN_PROGRESS;
}

/* It is over when both messages are: nobody may look at the operand after that. A failure of one
 * is the world's, so it ends the other as well, but for one that was complete. */
static oriel_status step_pair(oriel_request *received)
{
    oriel_request *sent = received->sent;

    if (received->polls == 0) /* who drives it has asked for a look at the limits */
        sent->polls = 0;
    step_until_ended(sent);
    step_until_ended(received);
    received->polls += received->ended;
    if (!received->ended || !sent->ended)
        return ORIEL_IN_PROGRESS;
    if (received->outcome != ORIEL_OK)
        return oriel_verdict_revoked(received);
    return sent->outcome == ORIEL_OK ? ORIEL_OK : oriel_verdict_revoked(sent);
}

oriel_status oriel_request_step(oriel_request *request)
{
    return request->sent == NULL ? step_one(request) : step_pair(request);
}

oriel_status oriel_request_run(oriel_request *request)
{
    oriel_waiter waiter = {.patient = 1};
    oriel_status st;

    if (request->comm->started[request->rank - request->comm->first_rank] != NULL)
        note(request); /* these must be driven meanwhile */
    while ((st = oriel_request_step(request)) == ORIEL_IN_PROGRESS) {
        oriel_started_step(request->comm, request->rank);
        if (oriel_comm_pause(request->comm, &waiter))
            request->polls = 0; /* look at the limits too */
    }
    oriel_waiter_end(request->comm, &waiter);
    return st;
}
