#include <string.h>

#include "base/hash.h"
#include "core/protocol/lane.h"

/* The word of a slot: the call's number, and how many calls before it the owner has
 * not completed. Its owner alone writes it. */
#define WORD_LAG(w)  ((w)&63)
#define WORD_CALL(w) ((w) >> 6)

/* The seal of a call: nothing while its number is another's. */
#define SEAL_CALL(w) ((w) >> 2)
enum seal { SEAL_OPEN = 1, SEAL_REVOKED, SEAL_COMMITTED };

size_t oriel_lane_room_for(const oriel_heap *heap, int n)
{
    size_t slots =
        sizeof(heap_lane) + (size_t)n * (sizeof(lane_member) + (size_t)LANE_SLOTS * HEAP_LANE_SLOT);
    size_t bulk;

    if (heap->header->num_lanes == 0 || heap->header->lane_bytes <= slots)
        return 0;
    bulk =
        oriel_round_down((heap->header->lane_bytes - slots) / ((size_t)n * LANE_BULKS), HEAP_LINE);
    /* All groups that are a part of the world should fit its caches. */
    return oriel_most(oriel_least(bulk, HEAP_LANE_ROOM), LANE_SMALL);
}

static heap_lane *lane_at(const oriel_heap *heap, int owner, int number)
{
    return (heap_lane *)(void *)oriel_heap_lane(heap, owner, number);
}

int oriel_lane_take(const oriel_heap *heap, int rank, int n)
{
    size_t room = oriel_lane_room_for(heap, n);
    oriel_seat seat = {.n = (uint32_t)n};
    int number;

    if (room == 0)
        return -1;
    number = oriel_heap_take_bit(&heap->pool[rank].lanes, heap->header->num_lanes);
    if (number < 0)
        return -1;
    seat.lane = lane_at(heap, rank, number);
    atomic_store_explicit(&seat.lane->left, 0, memory_order_relaxed);
    for (int k = 0; k < LANE_SLOTS; k++)
        atomic_store_explicit(&seat.lane->seal[k], 0, memory_order_relaxed);
    for (int i = 0; i < n; i++) {
        atomic_store_explicit(&seat.lane->member[i].done, 0, memory_order_relaxed);
        for (uint64_t s = 0; s < LANE_SLOTS; s++)
            atomic_store_explicit(&oriel_lane_slot(&seat, s, i)->word, 0, memory_order_relaxed);
    }
    return number;
}

void oriel_lane_sit(oriel_seat *seat, const oriel_heap *heap, int owner, int number, int n)
{
    *seat = (oriel_seat){.lane = lane_at(heap, owner, number),
                         .owner = owner,
                         .number = number,
                         .index = seat->index,
                         .settled = 1,
                         .n = (uint32_t)n,
                         .bulk = oriel_lane_room_for(heap, n)};
}

void oriel_lane_stand(oriel_seat *seat, const oriel_heap *heap)
{
    if (seat->lane == NULL)
        return;
    if (atomic_fetch_add(&seat->lane->left, 1) + 1 == seat->n)
        oriel_heap_give_bit(&heap->pool[seat->owner].lanes, seat->number);
    seat->lane = NULL;
}

/* ---- one call ------------------------------------------------------------------ */

static uint64_t done_by(const oriel_seat *seat, uint32_t index)
{
    return atomic_load_explicit(&seat->lane->member[index].done, memory_order_acquire);
}

/* The last call that has used the place of such a payload of `s`. Those that take as many bulks
 * take turns; any of the others may have used it. */
static uint64_t place_of(const oriel_seat *seat, uint64_t s, size_t bytes)
{
    uint32_t bulks = oriel_lane_bulks(seat, bytes);
    uint64_t depth = bytes <= LANE_SMALL ? LANE_SLOTS : LANE_BULKS / bulks;
    uint64_t turn = s > depth ? s - depth : 0;
    uint64_t other = bulks == seat->bulks ? seat->other : seat->bulky;

    return bytes <= LANE_SMALL || turn > other ? turn : other;
}

int oriel_lane_free(oriel_seat *seat, uint64_t s, size_t bytes)
{
    uint64_t place = place_of(seat, s, bytes);
    uint64_t least = UINT64_MAX;

    if (seat->known >= place)
        return 1;
    for (uint32_t i = 0; i < seat->n; i++) {
        uint64_t calls = done_by(seat, i);
        least = calls < least ? calls : least;
    }
    seat->known = least;
    return least >= place;
}

int oriel_lane_behind(const oriel_seat *seat, uint64_t s, size_t bytes)
{
    for (uint32_t i = 0; seat->lane != NULL && i < seat->n; i++) {
        if (done_by(seat, i) < place_of(seat, s, bytes))
            return (int)i;
    }
    return -1;
}

const oriel_record *oriel_lane_record(const oriel_seat *seat, uint64_t s, int index)
{
    return &seat->lane->member[index].record[s % LANE_SLOTS];
}

static uint64_t digest_of(const oriel_record *record)
{
    uint64_t word[sizeof *record / sizeof(uint64_t)];
    uint64_t sum = 0;

    memcpy(word, record, sizeof word);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        sum = (sum ^ word[i]) * 0x9e3779b97f4a7c15ull;
    return sum;
}

