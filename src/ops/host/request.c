#include <stdio.h>
#include <string.h>

#include "base/copy.h"
#include "base/log.h"
#include "base/sys.h"
#include "core/protocol/style.h"
#include "ops/kernel/kernel.h"
#include "ops/host/quick.h"
#include "ops/host/ragged.h"
#include "ops/reduce/reduce.h"
#include "ops/host/transfer.h"
#include "ops/host/verdict.h"

/* Deadline and neighbours are looked at once in this many idle steps. */
enum { LIMIT_POLLS = 64 };
/* How much longer than a spin a call stays in XLA's thread: the first part awake,
 * the rest asleep, since the one it waits for may need this very core. Leaving
 * the thread costs two more switches. */
enum { LINGER_SPINS = 10 };

/* In place, rows that come may lie anywhere among those that go: these are set aside. */
static oriel_status set_rows_aside(oriel_request *request)
{
    oriel_op *op = &request->op;
    size_t bytes = op->send == op->recv ? op->ragged->send_rows * oriel_op_block(op) : 0;

    if (bytes == 0)
        return ORIEL_OK;
    request->kept = oriel_sys_now->alloc(bytes);
    if (request->kept == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %zu bytes of send", bytes);
    oriel_copy(request->kept, op->send, bytes);
    op->send = request->kept;
    return ORIEL_OK;
}

oriel_status oriel_request_begin(oriel_request *request, const oriel_group *group, int rank,
                                 int index, const oriel_key *key, const oriel_op *op)
{
    memset(request, 0, sizeof *request);
    request->comm = group->comm;
    request->group = group;
    request->rank = rank;
    request->index = index;
    request->key = *key;
    request->op = *op;
    request->state = REQUEST_ENTER;
    oriel_op_record(group, op, &request->record);
    request->weight =
        op->ragged == NULL ? request->record.bytes : oriel_ragged_weight(op, group->n);
    if (op->ragged != NULL) {
        request->ragged = *op->ragged;
        request->op.ragged = &request->ragged;
    }
    if (op->ragged != NULL && request->record.mode == ORIEL_MODE_STAGED) {
        request->slices = oriel_sys_now->alloc((size_t)group->n * (size_t)op->ragged->slices *
                                               sizeof *request->slices);
        if (request->slices == NULL)
            return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %d slices of %d members",
                              op->ragged->slices, group->n);
    }
    if (op->ragged != NULL && set_rows_aside(request) != ORIEL_OK) {
        oriel_request_drop(request);
        return ORIEL_ERR_SYSTEM;
    }
    oriel_comm_operation(group->comm);
    request->trace = oriel_trace_begin(group->comm, rank, group->hash, &request->record);
    if (op->ragged != NULL)
        atomic_store_explicit(&request->trace->bytes, oriel_ragged_sent(op, group->n),
                              memory_order_relaxed);
    request->begun = request->trace->begun;
    request->warn_at = request->begun + group->comm->warn_after;
    request->compare_at = request->begun + oriel_verdict_patience(group->comm);
    request->stillborn =
        (int)atomic_load_explicit(&group->comm->heap.ranks[rank].told, memory_order_relaxed);
    request->polls = 1; /* most calls end before the first look at the limits */
    return ORIEL_OK;
}

/* Calls from C are matched by their order on the group: run 0 is theirs alone,
 * since XLA's run ids are never 0 together with site 0. The first one meets in a
 * cell, and the others go by the lane that it has found; those that take more than
 * the lane have a second number, for the end of it. */
void oriel_request_order(oriel_request *request)
{
    int local = request->rank - request->comm->first_rank;
    uint64_t count = request->group->sequence[local]++;

    request->key = (oriel_key){.group = request->group->hash, .count = count};
    if (request->record.n == 1)
        return;
    request->seat = &request->group->seats[local];
    request->call = count;
    if (count == 0)
        return;
    request->state = REQUEST_QUEUE;
    request->wide = !oriel_quick_fits(request->group, &request->op);
    request->brings = oriel_quick_brings(request->group, request->seat, &request->op);
    request->group->sequence[local] += (uint64_t)request->wide;
}

void oriel_request_resume(oriel_request *request, uint64_t call, const oriel_record *record)
{
    request->key = (oriel_key){.group = request->group->hash, .count = call};
    request->call = call;
    request->record = *record;
    request->seat = &request->group->seats[request->rank - request->comm->first_rank];
    request->scan = oriel_quick_scan(request->seat, &request->op);
    request->wide = request->op.ragged != NULL;
    request->state = request->wide ? REQUEST_SHOWN : REQUEST_LANE;
}

