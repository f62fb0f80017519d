/* all_reduce. Whatever the mode, an element of the result is the reduction of
 * the members' elements in group order, so all modes give the same bits. */
#include <string.h>

#include "base/sys.h"
#include "ops/reduce.h"
#include "ops/request.h"

enum { SLOTS = 4, HUGE_PAGE = 2 << 20, HUGE_FROM = 4 << 20 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void oriel_all_reduce_record(const oriel_group *group, size_t count, oriel_dtype dtype,
                             oriel_redop op, oriel_record *record_p)
{
    const oriel_heap *heap = &group->comm->heap;
    size_t bytes = count * oriel_dtype_size(dtype);
    enum oriel_mode mode = ORIEL_MODE_STAGED;

    if (group->one_process && heap->header->direct && bytes > 0)
        mode = ORIEL_MODE_DIRECT;
    else if (bytes <= oriel_heap_eager_bytes(heap, group->n))
        mode = ORIEL_MODE_EAGER;
    *record_p = (oriel_record){
        .bytes = bytes,
        .n = (uint32_t)group->n,
        .kind = ORIEL_KIND_ALL_REDUCE,
        .dtype = (uint8_t)dtype,
        .redop = (uint8_t)op,
        .mode = (uint8_t)mode,
    };
}

/* Reduces `bytes` at `src[0..n)` into `dst`. */
static void reduce_bytes(const oriel_request *request, void *dst, const void *const *src,
                         size_t bytes)
{
    oriel_dtype dtype = (oriel_dtype)request->record.dtype;

    oriel_reduce(dst, src, request->group->n, bytes / oriel_dtype_size(dtype), dtype,
                 (oriel_redop)request->record.redop);
}

/* ---- eager: everything is in the block once all have arrived ------------------- */

static oriel_status eager(oriel_request *request)
{
    const oriel_heap *heap = &request->comm->heap;
    int n = request->group->n;
    const void *src[HEAP_MAX_RANKS];

    for (int i = 0; i < n; i++)
        src[i] = oriel_heap_eager(heap, request->cell, n, i);
    src[request->index] = request->send;
    reduce_bytes(request, request->recv, src, request->record.bytes);
    return ORIEL_OK;
}

/* ---- direct: members take chunks and write every member's result ----------------- */

/* Two for each member, so that all have something to do, within what the caches
 * like. */
static size_t direct_chunk_bytes(const oriel_record *record)
{
    size_t bytes = (record->bytes / (2 * record->n) + 4095) / 4096 * 4096;

    return bytes < 8192 ? 8192 : least(bytes, 65536);
}

static void direct_chunk(oriel_request *request, uint32_t chunk)
{
    const heap_member *members = oriel_heap_members(&request->comm->heap, request->cell);
    size_t step = direct_chunk_bytes(&request->record);
    size_t at = (size_t)chunk * step;
    size_t len = least(step, request->record.bytes - at);
    int n = request->group->n;
    const void *src[HEAP_MAX_RANKS];

    for (int i = 0; i < n; i++)
        src[i] = (const char *)members[i].send + at;
    reduce_bytes(request, (char *)members[0].recv + at, src, len);
    for (int i = 1; i < n; i++)
        memcpy((char *)members[i].recv + at, (char *)members[0].recv + at, len);
}

static oriel_status direct(oriel_request *request)
{
    heap_cell *cell = request->cell;
    size_t step = direct_chunk_bytes(&request->record);
    uint32_t chunks = (uint32_t)((request->record.bytes + step - 1) / step);
    cell_view seen;

    while (atomic_load(&cell->next_chunk) < chunks) {
        uint32_t chunk;
        if (!oriel_cell_claim(cell))
            return ORIEL_ERR_REVOKED;
        chunk = atomic_fetch_add(&cell->next_chunk, 1);
        if (chunk < chunks)
            direct_chunk(request, chunk);
        oriel_cell_release(cell);
        if (chunk < chunks && atomic_fetch_add(&cell->done_chunks, 1) + 1 == chunks) {
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

/* ---- staged: a pipeline of chunks through the channel ----------------------------- */

/* Member i's staging is SLOTS slots; chunk k lives in slot k mod SLOTS. Within a
 * chunk, member j reduces slice j: it finds the others' slices j in their slots,
 * and leaves the result at slice j of its own slot, which nobody else uses. */
struct stage {
    char *base;
    size_t area; /* bytes of one member */
    size_t slot; /* bytes of one chunk */
    uint32_t chunks;
};

static struct stage stage_of(const oriel_request *request)
{
    const oriel_heap *heap = &request->comm->heap;
    struct stage s = {.base =
                          oriel_heap_channel(heap, request->cell->owner, request->cell->channel)};
    size_t n = request->record.n;

    s.area = heap->header->channel_bytes / n / HEAP_LINE * HEAP_LINE;
    s.slot = least(heap->header->chunk_bytes, s.area / SLOTS / HEAP_LINE * HEAP_LINE);
    if (s.slot == 0)
        s.slot = HEAP_LINE; /* the area holds two lines at least */
    s.chunks = (uint32_t)((request->record.bytes + s.slot - 1) / s.slot);
    return s;
}

static uint32_t slots(const struct stage *s)
{
    return (uint32_t)least(SLOTS, s->area / s->slot);
}

static char *slot_of(const struct stage *s, int member, uint32_t chunk)
{
    return s->base + (size_t)member * s->area + (size_t)(chunk % slots(s)) * s->slot;
}

static size_t chunk_len(const oriel_request *request, const struct stage *s, uint32_t chunk)
{
    return least(s->slot, request->record.bytes - (size_t)chunk * s->slot);
}

/* Slice j of a chunk of `len` bytes: [*at_p, *at_p + the result). */
static size_t slice_of(size_t len, uint32_t n, int j, size_t *at_p)
{
    size_t step = (len + n - 1) / n;

    step = (step + HEAP_LINE - 1) / HEAP_LINE * HEAP_LINE;
    *at_p = least((size_t)j * step, len);
    return least(step, len - *at_p);
}

static void publish(oriel_request *request, const struct stage *s, uint32_t chunk)
{
    const char *from = (const char *)request->send + (size_t)chunk * s->slot;
    char *to = slot_of(s, request->index, chunk);
    size_t len = chunk_len(request, s, chunk);
    size_t at;
    size_t own = slice_of(len, request->record.n, request->index, &at);

    memcpy(to, from, at);
    memcpy(to + at + own, from + at + own, len - at - own);
}

static void reduce_slice(oriel_request *request, const struct stage *s, uint32_t chunk)
{
    size_t at;
    size_t len = slice_of(chunk_len(request, s, chunk), request->record.n, request->index, &at);
    size_t from = (size_t)chunk * s->slot + at;
    const void *src[HEAP_MAX_RANKS];
    char *mine = slot_of(s, request->index, chunk) + at;

    for (int i = 0; i < request->group->n; i++)
        src[i] = slot_of(s, i, chunk) + at;
    src[request->index] = (const char *)request->send + from;
    reduce_bytes(request, mine, src, len);
    memcpy((char *)request->recv + from, mine, len);
}

static void gather(oriel_request *request, const struct stage *s, uint32_t chunk)
{
    char *to = (char *)request->recv + (size_t)chunk * s->slot;
    size_t len = chunk_len(request, s, chunk);

    for (int j = 0; j < request->group->n; j++) {
        size_t at;
        size_t part = slice_of(len, request->record.n, j, &at);
        if (j != request->index)
            memcpy(to + at, slot_of(s, j, chunk) + at, part);
    }
}

enum counter { PUBLISHED, REDUCED, GATHERED };

static _Atomic uint32_t *counter_of(heap_member *member, enum counter which)
{
    return which == PUBLISHED ? &member->published
           : which == REDUCED ? &member->reduced
                              : &member->gathered;
}

static int all_reached(const oriel_request *request, enum counter which, uint32_t value)
{
    heap_member *members = oriel_heap_members(&request->comm->heap, request->cell);

    for (int i = 0; i < request->group->n; i++) {
        if (atomic_load_explicit(counter_of(&members[i], which), memory_order_acquire) < value)
            return 0;
    }
    return 1;
}

static void advance(oriel_request *request, enum counter which, uint32_t value)
{
    heap_member *members = oriel_heap_members(&request->comm->heap, request->cell);

    atomic_store_explicit(counter_of(&members[request->index], which), value, memory_order_release);
    oriel_group_ring(request->group);
}

/* Does each phase's next chunk if it may; returns how many were done. */
static int staged_round(oriel_request *request, const struct stage *s)
{
    int did = 0;

    if (request->published < s->chunks &&
        (request->published < slots(s) ||
         all_reached(request, GATHERED, request->published - slots(s) + 1))) {
        publish(request, s, request->published);
        advance(request, PUBLISHED, ++request->published);
        did++;
    }
    if (request->reduced < request->published &&
        all_reached(request, PUBLISHED, request->reduced + 1)) {
        reduce_slice(request, s, request->reduced);
        advance(request, REDUCED, ++request->reduced);
        did++;
    }
    if (request->gathered < request->reduced &&
        all_reached(request, REDUCED, request->gathered + 1)) {
        gather(request, s, request->gathered);
        advance(request, GATHERED, ++request->gathered);
        did++;
    }
    return did;
}

static oriel_status staged(oriel_request *request)
{
    struct stage s = stage_of(request);
    cell_view seen;

    if (oriel_cell_look(request->cell).revoked)
        return ORIEL_ERR_REVOKED;
    do {
        uint32_t before = request->reduced;
        if (staged_round(request, &s) == 0)
            break;
        if (request->reduced == s.chunks && before != s.chunks) {
            if (!oriel_cell_finish(request->cell, 1))
                return ORIEL_ERR_REVOKED;
            oriel_group_ring(request->group);
        }
    } while (request->gathered < s.chunks);
    seen = oriel_cell_look(request->cell);
    if (seen.finished == request->record.n && request->gathered == s.chunks)
        return ORIEL_OK;
    return seen.revoked ? ORIEL_ERR_REVOKED : ORIEL_IN_PROGRESS;
}

/* ---- the operation ------------------------------------------------------------------ */

/* XLA mallocs every result anew, so a large one costs a page fault for each 4 KiB
 * written, which takes longer than the operation; huge pages save most of them. */
static void advise_result(const oriel_request *request)
{
    uintptr_t from = ((uintptr_t)request->recv + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uintptr_t to = ((uintptr_t)request->recv + request->record.bytes) / HUGE_PAGE * HUGE_PAGE;

    if (request->record.bytes >= HUGE_FROM && from < to)
        oriel_sys_now->advise_huge((void *)from, to - from);
}

void oriel_all_reduce_expose(oriel_request *request)
{
    const oriel_heap *heap = &request->comm->heap;
    heap_member *member = &oriel_heap_members(heap, request->cell)[request->index];

    advise_result(request);
    if (request->record.mode == ORIEL_MODE_DIRECT) {
        member->send = request->send;
        member->recv = request->recv;
    }
    if (request->record.mode == ORIEL_MODE_EAGER && request->record.bytes > 0)
        memcpy(oriel_heap_eager(heap, request->cell, request->group->n, request->index),
               request->send, request->record.bytes);
}

oriel_status oriel_all_reduce_transfer(oriel_request *request)
{
    if (request->record.mode == ORIEL_MODE_EAGER)
        return eager(request);
    if (request->record.mode == ORIEL_MODE_DIRECT)
        return direct(request);
    return staged(request);
}
