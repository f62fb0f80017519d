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

/* Pools plan a head and the slots of each rank, and then room for bulks: so a bulk of any group is
 * longer than what a slot takes. */
_Static_assert(sizeof(heap_lane) + sizeof(lane_member) <= HEAP_LANE_HEAD, "a member's head fits");
_Static_assert(HEAP_LANE_ROOM / HEAP_MAX_RANKS * HEAP_LANE_RANKS > LANE_SMALL + HEAP_LINE,
               "a bulk, cut to whole lines, holds more than a slot");

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
    return oriel_least(bulk, HEAP_LANE_ROOM);
}

static heap_lane *lane_at(const oriel_heap *heap, int owner, int number)
{
    return (heap_lane *)(void *)oriel_heap_lane(heap, owner, number);
}

int oriel_lane_take(const oriel_heap *heap, int rank, int n)
{
    size_t room = oriel_lane_room_for(heap, n);
    oriel_member member = {.n = (uint32_t)n};
    int number;

    if (room == 0)
        return -1;
    number = oriel_heap_take_bit(&heap->pool[rank].lanes, heap->header->num_lanes);
    if (number < 0)
        return -1;
    member.lane = lane_at(heap, rank, number);
    atomic_store_explicit(&member.lane->left, 0, memory_order_relaxed);
    for (int k = 0; k < LANE_SLOTS; k++)
        atomic_store_explicit(&member.lane->seal[k], 0, memory_order_relaxed);
    for (int i = 0; i < n; i++) {
        atomic_store_explicit(&member.lane->member[i].done, 0, memory_order_relaxed);
        for (uint64_t s = 0; s < LANE_SLOTS; s++)
            atomic_store_explicit(&oriel_lane_slot(&member, s, i)->word, 0, memory_order_relaxed);
    }
    return number;
}

void oriel_lane_join(oriel_member *member, const oriel_heap *heap, int owner, int number, int n)
{
    *member = (oriel_member){.lane = lane_at(heap, owner, number),
                             .owner = owner,
                             .number = number,
                             .index = member->index,
                             .settled = 1,
                             .n = (uint32_t)n,
                             .bulk = oriel_lane_room_for(heap, n)};
}

void oriel_lane_leave(oriel_member *member, const oriel_heap *heap)
{
    if (member->lane == NULL)
        return;
    if (atomic_fetch_add(&member->lane->left, 1) + 1 == member->n)
        oriel_heap_give_bit(&heap->pool[member->owner].lanes, member->number);
    member->lane = NULL;
}

/* ---- one call ------------------------------------------------------------------ */

static uint64_t done_by(const oriel_member *member, uint32_t index)
{
    return atomic_load_explicit(&member->lane->member[index].done, memory_order_acquire);
}

/* The last call that has used the place of such a payload of `s`. Those that take as many bulks
 * take turns; any of the others may have used it. */
static uint64_t place_of(const oriel_member *member, uint64_t s, size_t bytes)
{
    uint32_t bulks = oriel_lane_bulks(member, bytes);
    uint64_t depth = bytes <= LANE_SMALL ? LANE_SLOTS : LANE_BULKS / bulks;
    uint64_t turn = s > depth ? s - depth : 0;
    uint64_t other = bulks == member->bulks ? member->other : member->bulky;

    return bytes <= LANE_SMALL || turn > other ? turn : other;
}

int oriel_lane_free(oriel_member *member, uint64_t s, size_t bytes)
{
    uint64_t place = place_of(member, s, bytes);
    uint64_t least = UINT64_MAX;

    if (member->known >= place)
        return 1;
    for (uint32_t i = 0; i < member->n; i++) {
        uint64_t calls = done_by(member, i);
        least = calls < least ? calls : least;
    }
    member->known = least;
    return least >= place;
}

int oriel_lane_behind(const oriel_member *member, uint64_t s, size_t bytes)
{
    for (uint32_t i = 0; member->lane != NULL && i < member->n; i++) {
        if (done_by(member, i) < place_of(member, s, bytes))
            return (int)i;
    }
    return -1;
}

