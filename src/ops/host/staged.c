/* Staged mode: a pipeline of chunks through the channel. Every member publishes
 * chunk k of what others need of it, and gathers chunk k of its result once those
 * it needs have published theirs. So a chunk of the own `send` is out before that
 * chunk of `recv`, which may be the same memory, is written. A member whose `send` lies
 * in a window publishes all of it at once, and copies nothing. */
#include "base/math.h"
#include "ops/arrays.h"
#include "ops/host/ragged.h"
#include "ops/host/transfer.h"

enum { SLOTS = 8, FEW_CHUNKS = 4, RING = 2 << 20 };

/* ---- where things are ------------------------------------------------------------- */

/* Of an all_reduce there should be a few chunks, so that one is published while another is
 * reduced and a third gathered. */
static size_t chunk_bytes(const oriel_request *request)
{
    size_t most = request->comm->heap.header->chunk_bytes;
    size_t part = request->record.bytes / FEW_CHUNKS;

    if (request->op.kind != ORIEL_KIND_ALL_REDUCE || part >= most)
        return most;
    return part > most / 2 ? part : most / 2;
}

/* What others have read lies in their caches and is slow to overwrite, until it has had to make
 * room there. So operations take turns in their area: those of a few chunks in RING bytes, larger
 * ones in a part that the caches hold. A chunk of the former begins anywhere in the ring, and may
 * end in the slot after it. */
static void place(const oriel_request *request, struct stage *s)
{
    uint32_t fit = (uint32_t)(s->area / s->slot); /* two lines at least, so two slots */
    int few = request->chunks <= SLOTS;

    s->slots = (uint32_t)(few ? oriel_least(fit - 1, RING / s->slot + 1) : oriel_least(SLOTS, fit));
    s->ring = s->slots * s->slot;
    s->at = request->cell->at % s->ring;
    if (!few)
        s->at -= s->at % s->slot;
}

struct stage oriel_stage_of(const oriel_request *request)
{
    const oriel_heap *heap = &request->comm->heap;
    size_t n = request->record.n;
    size_t area = heap->header->channel_bytes / n / HEAP_LINE * HEAP_LINE;
    size_t slot = oriel_least(chunk_bytes(request), area / SLOTS) / HEAP_LINE * HEAP_LINE;
    struct stage s = {.base =
                          oriel_heap_channel(heap, request->cell->owner, request->cell->channel)};

    s.area = area;
    s.slot = slot == 0 ? HEAP_LINE : slot;
    place(request, &s);
    s.columns = 1;
    if (oriel_op_scatters(&request->op))
        s.columns = (uint32_t)(s.slot / HEAP_LINE >= n - 1 ? n - 1 : n);
    s.per_chunk = (uint32_t)oriel_least(s.columns, s.slot / HEAP_LINE);
    s.unit = s.slot / s.per_chunk / HEAP_LINE * HEAP_LINE;
    return s;
}

/* How many chunks hold `bytes` for each receiver. */
static uint32_t chunks_for(const struct stage *s, size_t bytes)
{
    return (uint32_t)oriel_divide_up(oriel_divide_up(bytes, s->unit) * s->columns, s->per_chunk);
}

char *oriel_stage_slot(const struct stage *s, int member, uint32_t chunk)
{
    return s->base + (size_t)member * s->area + (s->at + chunk * s->slot) % s->ring;
}

/* Units come range by range, and within a range column by column. All columns of a
 * range are in one chunk, the sender's own left out; or, where slots are tiny, some:
 * then members that reduce need one receiver's units of all senders together, and the
 * others, which may be in place, gather from those to which they have published. */
static uint32_t column(const oriel_request *request, const struct stage *s, int sender,
                       int receiver)
{
    uint32_t n = request->record.n;

    if (s->columns == 1)
        return 0;
    if (s->columns < n)
        return (uint32_t)(receiver - (receiver > sender));
    return oriel_op_reduces(&request->op) ? (uint32_t)receiver : (uint32_t)(sender + receiver) % n;
}

/* Finds what `sender` has for `receiver` in a chunk: bytes from `*at_p` of the block
 * or stream. NULL: nothing. */
static char *find_unit(const oriel_request *request, const struct stage *s, uint32_t chunk,
                       int sender, int receiver, size_t *at_p)
{
    uint64_t first = (uint64_t)chunk * s->per_chunk;
    uint32_t begin = (uint32_t)(first % s->columns);
    uint32_t place = (column(request, s, sender, receiver) + s->columns - begin) % s->columns;

    if (place >= s->per_chunk)
        return NULL;
    *at_p = (size_t)((first + place) / s->columns) * s->unit;
    return oriel_stage_slot(s, sender, chunk) + place * s->unit;
}

