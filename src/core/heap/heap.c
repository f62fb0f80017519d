#include <string.h>

#include "base/config.h"
#include "core/heap/heap.h"

/* "oriel" and what the layout depends on: nobody takes another version's heap for
 * one of its own. */
#define HEAP_MAGIC                                                                                 \
    ((0x6f7269656cull << 24) +                                                                     \
     (ORIEL_VERSION_MAJOR * 4096 + ORIEL_VERSION_MINOR * 64 + ORIEL_VERSION_PATCH) * 16 +          \
     sizeof(heap_header) + sizeof(heap_proc) + sizeof(heap_rank) + sizeof(heap_bucket))

enum { MAX_CHANNEL = 8 << 20, PAGE = 4096 };
/* A lane has so much for each member of a world of up to LANE_RANKS. */
/* Ranks whose lanes have all the room, and what a lane needs for each member besides. */
enum { LANE_RANKS = 8, LANE_MEMBER = 2048 + HEAP_LANE_SLOTS * HEAP_LANE_SLOT };

static uint64_t round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

/* One eighth of the staging memory goes to blocks, a half to lanes where that
 * is enough for one, the rest to channels. */
static oriel_status plan_pool(int num_ranks, heap_header *h)
{
    double staging = oriel_config_number(ORIEL_OPT_STAGING);
    double chunk = oriel_config_number(ORIEL_OPT_CHUNK);
    uint64_t blocks;

    h->chunk_bytes = (uint32_t)chunk / HEAP_LINE * HEAP_LINE;
    h->block_bytes = round_up((uint64_t)num_ranks * 2 * sizeof(heap_member), PAGE);
    if (h->block_bytes < 16384)
        h->block_bytes = 16384;
    blocks = (uint64_t)staging / 8 / h->block_bytes;
    if (blocks < 2)
        blocks = 2;
    if (blocks > 64 * HEAP_BLOCK_WORDS)
        blocks = 64 * HEAP_BLOCK_WORDS;
    h->num_blocks = (uint32_t)blocks;
    h->lane_bytes = (uint64_t)num_ranks * LANE_MEMBER +
                    (uint64_t)HEAP_LANE_BULKS * HEAP_LANE_ROOM *
                        (uint64_t)(num_ranks < LANE_RANKS ? num_ranks : LANE_RANKS);
    h->lane_bytes = round_up(h->lane_bytes, PAGE);
    h->num_lanes = (uint32_t)((uint64_t)staging / 2 / h->lane_bytes);
    if (h->num_lanes > HEAP_MAX_LANES)
        h->num_lanes = HEAP_MAX_LANES;
    h->channel_bytes =
        ((uint64_t)staging - blocks * h->block_bytes - h->num_lanes * h->lane_bytes) / PAGE * PAGE;
    h->num_channels = 1;
    if (h->channel_bytes > MAX_CHANNEL) {
        h->num_channels = (uint32_t)(h->channel_bytes / MAX_CHANNEL);
        h->channel_bytes = MAX_CHANNEL;
    }
    if (h->num_channels > HEAP_MAX_CHANNELS)
        h->num_channels = HEAP_MAX_CHANNELS;
    if (h->channel_bytes / (uint64_t)num_ranks < 2 * HEAP_LINE)
        return oriel_fail(ORIEL_ERR_INVALID, "ORIEL_STAGING is %.0f, too little for %d ranks",
                          staging, num_ranks);
    h->pool_bytes = round_up(h->num_blocks * h->block_bytes, PAGE) +
                    (uint64_t)h->num_channels * h->channel_bytes + h->num_lanes * h->lane_bytes;
    return ORIEL_OK;
}

/* What 2^44 bytes hold is far more than a machine has, and far less than an address space. */
static uint64_t plan_arena(uint32_t num_ranks)
{
    uint64_t most = (1ull << 44) / num_ranks;
    uint64_t wanted = (uint64_t)oriel_config_number(ORIEL_OPT_ARENA);

    return (wanted < most ? wanted : most) / PAGE * PAGE;
}