const oriel_record *oriel_lane_record(const oriel_member *member, uint64_t s, int index)
{
    return &member->lane->member[index].record[s % LANE_SLOTS];
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

static void count_bulks(oriel_member *member, uint64_t s, uint32_t bulks)
{
    if (bulks != member->bulks)
        member->other = member->bulky;
    member->bulks = bulks;
    member->bulky = s;
}

/* A call that needs some alone is not compared with all others; what it was shows in
 * later ones. */
void oriel_lane_arrive(oriel_member *member, uint64_t s, const oriel_record *record, size_t bytes)
{
    lane_slot *slot = oriel_lane_slot(member, s, member->index);

    if (bytes > LANE_SMALL)
        count_bulks(member, s, oriel_lane_bulks(member, bytes));
    member->history = oriel_mix(member->history ^ digest_of(record));
    member->lane->member[member->index].record[s % LANE_SLOTS] = *record;
    slot->digest = member->history;
    atomic_store_explicit(&slot->word, s << 6 | (s - 1 - member->done), memory_order_release);
    member->arrived = s;
}

/* Moves the seal of `s` on from SEAL_OPEN, unless somebody else has; what it is. */
static enum seal decide(const oriel_member *member, uint64_t s, enum seal verdict)
{
    uint64_t open = s << 2 | SEAL_OPEN;

    if (atomic_compare_exchange_strong(&member->lane->seal[s % LANE_SLOTS], &open,
                                       s << 2 | verdict))
        return verdict;
    return (enum seal)(open & 3);
}

/* All are there: have all seen so, or can they still? Own stores must be visible to
 * all before the seal is read; they have been on their way while this member looked
 * at the others, so the fence costs little here. */
static enum lane_view commit(const oriel_member *member, uint64_t s)
{
    uint64_t seal;

    atomic_thread_fence(memory_order_seq_cst);
    seal = atomic_load(&member->lane->seal[s % LANE_SLOTS]);
    if (SEAL_CALL(seal) != s)
        return LANE_FULL;
    return decide(member, s, SEAL_COMMITTED) == SEAL_REVOKED ? LANE_REVOKED : LANE_FULL;
}

static int is_revoked(const oriel_member *member, uint64_t s)
{
    return atomic_load(&member->lane->seal[s % LANE_SLOTS]) == (s << 2 | SEAL_REVOKED);
}

enum lane_view oriel_lane_look(oriel_member *member, uint64_t s, lane_scan *scan)
{
    const uint64_t digest = oriel_lane_slot(member, s, member->index)->digest;

    for (; scan->at < scan->end; scan->at++) {
        const lane_slot *slot = oriel_lane_slot(member, s, scan->at);
        uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
        uint64_t done = s - 1 - WORD_LAG(word);

        if (WORD_CALL(word) != s)
            return is_revoked(member, s) ? LANE_REVOKED : LANE_WAITING;
        /* A payload's second line is on its way while the rest is looked at. To ask whether there
         * is one costs more. */
        __builtin_prefetch((const char *)slot + HEAP_LINE);
        if (slot->digest != digest)
            return LANE_MISMATCH;
        scan->least = done < scan->least ? done : scan->least;
    }
    if (scan->some)
        return is_revoked(member, s) ? LANE_REVOKED : LANE_FULL;
    if (scan->least > member->known)
        member->known = scan->least;
    return commit(member, s);
}

int oriel_lane_differs(const oriel_member *member, uint64_t s)
{
    const uint64_t digest = oriel_lane_slot(member, s, member->index)->digest;

    for (uint32_t i = 0; i < member->n; i++) {
        const lane_slot *slot = oriel_lane_slot(member, s, (int)i);

        if (WORD_CALL(atomic_load(&slot->word)) == s && slot->digest != digest)
            return (int)i;
    }
    return -1;
}

int oriel_lane_missing(const oriel_member *member, uint64_t s)
{
    for (uint32_t i = 0; i < member->n; i++) {
        if (WORD_CALL(atomic_load(&oriel_lane_slot(member, s, (int)i)->word)) != s)
            return (int)i;
    }
    return -1;
}

int oriel_lane_seal(oriel_member *member, uint64_t s)
{
    _Atomic uint64_t *seal = &member->lane->seal[s % LANE_SLOTS];
    uint64_t old = atomic_load(seal);

    while (SEAL_CALL(old) != s && !atomic_compare_exchange_weak(seal, &old, s << 2 | SEAL_OPEN)) {
    }
    atomic_thread_fence(memory_order_seq_cst);
    return decide(member, s, oriel_lane_missing(member, s) < 0 ? SEAL_COMMITTED : SEAL_REVOKED) ==
           SEAL_REVOKED;
}

int oriel_lane_complete(oriel_member *member, uint64_t s)
{
    if (s != member->done + 1) {
        member->ahead |= 1u << (s - member->done - 2);
        return 0;
    }
    member->done++;
    for (; member->ahead & 1; member->ahead >>= 1)
        member->done++;
    member->ahead >>= 1;
    atomic_store_explicit(&member->lane->member[member->index].done, member->done,
                          memory_order_release);
    /* Otherwise the next arrival tells. Only a root that has run ahead may sleep for the
     * room before that: at most one nap. */
    return member->arrived > member->done;
}
