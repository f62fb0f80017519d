/* Eager mode, and the way to the others. */
#include "ops/host/transfer.h"

#include "base/copy.h"
#include "base/sys.h"
#include "core/protocol/style.h"
#include "ops/kernel/kernel.h"

enum { HUGE_PAGE = 2 << 20, HUGE_FROM = 4 << 20 };

/* XLA mallocs every result anew, so a large one costs a page fault for each 4 KiB
 * written, which takes longer than the operation; huge pages save most of them. */
void oriel_transfer_advise(const void *result, size_t bytes)
{
    uintptr_t from = ((uintptr_t)result + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uintptr_t to = ((uintptr_t)result + bytes) / HUGE_PAGE * HUGE_PAGE;

    if (bytes >= HUGE_FROM && from < to)
        oriel_sys_now->advise_huge((void *)from, to - from);
}

/* ---- eager: everything is in the block once all have arrived ---------------------- */

static void eager_expose(oriel_request *request)
{
    int n = request->group->n;

    oriel_copy(oriel_heap_eager(&request->comm->heap, request->cell, n, request->index),
               request->op.send, oriel_op_payload(&request->op, n, request->index));
}

static oriel_status eager_step(oriel_request *request)
{
    const oriel_op *op = &request->op;
    int n = request->group->n;
    size_t part = oriel_op_part(op, request->index);
    const void *src[HEAP_MAX_RANKS];

    for (int i = 0; i < n; i++)
        src[i] = oriel_heap_eager(&request->comm->heap, request->cell, n, i) + part;
    src[request->index] = (const char *)op->send + part;
    oriel_op_take(op, n, request->index, src, 0, request->record.bytes, 0);
    return ORIEL_OK;
}

/* ---- any ---------------------------------------------------------------------------- */

static int pulls(const oriel_request *request)
{
    return request->record.mode == ORIEL_MODE_STAGED && request->style == STYLE_PULL;
}

oriel_status oriel_transfer_expose(oriel_request *request)
{
    heap_member *member = &oriel_heap_members(&request->comm->heap, request->cell)[request->index];
    const oriel_op *op = &request->op;

    if (request->op.kernel != NULL)
        return oriel_kernel_expose(request);
    oriel_transfer_advise(op->recv,
                          oriel_op_recv_count(op, request->group->n) * oriel_dtype_size(op->dtype));
    request->style = request->cell->style;
    if (request->op.ragged != NULL && request->record.mode == ORIEL_MODE_STAGED)
        request->style =
            oriel_style_choose(request->group, request->record.kind, request->weight, 0);
    if (pulls(request))
        return oriel_pull_expose(request);
    if (request->record.mode == ORIEL_MODE_DIRECT) {
        member->send = request->op.send;
        member->recv = request->op.recv;
        member->ragged = request->op.ragged;
    }
    if (request->record.mode == ORIEL_MODE_EAGER)
        eager_expose(request);
    if (request->record.mode == ORIEL_MODE_STAGED)
        oriel_staged_expose(request);
    return ORIEL_OK;
}

oriel_status oriel_transfer_step(oriel_request *request)
{
    if (request->record.mode == ORIEL_MODE_KERNEL)
        return oriel_kernel_step(request);
    if (request->record.mode == ORIEL_MODE_EAGER)
        return eager_step(request);
    if (request->record.mode == ORIEL_MODE_DIRECT)
        return oriel_direct_step(request);
    return pulls(request) ? oriel_pull_step(request) : oriel_staged_step(request);
}
