#include <string.h>

#include "base/hash.h"
#include "base/sys.h"
#include "core/protocol/cell.h"
#include "core/protocol/lane.h"

/* The word: four counters of 12 bits and two flags. Counters cannot overflow
 * into each other: at most HEAP_MAX_RANKS members count once each. */
#define ARRIVED_ONE  (1ull)
#define ACTIVE_ONE   (1ull << 12)
#define FINISHED_ONE (1ull << 24)
#define LEFT_ONE     (1ull << 36)
#define REVOKED_BIT  (1ull << 60)
#define MISMATCH_BIT (1ull << 61)

const heap_section oriel_protocol_sections[] = {
    {"buckets", SECTION_BUCKETS, HEAP_OF_ALL, HEAP_BUCKETS * sizeof(heap_bucket)}, {.bytes = 0}};

enum { LOCK_TRIES = 200, ORDERED_BUCKETS = 8 };
enum { LEFT_WAYS = HEAP_WAYS * 3 / 4 }; /* of a bucket: may be taken by messages that are left */
#define LEAVE_LIMIT_S 5.0

static uint32_t field(uint64_t word, uint64_t one)
{
    return (uint32_t)(word / one) & 0xfff;
}

static cell_view view(uint64_t word)
{
    return (cell_view){
        .arrived = field(word, ARRIVED_ONE),
        .active = field(word, ACTIVE_ONE),
        .finished = field(word, FINISHED_ONE),
        .left = field(word, LEFT_ONE),
        .revoked = (word & REVOKED_BIT) != 0,
        .mismatch = (word & MISMATCH_BIT) != 0,
    };
}

static int committed(const heap_cell *cell, uint64_t word)
{
    uint64_t one = cell->record.mode == ORIEL_MODE_EAGER ? ARRIVED_ONE : FINISHED_ONE;

    return field(word, one) == cell->record.n;
}

/* Adds to the word unless the operation is revoked. */
static int add_unless_revoked(heap_cell *cell, uint64_t what)
{
    uint64_t word = atomic_load_explicit(&cell->word, memory_order_acquire);

    do {
        if (word & REVOKED_BIT)
            return 0;
    } while (!atomic_compare_exchange_weak(&cell->word, &word, word + what));
    return 1;
}

/* ---- keys: see oriel_request_order for the ordered ones ------------------------- */

static int is_ordered(const oriel_key *key)
{
    return key->site == 0;
}

static int is_first(const oriel_key *key)
{
    return is_ordered(key) && key->count == 0;
}

/* ---- buckets -------------------------------------------------------------- */

/* Ordered calls of a group take turns in a few buckets, so that these stay in the
 * caches; of others any number may be under way. */
static heap_bucket *bucket_of(const oriel_heap *heap, const oriel_key *key, uint64_t hash)
{
    if (is_ordered(key))
        hash = oriel_mix(key->group) + key->count % ORDERED_BUCKETS;
    return &heap->buckets[hash % HEAP_BUCKETS];
}

static uint64_t key_hash(const oriel_key *key)
{
    uint64_t h = oriel_mix(key->group ^ oriel_mix(key->site));

    return oriel_mix(h ^ key->count);
}

static int try_lock(heap_bucket *bucket, int rank)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        uint32_t free_word = 0;
        if (atomic_compare_exchange_weak_explicit(&bucket->lock, &free_word, (uint32_t)rank + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return 1;
        oriel_relax(i > LOCK_TRIES / 2);
    }
    return 0;
}

static void unlock(heap_bucket *bucket)
{
    atomic_store_explicit(&bucket->lock, 0, memory_order_release);
}

static int find_way(const heap_bucket *bucket, uint64_t hash, const oriel_key *key)
{
    for (int way = 0; way < HEAP_WAYS; way++) {
        if ((bucket->used >> way & 1) && bucket->hash[way] == hash &&
            memcmp(&bucket->cells[way].key, key, sizeof *key) == 0)
            return way;
    }
    return -1;
}