/* ---- how far everybody is ---------------------------------------------------------- */

static _Atomic uint32_t *counter_of(heap_member *member, enum counter which)
{
    return which == COUNTER_PUBLISHED ? &member->published
           : which == COUNTER_REDUCED ? &member->reduced
                                      : &member->gathered;
}

int oriel_stage_reached(const oriel_request *request, int whom, enum counter which, uint32_t value)
{
    heap_member *members = oriel_heap_members(&request->comm->heap, request->cell);
    int first = whom == OP_EVERYBODY ? 0 : whom;
    int end = whom == OP_EVERYBODY ? request->group->n : whom + 1;

    for (int i = first; i < end && whom != OP_NOBODY; i++) {
        if (atomic_load_explicit(counter_of(&members[i], which), memory_order_acquire) < value)
            return 0;
    }
    return 1;
}

void oriel_stage_advance(oriel_request *request, int whom, enum counter which, uint32_t value)
{
    heap_member *members = oriel_heap_members(&request->comm->heap, request->cell);

    atomic_store_explicit(counter_of(&members[request->index], which), value, memory_order_release);
    if (whom == OP_EVERYBODY)
        oriel_group_ring(request->group);
    else if (whom != OP_NOBODY)
        oriel_comm_ring(request->comm,
                        request->comm->heap.ranks[request->group->ranks[whom]].process);
}

int oriel_stage_writable(const oriel_request *request, const struct stage *s, uint32_t chunk)
{
    return chunk < s->slots ||
           oriel_stage_reached(request, request->to, COUNTER_GATHERED, chunk - s->slots + 1);
}

/* ---- what a member has for another ---------------------------------------------------- */

/* Blocks of one size, and rows of which each member has another number. */
struct parts {
    /* Of all that goes to `to`. */
    size_t (*bytes)(const oriel_request *request, int to);
    /* Bytes [at, at + len) of it, as far as there are so many, into a unit and out of one. */
    void (*put)(const oriel_request *request, int to, size_t at, char *unit, size_t len);
    oriel_status (*take)(oriel_request *request, int from, size_t at, const char *unit, size_t len);
    /* Beside each chunk, a piece of what the member has for itself, which is in no slot. */
    oriel_status (*take_own)(oriel_request *request, uint32_t chunk);
};

static size_t block_bytes(const oriel_request *request, int to)
{
    (void)to;
    return request->record.bytes;
}

static void block_put(const oriel_request *request, int to, size_t at, char *unit, size_t len)
{
    size_t block = request->record.bytes;

    if (at < block)
        oriel_op_put(&request->op, to, at, unit, oriel_least(len, block - at), request->stream);
}

static oriel_status block_take(oriel_request *request, int from, size_t at, const char *unit,
                               size_t len)
{
    size_t block = request->record.bytes;

    if (at < block)
        oriel_op_get(&request->op, from, at, unit, oriel_least(len, block - at));
    return ORIEL_OK;
}

/* What stays with this member, in as many pieces as there are chunks. */
static oriel_status block_take_own(oriel_request *request, uint32_t chunk)
{
    const oriel_op *op = &request->op;
    size_t block = request->record.bytes;
    size_t step = (block + request->chunks - 1) / request->chunks;
    size_t at = oriel_least((size_t)chunk * step, block);
    size_t own = oriel_op_part(op, request->index) + at;

    oriel_op_copy((char *)op->recv + (oriel_op_gathers(op) ? own : at),
                  (const char *)op->send + own, oriel_least(step, block - at), 0);
    return ORIEL_OK;
}

static size_t rows_bytes(const oriel_request *request, int to)
{
    return oriel_ragged_stream(&request->op, to);
}

static void rows_put(const oriel_request *request, int to, size_t at, char *unit, size_t len)
{
    oriel_ragged_put(&request->op, to, at, unit, len, request->stream);
}

static oriel_status rows_take_own(oriel_request *request, uint32_t chunk)
{
    if (chunk > 0)
        return ORIEL_OK;
    request->unchecked--;
    return oriel_ragged_self(request);
}

static const struct parts *parts_of(const oriel_request *request)
{
    static const struct parts blocks = {block_bytes, block_put, block_take, block_take_own};
    static const struct parts rows = {rows_bytes, rows_put, oriel_ragged_take, rows_take_own};

    return request->op.ragged != NULL ? &rows : &blocks;
}

