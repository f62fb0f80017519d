/* Direct mode: all members live in one process and have shown their addresses.
 * They take items of work, and do an item for all members at once. A member that is
 * in place is so item by item: nothing of `send` is needed once its item is done. */
#include <string.h>

#include "base/copy.h"
#include "base/math.h"
#include "ops/arrays.h"
#include "ops/host/ragged.h"
#include "ops/host/transfer.h"

enum { BOUNCE = 4096, ITEM_LEAST = 8192, ITEM_MOST = 65536, ITEM_ROUND = 1024 };

struct range {
    size_t at, len; /* bytes of each block */
};

/* Two for each member, so that all have something to do, within what the caches
 * like. An item is a range of every block, and some kinds have one for each pair of
 * members. */
static size_t item_bytes(const oriel_request *request)
{
    size_t n = request->record.n;
    size_t pairs = oriel_op_scatters(&request->op) || oriel_op_gathers(&request->op) ? n : 1;
    size_t bytes = request->record.bytes / (2 * n);

    bytes = bytes < ITEM_LEAST / pairs ? ITEM_LEAST / pairs : oriel_least(bytes, ITEM_MOST / pairs);
    return oriel_round_up(bytes, ITEM_ROUND);
}

static uint32_t item_count(const oriel_request *request)
{
    size_t step;

    if (request->op.ragged != NULL)
        return request->record.n * request->record.n;
    step = item_bytes(request);
    return (uint32_t)oriel_divide_up(request->record.bytes, step);
}

/* ---- what a range means to each kind ---------------------------------------------- */

/* The buffers of a member; of a list those of the walk's array. */
static oriel_array buffers_of(const heap_member *member, const oriel_walk *walk)
{
    if (walk->all->arrays != NULL)
        return ((const oriel_array *)member->send)[walk->number];
    return (oriel_array){.send = member->send, .recv = member->recv};
}

static void all_reduce(int n, const heap_member *members, const oriel_walk *walk)
{
    oriel_op first = *walk->one;
    const void *src[HEAP_MAX_RANKS];

    first.recv = buffers_of(&members[0], walk).recv;
    src[0] = NULL; /* by itself: compilers do not know that n > 0 */
    for (int i = 0; i < n; i++)
        src[i] = (const char *)buffers_of(&members[i], walk).send + walk->at;
    oriel_op_take(&first, n, 0, src, walk->at, walk->len);
    for (int i = 1; i < n; i++)
        oriel_copy((char *)buffers_of(&members[i], walk).recv + walk->at,
                   (char *)first.recv + walk->at, walk->len);
}

/* Members take from what others show and, in place, do not overwrite, but in a scan: there those
 * after a member need what it had, and so come first. */
static void take_each(int n, const heap_member *members, const oriel_walk *walk)
{
    oriel_op op = *walk->one;
    const void *src[HEAP_MAX_RANKS];

    for (int j = n - 1; j >= 0; j--) {
        for (int i = 0; i < n; i++) {
            op.send = buffers_of(&members[i], walk).send;
            src[i] = op.send != NULL ? (const char *)oriel_op_own(&op, j) + walk->at : NULL;
        }
        op.recv = buffers_of(&members[j], walk).recv;
        oriel_op_take(&op, n, j, src, walk->at, walk->len);
    }
}

/* What members i and j give each other, so that any of them may be in place. */
static void swap(const oriel_request *request, const heap_member *members, int i, int j, size_t at,
                 size_t len)
{
    size_t block = request->record.bytes;
    char *recv_i = (char *)members[i].recv + (size_t)j * block + at;
    char *recv_j = (char *)members[j].recv + (size_t)i * block + at;
    const char *send_i = (const char *)members[i].send + (size_t)j * block + at;
    const char *send_j = (const char *)members[j].send + (size_t)i * block + at;
    char kept[BOUNCE];

    if (recv_i != send_i) {
        oriel_copy(recv_i, send_j, len);
        oriel_copy(recv_j, send_i, len);
        return;
    }
    oriel_copy(kept, send_i, len);
    oriel_copy(recv_i, send_j, len);
    oriel_copy(recv_j, kept, len);
}

static void all_to_all(const oriel_request *request, const heap_member *members, struct range r)
{
    int n = request->group->n;

    for (int i = 0; i < n; i++) {
        size_t own = (size_t)i * request->record.bytes + r.at;

        oriel_op_copy((char *)members[i].recv + own, (const char *)members[i].send + own, r.len, 0);
        for (int j = i + 1; j < n; j++) {
            for (size_t done = 0; done < r.len; done += BOUNCE)
                swap(request, members, i, j, r.at + done, oriel_least(BOUNCE, r.len - done));
        }
    }
}