/* ---- pools ----------------------------------------------------------------- */

/* One of the first `left` blocks. */
static int take_block(const oriel_heap *heap, int rank, uint32_t left)
{
    for (int w = 0; left > 0; w++) {
        uint32_t here = left < 64 ? left : 64;
        int bit = oriel_heap_take_bit(&heap->pool[rank].blocks[w], here);
        if (bit >= 0)
            return 64 * w + bit;
        left -= here;
    }
    return -1;
}

static void give_block(const oriel_heap *heap, int rank, int block)
{
    oriel_heap_give_bit(&heap->pool[rank].blocks[block / 64], block % 64);
}

/* How far a call has come when its cell is made, as far as the lane shows it. */
enum stage {
    CALL_UNKNOWN,
    CALL_EARLY /* some member has yet to begin it */,
    CALL_BEGUN,
    CALL_LEFT
};

/* How many of a pool's `count` blocks or channels a call may have. One that all members have
 * begun ends whatever they wait for besides, and may have any. Others leave half of another's
 * pool alone: only a rank that can always make its own calls' cells makes progress whatever the
 * others wait for. Of the own pool an early call leaves the last. A message may be left by its
 * sender, and stays until it is received: so senders leave half of the own pool, too. */
static uint32_t share_of(uint32_t count, int own, enum stage stage)
{
    if (stage == CALL_BEGUN)
        return count;
    if (stage == CALL_LEFT)
        return count / 2;
    return own ? count - (stage == CALL_EARLY) : count / 2;
}

/* Takes what the operation needs from the pool of `owner`. */
static int take_resources(const oriel_heap *heap, heap_cell *cell, int owner, int rank, int staged,
                          enum stage stage)
{
    const heap_header *h = heap->header;
    int own = owner == rank;

    cell->owner = owner;
    cell->channel = -1;
    cell->block = take_block(heap, owner, share_of(h->num_blocks, own, stage));
    if (cell->block < 0)
        return 0;
    if (staged)
        cell->channel =
            oriel_heap_take_bit(&heap->pool[owner].channels, share_of(h->num_channels, own, stage));
    if (!staged || cell->channel >= 0)
        return 1;
    give_block(heap, owner, cell->block);
    return 0;
}

/* Whether the member that makes the cell may leave it before anybody else has come: the sender of a
 * message. Its receiver waits there, and must find room whatever has been sent and left. */
static int may_be_left(const oriel_group *group, int rank, const oriel_record *record)
{
    return record->kind == ORIEL_KIND_MESSAGE && record->mode == ORIEL_MODE_EAGER &&
           rank == group->ranks[0];
}

static enum stage stage_of(const oriel_group *group, int rank, const oriel_key *key,
                           const oriel_record *record)
{
    const oriel_member *member = &group->members[rank - group->comm->first_rank];

    if (may_be_left(group, rank, record))
        return CALL_LEFT;
    if (!is_ordered(key) || key->count == 0 || member->lane == NULL)
        return CALL_UNKNOWN;
    return oriel_lane_missing(member, key->count) >= 0 ? CALL_EARLY : CALL_BEGUN;
}

/* Called with the bucket locked. Returns 0 when a resource is missing. The first
 * member's pool comes first, whichever member makes the cell: so a group's operations use the
 * same memory again. */
static int make_cell(const oriel_group *group, heap_bucket *bucket, int way, int rank,
                     const oriel_key *key, const oriel_record *record)
{
    const oriel_heap *heap = &group->comm->heap;
    heap_cell *cell = &bucket->cells[way];
    int staged = record->mode == ORIEL_MODE_STAGED;
    enum stage stage = stage_of(group, rank, key, record);

    if (!take_resources(heap, cell, group->ranks[0], rank, staged, stage) &&
        !take_resources(heap, cell, rank, rank, staged, stage))
        return 0;
    cell->key = *key;
    cell->record = *record;
    cell->record_rank = rank;
    cell->second_rank = -1;
    cell->at = atomic_load_explicit(&heap->pool[cell->owner].staged, memory_order_relaxed);
    cell->lane = is_first(key) ? oriel_lane_take(heap, cell->owner, (int)record->n) : -1;
    atomic_store_explicit(&cell->next_chunk, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->done_chunks, 0, memory_order_relaxed);
    memset(oriel_heap_members(heap, cell), 0, record->n * sizeof(heap_member));
    atomic_store_explicit(&cell->word, 0, memory_order_relaxed);
    return 1;
}

