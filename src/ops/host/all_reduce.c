/* all_reduce through a channel: each member reduces a slice of every chunk, so that
 * nobody reads all of everybody's. An element is the reduction
 * of the members' elements in group order, as in all other modes: the same bits.
 *
 * Within a chunk, member j reduces slice j: it finds the others' slices j in their
 * slots, or in their windows, and leaves the result at slice j of its own slot, which
 * nobody else uses. In place nobody needs a chunk of `send` once all have reduced it. */
#include "base/math.h"
#include "ops/arrays.h"
#include "ops/reduce/reduce.h"
#include "ops/host/transfer.h"

static size_t chunk_len(const oriel_request *request, const struct stage *s, uint32_t chunk)
{
    return oriel_least(s->slot, request->record.bytes - (size_t)chunk * s->slot);
}

/* Slice j of a chunk of `len` bytes: [*at_p, *at_p + the result). */
static size_t slice_of(size_t len, uint32_t n, int j, size_t *at_p)
{
    size_t step = oriel_round_up(oriel_divide_up(len, n), HEAP_LINE);

    *at_p = oriel_least((size_t)j * step, len);
    return oriel_least(step, len - *at_p);
}

static void publish(oriel_request *request, const struct stage *s, uint32_t chunk)
{
    size_t from = (size_t)chunk * s->slot;
    char *to = oriel_stage_slot(s, request->index, chunk);
    size_t len = chunk_len(request, s, chunk);
    size_t at;
    size_t own = slice_of(len, request->record.n, request->index, &at);

    oriel_op_put(&request->op, 0, from, to, at, request->stream);
    oriel_op_put(&request->op, 0, from + at + own, to + at + own, len - at - own, request->stream);
}

/* What one array has of a slice: from byte `at` of the chunk on. */
static void reduce_array(oriel_request *request, const struct stage *s, uint32_t chunk, size_t at,
                         const oriel_walk *walk)
{
    const oriel_op *op = walk->one;
    const void *src[HEAP_MAX_RANKS];
    char *mine = oriel_stage_slot(s, request->index, chunk) + at;
    char *recv = (char *)op->recv + walk->at;

    for (int i = 0; i < request->group->n; i++) {
        const char *shown = oriel_transfer_shown(request, i);

        src[i] = shown != NULL ? shown + walk->at : oriel_stage_slot(s, i, chunk) + at;
    }
    src[request->index] = (const char *)op->send + walk->at;
    /* What stays in the cache first: it is read again at once. */
    oriel_reduce_elements(request->stream ? recv : mine, src, request->group->n,
                          walk->len / oriel_dtype_size(op->dtype), op->dtype, op->redop);
    if (request->stream)
        oriel_op_copy(mine, recv, walk->len, 1);
    else
        oriel_op_copy(recv, mine, walk->len, 0);
}

static void reduce_slice(oriel_request *request, const struct stage *s, uint32_t chunk)
{
    size_t at;
    size_t len = slice_of(chunk_len(request, s, chunk), request->record.n, request->index, &at);
    oriel_walk walk;

    oriel_walk_begin(&walk, &request->op, (size_t)chunk * s->slot + at, len);
    while (oriel_walk_next(&walk))
        reduce_array(request, s, chunk, at + walk.done, &walk);
}

static void gather(oriel_request *request, const struct stage *s, uint32_t chunk)
{
    size_t from = (size_t)chunk * s->slot;
    size_t len = chunk_len(request, s, chunk);

    for (int j = 0; j < request->group->n; j++) {
        size_t at;
        size_t part = slice_of(len, request->record.n, j, &at);
        if (j != request->index)
            oriel_op_get(&request->op, 0, from + at, oriel_stage_slot(s, j, chunk) + at, part);
    }
}

int oriel_two_shot_round(oriel_request *request, const struct stage *s)
{
    int did = 0;

    if (request->published < request->chunks &&
        oriel_stage_writable(request, s, request->published)) {
        publish(request, s, request->published);
        oriel_stage_advance(request, OP_EVERYBODY, COUNTER_PUBLISHED, ++request->published);
        did++;
    }
    /* What was not published through a slot needs it only now. */
    if (request->reduced < request->published &&
        oriel_stage_writable(request, s, request->reduced) &&
        oriel_stage_reached(request, OP_EVERYBODY, COUNTER_PUBLISHED, request->reduced + 1)) {
        reduce_slice(request, s, request->reduced);
        oriel_stage_advance(request, OP_EVERYBODY, COUNTER_REDUCED, ++request->reduced);
        did++;
    }
    if (request->gathered < request->reduced &&
        oriel_stage_reached(request, OP_EVERYBODY, COUNTER_REDUCED, request->gathered + 1)) {
        gather(request, s, request->gathered);
        oriel_stage_advance(request, OP_EVERYBODY, COUNTER_GATHERED, ++request->gathered);
        did++;
    }
    return did;
}
