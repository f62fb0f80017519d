/* Communication kernels: one source for the CPU and for CUDA.
 *
 *     #include <oriel/kernel.h>
 *
 *     ORIEL_KERNEL(sum)(oriel_team *team, const float *x, float *y, float scale)
 *     {
 *         oriel_for_each (i, team, oriel_count(team, x)) {
 *             float s = 0;
 *             for (int r = 0; r < oriel_size(team); r++)
 *                 s += oriel_peer(team, x, r)[i];
 *             y[i] = scale * s;
 *         }
 *     }
 *
 * Write it in what C11 and C++17 have in common: a C compiler builds it for the host,
 * NVRTC or nvcc for a GPU. After the team a kernel takes, in any order, `const T *`
 * (an operand), `T *` (a result) and scalars or `const char *` (attributes). docs/kernels.md
 * is the guide.
 *
 * Team. A kernel runs once on every rank of a group, on each by all threads of that
 * rank's team: four on a CPU (ORIEL_TEAM), in no particular order, the whole grid on a GPU.
 *
 * Begin and end. No thread of any rank begins before the operands of all ranks are
 * there, and the results of all ranks may be written from then on. Results are what
 * they are once all threads of all ranks have ended. Before that a result holds what
 * was last written there, at first nothing in particular.
 *
 * Order. Between ranks, and between threads, plain loads and stores are ordered by
 * the calls below and by nothing else; each says what it orders, and scopes are always
 * all ranks ("system"), but for oriel_team_sync. Two threads that touch the same
 * memory, one of them writing, without such an order between them are a data race.
 * Until the next call that acquires, a thread may go on seeing what it has loaded
 * before: compilers and caches keep plain loads.
 *
 * Failure. When a peer is gone, or the deadline has passed, every wait returns at once,
 * then and later, and a non-zero value unless what it waits for has come. Nothing needs
 * to be checked: the results are
 * given up, and the caller gets the error. But a loop of the author's own that waits
 * for something must look at oriel_failed. */
#ifndef ORIEL_KERNEL_H
#define ORIEL_KERNEL_H

#include <oriel/detail/kernel_cuda.h>
#include <oriel/detail/kernel_types.h>

/* ---- which rank, how many ------------------------------------------------------------ */

/* The place of this rank in the group, and how many there are. */
ORIEL_FN int oriel_rank(const oriel_team *team)
{
    return team->frame->rank;
}

ORIEL_FN int oriel_size(const oriel_team *team)
{
    return team->frame->size;
}

/* This thread of the rank's team, and how many there are. Ranks may have different
 * numbers of threads. */
ORIEL_FN uint32_t oriel_thread(const oriel_team *team)
{
    return team->thread;
}

ORIEL_FN uint32_t oriel_threads(const oriel_team *team)
{
    return team->threads;
}

/* Whose part of `n` elements is which: threads of a CPU have a stretch each, which
 * stays in one core's cache; those of a GPU take turns, which makes whole lines. */
ORIEL_FN size_t oriel_share_begin(const oriel_team *team, size_t n)
{
#if defined(__CUDACC__)
    (void)n;
    return team->thread;
#else
    size_t part = n / team->threads;
    size_t rest = n % team->threads;

    return part * team->thread + (team->thread < rest ? team->thread : rest);
#endif
}

ORIEL_FN size_t oriel_share_end(const oriel_team *team, size_t n)
{
#if defined(__CUDACC__)
    (void)team;
    return n;
#else
    size_t part = n / team->threads;

    return oriel_share_begin(team, n) + part + (team->thread < n % team->threads);
#endif
}

ORIEL_FN size_t oriel_share_step(const oriel_team *team)
{
#if defined(__CUDACC__)
    return team->threads;
#else
    (void)team;
    return 1;
#endif
}

/* for (size_t i: this thread's share of 0 ... n - 1). Every i is some thread's, once.
 * Orders nothing. */
#define oriel_for_each(i, team, n)                                                                 \
    for (size_t i = oriel_share_begin(team, n), i##_end = oriel_share_end(team, n); i < i##_end;   \
         i += oriel_share_step(team))

