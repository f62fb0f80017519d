#include <string.h>

#include "core/lane.h"

/* The word of a slot: the call's number, how many calls before it the owner has
 * not completed, and the state. */
#define WORD_STATE   3ull
#define WORD_ARRIVED 1ull
#define WORD_SEALED  2ull
#define WORD_LAG(w)  ((w) >> 2 & 63)
#define WORD_CALL(w) ((w) >> 8)

enum { INLINE_BYTES = 16 }; /* what fits on the line of word and record */

typedef struct lane_slot {
    _Atomic uint64_t word;
    oriel_record record;
    char small[INLINE_BYTES] __attribute__((aligned(16)));
    char large[]; /* on the next line */
} HEAP_ALIGNED lane_slot;

/* A line of its own: each is stored to by its owner in every call and hardly
 * ever read by others. */
typedef struct lane_done {
    _Atomic uint64_t calls;
} HEAP_ALIGNED lane_done;

struct heap_lane {
    _Atomic uint32_t left; /* members whose group is gone */
    lane_done done[];
};

_Static_assert(sizeof(lane_slot) == HEAP_LINE, "word, record and small payload share a line");

size_t oriel_lane_room_for(const oriel_heap *heap, int n)
{
    size_t table = sizeof(heap_lane) + (size_t)n * sizeof(lane_done);
    size_t slot;

    if (heap->header->num_lanes == 0 || heap->header->lane_bytes <= table)
        return 0;
    slot = (heap->header->lane_bytes - table) / ((size_t)n * LANE_SLOTS) / HEAP_LINE * HEAP_LINE;
    return slot < 2 * HEAP_LINE ? 0 : slot - HEAP_LINE;
}

static lane_slot *slot_of(const oriel_seat *seat, uint64_t s, int index)
{
    char *slots = (char *)&seat->lane->done[seat->n];
    size_t at = (size_t)index * LANE_SLOTS + s % LANE_SLOTS;

    return (lane_slot *)(void *)(slots + at * (seat->room + HEAP_LINE));
}

int oriel_lane_take(const oriel_heap *heap, int rank, int n)
{
    oriel_seat seat = {.n = (uint32_t)n, .room = oriel_lane_room_for(heap, n)};
    int number;

    if (seat.room == 0)
        return -1;
    number = oriel_heap_take_bit(&heap->ranks[rank].lanes, heap->header->num_lanes);
    if (number < 0)
        return -1;
    seat.lane = oriel_heap_lane(heap, rank, number);
    atomic_store_explicit(&seat.lane->left, 0, memory_order_relaxed);
    for (int i = 0; i < n; i++) {
        atomic_store_explicit(&seat.lane->done[i].calls, 0, memory_order_relaxed);
        for (uint64_t s = 0; s < LANE_SLOTS; s++)
            atomic_store_explicit(&slot_of(&seat, s, i)->word, 0, memory_order_relaxed);
    }
    return number;
}

void oriel_lane_sit(oriel_seat *seat, const oriel_heap *heap, int owner, int number, int n)
{
    *seat = (oriel_seat){.lane = oriel_heap_lane(heap, owner, number),
                         .owner = owner,
                         .number = number,
                         .index = seat->index,
                         .settled = 1,
                         .n = (uint32_t)n,
                         .room = oriel_lane_room_for(heap, n)};
}

void oriel_lane_stand(oriel_seat *seat, const oriel_heap *heap)
{
    if (seat->lane == NULL)
        return;
    if (atomic_fetch_add(&seat->lane->left, 1) + 1 == seat->n)
        oriel_heap_give_bit(&heap->ranks[seat->owner].lanes, seat->number);
    seat->lane = NULL;
}

/* ---- one call ------------------------------------------------------------------ */

static uint64_t done_by(const oriel_seat *seat, uint32_t index)
{
    return atomic_load_explicit(&seat->lane->done[index].calls, memory_order_acquire);
}

int oriel_lane_free(oriel_seat *seat, uint64_t s)
{
    uint64_t least = UINT64_MAX;

    if (seat->known + LANE_SLOTS >= s)
        return 1;
    for (uint32_t i = 0; i < seat->n; i++) {
        uint64_t calls = done_by(seat, i);
        least = calls < least ? calls : least;
    }
    seat->known = least;
    return least + LANE_SLOTS >= s;
}

int oriel_lane_behind(const oriel_seat *seat, uint64_t s)
{
    for (uint32_t i = 0; seat->lane != NULL && i < seat->n; i++) {
        if (done_by(seat, i) + LANE_SLOTS < s)
            return (int)i;
    }
    return -1;
}

char *oriel_lane_payload(const oriel_seat *seat, uint64_t s, int index, size_t bytes)
{
    lane_slot *slot = slot_of(seat, s, index);

    return bytes <= INLINE_BYTES ? slot->small : slot->large;
}

const oriel_record *oriel_lane_record(const oriel_seat *seat, uint64_t s, int index)
{
    return &slot_of(seat, s, index)->record;
}

int oriel_lane_arrive(oriel_seat *seat, uint64_t s, const oriel_record *record)
{
    lane_slot *slot = slot_of(seat, s, seat->index);
    uint64_t old = atomic_load_explicit(&slot->word, memory_order_relaxed);

    slot->record = *record;
    do {
        if (WORD_CALL(old) == s) /* arrived it cannot have, so it is sealed */
            return 0;
    } while (!atomic_compare_exchange_weak(&slot->word, &old,
                                           s << 8 | (s - 1 - seat->done) << 2 | WORD_ARRIVED));
    seat->arrived = s;
    return 1;
}

enum lane_view oriel_lane_look(oriel_seat *seat, uint64_t s, const oriel_record *record,
                               lane_scan *scan)
{
    for (; scan->at < (int)seat->n; scan->at++) {
        const lane_slot *slot = slot_of(seat, s, scan->at);
        uint64_t word = atomic_load(&slot->word);
        uint64_t done = s - 1 - WORD_LAG(word);

        if (WORD_CALL(word) != s)
            return LANE_WAITING;
        if ((word & WORD_STATE) == WORD_SEALED)
            return LANE_REVOKED;
        if (memcmp(&slot->record, record, sizeof *record) != 0)
            return LANE_MISMATCH;
        scan->least = done < scan->least ? done : scan->least;
    }
    if (scan->least > seat->known)
        seat->known = scan->least;
    return LANE_FULL;
}

int oriel_lane_seal(oriel_seat *seat, uint64_t s)
{
    for (uint32_t i = 0; i < seat->n; i++) {
        lane_slot *slot = slot_of(seat, s, (int)i);
        uint64_t word = atomic_load(&slot->word);

        while (WORD_CALL(word) != s) {
            if (atomic_compare_exchange_weak(&slot->word, &word, s << 8 | WORD_SEALED))
                return 1;
        }
        if ((word & WORD_STATE) == WORD_SEALED)
            return 1;
    }
    return 0;
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
    atomic_store_explicit(&seat->lane->done[seat->index].calls, seat->done, memory_order_release);
    /* Otherwise the next arrival tells, and nobody needs the room before it. */
    return seat->arrived > s;
}