/* ---- payloads ---------------------------------------------------------------- */

size_t oriel_heap_eager_bytes(const oriel_heap *heap, int n)
{
    uint64_t room = heap->header->block_bytes - (uint64_t)n * sizeof(heap_member);

    return oriel_round_down(room / (uint64_t)n, HEAP_LINE);
}

char *oriel_heap_eager(const oriel_heap *heap, const heap_cell *cell, int n, int index)
{
    return oriel_heap_block(heap, cell->owner, cell->block) + (size_t)n * sizeof(heap_member) +
           (size_t)index * oriel_heap_eager_bytes(heap, n);
}

/* ---- entering ----------------------------------------------------------------- */

/* The first reason stays: an operation that is already revoked keeps its own. */
static void revoke_mismatch(heap_cell *cell, int rank, const oriel_record *record)
{
    uint64_t word = atomic_load(&cell->word);

    if (word & REVOKED_BIT)
        return;
    cell->second = *record;
    cell->second_rank = rank;
    while (!(word & REVOKED_BIT) &&
           !atomic_compare_exchange_weak(&cell->word, &word, word | REVOKED_BIT | MISMATCH_BIT)) {
    }
}

/* Called with the bucket locked. */
static oriel_status enter_locked(const oriel_group *group, heap_bucket *bucket, uint64_t hash,
                                 int rank, int index, const oriel_key *key,
                                 const oriel_record *record, heap_cell **cell_p)
{
    const oriel_heap *heap = &group->comm->heap;
    int way = find_way(bucket, hash, key);
    heap_cell *cell;

    if (way < 0) {
        way = __builtin_ctz(~bucket->used);
        if (way >= (may_be_left(group, rank, record) ? LEFT_WAYS : HEAP_WAYS) ||
            !make_cell(group, bucket, way, rank, key, record))
            return ORIEL_IN_PROGRESS;
        bucket->hash[way] = hash;
        bucket->used |= 1u << way;
        *cell_p = &bucket->cells[way];
        return ORIEL_OK;
    }
    cell = &bucket->cells[way];
    /* The key came again while the last use of it has not been left by all. Counts only grow, so
     * nobody makes such keys. */
    if ((uint32_t)index < cell->record.n &&
        atomic_load_explicit(&oriel_heap_members(heap, cell)[index].arrived, memory_order_relaxed))
        return ORIEL_IN_PROGRESS;
    *cell_p = cell;
    if (memcmp(&cell->record, record, sizeof *record) == 0)
        return ORIEL_OK;
    revoke_mismatch(cell, rank, record);
    return ORIEL_ERR_MISMATCH;
}

oriel_status oriel_cell_enter(const oriel_group *group, int rank, int index, const oriel_key *key,
                              const oriel_record *record, heap_cell **cell_p)
{
    uint64_t hash = key_hash(key);
    heap_bucket *bucket = bucket_of(&group->comm->heap, key, hash);
    oriel_status st;

    if (!try_lock(bucket, rank))
        return ORIEL_IN_PROGRESS;
    st = enter_locked(group, bucket, hash, rank, index, key, record, cell_p);
    unlock(bucket);
    return st;
}

int oriel_cell_lock_holder(const oriel_comm *comm, const oriel_key *key)
{
    const heap_bucket *bucket = bucket_of(&comm->heap, key, key_hash(key));

    return (int)atomic_load_explicit(&bucket->lock, memory_order_relaxed) - 1;
}

