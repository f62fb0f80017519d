/* EXPERIMENTAL, may change or go: a kernel that includes this, before oriel/kernel.h, reaches ranks
 * of other machines from a GPU, over NCCL's GIN. oriel_put, oriel_get, oriel_signal, oriel_wait and
 * oriel_barrier_all take such ranks then; what is put, and where a get puts it, lies in operands or
 * results. "Between machines" in docs/kernels.md is the guide. It has run with a network of the
 * tests' own in the place of a NIC, and on no NIC.
 *
 * What is to be done is written into NCCL's queue to a rank, from which a thread on the host
 * gives it to the NIC, in order. NCCL promises little of the order in which it is done: a strong
 * signal comes after all puts before it to the same rank, a get after nothing in particular, and
 * "done" says of a put no more than that its source may be used again. So a put is known to have
 * settled when a strong signal after it is seen in the other rank's memory, by a get. All puts
 * are thread 0's, which settles them before its next sync, barrier or signal: what is ordered
 * after one of those is ordered after the puts, whichever rank does it and however.
 *
 * The layout of an entry is that of NCCL 2.30.5, which later ones read too. */
#ifndef ORIEL_KERNEL_GIN_H
#define ORIEL_KERNEL_GIN_H

#if defined(__CUDACC__)

#if defined(ORIEL_KERNEL_H)
#error "include oriel/experimental/kernel_gin.h before oriel/kernel.h, whose calls it extends"
#endif
#define ORIEL_HAS_GIN 1

#include <oriel/detail/kernel_wait.h>
#include <oriel/experimental/gin_types.h>

/* Out of line, since they would cost kernels within a machine registers; and the team by value,
 * which stays in registers then. */
#define ORIEL_GIN_FN static __device__ __noinline__

enum { ORIEL_GIN_PUT = 1, ORIEL_GIN_ADD = 16, ORIEL_GIN_WORD = 32, ORIEL_GIN_GET = 64 };
enum { ORIEL_GIN_FLUSH = 128, ORIEL_GIN_FORMAT = 2 };
#define ORIEL_GIN_MOST (1ull << 30) /* bytes of an entry */

/* One entry. Places are in NCCL's window, or of a signal; 63 bits, since each word has a flag. */
typedef struct oriel_gin_entry {
    uint32_t what;   /* ORIEL_GIN_... added up */
    uint32_t signal; /* ORIEL_GIN_ADD: which of the rank's, below ORIEL_GIN_SIGNALS */
    uint64_t from, to, bytes, value; /* places; at most ORIEL_GIN_MOST bytes; what is added */
} oriel_gin_entry;

/* Whether a rank is on another machine. */
ORIEL_FN int oriel_gin_needed(const oriel_team *team, int rank)
{
    const oriel_frame *frame = team->frame;

    return frame->gin && rank >= 0 && rank < frame->size && !frame->boards[rank];
}

ORIEL_FN uint64_t oriel_gin_place(const oriel_gin *gin, const volatile void *pointer)
{
    return gin->window_at + ((uint64_t)pointer + ORIEL_GIN_AT - (uint64_t)gin);
}

ORIEL_FN uint32_t oriel_gin_done(const oriel_gin *gin, uint32_t rank)
{
    return oriel_cuda_relaxed(gin->done + rank);
}

/* Until entry `index` of the queue to a rank is done. Counts run over. */
ORIEL_FN int oriel_gin_await(const oriel_team *team, uint32_t rank, uint32_t index)
{
    const oriel_gin *gin = team->frame->gin;

    for (uint32_t turn = 0; (int32_t)(oriel_gin_done(gin, rank) - index) <= 0; turn++) {
        if (turn % 64 == 63 && oriel_cuda_failed(team))
            return 1;
    }
    return 0;
}

/* Writes an entry; release, system. Returns which it is, or that the call has failed: the comm
 * is revoked then, so that a place which stays empty matters to nobody. */
