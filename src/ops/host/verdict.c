#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "core/world/names.h"
#include "ops/host/verdict.h"

enum { DESCRIBED = 176 }; /* letters of a call: what it is, and where */

static int process_of(const oriel_comm *comm, int rank)
{
    return comm->heap.ranks[rank].process;
}

static int missing_rank(const oriel_request *request)
{
    const oriel_group *group = request->group;
    int index = -1;

    if (request->cell != NULL)
        return oriel_cell_missing(group, request->cell);
    /* A call that waits for room may do so until all have begun it. */
    if (request->state == REQUEST_ENTER && oriel_request_in_lane(request))
        index = oriel_lane_missing(request->member, request->key.count);
    if (request->state == REQUEST_ENTER && index < 0)
        return oriel_cell_lock_holder(request->comm, &request->key);
    if (request->state == REQUEST_LANE && request->scan.at < request->scan.end)
        index = request->scan.at;
    if (request->state == REQUEST_QUEUE)
        index = oriel_lane_behind(request->member, request->key.count, request->brings);
    return index >= 0 ? group->ranks[index] : -1;
}

static void describe_record(const oriel_comm *comm, const oriel_record *record, char *out,
                            size_t len)
{
    size_t used;

    if (record->kind == ORIEL_KIND_KERNEL)
        oriel_name_find(&comm->heap, record->shape, out, len);
    else
        oriel_record_describe(record, out, len);
    used = strlen(out);
    if (record->kind != ORIEL_KIND_KERNEL) /* its name says enough */
        oriel_name_place(&comm->heap, record->call, out + used, len - used);
}

/* ---- looking ------------------------------------------------------------------ */

static int someone_left(const oriel_request *request, int *rank_p)
{
    int rank = missing_rank(request);

    /* It may have come just before it left. */
    if (rank < 0 || !oriel_comm_cannot_call(request->comm, process_of(request->comm, rank)) ||
        missing_rank(request) != rank)
        return 0;
    *rank_p = rank;
    return 1;
}

/* The same call with another record, or a call of the same function, whose calls differ. */
static int is_counterpart(const heap_cell *cell, const oriel_request *request)
{
    if (cell->key.site == request->key.site)
        return cell->key.count == request->key.count &&
               memcmp(&cell->record, &request->record, sizeof cell->record) != 0;
    return oriel_name_rivals(&request->comm->heap, cell->record.call, request->record.call);
}

/* A cell of the same group where the missing rank waits and this one does not: the ranks run
 * different programs; `any`: whatever the call, else a counterpart. Reads cells
 * without their lock: a torn look is repeated before anything follows from it. */
__attribute__((no_sanitize("thread"))) static const heap_cell *
differing_cell(const oriel_request *request, int rank, int any)
{
    const oriel_heap *heap = &request->comm->heap;
    int theirs = oriel_group_index(request->group, rank);

    if (theirs < 0)
        return NULL;
    for (int b = 0; b < HEAP_BUCKETS; b++) {
        for (int way = 0; way < HEAP_WAYS; way++) {
            const heap_cell *cell = &heap->buckets[b].cells[way];
            const heap_member *members;

            if (!(heap->buckets[b].used >> way & 1) || cell->key.group != request->key.group ||
                !(any || is_counterpart(cell, request)))
                continue;
            members = oriel_heap_members(heap, cell);
            if (atomic_load(&members[theirs].arrived) &&
                !atomic_load(&members[request->index].arrived))
                return cell;
        }
    }
    return NULL;
}

double oriel_verdict_patience(const oriel_comm *comm)
{
    return comm->warn_after < comm->timeout / 2 ? comm->warn_after : comm->timeout / 2;
}

/* Must be so at two looks in a row. Independent calls may start in any order, so
 * for a while this is nothing unusual. */
static int differs(oriel_request *request, double now)
{
    int rank = missing_rank(request);

    if (now < request->compare_at || request->state != REQUEST_ARRIVED || rank < 0)
        return 0;
    request->compare_at = now + oriel_verdict_patience(request->comm) / 4;
    request->suspicions = differing_cell(request, rank, 0) != NULL ? request->suspicions + 1 : 0;
    return request->suspicions >= 2;
}

/* All have come, and it is the kernel that takes so long. */
static int runs_kernel(const oriel_request *request)
{
    return request->op.kernel != NULL && request->state == REQUEST_TRANSFER;
}

