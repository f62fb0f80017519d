#include "core/heap/heap.h"

#include <string.h>

#include "base/config.h"
#include "base/hash.h"
#include "base/math.h"
#include "core/heap/pool.h"

/* "oriel", its version, and what the layout depends on. */
static uint64_t magic_of(heap_rooms rooms)
{
    uint64_t magic = (0x6f7269656cull << 24) + ORIEL_VERSION_MAJOR * 4096 +
                     ORIEL_VERSION_MINOR * 64 + ORIEL_VERSION_PATCH;

    magic = oriel_mix(magic ^ sizeof(heap_header));
    for (; *rooms != NULL; rooms++) {
        for (const heap_section *s = *rooms; s->bytes > 0; s++) {
            uint64_t name = oriel_hash(s->name, strlen(s->name), s->id);

            magic = oriel_mix(magic ^ name ^ s->bytes << 2 ^ s->share);
        }
    }
    return magic;
}

static uint64_t bytes_of(const heap_header *h, const heap_section *section)
{
    switch (section->share) {
    case HEAP_PER_PROCESS:
        return h->num_processes * section->bytes;
    case HEAP_PER_RANK:
        return h->num_ranks * section->bytes;
    default:
        return section->bytes;
    }
}

/* Where the sections and the pools lie, from the counts and the bytes of a pool. */
static void lay_out(heap_rooms rooms, heap_header *h)
{
    uint64_t bytes[HEAP_SECTIONS] = {0};
    uint64_t at = oriel_round_up(sizeof *h, HEAP_PAGE);

    for (; *rooms != NULL; rooms++) {
        for (const heap_section *s = *rooms; s->bytes > 0; s++)
            bytes[s->id] = bytes_of(h, s);
    }
    for (int id = 0; id < HEAP_SECTIONS; id++) {
        h->at[id] = at;
        at = oriel_round_up(at + bytes[id], HEAP_PAGE);
    }
    h->pools_at = at;
    h->bytes = at + h->num_ranks * h->pool_bytes;
}

oriel_status oriel_heap_plan(heap_rooms rooms, const int *local_ranks, int num_processes,
                             heap_header *header_p)
{
    heap_header h = {.magic = magic_of(rooms),
                     .num_processes = (uint32_t)num_processes,
                     .num_machines = 1,
                     .parties = (uint32_t)num_processes};
    oriel_status st;

    for (int p = 0; p < num_processes; p++)
        h.num_ranks += (uint32_t)local_ranks[p];
    if (h.num_ranks > HEAP_MAX_RANKS)
        return oriel_fail(ORIEL_ERR_INVALID, "%u ranks in one world; at most %d are supported",
                          h.num_ranks, HEAP_MAX_RANKS);
    h.direct = oriel_config_number(ORIEL_OPT_DIRECT) != 0;
    st = oriel_pool_plan(&h);
    if (st != ORIEL_OK)
        return st;
    lay_out(rooms, &h);
    memcpy(header_p, &h, sizeof h);
    return ORIEL_OK;
}

static void locate(oriel_segment segment, oriel_heap *heap_p)
{
    char *base = segment.base;
    heap_header *h = segment.base;

    *heap_p = (oriel_heap){.segment = segment, .header = h, .pools = base + h->pools_at};
    for (int id = 0; id < HEAP_SECTIONS; id++)
        heap_p->section[id] = base + h->at[id];
    heap_p->procs = heap_p->section[SECTION_PROCS];
    heap_p->ranks = heap_p->section[SECTION_RANKS];
    heap_p->buckets = heap_p->section[SECTION_BUCKETS];
    heap_p->pool = heap_p->section[SECTION_POOLS];
}

void oriel_heap_format(oriel_segment segment, const heap_header *plan, oriel_heap *heap_p)
{
    memcpy(segment.base, plan, sizeof *plan);
    locate(segment, heap_p);
}

/* Whether this version would lay out such a heap in the same way. */
static int is_sound(heap_rooms rooms, const heap_header *h, size_t bytes)
{
    heap_header again;

    if (h->magic != magic_of(rooms) || h->num_processes < 1 || h->num_processes > HEAP_MAX_RANKS ||
        h->num_ranks < 1 || h->num_ranks > HEAP_MAX_RANKS || h->pool_bytes > bytes ||
        !oriel_pool_is_sound(h))
        return 0;
    memcpy(&again, h, sizeof again);
    lay_out(rooms, &again);
    return again.bytes == bytes && again.bytes == h->bytes && again.pools_at == h->pools_at &&
           memcmp(again.at, h->at, sizeof again.at) == 0;
}

oriel_status oriel_heap_open(heap_rooms rooms, oriel_segment segment, oriel_heap *heap_p)
{
    if (segment.bytes < sizeof(heap_header) || !is_sound(rooms, segment.base, segment.bytes))
        return oriel_fail(ORIEL_ERR_INVALID, "the segment received is no heap of this version");
    locate(segment, heap_p);
    return ORIEL_OK;
}