/* ---- chunks -------------------------------------------------------------------------- */

/* Where what `sender` has for this member lies: in a slot, or in its window. */
static const char *find_source(const oriel_request *request, const struct stage *s, uint32_t chunk,
                               int sender, size_t *at_p)
{
    const char *unit = find_unit(request, s, chunk, sender, request->index, at_p);
    const char *shown = NULL;

    if (unit != NULL && request->from != OP_NOBODY)
        shown = oriel_transfer_shown(request, sender);
    return shown == NULL ? unit : shown + oriel_op_part(&request->op, request->index) + *at_p;
}

static void publish(oriel_request *request, const struct stage *s, uint32_t chunk)
{
    int per_receiver = oriel_op_scatters(&request->op);
    size_t at;

    for (int to = 0; to < (per_receiver ? request->group->n : 1); to++) {
        char *unit = per_receiver && to == request->index
                         ? NULL
                         : find_unit(request, s, chunk, request->index, to, &at);

        if (unit != NULL)
            parts_of(request)->put(request, to, at, unit, s->unit);
    }
}

/* Each of the others' units as it comes. */
static oriel_status gather_units(oriel_request *request, const struct stage *s, uint32_t chunk)
{
    const struct parts *parts = parts_of(request);
    oriel_status st = parts->take_own(request, chunk);

    for (int i = 0; i < request->group->n && st == ORIEL_OK; i++) {
        size_t at;
        const char *unit = i != request->index ? find_source(request, s, chunk, i, &at) : NULL;

        if (unit != NULL)
            st = parts->take(request, i, at, unit, s->unit);
    }
    return st;
}

/* The units of all whom this member needs together. */
static void gather_range(oriel_request *request, const struct stage *s, uint32_t chunk)
{
    const oriel_op *op = &request->op;
    int from = request->from;
    const void *src[HEAP_MAX_RANKS];
    size_t at = 0;

    for (int i = 0; i < request->group->n; i++) {
        if (i == request->index || (from >= 0 && i != from))
            continue;
        src[i] = find_source(request, s, chunk, i, &at);
        if (src[i] == NULL)
            return; /* another receiver's: then that of every sender is */
    }
    if (at >= request->record.bytes)
        return;
    src[request->index] =
        op->send != NULL ? (const char *)oriel_op_own(op, request->index) + at : NULL;
    oriel_op_take(op, request->group->n, request->index, src, at,
                  oriel_least(s->unit, request->record.bytes - at));
}

static oriel_status gather(oriel_request *request, const struct stage *s, uint32_t chunk)
{
    if (oriel_op_scatters(&request->op) && oriel_op_gathers(&request->op))
        return gather_units(request, s, chunk);
    if (oriel_op_scatters(&request->op) && request->from == OP_NOBODY) /* the root of a scatter */
        return block_take_own(request, chunk);
    gather_range(request, s, chunk);
    return ORIEL_OK;
}

/* ---- the machine --------------------------------------------------------------------- */

static int two_shot(const oriel_request *request)
{
    return request->op.kind == ORIEL_KIND_ALL_REDUCE;
}

/* A member that publishes nothing counts as one ahead of what it has gathered: then the one
 * that is behind all others is the one they wait for (oriel_cell_missing). */
static void keep_up(oriel_request *request)
{
    if (request->to == OP_NOBODY)
        oriel_stage_advance(request, OP_NOBODY, COUNTER_PUBLISHED,
                            (uint32_t)oriel_least(request->gathered + 1, request->chunks));
}

/* Publishes and gathers the next chunk if it may; returns how many were done, or -1
 * when the operation was revoked. */
static int one_shot_round(oriel_request *request, const struct stage *s)
{
    uint32_t k = request->published;
    int did = 0;

    if (k < request->chunks && oriel_stage_writable(request, s, k)) {
        publish(request, s, k);
        oriel_stage_advance(request, request->to, COUNTER_PUBLISHED, ++request->published);
        did++;
    }
    k = request->gathered;
    if (k < request->published &&
        oriel_stage_reached(request, request->from, COUNTER_PUBLISHED, k + 1)) {
        if (gather(request, s, k) != ORIEL_OK)
            return -1;
        oriel_stage_advance(request, request->from, COUNTER_GATHERED, ++request->gathered);
        keep_up(request);
        did++;
    }
    return did;
}

/* Whether it still has to read what its owner may write once the call is over: what lies in a
 * window. As long as a member has published nothing, that is not known. */