oriel_status oriel_request_keep(oriel_request *request)
{
    size_t bytes = 2 * (size_t)request->op.num_pairs * sizeof *request->op.pairs;

    if (request->op.ragged != NULL) {
        request->arrays = oriel_ragged_copy(&request->ragged, request->group->n);
    } else if (bytes > 0) {
        request->arrays = oriel_sys_now->alloc(bytes);
        if (request->arrays != NULL)
            request->op.pairs = memcpy(request->arrays, request->op.pairs, bytes);
    } else {
        return ORIEL_OK;
    }
    if (request->arrays != NULL)
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
    oriel_kernel_call_destroy(request->op.kernel);
    oriel_sys_now->release(request->kept);
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

/* Nobody may look at the buffers after this rank has returned, so direct mode
 * waits for those who are just doing so. */
static oriel_status fail(oriel_request *request, oriel_status code)
{
    if (request->cell != NULL && request->record.mode == ORIEL_MODE_DIRECT)
        oriel_cell_drain(request->cell);
    unpark(request);
    if (request->op.recv != NULL)
        oriel_poison(request->op.recv, oriel_op_recv_count(&request->op, request->group->n),
                     request->op.dtype);
    if (request->op.kernel != NULL)
        oriel_kernel_fail(request);
    oriel_request_drop(request);
    oriel_trace_end(request->trace, TRACE_FAILED);
    return code;
}

/* The operation was revoked, here or elsewhere: say why. A kernel is still running for
 * a moment, and may need this rank's memory. */
static oriel_status revoked(oriel_request *request)
{
    if (request->op.kernel != NULL && !oriel_kernel_quiet(request))
        return ORIEL_IN_PROGRESS;
    return fail(request, oriel_verdict_revoked(request));
}

static int in_lane(const oriel_request *request)
{
    return request->state == REQUEST_LANE || request->state == REQUEST_SHOWN;
}

/* Two that have arrived with different records while a third is missing. */
static oriel_status check_lane(oriel_request *request)
{
    int index = oriel_lane_differs(request->seat, request->call);

    if (index < 0)
        return ORIEL_IN_PROGRESS;
    oriel_verdict_differ(request, index);
    oriel_group_ring(request->group);
    return revoked(request);
}

/* Nothing moved: has somebody died, is it too late, is a warning due? Fails only
 * through the words of the cell or the lane, so that all members agree. */
static oriel_status check_limits(oriel_request *request)
{
    int why = oriel_verdict_look(request);

    if (why == VERDICT_WAIT)
        return in_lane(request) ? check_lane(request) : ORIEL_IN_PROGRESS;
    /* Committed meanwhile: the next step succeeds. */
    if (request->state > REQUEST_ENTER && !oriel_cell_revoke(request->cell))
        return ORIEL_IN_PROGRESS;
    if (in_lane(request) && !oriel_lane_seal(request->seat, request->call))
        return ORIEL_IN_PROGRESS;
    oriel_verdict_abort(request, why);
    oriel_group_ring(request->group);
    return revoked(request);
}

static oriel_status idle(oriel_request *request)
{
    if (request->polls++ % LIMIT_POLLS != 0 && !oriel_comm_aborted(request->comm))
        return ORIEL_IN_PROGRESS;
    return check_limits(request);
}

/* ---- ordered calls: the lane ------------------------------------------------------ */

/* Counts the call as completed in the lane, by both its numbers if it has two. */
static void leave_lane(oriel_request *request)
{
    int ring;

    if (request->wide) /* the later one first: then nothing is left open */
        oriel_lane_complete(request->seat, request->key.count + 1);
    ring = oriel_lane_complete(request->seat, request->key.count);
    if (ring || request->scan.some)
        oriel_group_ring(request->group);
}

static oriel_status succeed(oriel_request *request)
{
    oriel_request_drop(request);
    oriel_trace_end(request->trace, TRACE_DONE);
    if (request->seat != NULL && request->seat->lane != NULL && request->key.count > 0)
        leave_lane(request);
    return ORIEL_OK;
}

static void arrive(oriel_request *request, enum request_state state)
{
    if (request->call == request->key.count)
        oriel_quick_arrive(request->group, request->seat, request->call, &request->op,
                           &request->record);
    else
        oriel_lane_arrive_again(request->seat, request->call, &request->record);
    if (oriel_op_rooted(&request->op))
        oriel_group_ring(request->group);
    request->scan = request->wide ? oriel_lane_all(request->seat)
                                  : oriel_quick_scan(request->seat, &request->op);
    request->state = state;
}

static void show(const oriel_request *request)
{
    if (request->op.ragged == NULL)
        oriel_pull_show(request);
    else if (oriel_ragged_lanes(request->group, &request->op))
        oriel_ragged_show(request->group, request->seat, request->call, &request->op);
}

static oriel_status queue(oriel_request *request)
{
    oriel_seat *seat = request->seat;

    if (oriel_comm_aborted(request->comm))
        return revoked(request);
    if (!seat->settled ||
        (seat->lane != NULL && !oriel_lane_free(seat, request->call, request->brings)))
        return idle(request);
    if (seat->lane != NULL && request->call != seat->arrived + 1) /* a started one comes first */
        return idle(request);
    atomic_store_explicit(&request->trace->state, TRACE_ARRIVED, memory_order_relaxed);
    if (seat->lane == NULL) {
        request->state = REQUEST_ENTER;
    } else if (request->wide) {
        show(request);
        arrive(request, REQUEST_SHOWN);
        seat->arrived++; /* the second number is taken */
    } else {
        request->record.mode = ORIEL_MODE_LANE;
        arrive(request, REQUEST_LANE);
    }
    return ORIEL_OK;
}

/* ORIEL_OK: all have arrived. */
static oriel_status wait_lane(oriel_request *request)
{
    switch (oriel_lane_look(request->seat, request->call, &request->scan)) {
    case LANE_WAITING:
        return idle(request);
    case LANE_REVOKED:
        return revoked(request);
    case LANE_MISMATCH:
        oriel_verdict_differ(request, request->scan.at);
        oriel_group_ring(request->group);
        return revoked(request);
    case LANE_FULL:
        break;
    }
    if (!request->scan.some)
        oriel_group_ring_fenced(request->group);
    return ORIEL_OK;
}

static void report(const oriel_request *request, uint32_t style)
{
    oriel_style_report(request->group, request->record.kind, request->weight, style,
                       oriel_now() - request->moving);
}

static oriel_status lane(oriel_request *request)
{
    oriel_status st = wait_lane(request);

    if (st != ORIEL_OK)
        return st;
    if (!request->wide)
        oriel_quick_consume(request->group, request->seat, request->call, &request->op);
    else
        report(request, STYLE_PULL);
    return succeed(request);
}

/* An outcome, or ORIEL_OK with the state that follows. */
static oriel_status shown_ragged(oriel_request *request)
{
    enum ragged_view view = RAGGED_LARGE;
    ragged_fault fault;

    if (oriel_ragged_lanes(request->group, &request->op))
        view =
            oriel_ragged_look(request->group, request->seat, request->call, &request->op, &fault);
    if (view == RAGGED_FITS) {
        oriel_ragged_see(request->group, request->seat, request->call, &request->op);
        return succeed(request);
    }
    if (view == RAGGED_WRONG) {
        oriel_ragged_refuse(request, &fault);
        return revoked(request);
    }
    request->state = view == RAGGED_PULLS ? REQUEST_READ : REQUEST_ENTER;
    return ORIEL_OK;
}

/* All are there with the same call: do they read each other's memory, or meet in a
 * cell? */
static oriel_status shown(oriel_request *request)
{
    oriel_status st = wait_lane(request);

    if (st != ORIEL_OK)
        return st;
    request->moving = oriel_now();
    if (request->op.ragged != NULL)
        return shown_ragged(request);
    request->state = oriel_pull_agreed(request) ? REQUEST_READ : REQUEST_ENTER;
    return ORIEL_OK;
}

static oriel_status read_others(oriel_request *request)
{
    oriel_status st = request->gathered == 0 ? oriel_pull_lane(request) : ORIEL_OK;

    if (st == ORIEL_IN_PROGRESS || oriel_comm_aborted(request->comm))
        return idle(request);
    if (st != ORIEL_OK) {
        oriel_group_ring(request->group);
        return revoked(request);
    }
    request->gathered = 1;
    if (!oriel_lane_free(request->seat, request->key.count + 1, 0))
        return idle(request);
    request->call = request->key.count + 1;
    arrive(request, REQUEST_LANE);
    return ORIEL_OK;
}

/* ---- all others, and the first ordered one: the cell -------------------------------- */

static oriel_status enter(oriel_request *request)
{
    oriel_status st;

    if (oriel_comm_aborted(request->comm))
        return revoked(request);
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
    st = oriel_transfer_expose(request);
    if (st != ORIEL_OK) {
        oriel_cell_revoke(request->cell);
        oriel_comm_abort(request->comm, st, request->rank, request->comm->process, "rank %d: %s",
                         request->rank, oriel_last_error());
        oriel_group_ring(request->group);
        return revoked(request);
    }
    if (!oriel_cell_arrive(request->group, request->cell, request->index))
        return revoked(request);
    request->state = REQUEST_ARRIVED;
    atomic_store_explicit(&request->trace->state, TRACE_ARRIVED, memory_order_relaxed);
    if (oriel_cell_look(request->cell).arrived == request->record.n)
        oriel_group_ring(request->group);
    return ORIEL_OK;
}

static oriel_status wait_arrivals(oriel_request *request)
{
    cell_view seen = oriel_cell_look(request->cell);

    if (seen.revoked)
        return revoked(request);
    if (seen.arrived < request->record.n)
        return idle(request);
    request->state = REQUEST_TRANSFER;
    if (request->record.mode == ORIEL_MODE_STAGED && request->moving == 0)
        request->moving = oriel_now();
    return ORIEL_OK;
}

/* The group's first call: its cell says which lane there is. */
static void settle(const oriel_request *request)
{
    const heap_cell *cell = request->cell;

    if (cell->lane >= 0)
        oriel_lane_sit(request->seat, &request->comm->heap, cell->owner, cell->lane,
                       request->group->n);
    request->seat->settled = 1;
}

static oriel_status transfer(oriel_request *request)
{
    oriel_status st = oriel_transfer_step(request);

    if (st == ORIEL_IN_PROGRESS)
        return idle(request);
    if (st != ORIEL_OK)
        return revoked(request);
    if (request->seat != NULL && !request->seat->settled)
        settle(request);
    if (request->record.mode == ORIEL_MODE_STAGED)
        report(request, request->style);
    oriel_cell_leave(request->group, request->cell);
    return succeed(request);
}

/* The only member needs nobody. */
static oriel_status alone(oriel_request *request)
{
    oriel_status st = ORIEL_OK;

    if (oriel_comm_aborted(request->comm))
        return revoked(request);
    if (request->op.ragged != NULL)
        st = oriel_ragged_self(request, 0);
    else
        oriel_op_take(&request->op, 1, 0, &request->op.send, 0, request->record.bytes, 0);
    return st == ORIEL_OK ? succeed(request) : fail(request, st);
}

oriel_status oriel_request_step(oriel_request *request)
{
    oriel_status st = ORIEL_OK;

    if (request->record.n == 1 && request->op.kernel == NULL)
        return alone(request);
    if (request->state == REQUEST_QUEUE)
        st = queue(request);
    if (st == ORIEL_OK && request->state == REQUEST_SHOWN) {
        st = shown(request);
        if (request->state == REQUEST_SHOWN) /* not yet, or its result is there */
            return st;
    }
    if (st == ORIEL_OK && request->state == REQUEST_READ)
        st = read_others(request);
    if (st == ORIEL_OK && request->state == REQUEST_LANE)
        return lane(request);
    if (st == ORIEL_OK && request->state == REQUEST_ENTER)
        st = enter(request);
    if (st == ORIEL_OK && request->state == REQUEST_ARRIVED)
        st = wait_arrivals(request);
    if (st == ORIEL_OK && request->state == REQUEST_TRANSFER)
        st = transfer(request);
    return st;
}

oriel_status oriel_request_run(oriel_request *request)
{
    oriel_waiter waiter = {.patient = 1};
    oriel_status st;

    while ((st = oriel_request_step(request)) == ORIEL_IN_PROGRESS) {
        oriel_started_step(request->comm, request->rank);
        oriel_spread_keep(request->comm);
        if (oriel_comm_pause(request->comm, &waiter))
            request->polls = 0; /* look at the limits too */
    }
    oriel_waiter_end(request->comm, &waiter);
    return st;
}

oriel_status oriel_request_linger(oriel_request *request)
{
    oriel_comm *comm = request->comm;
    uint32_t before = oriel_request_progress(request);
    double moved = oriel_now();
    oriel_waiter waiter = {0};
    oriel_status st;

    while ((st = oriel_request_step(request)) == ORIEL_IN_PROGRESS) {
        double now = oriel_now();

        if (oriel_request_progress(request) != before) {
            before = oriel_request_progress(request);
            moved = now;
            oriel_waiter_end(comm, &waiter);
        }
        if (now - moved >= LINGER_SPINS * comm->spin)
            break;
        if (now - moved < comm->spin)
            oriel_relax(1);
        else
            oriel_waiter_sleep(comm, &waiter, LINGER_SPINS * comm->spin);
    }
    oriel_waiter_end(comm, &waiter);
    return st;
}