/* Follows the permutation back from `last`: each member's `send` is copied on before
 * its `recv`, which may be the same, is written. */
static void chain(const heap_member *members, const int *from, int last, size_t at, size_t len)
{
    char kept[BOUNCE];
    int to = last;

    oriel_copy(kept, (const char *)members[last].send + at, len);
    for (; from[to] != OP_NOBODY && from[to] != last; to = from[to])
        oriel_copy((char *)members[to].recv + at, (const char *)members[from[to]].send + at, len);
    if (from[to] == last)
        oriel_copy((char *)members[to].recv + at, kept, len);
    else
        memset((char *)members[to].recv + at, 0, len);
}

/* Every member is in one chain: a path, whose last one gives to nobody, or a circle,
 * which begins anywhere. */
static void permute(const oriel_request *request, const heap_member *members, struct range r)
{
    int n = request->group->n;
    int from[HEAP_MAX_RANKS];
    unsigned char gives[HEAP_MAX_RANKS] = {0};
    unsigned char done[HEAP_MAX_RANKS] = {0};

    for (int i = 0; i < n; i++)
        from[i] = OP_NOBODY;
    for (int i = 0; i < request->op.num_pairs; i++) {
        from[request->op.pairs[2 * i + 1]] = request->op.pairs[2 * i];
        gives[request->op.pairs[2 * i]] = 1;
    }
    for (int circles = 0; circles <= 1; circles++) {
        for (int last = 0; last < n; last++) {
            if (done[last] || (!circles && gives[last]))
                continue;
            for (size_t at = 0; at < r.len; at += BOUNCE)
                chain(members, from, last, r.at + at, oriel_least(BOUNCE, r.len - at));
            for (int i = last; i != OP_NOBODY && !done[i]; i = from[i])
                done[i] = 1;
        }
    }
}

static void do_range(const oriel_request *request, uint32_t item)
{
    const heap_member *members = oriel_heap_members(&request->comm->heap, request->cell);
    size_t step = item_bytes(request);
    struct range r = {.at = (size_t)item * step};
    oriel_walk walk;

    r.len = oriel_least(step, request->record.bytes - r.at);
    if (request->op.kind == ORIEL_KIND_ALL_TO_ALL) {
        all_to_all(request, members, r);
        return;
    }
    if (request->op.kind == ORIEL_KIND_PERMUTE) {
        permute(request, members, r);
        return;
    }
    for (oriel_walk_begin(&walk, &request->op, r.at, r.len); oriel_walk_next(&walk);) {
        if (request->op.kind == ORIEL_KIND_ALL_REDUCE)
            all_reduce(request->group->n, members, &walk);
        else
            take_each(request->group->n, members, &walk);
    }
}

/* ---- the machine --------------------------------------------------------------------- */

/* Under a claim. */
static oriel_status do_item(const oriel_request *request, uint32_t item, ragged_fault *fault)
{
    if (request->op.ragged == NULL) {
        do_range(request, item);
        return ORIEL_OK;
    }
    return oriel_ragged_move(request, (int)(item / request->record.n),
                             (int)(item % request->record.n), fault);
}

oriel_status oriel_direct_step(oriel_request *request)
{
    heap_cell *cell = request->cell;
    uint32_t items = item_count(request);
    ragged_fault fault;
    cell_view seen;

    while (atomic_load(&cell->next_chunk) < items) {
        oriel_status st = ORIEL_OK;
        uint32_t item;

        if (!oriel_cell_claim(cell))
            return ORIEL_ERR_REVOKED;
        item = atomic_fetch_add(&cell->next_chunk, 1);
        if (item < items)
            st = do_item(request, item, &fault);
        oriel_cell_release(cell);
        if (st != ORIEL_OK)
            return oriel_ragged_refuse(request, &fault);
        if (item < items && atomic_fetch_add(&cell->done_chunks, 1) + 1 == items) {
            if (!oriel_cell_finish(cell, request->record.n))
                return ORIEL_ERR_REVOKED;
            oriel_group_ring(request->group);
        }
    }
    seen = oriel_cell_look(cell);
    if (seen.finished == request->record.n)
        return ORIEL_OK;
    return seen.revoked ? ORIEL_ERR_REVOKED : ORIEL_IN_PROGRESS;
}