static void count_bulks(oriel_seat *seat, uint64_t s, uint32_t bulks)
{
    if (bulks != seat->bulks)
        seat->other = seat->bulky;
    seat->bulks = bulks;
    seat->bulky = s;
}

/* A call that needs some alone is not compared with all others; what it was shows in
 * later ones. */
void oriel_lane_arrive(oriel_seat *seat, uint64_t s, const oriel_record *record, size_t bytes)
{
    lane_slot *slot = oriel_lane_slot(seat, s, seat->index);

    if (bytes > LANE_SMALL)
        count_bulks(seat, s, oriel_lane_bulks(seat, bytes));
    seat->history = oriel_mix(seat->history ^ digest_of(record));
    seat->lane->member[seat->index].record[s % LANE_SLOTS] = *record;
    slot->digest = seat->history;
    atomic_store_explicit(&slot->word, s << 6 | (s - 1 - seat->done), memory_order_release);
    seat->arrived = s;
}

/* Moves the seal of `s` on from SEAL_OPEN, unless somebody else has; what it is. */
static enum seal decide(const oriel_seat *seat, uint64_t s, enum seal verdict)
{
    uint64_t open = s << 2 | SEAL_OPEN;

    if (atomic_compare_exchange_strong(&seat->lane->seal[s % LANE_SLOTS], &open, s << 2 | verdict))
        return verdict;
    return (enum seal)(open & 3);
}

/* All are there: have all seen so, or can they still? Own stores must be visible to
 * all before the seal is read; they have been on their way while this member looked
 * at the others, so the fence costs little here. */
static enum lane_view commit(const oriel_seat *seat, uint64_t s)
{
    uint64_t seal;

    atomic_thread_fence(memory_order_seq_cst);
    seal = atomic_load(&seat->lane->seal[s % LANE_SLOTS]);
    if (SEAL_CALL(seal) != s)
        return LANE_FULL;
    return decide(seat, s, SEAL_COMMITTED) == SEAL_REVOKED ? LANE_REVOKED : LANE_FULL;
}

static int is_revoked(const oriel_seat *seat, uint64_t s)
{
    return atomic_load(&seat->lane->seal[s % LANE_SLOTS]) == (s << 2 | SEAL_REVOKED);
}

enum lane_view oriel_lane_look(oriel_seat *seat, uint64_t s, lane_scan *scan)
{
    const uint64_t digest = oriel_lane_slot(seat, s, seat->index)->digest;

    for (; scan->at < scan->end; scan->at++) {
        const lane_slot *slot = oriel_lane_slot(seat, s, scan->at);
        uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
        uint64_t done = s - 1 - WORD_LAG(word);

        if (WORD_CALL(word) != s)
            return is_revoked(seat, s) ? LANE_REVOKED : LANE_WAITING;
        /* A payload's second line is on its way while the rest is looked at. To ask whether there
         * is one costs more. */
        __builtin_prefetch((const char *)slot + HEAP_LINE);
        if (slot->digest != digest)
            return LANE_MISMATCH;
        scan->least = done < scan->least ? done : scan->least;
    }
    if (scan->some)
        return is_revoked(seat, s) ? LANE_REVOKED : LANE_FULL;
    if (scan->least > seat->known)
        seat->known = scan->least;
    return commit(seat, s);
}

int oriel_lane_differs(const oriel_seat *seat, uint64_t s)
{
    const uint64_t digest = oriel_lane_slot(seat, s, seat->index)->digest;

    for (uint32_t i = 0; i < seat->n; i++) {
        const lane_slot *slot = oriel_lane_slot(seat, s, (int)i);

        if (WORD_CALL(atomic_load(&slot->word)) == s && slot->digest != digest)
            return (int)i;
    }
    return -1;
}

/* Whether all have arrived at `s`. */
static int all_there(const oriel_seat *seat, uint64_t s)
{
    for (uint32_t i = 0; i < seat->n; i++) {
        if (WORD_CALL(atomic_load(&oriel_lane_slot(seat, s, (int)i)->word)) != s)
            return 0;
    }
    return 1;
}

int oriel_lane_seal(oriel_seat *seat, uint64_t s)
{
    _Atomic uint64_t *seal = &seat->lane->seal[s % LANE_SLOTS];
    uint64_t old = atomic_load(seal);

    while (SEAL_CALL(old) != s && !atomic_compare_exchange_weak(seal, &old, s << 2 | SEAL_OPEN)) {
    }
    atomic_thread_fence(memory_order_seq_cst);
    return decide(seat, s, all_there(seat, s) ? SEAL_COMMITTED : SEAL_REVOKED) == SEAL_REVOKED;
}

int oriel_lane_complete(oriel_seat *seat, uint64_t s)
{
    if (s != seat->done + 1) {
        seat->ahead |= 1u << (s - seat->done - 2);
        return 0;
    }
    seat->done++;
    for (; seat->ahead & 1; seat->ahead >>= 1)
        seat->done++;
    seat->ahead >>= 1;
    atomic_store_explicit(&seat->lane->member[seat->index].done, seat->done, memory_order_release);
    /* Otherwise the next arrival tells. Only a root that has run ahead may sleep for the
     * room before that: at most one nap. */
    return seat->arrived > seat->done;
}