static void warn(oriel_request *request, double waited)
{
    char what[DESCRIBED];
    char last[200] = "";
    int rank = missing_rank(request);

    describe_record(request->comm, &request->record, what, sizeof what);
    if (runs_kernel(request)) {
        oriel_op_custom(&request->op)->moves->describe(request, last, sizeof last);
        oriel_log(ORIEL_LOG_WARN, "rank %d is in %s for %.0f s; %s", request->rank, what, waited,
                  last);
        return;
    }
    if (rank < 0) {
        oriel_log(ORIEL_LOG_WARN, "rank %d waits for room in the heap for %.0f s, in %s",
                  request->rank, waited, what);
        return;
    }
    oriel_trace_describe(request->comm, rank, last, sizeof last);
    oriel_log(ORIEL_LOG_WARN, "rank %d waits for rank %d (process %d) for %.0f s, in %s; %s%s",
              request->rank, rank, process_of(request->comm, rank), waited, what, last,
              differing_cell(request, rank, 1) != NULL ? "; do they run the same program?" : "");
}

int oriel_verdict_look(oriel_request *request)
{
    oriel_comm *comm = request->comm;
    double now = oriel_now();
    int rank;

    if (oriel_comm_aborted(comm))
        return VERDICT_ABORTED;
    if (someone_left(request, &rank))
        return VERDICT_LEFT;
    if (now - request->begun > comm->timeout)
        return VERDICT_LATE;
    if (differs(request, now))
        return VERDICT_DIFFERENT;
    oriel_trace_wait(request->trace, missing_rank(request), now);
    if (request->progress_seen != oriel_request_progress(request)) {
        request->progress_seen = oriel_request_progress(request);
        request->warn_at = now + comm->warn_after;
    }
    if (now >= request->warn_at) {
        warn(request, now - request->begun);
        request->warn_at = now + comm->warn_after;
    }
    return VERDICT_WAIT;
}

/* ---- saying --------------------------------------------------------------------- */

static void abort_different(oriel_comm *comm, const oriel_record *a, int rank_a,
                            const oriel_record *b, int rank_b)
{
    char first[DESCRIBED];
    char second[DESCRIBED];
    oriel_asked asked[] = {
        {.rank = rank_a, .what = first, .call = a->call, .execution = a->execution},
        {.rank = rank_b, .what = second, .call = b->call, .execution = b->execution}};

    describe_record(comm, a, first, sizeof first);
    describe_record(comm, b, second, sizeof second);
    oriel_comm_abort_different(comm, &asked[0], &asked[1]);
}

void oriel_verdict_mismatch(const oriel_group *group, const heap_cell *cell)
{
    if (cell->second_rank >= 0)
        abort_different(group->comm, &cell->record, cell->record_rank, &cell->second,
                        cell->second_rank);
}

void oriel_verdict_differ(const oriel_request *request, int index)
{
    const oriel_record *theirs = oriel_lane_record(request->member, request->key.count, index);
    oriel_comm *comm = request->comm;
    int rank = request->group->ranks[index];
    char text[DESCRIBED];

    if (memcmp(theirs, &request->record, sizeof *theirs) != 0) {
        abort_different(comm, &request->record, request->rank, theirs, rank);
        return;
    }
    describe_record(comm, theirs, text, sizeof text);
    oriel_comm_abort(comm, ORIEL_ERR_MISMATCH, rank, process_of(comm, rank),
                     "ranks %d and %d both ask for %s, but their broadcasts or permutations "
                     "before it differed",
                     request->rank, rank, text);
}

/* What the other one of a message should have come for. */
static const char *purpose_of(const oriel_request *request)
{
    if (request->op.kind != ORIEL_KIND_MESSAGE)
        return "";
    return request->index == request->op.root ? " to receive" : " to send";
}

static void abort_late(const oriel_request *request, int rank)
{
    const char *purpose = rank == request->rank ? "" : purpose_of(request);
    oriel_comm *comm = request->comm;
    char mine[DESCRIBED];
    char last[200];

    describe_record(comm, &request->record, mine, sizeof mine);
    oriel_trace_describe(comm, rank, last, sizeof last);
    if (differing_cell(request, rank, 1) != NULL)
        oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, rank, process_of(comm, rank),
                         "ranks %d and %d wait for each other: rank %d in %s; rank %d: %s; do they "
                         "run the same program?",
                         request->rank, rank, request->rank, mine, rank, last);
    /* Where not all wait for all, the one that is missing here may be held up itself. */
    if (*purpose == '\0')
        rank = oriel_trace_culprit(comm, rank, request->rank);
    oriel_trace_describe(comm, rank, last, sizeof last);
    oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, rank, process_of(comm, rank),
                     "rank %d (process %d) did not come%s within %.1f s; %s", rank,
                     process_of(comm, rank), purpose, comm->timeout, last);
}