static int reads_windows(const oriel_request *request)
{
    int from = request->from;

    if (two_shot(request) || request->gathered == request->chunks)
        return 0;
    if (!oriel_stage_reached(request, from, COUNTER_PUBLISHED, 1))
        return 1;
    for (int i = 0; i < request->group->n; i++) {
        if ((from == OP_EVERYBODY || from == i) && oriel_transfer_shown(request, i) != NULL)
            return 1;
    }
    return 0;
}

/* Counts this member as finished once nobody needs anything of it any more but what
 * is in the heap, and it needs nothing else. Returns 0 when the operation is revoked. */
static int finish(oriel_request *request)
{
    uint32_t done = two_shot(request) ? request->reduced : request->published;

    if (request->finished || done < request->chunks || request->unchecked > 0 ||
        reads_windows(request))
        return 1;
    request->finished = 1;
    if (!oriel_cell_finish(request->cell, 1))
        return 0;
    if (oriel_cell_look(request->cell).finished == request->record.n)
        oriel_group_ring(request->group);
    return 1;
}

/* The member that this one waits for, or that waits for it; for itself it need not. */
static int other(const oriel_request *request, int whom)
{
    return whom == request->index ? OP_NOBODY : whom;
}

/* The most that this member has for another. */
static size_t longest_part(const oriel_request *request)
{
    size_t longest = 0;

    for (int to = 0; to < request->group->n; to++) {
        size_t bytes = parts_of(request)->bytes(request, to);
        longest = bytes > longest && to != request->index ? bytes : longest;
    }
    return longest;
}

/* Bytes after which the next operation may begin, about: members of a ragged one differ. */
static size_t taken(const oriel_request *request, const struct stage *s)
{
    size_t part = oriel_round_up(longest_part(request), HEAP_LINE);

    if (request->chunks > 1)
        return request->chunks * s->slot;
    if (request->op.ragged != NULL && part < s->unit / 2)
        part = s->unit / 2 / HEAP_LINE * HEAP_LINE;
    return (s->per_chunk - 1) * s->unit + part;
}

/* What could not be known before: members of a ragged call alone have different numbers of chunks,
 * and all of them have arrived. */
static struct stage begin(oriel_request *request)
{
    const heap_member *members = oriel_heap_members(&request->comm->heap, request->cell);
    int n = request->group->n;
    struct stage s;

    request->chunks = members[request->index].chunks;
    for (int i = 0; request->op.ragged != NULL && i < n; i++)
        request->chunks = members[i].chunks > request->chunks ? members[i].chunks : request->chunks;
    request->from = other(request, oriel_op_source(&request->op, request->index));
    request->to = other(request, oriel_op_destination(&request->op, request->index));
    request->unchecked = request->op.ragged != NULL ? n : 0;
    if (request->to == OP_NOBODY || members[request->index].in_window)
        request->published = request->chunks;
    if (members[request->index].in_window)
        oriel_stage_advance(request, request->to, COUNTER_PUBLISHED, request->chunks);
    keep_up(request);
    s = oriel_stage_of(request);
    if (request->index == 0)
        atomic_fetch_add_explicit(&request->comm->heap.pool[request->cell->owner].staged,
                                  taken(request, &s), memory_order_relaxed);
    return s;
}

oriel_status oriel_staged_expose(oriel_request *request)
{
    heap_member *member = &oriel_heap_members(&request->comm->heap, request->cell)[request->index];
    struct stage s = oriel_stage_of(request);

    member->chunks = chunks_for(&s, longest_part(request));
    return request->op.ragged != NULL ? oriel_ragged_expect(request) : oriel_transfer_show(request);
}

oriel_status oriel_staged_step(oriel_request *request)
{
    struct stage s = oriel_stage_of(request);
    cell_view seen;
    int did;

    if (oriel_cell_look(request->cell).revoked)
        return ORIEL_ERR_REVOKED;
    if (request->chunks == 0)
        s = begin(request);
    do {
        did = two_shot(request) ? oriel_two_shot_round(request, &s) : one_shot_round(request, &s);
        if (did < 0 || !finish(request))
            return ORIEL_ERR_REVOKED;
    } while (did > 0 && request->gathered < request->chunks);
    seen = oriel_cell_look(request->cell);
    if (seen.finished == request->record.n && request->gathered == request->chunks)
        return ORIEL_OK;
    return seen.revoked ? ORIEL_ERR_REVOKED : ORIEL_IN_PROGRESS;
}