int oriel_cell_arrive(const oriel_group *group, heap_cell *cell, int index)
{
    heap_member *member = &oriel_heap_members(&group->comm->heap, cell)[index];

    atomic_store_explicit(&member->arrived, 1, memory_order_relaxed);
    return add_unless_revoked(cell, ARRIVED_ONE);
}

cell_view oriel_cell_look(const heap_cell *cell)
{
    return view(atomic_load_explicit(&cell->word, memory_order_acquire));
}

int oriel_cell_revoke(heap_cell *cell)
{
    uint64_t word = atomic_load(&cell->word);

    while (!(word & REVOKED_BIT)) {
        if (committed(cell, word))
            return 0;
        if (atomic_compare_exchange_weak(&cell->word, &word, word | REVOKED_BIT))
            return 1;
    }
    return 1;
}

int oriel_cell_claim(heap_cell *cell)
{
    return add_unless_revoked(cell, ACTIVE_ONE);
}

void oriel_cell_release(heap_cell *cell)
{
    atomic_fetch_sub(&cell->word, ACTIVE_ONE);
}

/* Bounded: the active ones are threads of this process in the middle of one
 * chunk, and no new one gets in. */
void oriel_cell_drain(const heap_cell *cell)
{
    while (oriel_cell_look(cell).active != 0)
        oriel_relax(1);
}

int oriel_cell_finish(heap_cell *cell, uint32_t by)
{
    return add_unless_revoked(cell, by * FINISHED_ONE);
}

/* ---- leaving -------------------------------------------------------------------- */

static void free_cell(const oriel_heap *heap, heap_bucket *bucket, heap_cell *cell)
{
    bucket->used &= ~(1u << (cell - bucket->cells));
    give_block(heap, cell->owner, cell->block);
    if (cell->channel >= 0)
        oriel_heap_give_bit(&heap->pool[cell->owner].channels, cell->channel);
}

void oriel_cell_leave(const oriel_group *group, heap_cell *cell)
{
    oriel_comm *comm = group->comm;
    heap_bucket *bucket = bucket_of(&comm->heap, &cell->key, key_hash(&cell->key));
    uint32_t n = cell->record.n;
    double limit;

    if (field(atomic_fetch_add(&cell->word, LEFT_ONE), LEFT_ONE) + 1 != n)
        return;
    /* The operation has succeeded whatever happens to its cell. A lock holder
     * that died has revoked the comm, and then the cell is never needed again. */
    limit = oriel_now() + LEAVE_LIMIT_S;
    while (!try_lock(bucket, cell->record_rank)) {
        if (oriel_comm_aborted(comm))
            return;
        if (oriel_now() > limit) {
            oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, -1, -1,
                             "a lock in the heap was not released within %.0f s", LEAVE_LIMIT_S);
            return;
        }
    }
    free_cell(&comm->heap, bucket, cell);
    unlock(bucket);
    /* A call that parks does so before its last try: either this sees it, or that finds
     * the room. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&comm->heap.header->parked, memory_order_relaxed) != 0)
        oriel_comm_ring_all(comm);
}

/* How far a member is; members that are behind are those others wait for. One whose `send` lies in
 * a window has published all of it at once, which says nothing. */
static uint64_t progress(const heap_member *member)
{
    uint64_t gathered = atomic_load(&member->gathered);
    uint64_t published = atomic_load(&member->published);

    if (published > gathered + 1 && member->in_window)
        published = gathered + 1;
    return published + atomic_load(&member->reduced) + gathered;
}

int oriel_cell_missing(const oriel_group *group, const heap_cell *cell)
{
    const heap_member *members = oriel_heap_members(&group->comm->heap, cell);
    uint64_t most = 0;
    uint64_t fewest = UINT64_MAX;
    int last = -1;

    for (int i = 0; i < group->n; i++) {
        uint64_t done = progress(&members[i]);
        if (!atomic_load(&members[i].arrived))
            return group->ranks[i];
        most = done > most ? done : most;
        if (done < fewest) {
            fewest = done;
            last = group->ranks[i];
        }
    }
    return fewest < most ? last : -1;
}
