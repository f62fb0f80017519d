/* Operations that stage nothing: every member has shown where its `send` is, in the cell (rows
 * of ragged_all_to_all: in the lane), and reads what it needs out of the others' memory: through
 * the system, or, where it lies in a window, by itself. Nobody
 * writes anybody else's, so a member that has failed meanwhile costs the others nothing but
 * a wrong byte in a result that is poisoned; all have finished reading before any
 * member succeeds. */
#include <string.h>

#include "base/copy.h"
#include "base/math.h"
#include "base/sys.h"
#include "ops/arrays.h"
#include "ops/host/ragged.h"
#include "ops/host/transfer.h"

/* Bytes between two looks at whether the operation goes on. */
enum { PIECE = 4 << 20 };

/* The arrays, and room for those of another member. */
static const void *lasting_list(oriel_request *request)
{
    size_t bytes = (size_t)request->op.num_arrays * sizeof(oriel_array);

    request->kept = oriel_sys_now->alloc(bytes);
    if (request->kept != NULL)
        return request->op.arrays;
    oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a list of %d arrays", request->op.num_arrays);
    return NULL;
}

/* What others may read until the end, whatever becomes of `recv`: NULL, no memory. */
static const void *lasting_send(oriel_request *request)
{
    const oriel_op *op = &request->op;
    size_t bytes = oriel_op_payload(op, request->group->n, request->index);

    if (op->arrays != NULL)
        return lasting_list(request);
    if (!oriel_op_overwrites(op) || bytes == 0)
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
    oriel_status st = oriel_transfer_show(request);

    if (st != ORIEL_OK || member->in_window || request->op.ragged != NULL)
        return st;
    member->send = lasting_send(request);
    return member->send == NULL && (request->op.send != NULL || request->op.arrays != NULL)
               ? ORIEL_ERR_SYSTEM
               : ORIEL_OK;
}

/* Another rank of this process may fail and free its `send` meanwhile as well, so that
 * is read in the same careful way. */
oriel_status oriel_pull_read(const oriel_request *request, int from, char *dst, const char *src,
                             size_t bytes)
{
    const oriel_comm *comm = request->comm;
    int process = comm->heap.ranks[request->group->ranks[from]].process;
    oriel_status st = ORIEL_OK;

    if (from == request->index) {
        oriel_op_copy(dst, src, bytes, 0);
        return ORIEL_OK;
    }
    for (size_t at = 0; at < bytes && st == ORIEL_OK; at += PIECE) {
        if (oriel_cell_look(request->cell).revoked)
            return ORIEL_ERR_REVOKED;
        st = oriel_reads_copy(comm, process, dst + at, src + at,
                              bytes - at < PIECE ? bytes - at : PIECE);
    }
    return st;
}

/* The same of what lies in a window. */
static oriel_status copy_window(const oriel_request *request, char *dst, const char *src,
                                size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIECE) {
        if (oriel_cell_look(request->cell).revoked)
            return ORIEL_ERR_REVOKED;
        oriel_op_copy(dst + at, src + at, oriel_least(bytes - at, PIECE), request->stream);
    }
    return ORIEL_OK;
}

/* The same of a list, of a kind that gathers: where its arrays are is read first. */
static oriel_status pull_list(const oriel_request *request, int from)
{
    const heap_member *members = oriel_heap_members(&request->comm->heap, request->cell);
    const oriel_op *op = &request->op;
    oriel_array *theirs = request->kept;
    oriel_walk walk;
    oriel_status st = oriel_pull_read(request, from, request->kept, members[from].send,
                                      (size_t)op->num_arrays * sizeof *theirs);

    oriel_walk_begin(&walk, op, 0, request->record.bytes);
    while (st == ORIEL_OK && oriel_walk_next(&walk))
        st = oriel_pull_read(request, from, (char *)walk.one->recv + (size_t)from * walk.len,
                             theirs[walk.number].send, walk.len);
    return st;
}

/* What member `from` has for this one. */
static oriel_status pull(const oriel_request *request, int from)
{
    const oriel_op *op = &request->op;
    const heap_member *members = oriel_heap_members(&request->comm->heap, request->cell);
    size_t block = request->record.bytes;
    size_t part = oriel_op_part(op, request->index);
    char *dst = (char *)op->recv + (oriel_op_gathers(op) ? (size_t)from * block : 0);
    const char *shown;

    if (op->ragged != NULL)
        return oriel_ragged_pull(request, from);
    if (op->arrays != NULL)
        return pull_list(request, from);
    shown = oriel_transfer_shown(request, from);
    if (shown != NULL)
        return copy_window(request, dst, shown + part, block);
    return oriel_pull_read(request, from, dst, (const char *)members[from].send + part, block);
}

static oriel_status pull_all(const oriel_request *request)
{
    int n = request->group->n;
    int from = oriel_op_source(&request->op, request->index);
    oriel_status st = ORIEL_OK;

    if (from == OP_NOBODY && oriel_op_writes(&request->op, request->index))
        memset(request->op.recv, 0, request->record.bytes);
    if (from >= 0)
        return pull(request, from);
    /* Each begins with another, so that not all read the same memory at once, and ends with
     * its own, which the others have by then read. */
    for (int i = 0; from == OP_EVERYBODY && i < n && st == ORIEL_OK; i++)
        st = pull(request, (request->index + 1 + i) % n);
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
            oriel_comm_abort(request->comm, st, request->rank, request->comm->process,
                             "rank %d could not read what others send: %s", request->rank,
                             oriel_last_error());
        if (st != ORIEL_OK || !oriel_cell_finish(request->cell, 1))
            return ORIEL_ERR_REVOKED;
        oriel_stage_advance(request, OP_EVERYBODY, COUNTER_GATHERED, ++request->gathered);
        seen = oriel_cell_look(request->cell);
    }
    if (seen.finished == request->record.n)
        return ORIEL_OK;
    return seen.revoked ? ORIEL_ERR_REVOKED : ORIEL_IN_PROGRESS;
}
