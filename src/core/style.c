#include "core/style.h"

#include "core/hash.h"

/* Each style is tried so often at first: the first time memory is cold. Later one in
 * so many operations tries another than the best. */
enum { TRIES = 2, EXPLORE_EVERY = 64, SLOWNESS = 8 };
enum { STREAM_IN_FROM = 2 << 20 };

static heap_style *style_of(const oriel_heap *heap, const oriel_key *key,
                            const oriel_record *record)
{
    uint64_t size = (uint64_t)(63 - __builtin_clzll(record->bytes | 1));
    uint64_t what = key->group ^ (size << 8 | record->kind);

    return &heap->styles[oriel_mix(what) % HEAP_STYLES];
}

static uint32_t cost_of(const heap_style *style, uint32_t which)
{
    return atomic_load_explicit(&style->cost[which], memory_order_relaxed);
}

uint32_t oriel_style_choose(const oriel_heap *heap, const oriel_key *key,
                            const oriel_record *record)
{
    heap_style *style = style_of(heap, key, record);
    uint32_t turn = atomic_fetch_add_explicit(&style->turns, 1, memory_order_relaxed);
    uint32_t count = record->bytes >= STREAM_IN_FROM ? HEAP_STYLE_COUNT : HEAP_STYLE_COUNT / 2;
    uint32_t best = 0;

    if (turn < TRIES * count)
        return turn % count;
    for (uint32_t i = 1; i < count; i++) {
        if (cost_of(style, i) < cost_of(style, best))
            best = i;
    }
    if (turn % EXPLORE_EVERY != 0)
        return best;
    return (best + 1 + turn / EXPLORE_EVERY % (count - 1)) % count;
}

/* Down at once, up slowly: an operation that was slow because somebody was not
 * scheduled says little, a fast one that it can be so fast. */
void oriel_style_learn(const oriel_heap *heap, const heap_cell *cell, double seconds)
{
    heap_style *style = style_of(heap, &cell->key, &cell->record);
    _Atomic uint32_t *cost = &style->cost[cell->style];
    double sample = seconds * 1e12 / (double)(cell->record.bytes + 1); /* ps a byte */
    double old = (double)cost_of(style, cell->style);
    double now = old == 0 || sample < old ? sample : old + (sample - old) / SLOWNESS;

    now = now < 1 ? 1 : now > 1e9 ? 1e9 : now;
    atomic_store_explicit(cost, (uint32_t)now, memory_order_relaxed);
}
