/* Operations that stage nothing: every member has shown, in the group's lane or in the
 * cell, where its `send` is, and reads what it needs out of the others' memory. Nobody writes
 * anybody else's, so a member that has failed meanwhile costs the others nothing but
 * a wrong byte in a result that is poisoned; all have finished reading before any
 * member succeeds. */
#include "base/copy.h"
#include "base/sys.h"
#include "core/protocol/style.h"
#include "ops/host/ragged.h"
#include "ops/host/transfer.h"

#include <string.h>

enum { PIECE = 4 << 20 };

/* A member in place would overwrite what others have yet to read. */
static int overwrites(const oriel_op *op)
{
    return op->send == op->recv &&
           (op->kind == ORIEL_KIND_ALL_TO_ALL || op->kind == ORIEL_KIND_PERMUTE);
}

/* ---- by the lane ------------------------------------------------------------------- */

/* What a member shows in the lane when a call takes more than that. */
struct shown {
    uint64_t send; /* its address; 0: nobody may read there */
    uint64_t pull; /* the first member's: whether to do so */
};

static struct shown *shown_by(const oriel_request *request, int index)
{
    return (struct shown *)(void *)oriel_lane_payload(request->seat, request->key.count, index,
                                                      sizeof(struct shown));
}

void oriel_pull_show(const oriel_request *request)
{
    struct shown *mine = shown_by(request, request->index);
    const void *send = overwrites(&request->op) ? NULL : request->op.send;

    mine->send = (uint64_t)(uintptr_t)send;
    mine->pull = request->index == 0 &&
                 oriel_style_pulls(request->group, request->record.kind, request->weight);
}

int oriel_pull_agreed(const oriel_request *request)
{
    const oriel_op *op = &request->op;
    int all = shown_by(request, 0)->pull != 0;

    for (int i = 0; all && i < request->group->n; i++)
        all = shown_by(request, i)->send != 0 || oriel_op_destination(op, i) == OP_NOBODY;
    return all;
}

/* ---- by a cell ---------------------------------------------------------------------- */

/* What others may read until the end, whatever becomes of `recv`: NULL, no memory. */
static const void *lasting_send(oriel_request *request)
{
    const oriel_op *op = &request->op;
    size_t bytes = oriel_op_payload(op, request->group->n, request->index);

    if (!overwrites(op) || bytes == 0)
        return op->send;
    request->kept = oriel_sys_now->alloc(bytes);
    if (request->kept == NULL)
        oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %zu bytes of send", bytes);
    else
        oriel_copy(request->kept, op->send, bytes);
    return request->kept;
}

oriel_status oriel_pull_expose(oriel_request *request)
{
    heap_member *member = &oriel_heap_members(&request->comm->heap, request->cell)[request->index];

    member->send = lasting_send(request);
    return member->send == NULL && request->op.send != NULL ? ORIEL_ERR_SYSTEM : ORIEL_OK;
}

static const void *send_of(const oriel_request *request, int index)
{
    if (request->cell != NULL)
        return oriel_heap_members(&request->comm->heap, request->cell)[index].send;
    return (const void *)(uintptr_t)shown_by(request, index)->send;
}

/* Another rank of this process may fail and free its `send` meanwhile as well, so that
 * is read in the same careful way. */
static oriel_status read_member(oriel_request *request, int from, char *dst, const char *src,
                                size_t bytes)
{
    const oriel_comm *comm = request->comm;

    if (from != request->index)
        return oriel_reads_copy(comm, comm->heap.ranks[request->group->ranks[from]].process, dst,
                                src, bytes);
    oriel_op_copy(dst, src, bytes,
                  oriel_style_overflows(request->group, request->record.kind, request->weight));
    return ORIEL_OK;
}

/* Whether the operation goes on: its end may be decided while this member reads. */
static int revoked(const oriel_request *request)
{
    if (request->cell != NULL)
        return oriel_cell_look(request->cell).revoked;
    return oriel_comm_aborted(request->comm);
}

/* What member `from` has for this one. */
static oriel_status pull(oriel_request *request, int from)
{
    const oriel_op *op = &request->op;
    size_t block = request->record.bytes;
    const char *src;
    char *dst;
    oriel_status st = ORIEL_OK;

    if (op->ragged != NULL)
        return oriel_ragged_pull(request, from);
    src = (const char *)send_of(request, from) + oriel_op_part(op, request->index);
    dst = (char *)op->recv + (oriel_op_gathers(op) ? (size_t)from * block : 0);

    for (size_t at = 0; at < block && st == ORIEL_OK; at += PIECE) {
        if (revoked(request))
            return ORIEL_ERR_REVOKED;
        st =
            read_member(request, from, dst + at, src + at, block - at < PIECE ? block - at : PIECE);
    }
    return st;
}

static oriel_status pull_all(oriel_request *request)
{
    int n = request->group->n;
    int from = oriel_op_source(&request->op, request->index);
    oriel_status st = ORIEL_OK;

    if (from == OP_NOBODY)
        memset(request->op.recv, 0, request->record.bytes);
    if (from >= 0)
        return pull(request, from);
    /* Each begins with another, so that not all read the same memory at once, and ends with
     * its own, which the others have by then read. */
    for (int i = 0; from == OP_EVERYBODY && i < n && st == ORIEL_OK; i++)
        st = pull(request, (request->index + 1 + i) % n);
    return st;
}

static void abort_read(const oriel_request *request, oriel_status st)
{
    oriel_comm_abort(request->comm, st, request->rank, request->comm->process,
                     "rank %d could not read what others send: %s", request->rank,
                     oriel_last_error());
}

oriel_status oriel_pull_lane(oriel_request *request)
{
    oriel_status st = pull_all(request);

    if (st == ORIEL_ERR_PEER) /* its end will be noticed */
        return ORIEL_IN_PROGRESS;
    if (st != ORIEL_OK)
        abort_read(request, st);
    return st;
}

oriel_status oriel_pull_step(oriel_request *request)
{
    cell_view seen = oriel_cell_look(request->cell);
    oriel_status st;

    if (seen.revoked)
        return ORIEL_ERR_REVOKED;
    if (request->gathered == 0) {
        st = pull_all(request);
        if (st == ORIEL_ERR_PEER || oriel_comm_aborted(request->comm))
            return ORIEL_IN_PROGRESS; /* its end will be noticed */
        if (st != ORIEL_OK && oriel_cell_revoke(request->cell))
            abort_read(request, st);
        if (st != ORIEL_OK || !oriel_cell_finish(request->cell, 1))
            return ORIEL_ERR_REVOKED;
        oriel_stage_advance(request, OP_EVERYBODY, COUNTER_GATHERED, ++request->gathered);
        seen = oriel_cell_look(request->cell);
    }
    if (seen.finished == request->record.n)
        return ORIEL_OK;
    return seen.revoked ? ORIEL_ERR_REVOKED : ORIEL_IN_PROGRESS;
}