ORIEL_GIN_FN int oriel_gin_post(const oriel_team *team, uint32_t rank, const oriel_gin_entry *entry,
                                uint32_t *index_p)
{
    const oriel_gin *gin = team->frame->gin;
    uint64_t name = gin->window << 1 | 1;
    int is_word = (entry->what & ORIEL_GIN_WORD) != 0;
    int is_plain = (entry->what & (ORIEL_GIN_ADD | ORIEL_GIN_FLUSH)) == 0;
    uint64_t words[16];
    uint64_t *at;
    uint32_t index;

    words[0] = 1 | ORIEL_GIN_FORMAT << 1 | entry->bytes << 7;
    words[1] = (is_plain || is_word ? entry->from << 1 : 0) | 1;
    words[2] = is_plain || is_word ? name : 1;
    words[3] = (is_plain ? entry->to << 1 : 0) | 1;
    words[4] = is_plain ? name : 1;
    words[5] = 1 | (uint64_t)entry->signal << 24 | entry->value << 48;
    words[6] = 3 | (entry->value >> 16 & 0xffff) << 8 | entry->value >> 32 << 24; /* strong */
    words[7] = 1 | entry->what << 8;
    for (int i = 8; i < 16; i++)
        words[i] = 1;
    __threadfence_system();
    index = atomicAdd(gin->posted + rank, 1u);
    if (oriel_gin_await(team, rank, index - gin->queue_size)) /* room */
        return 1;
    at = gin->queues[rank * gin->queue_size + (index & (gin->queue_size - 1))];
    for (int i = 0; i < 16; i += 2)
        asm volatile("st.global.wt.v2.u64 [%0], {%1, %2};" ::"l"(at + i), "l"(words[i]),
                     "l"(words[i + 1])
                     : "memory");
    *index_p = index;
    return 0;
}

/* Adds `value` to a signal of NCCL's on another rank. */
ORIEL_GIN_FN int oriel_gin_add(oriel_team team, uint32_t rank, uint32_t signal, uint64_t value)
{
    oriel_gin_entry entry = {ORIEL_GIN_PUT | ORIEL_GIN_ADD, signal, 0, 0, 0, value};
    uint32_t index;

    return oriel_gin_post(&team, rank, &entry, &index);
}

/* What came by gets is visible to this GPU. */
ORIEL_FN int oriel_gin_flush(const oriel_team *team)
{
    oriel_gin_entry entry = {ORIEL_GIN_FLUSH, 0, 0, 0, 0, 0};
    uint32_t self = team->frame->gin->self;
    uint32_t index;
    int failed = oriel_gin_post(team, self, &entry, &index) || oriel_gin_await(team, self, index);

    __threadfence_system();
    return failed;
}

ORIEL_FN int oriel_gin_fetch(const oriel_team *team, uint32_t rank, uint64_t from, uint64_t to,
                             uint64_t bytes)
{
    oriel_gin_entry entry = {ORIEL_GIN_GET, 0, from, to, bytes, 0};
    uint32_t index;

    return oriel_gin_post(team, rank, &entry, &index) || oriel_gin_await(team, rank, index) ||
           oriel_gin_flush(team);
}

/* Until what has gone to a rank before its last strong signal has settled there. */
ORIEL_FN int oriel_gin_settle_one(const oriel_team *team, uint32_t rank)
{
    oriel_gin *gin = team->frame->gin;

    while (oriel_cuda_acquire(&gin->seen[rank]) < gin->asked[rank]) {
        if (oriel_gin_fetch(team, rank, oriel_gin_place(gin, &gin->settled[gin->self]),
                            oriel_gin_place(gin, &gin->seen[rank]), sizeof(uint64_t)) ||
            oriel_cuda_failed(team))
            return 1;
    }
    return 0;
}

/* By thread 0: all its puts have settled. */
ORIEL_GIN_FN int oriel_gin_settle(oriel_team team)
{
    oriel_gin *gin = team.frame->gin;
    uint64_t dirty = gin->dirty;
    int failed = 0;

    if (dirty == 0)
        return 0;
    gin->dirty = 0;
    for (uint32_t r = 0; r < ORIEL_GIN_RANKS && !failed; r++) {
        oriel_gin_entry entry = {ORIEL_GIN_WORD | ORIEL_GIN_ADD, 0, 0, 0, 0, 1};
        uint32_t index;

        if ((dirty >> r & 1) == 0)
            continue;
        gin->asked[r]++;
        entry.from = oriel_gin_place(gin, &gin->settled[gin->self]);
        failed = oriel_gin_post(&team, r, &entry, &index);
    }
    for (uint32_t r = 0; r < ORIEL_GIN_RANKS && !failed; r++)
        failed = dirty >> r & 1 ? oriel_gin_settle_one(&team, r) : 0;
    return failed;
}

