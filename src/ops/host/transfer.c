/* Eager mode, and the way to the others. */
#include "ops/host/transfer.h"

#include "base/copy.h"
#include "base/math.h"
#include "base/sys.h"
#include "core/memory/arena.h"
#include "core/memory/window.h"
#include "ops/arrays.h"

enum { HUGE_PAGE = 2 << 20, HUGE_FROM = 4 << 20 };

/* XLA mallocs every result anew, so a large one costs a page fault for each 4 KiB
 * written, which takes longer than the operation; huge pages save most of them. */
void oriel_transfer_advise(const void *result, size_t bytes)
{
    uintptr_t from = oriel_round_up((uintptr_t)result, HUGE_PAGE);
    uintptr_t to = oriel_round_down((uintptr_t)result + bytes, HUGE_PAGE);

    if (bytes >= HUGE_FROM && from < to)
        oriel_sys_now->advise_huge((void *)from, to - from);
}

/* ---- windows: what lies in one is used there ----------------------------------------- */

/* Where a process has not mapped the arena, what lies in a window is copied like anything else:
 * to map it may fail, in a call that need not. */
oriel_status oriel_transfer_show(oriel_request *request)
{
    const oriel_op *op = &request->op;
    heap_member *member = &oriel_heap_members(&request->comm->heap, request->cell)[request->index];
    size_t bytes = oriel_op_payload(op, request->group->n, request->index);
    size_t at = 0;
    int inside = 0;
    oriel_status st;

    if (op->arrays != NULL || op->ragged != NULL || oriel_op_overwrites(op))
        return ORIEL_OK;
    st = oriel_window_place(request->comm, request->rank, op->send, bytes, &inside, &at);
    if (st != ORIEL_OK)
        return oriel_fail_in(st, "send of %s", oriel_kind_name(op->kind));
    if (inside && oriel_arena_is_shared(request->group)) {
        member->send = (const void *)(uintptr_t)at;
        member->in_window = 1;
    }
    return ORIEL_OK;
}

const char *oriel_transfer_shown(const oriel_request *request, int index)
{
    const heap_member *member = &oriel_heap_members(&request->comm->heap, request->cell)[index];

    return member->in_window ? oriel_arena_at(request->comm, request->group->ranks[index],
                                              (size_t)(uintptr_t)member->send)
                             : NULL;
}

/* ---- eager: everything is in the block once all have arrived ---------------------- */

static oriel_status eager_expose(oriel_request *request)
{
    const oriel_op *op = &request->op;
    int n = request->group->n;
    char *to = oriel_heap_eager(&request->comm->heap, request->cell, n, request->index);

    if (op->arrays != NULL)
        oriel_arrays_show(op, n, request->index, to, 0);
    else
        oriel_copy(to, op->send, oriel_op_payload(op, n, request->index));
    return ORIEL_OK;
}

static oriel_status eager_step(oriel_request *request)
{
    const oriel_op *op = &request->op;
    int n = request->group->n;
    size_t part = oriel_op_part(op, request->index);
    const void *src[HEAP_MAX_RANKS];

    for (int i = 0; i < n; i++)
        src[i] = oriel_heap_eager(&request->comm->heap, request->cell, n, i) + part;
    src[request->index] = oriel_op_own(op, request->index);
    oriel_op_take(op, n, request->index, src, 0, request->record.bytes);
    return ORIEL_OK;
}

/* ---- any ---------------------------------------------------------------------------- */

static oriel_status direct_expose(oriel_request *request)
{
    heap_member *member = &oriel_heap_members(&request->comm->heap, request->cell)[request->index];

    member->send = request->op.arrays != NULL ? request->op.arrays : request->op.send;
    member->recv = request->op.recv;
    member->ragged = request->op.ragged;
    return ORIEL_OK;
}

static const struct {
    oriel_status (*expose)(oriel_request *request); /* before the member arrives */
    oriel_status (*step)(oriel_request *request);   /* when all have: see oriel_transfer_step */
} modes[] = {
    [ORIEL_MODE_EAGER] = {eager_expose, eager_step},
    [ORIEL_MODE_STAGED] = {oriel_staged_expose, oriel_staged_step},
    [ORIEL_MODE_PULLED] = {oriel_pull_expose, oriel_pull_step},
    [ORIEL_MODE_DIRECT] = {direct_expose, oriel_direct_step},
};

static void advise(const oriel_request *request)
{
    int n = request->group->n;
    oriel_walk walk;

    for (oriel_walk_begin(&walk, &request->op, 0, request->record.bytes); oriel_walk_next(&walk);)
        oriel_transfer_advise(walk.one->recv, oriel_op_recv_count(walk.one, n, request->index) *
                                                  oriel_dtype_size(walk.one->dtype));
}

oriel_status oriel_transfer_expose(oriel_request *request)
{
    const oriel_op *op = &request->op;

    if (op->kernel != NULL)
        return oriel_op_custom(op)->moves->expose(request);
    advise(request);
    return modes[request->record.mode].expose(request);
}

oriel_status oriel_transfer_step(oriel_request *request)
{
    if (request->op.kernel != NULL)
        return oriel_op_custom(&request->op)->moves->step(request);
    return modes[request->record.mode].step(request);
}
