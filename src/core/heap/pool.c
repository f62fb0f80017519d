#include "core/heap/pool.h"

#include "base/config.h"
#include "base/math.h"

enum { MAX_CHANNEL = 8 << 20, LEAST_BLOCK = 16384 };
enum { LANE_MEMBER = HEAP_LANE_HEAD + HEAP_LANE_SLOTS * HEAP_LANE_SLOT };

const heap_section oriel_pool_sections[] = {
    {"pools", SECTION_POOLS, HEAP_PER_RANK, sizeof(heap_pool)}, {.bytes = 0}};

static uint64_t lane_bytes(uint64_t ranks)
{
    uint64_t bulks =
        (uint64_t)HEAP_LANE_BULKS * HEAP_LANE_ROOM * oriel_least(ranks, HEAP_LANE_RANKS);

    return oriel_round_up(ranks * LANE_MEMBER + bulks, HEAP_PAGE);
}

static uint64_t sum_of(const heap_header *h)
{
    return oriel_round_up(h->num_blocks * h->block_bytes, HEAP_PAGE) +
           h->num_channels * h->channel_bytes + h->num_lanes * h->lane_bytes;
}

/* Whether a channel has two slots for each rank. */
static int holds_lines(const heap_header *h)
{
    return h->channel_bytes / h->num_ranks >= 2 * HEAP_LINE;
}

/* One eighth of the staging memory goes to blocks, a half to lanes where that
 * is enough for one, the rest to channels. */
oriel_status oriel_pool_plan(heap_header *h)
{
    uint64_t staging = (uint64_t)oriel_config_number(ORIEL_OPT_STAGING);
    uint64_t ranks = h->num_ranks;
    uint64_t blocks;

    h->chunk_bytes = (uint32_t)oriel_config_number(ORIEL_OPT_CHUNK) / HEAP_LINE * HEAP_LINE;
    h->block_bytes =
        oriel_most(oriel_round_up(ranks * 2 * HEAP_BLOCK_MEMBER, HEAP_PAGE), LEAST_BLOCK);
    blocks = oriel_least(oriel_most(staging / 8 / h->block_bytes, 2), 64 * HEAP_BLOCK_WORDS);
    h->num_blocks = (uint32_t)blocks;
    h->lane_bytes = lane_bytes(ranks);
    h->num_lanes = (uint32_t)oriel_least(staging / 2 / h->lane_bytes, HEAP_MAX_LANES);
    h->channel_bytes = oriel_round_down(
        staging - blocks * h->block_bytes - h->num_lanes * h->lane_bytes, HEAP_PAGE);
    h->num_channels = 1;
    if (h->channel_bytes > MAX_CHANNEL) {
        h->num_channels = (uint32_t)oriel_least(h->channel_bytes / MAX_CHANNEL, HEAP_MAX_CHANNELS);
        h->channel_bytes = MAX_CHANNEL;
    }
    if (!holds_lines(h))
        return oriel_fail(ORIEL_ERR_INVALID, "ORIEL_STAGING is %llu, too little for %llu ranks",
                          (unsigned long long)staging, (unsigned long long)ranks);
    h->pool_bytes = sum_of(h);
    return ORIEL_OK;
}

int oriel_pool_is_sound(const heap_header *h)
{
    return h->num_blocks > 0 && h->num_blocks <= 64 * HEAP_BLOCK_WORDS && h->num_channels > 0 &&
           h->num_channels <= HEAP_MAX_CHANNELS && holds_lines(h) &&
           h->num_lanes <= HEAP_MAX_LANES && h->block_bytes <= h->pool_bytes &&
           h->channel_bytes <= h->pool_bytes && h->lane_bytes == lane_bytes(h->num_ranks) &&
           h->block_bytes >= 2 * (uint64_t)h->num_ranks * HEAP_BLOCK_MEMBER &&
           h->pool_bytes == sum_of(h);
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
           oriel_round_up(h->num_blocks * h->block_bytes, HEAP_PAGE) +
           (uint64_t)channel * h->channel_bytes;
}

char *oriel_heap_lane(const oriel_heap *heap, int owner, int lane)
{
    const heap_header *h = heap->header;

    return oriel_heap_channel(heap, owner, (int)h->num_channels) + (uint64_t)lane * h->lane_bytes;
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