void oriel_verdict_abort(const oriel_request *request, int why)
{
    oriel_comm *comm = request->comm;
    int rank = missing_rank(request);
    int process = rank >= 0 ? process_of(comm, rank) : -1;
    char mine[DESCRIBED];
    char last[200] = "";

    if (why == VERDICT_DIFFERENT) {
        const heap_cell *other = rank >= 0 ? differing_cell(request, rank, 0) : NULL;
        if (other != NULL)
            abort_different(comm, &request->record, request->rank, &other->record, rank);
    }
    describe_record(comm, &request->record, mine, sizeof mine);
    if (why == VERDICT_LEFT)
        oriel_comm_abort_missing(comm, process, request->rank, mine);
    if (why == VERDICT_LATE && runs_kernel(request)) {
        oriel_op_custom(&request->op)->moves->describe(request, last, sizeof last);
        oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, rank, process, "%s, after %.1f s", last,
                         comm->timeout);
    }
    if (why == VERDICT_LATE && rank >= 0)
        abort_late(request, rank);
    if (why == VERDICT_LATE && rank < 0 && request->state > REQUEST_ENTER)
        oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, -1, -1,
                         "all ranks came, but the transfer took more than %.1f s", comm->timeout);
    if (why == VERDICT_LATE && rank < 0)
        oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, -1, -1,
                         "no room in the heap within %.1f s; raise ORIEL_STAGING", comm->timeout);
    /* Whatever was seen may have changed since; a failing rank leaves the comm
     * revoked all the same. */
    oriel_comm_abort(comm, ORIEL_ERR_REVOKED, rank, process, "an operation was revoked");
}

/* The ranks of a process that is gone, as far as they are members. */
static void describe_gone(const oriel_request *request, int process, char *out, size_t len)
{
    const oriel_group *group = request->group;
    size_t at = 0;
    int found = 0;

    for (int i = 0; i < group->n && at < len; i++) {
        if (process_of(request->comm, group->ranks[i]) != process)
            continue;
        at += (size_t)snprintf(out + at, len - at, "%s%d", found ? ", " : "rank ", group->ranks[i]);
        found++;
    }
    if (!found)
        snprintf(out, len, "rank %d", request->comm->heap.procs[process].first_rank);
}

oriel_status oriel_verdict_revoked(const oriel_request *request)
{
    const heap_abort *record;
    char what[DESCRIBED];
    char gone[128];
    double now = oriel_now();
    double until = now + 1.0;

    /* The rank that revoked the cell writes the comm's record right after. */
    while (!oriel_comm_aborted(request->comm) && oriel_now() < until)
        oriel_relax(1);
    if (request->cell != NULL && oriel_cell_look(request->cell).mismatch)
        oriel_verdict_mismatch(request->group, request->cell);
    oriel_comm_abort(request->comm, ORIEL_ERR_REVOKED, -1, -1, "an operation was revoked");
    record = oriel_comm_abort_record(request->comm);
    describe_record(request->comm, &request->record, what, sizeof what);
    if (record == NULL)
        return oriel_fail(ORIEL_ERR_REVOKED, "%s on rank %d (process %d): the comm was revoked",
                          what, request->rank, request->comm->process);
    if (request->told)
        return oriel_fail(ORIEL_ERR_REVOKED, "%s on rank %d (process %d): the comm was revoked: %s",
                          what, request->rank, request->comm->process, record->text);
    if (!request->left) /* otherwise nobody hears of it here */
        atomic_store(&request->comm->heap.ranks[request->rank].told, 1);
    if (record->code != ORIEL_ERR_PEER || record->process < 0)
        return oriel_fail((oriel_status)record->code, "%s on rank %d (process %d): %s", what,
                          request->rank, request->comm->process, record->text);
    describe_gone(request, record->process, gone, sizeof gone);
    return oriel_fail(ORIEL_ERR_PEER, "%s on rank %d (process %d): %s is missing: %s, after %.1f s",
                      what, request->rank, request->comm->process, gone, record->text,
                      now - request->begun);
}