/* The same for two dimensions, a CPU's threads taking whole rows: the loop over `col` is
 * the inner one, and needs no division to find its place. */
#if defined(__CUDACC__)
#define oriel_for_each_2d(row, col, team, rows, cols)                                              \
    for (size_t row##_at = oriel_thread(team); row##_at < (size_t)(rows) * (size_t)(cols);         \
         row##_at += oriel_threads(team))                                                          \
        for (size_t row = row##_at / (size_t)(cols), col = row##_at % (size_t)(cols),              \
                    row##_once = 1;                                                                \
             row##_once; row##_once = 0)
#else
#define oriel_for_each_2d(row, col, team, rows, cols)                                              \
    oriel_for_each (row, team, (size_t)(rows))                                                     \
        for (size_t col = 0; col < (size_t)(cols); col++)
#endif

/* ---- buffers ------------------------------------------------------------------------- */

#if defined(__CUDACC__)
#define ORIEL_TROUBLE(team, what, value) oriel_cuda_trouble((team)->frame, what, value)
#else
#define ORIEL_TROUBLE(team, what, value) (team)->frame->calls->trouble(team, what, value)
#endif

ORIEL_FN const oriel_buffer *oriel_buffer_of(const oriel_team *team, const volatile void *pointer)
{
    const oriel_frame *frame = team->frame;
    const oriel_buffer *empty = (const oriel_buffer *)0;

    for (uint32_t i = 0; i < frame->num_buffers; i++) {
        const oriel_buffer *buffer = &frame->buffers[i];
        uint64_t at = (uint64_t)pointer - (uint64_t)buffer->peers[frame->rank];

        if (at < buffer->bytes)
            return buffer;
        if (at == 0 && buffer->bytes == 0) /* may lie where another begins */
            empty = buffer;
    }
    if (!empty)
        ORIEL_TROUBLE(team, ORIEL_TROUBLE_POINTER, 0);
    return empty;
}

/* Bytes of the operand or result that the pointer points into: of all of it, and the
 * same on every rank. */
ORIEL_FN size_t oriel_bytes(const oriel_team *team, const volatile void *pointer)
{
    const oriel_buffer *buffer = oriel_buffer_of(team, pointer);

    return buffer ? (size_t)buffer->bytes : 0;
}

/* The same in elements. */
#define oriel_count(team, pointer) (oriel_bytes(team, pointer) / sizeof *(pointer))

ORIEL_FN void *oriel_peer_address(const oriel_team *team, const volatile void *pointer, int rank)
{
    const oriel_frame *frame = team->frame;
    const oriel_buffer *buffer = oriel_buffer_of(team, pointer);

    if (rank < 0 || rank >= frame->size) {
        ORIEL_TROUBLE(team, ORIEL_TROUBLE_RANK, rank);
        return (void *)(uint64_t)pointer;
    }
    if (!buffer)
        return (void *)(uint64_t)pointer;
    if (!buffer->peers[rank] && buffer->bytes > 0) {
        ORIEL_TROUBLE(team, ORIEL_TROUBLE_REACH, rank);
        return (void *)(uint64_t)pointer;
    }
    return (char *)buffer->peers[rank] + ((uint64_t)pointer - (uint64_t)buffer->peers[frame->rank]);
}

/* Whether `rank` has addresses here: all have, but for those on other machines in a kernel with
 * oriel/experimental/kernel_gin.h. oriel_put, oriel_get, signals and barriers reach those, all else
 * fails the call. */
ORIEL_FN int oriel_reaches(const oriel_team *team, int rank)
{
    return rank >= 0 && rank < team->frame->size && team->frame->boards[rank];
}

/* Where `rank` has what `pointer`, into an operand or result of this rank, points to.
 * Local: orders nothing, and costs a look-up, so take it out of inner loops. A pointer
 * into no buffer, or a rank that does not exist or has no addresses here, fails the call and
 * gives `pointer`. */
#if defined(__cplusplus)
template <class T> ORIEL_FN T *oriel_peer(const oriel_team *team, T *pointer, int rank)
{
    return (T *)oriel_peer_address(team, pointer, rank);
}
#else
#define oriel_peer(team, pointer, rank)                                                            \
    ((__typeof__(&*(pointer)))oriel_peer_address(team, pointer, rank))
#endif

/* ---- order ---------------------------------------------------------------------------- */

/* Whether the call has failed, or is too late: for loops of the author's own. */
ORIEL_FN int oriel_failed(const oriel_team *team)
{
#if defined(__CUDACC__)
    return oriel_cuda_failed(team);
#else
    return team->frame->calls->failed(team);
#endif
}

/* By all threads of this rank's team: waits for them. Everything they did before it
 * happens before everything they do after it. Release and acquire, this rank alone. */
ORIEL_FN int oriel_team_sync(oriel_team *team)
{
#if defined(__CUDACC__)
    return oriel_cuda_sync(team);
#else
    return team->frame->calls->sync(team);
#endif
}

/* By all threads of all ranks: waits for them. Everything any of them did before it
 * happens before everything any of them does after it. Release and acquire, system. */
ORIEL_FN int oriel_barrier_all(oriel_team *team)
{
#if defined(__CUDACC__)
    return oriel_cuda_barrier(team);
#else
    return team->frame->calls->barrier(team);
#endif
}

ORIEL_FN int oriel_slot_is_wrong(const oriel_team *team, int slot)
{
    if (slot >= 0 && slot < ORIEL_SIGNALS)
        return 0;
    ORIEL_TROUBLE(team, ORIEL_TROUBLE_SLOT, slot);
    return 1;
}

/* By one thread: adds `value` to signal `slot` of `rank`. Release, system: what this
 * thread did before, and what others did that it has synchronised with, happens before
 * what follows a wait that sees it. To signal for a whole team, sync it first and let
 * one thread signal. */
ORIEL_FN int oriel_signal(oriel_team *team, int rank, int slot, uint64_t value)
{
    if (oriel_slot_is_wrong(team, slot))
        return 1;
    if (rank < 0 || rank >= team->frame->size) {
        ORIEL_TROUBLE(team, ORIEL_TROUBLE_RANK, rank);
        return 1;
    }
#if defined(ORIEL_HAS_GIN)
    if (team->frame->gin && team->thread == 0 && oriel_gin_settle(*team))
        return 1;
    if (!team->frame->boards[rank])
        return oriel_gin_add(*team, team->frame->world[rank], (uint32_t)slot, value);
#endif
#if defined(__CUDACC__)
    asm volatile("fence.acq_rel.sys; red.release.sys.global.add.u64 [%0], %1;" ::"l"(
                     &team->frame->boards[rank]->signals[slot]),
                 "l"(value)
                 : "memory");
    return 0;
#else
    return team->frame->calls->signal(team, rank, slot, value);
#endif
}

/* By one thread: waits until signal `slot` of this rank is at least `value`. Acquire,
 * system. What waited is this thread alone: others need a wait of their own, or a
 * sync after it. */
ORIEL_FN int oriel_wait(oriel_team *team, int slot, uint64_t value)
{
    if (oriel_slot_is_wrong(team, slot))
        return 1;
#if defined(ORIEL_HAS_GIN)
    if (team->frame->gin)
        return oriel_gin_wait(*team, slot, value);
#endif
#if defined(__CUDACC__)
    return oriel_cuda_wait(team, &team->frame->boards[team->frame->rank]->signals[slot], value);
#else
    return team->frame->calls->wait(team, slot, value);
#endif
}

/* ---- by the whole team: copies -------------------------- */

/* The threads of a team share the work; they order nothing, so a sync, a barrier or a
 * signal after it must say when it is done. */

ORIEL_FN void oriel_copy_share(const oriel_team *team, void *dst, const void *src, size_t bytes)
{
#if defined(__CUDACC__)
    oriel_cuda_copy(team, dst, src, bytes);
#else
    size_t lines = bytes / 64;
    size_t from = 64 * oriel_share_begin(team, lines);
    size_t to = team->thread + 1 == team->threads ? bytes : 64 * oriel_share_end(team, lines);

    __builtin_memcpy((char *)dst + from, (const char *)src + from, to - from);
#endif
}

/* Copies `bytes` of this rank's memory at `src` to where `rank` has `dst`. */
ORIEL_FN void oriel_put(const oriel_team *team, int rank, void *dst, const void *src, size_t bytes)
{
#if defined(ORIEL_HAS_GIN)
    if (oriel_gin_needed(team, rank)) {
        if (team->thread == 0 && bytes > 0 && oriel_buffer_of(team, dst) &&
            oriel_buffer_of(team, src))
            oriel_gin_put(*team, rank, dst, src, bytes);
        return;
    }
#endif
    if (bytes > 0)
        oriel_copy_share(team, oriel_peer_address(team, dst, rank), src, bytes);
}

/* Copies `bytes` from where `rank` has `src` to this rank's memory at `dst`. */
ORIEL_FN void oriel_get(const oriel_team *team, int rank, void *dst, const void *src, size_t bytes)
{
#if defined(ORIEL_HAS_GIN)
    if (oriel_gin_needed(team, rank)) {
        if (team->thread == 0 && bytes > 0 && oriel_buffer_of(team, dst) &&
            oriel_buffer_of(team, src))
            oriel_gin_get(*team, rank, dst, src, bytes);
        return;
    }
#endif
    if (bytes > 0)
        oriel_copy_share(team, dst, oriel_peer_address(team, src, rank), bytes);
}

/* ---- atomics: on memory of any rank ------------------------------------------------------ */

/* By one thread; T is int32_t, uint32_t, int64_t, uint64_t, and for add float and
 * double too. System scope. Give back what was there.
 *   oriel_atomic_add(T *p, T v)            relaxed
 *   oriel_atomic_exchange(T *p, T v)       acquire and release
 *   oriel_atomic_cas(T *p, T old, T v)     acquire and release; stores v if *p is old
 *   oriel_load(T *p)                       acquire
 *   oriel_store(T *p, T v)                 release */
#include <oriel/detail/kernel_atomics.h>

/* ---- by the whole team: reductions --------------------------------------------------------- */

/* Elements of 16 bits. oriel_f16_to_float, oriel_f16_from_float and the same for bf16: to nearest,
 * ties to even; a NaN stays one. */
typedef struct oriel_f16 {
    uint16_t bits; /* IEEE binary16 */
} oriel_f16;
typedef struct oriel_bf16 {
    uint16_t bits; /* the upper half of a float */
} oriel_bf16;

enum { ORIEL_OP_SUM, ORIEL_OP_PROD, ORIEL_OP_MIN, ORIEL_OP_MAX };

/* Reductions of `count` elements of every rank's `src`, in rank order, so that every
 * rank and every run gets the same bits; f16 and bf16 are combined in float and rounded
 * once, integers wrap, min and max with a NaN are a NaN. `dst` and `src` point into
 * buffers of this rank; they may be the same if nobody else reads or writes there.
 *   oriel_reduce_copy(team, T *dst, const T *src, size_t count, int op)      to this rank
 *   oriel_reduce_copy_all(team, T *dst, const T *src, size_t count, int op)  to all ranks
 *   oriel_reduce_rows(team, T *dst, const T *src, size_t rows, size_t cols, int op, then, arg)
 * the last to this rank, through a function of the author's that changes what is reduced
 * before it is stored: ORIEL_FN void then(A *values, size_t n, size_t row, size_t col,
 * const void *arg) has n values of `row`, from `col` on, and must not wait. A is T, float for
 * 16 bits.
 * T is float, double, oriel_f16, oriel_bf16, or (u)int8_t to (u)int64_t. */
#include <oriel/detail/kernel_reduce.h>

#include <oriel/detail/kernel_entry.h>

#endif