oriel_status oriel_heap_plan(const int *local_ranks, int num_processes, heap_header *header_p)
{
    heap_header h = {.magic = HEAP_MAGIC,
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
    st = plan_pool((int)h.num_ranks, &h);
    if (st != ORIEL_OK)
        return st;
    h.arena_bytes = plan_arena(h.num_ranks);
    h.procs_at = round_up(sizeof h, PAGE);
    h.ranks_at = round_up(h.procs_at + h.num_processes * sizeof(heap_proc), PAGE);
    h.buckets_at = round_up(h.ranks_at + h.num_ranks * sizeof(heap_rank), PAGE);
    h.pools_at = round_up(h.buckets_at + HEAP_BUCKETS * sizeof(heap_bucket), PAGE);
    h.bytes = h.pools_at + h.num_ranks * h.pool_bytes;
    memcpy(header_p, &h, sizeof h);
    return ORIEL_OK;
}

static void locate(oriel_segment segment, oriel_heap *heap_p)
{
    char *base = segment.base;
    heap_header *h = segment.base;

    *heap_p = (oriel_heap){
        .segment = segment,
        .header = h,
        .procs = (heap_proc *)(void *)(base + h->procs_at),
        .ranks = (heap_rank *)(void *)(base + h->ranks_at),
        .buckets = (heap_bucket *)(void *)(base + h->buckets_at),
        .pools = base + h->pools_at,
    };
}

void oriel_heap_format(oriel_segment segment, const heap_header *plan, const int *local_ranks,
                       oriel_heap *heap_p)
{
    int rank = 0;

    memcpy(segment.base, plan, sizeof *plan);
    locate(segment, heap_p);
    for (uint32_t p = 0; p < plan->num_processes; p++) {
        heap_p->procs[p].first_rank = rank;
        heap_p->procs[p].local_ranks = local_ranks[p];
        for (int i = 0; i < local_ranks[p]; i++)
            heap_p->ranks[rank++].process = (int32_t)p;
    }
}

void oriel_heap_place(oriel_heap *heap, const int *machines, int machine, int lead)
{
    heap_header *h = heap->header;
    int last = 0;

    h->parties = 0;
    for (uint32_t p = 0; p < h->num_processes; p++) {
        heap->procs[p].machine = machines[p];
        h->parties += machines[p] == machine;
        last = machines[p] > last ? machines[p] : last;
    }
    h->num_machines = (uint32_t)last + 1;
    h->parties += last > 0;
    h->machine = (uint32_t)machine;
    h->lead = (uint32_t)lead;
}

oriel_status oriel_heap_open(oriel_segment segment, oriel_heap *heap_p)
{
    const heap_header *h = segment.base;

    if (segment.bytes < sizeof *h || h->magic != HEAP_MAGIC || h->bytes != segment.bytes)
        return oriel_fail(ORIEL_ERR_INVALID, "the segment received is no heap of this version");
    locate(segment, heap_p);
    return ORIEL_OK;
}

char *oriel_heap_block(const oriel_heap *heap, int owner, int block)
{
    const heap_header *h = heap->header;

    return heap->pools + (uint64_t)owner * h->pool_bytes + (uint64_t)block * h->block_bytes;
}

char *oriel_heap_channel(const oriel_heap *heap, int owner, int channel)
{
    const heap_header *h = heap->header;

    return heap->pools + (uint64_t)owner * h->pool_bytes +
           round_up(h->num_blocks * h->block_bytes, PAGE) + (uint64_t)channel * h->channel_bytes;
}

heap_lane *oriel_heap_lane(const oriel_heap *heap, int owner, int lane)
{
    const heap_header *h = heap->header;
    char *lanes = oriel_heap_channel(heap, owner, (int)h->num_channels);

    return (heap_lane *)(void *)(lanes + (uint64_t)lane * h->lane_bytes);
}

int oriel_heap_take_bit(_Atomic uint64_t *word, uint32_t limit)
{
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);

    for (;;) {
        int bit = ~seen == 0 ? 64 : __builtin_ctzll(~seen);
        if ((uint32_t)bit >= limit)
            return -1;
        if (atomic_compare_exchange_weak_explicit(word, &seen, seen | 1ull << bit,
                                                  memory_order_acquire, memory_order_relaxed))
            return bit;
    }
}

void oriel_heap_give_bit(_Atomic uint64_t *word, int bit)
{
    atomic_fetch_and_explicit(word, ~(1ull << bit), memory_order_release);
}

size_t oriel_heap_eager_bytes(const oriel_heap *heap, int n)
{
    uint64_t room = heap->header->block_bytes - (uint64_t)n * sizeof(heap_member);

    return (size_t)(room / (uint64_t)n / HEAP_LINE * HEAP_LINE);
}

char *oriel_heap_eager(const oriel_heap *heap, const heap_cell *cell, int n, int index)
{
    return oriel_heap_block(heap, cell->owner, cell->block) + (size_t)n * sizeof(heap_member) +
           (size_t)index * oriel_heap_eager_bytes(heap, n);
}