/* By the whole team, `dst` and `src` in buffers of this rank: thread 0 does it. */
ORIEL_GIN_FN void oriel_gin_put(oriel_team team, int rank, const void *dst, const void *src,
                                uint64_t bytes)
{
    oriel_gin *gin = team.frame->gin;
    uint32_t to = team.frame->world[rank];

    gin->dirty |= 1ull << to;
    for (uint64_t at = 0; at < bytes; at += ORIEL_GIN_MOST) {
        oriel_gin_entry entry = {ORIEL_GIN_PUT, 0, 0, 0, 0, 0};
        uint32_t index;

        entry.from = oriel_gin_place(gin, (const char *)src + at);
        entry.to = oriel_gin_place(gin, (const char *)dst + at);
        entry.bytes = bytes - at < ORIEL_GIN_MOST ? bytes - at : ORIEL_GIN_MOST;
        if (oriel_gin_post(&team, to, &entry, &index))
            return;
    }
}

ORIEL_GIN_FN void oriel_gin_get(oriel_team team, int rank, const void *dst, const void *src,
                                uint64_t bytes)
{
    const oriel_gin *gin = team.frame->gin;
    int failed = 0;

    for (uint64_t at = 0; at < bytes && !failed; at += ORIEL_GIN_MOST)
        failed = oriel_gin_fetch(&team, team.frame->world[rank],
                                 oriel_gin_place(gin, (const char *)src + at),
                                 oriel_gin_place(gin, (const char *)dst + at),
                                 bytes - at < ORIEL_GIN_MOST ? bytes - at : ORIEL_GIN_MOST);
}

/* By one thread: what ranks of this machine and those of others have added together. */
ORIEL_GIN_FN int oriel_gin_wait(oriel_team team, int slot, uint64_t value)
{
    const oriel_frame *frame = team.frame;
    const uint64_t *near = &frame->boards[frame->rank]->signals[slot];
    const uint64_t *far = &frame->gin->signals[slot];
    uint64_t before = frame->gin->before[slot];

    for (uint32_t turn = 0; oriel_cuda_acquire(near) + oriel_cuda_acquire(far) - before < value;
         turn++) {
        if (turn % 64 == 63 && oriel_cuda_failed(&team))
            return 1;
    }
    return 0;
}

/* By threads of the first block: tells a rank, and waits for it. Barriers are counted for each
 * pair, and for ever: a rank that is ahead may come to the next call's before this one has left. A
 * rank whose call has failed comes to no more of them, so that no other ends the call well. */
ORIEL_GIN_FN int oriel_gin_meet(oriel_team team)
{
    const oriel_frame *frame = team.frame;
    oriel_gin *gin = frame->gin;
    int failed = 0;

    if (oriel_cuda_relaxed(frame->error) != 0)
        return 1;
    for (uint32_t r = threadIdx.x; r < (uint32_t)frame->size; r += blockDim.x) {
        uint64_t count = ++gin->met[frame->world[r]];

        if (frame->boards[r])
            asm volatile(
                "fence.acq_rel.sys; st.release.sys.global.u64 [%0], %1;" ::"l"(
                    &((oriel_gin *)((char *)frame->boards[r] + ORIEL_GIN_AT))->come[gin->self]),
                "l"(count)
                : "memory");
        else
            failed |= oriel_gin_add(team, frame->world[r], ORIEL_SIGNALS + gin->self, 1);
    }
    for (uint32_t r = threadIdx.x; r < (uint32_t)frame->size; r += blockDim.x) {
        uint32_t from = frame->world[r];
        const uint64_t *word =
            frame->boards[r] ? &gin->come[from] : &gin->signals[ORIEL_SIGNALS + from];

        failed |= oriel_cuda_wait(&team, word, gin->met[from]);
    }
    return failed;
}

/* After the last barrier of a call: all signals of it have come. */
ORIEL_FN void oriel_gin_end(const oriel_team *team)
{
    oriel_gin *gin = team->frame->gin;

    for (uint32_t i = team->thread; i < ORIEL_SIGNALS; i += team->threads)
        gin->before[i] = oriel_cuda_acquire(&gin->signals[i]);
}

#endif

#include <oriel/kernel.h>

#endif
