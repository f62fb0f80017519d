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
 * rank's team: at least four on a CPU, in no particular order, the whole grid on a GPU.
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
 * Failure. When a peer is gone, or the deadline has passed, every wait returns at once
 * and a non-zero value, then and later. Nothing needs to be checked: the results are
 * given up, and the caller gets the error. But a loop of the author's own that waits
 * for something must look at oriel_failed. */
#ifndef ORIEL_KERNEL_H
#define ORIEL_KERNEL_H

#if defined(__CUDACC_RTC__) /* has no headers */
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

#if defined(__CUDACC__)
#define ORIEL_FN           static __device__ __forceinline__
#define ORIEL_KERNEL(name) static __device__ __attribute__((unused)) void name
#else
#define ORIEL_FN           static inline __attribute__((unused))
#define ORIEL_KERNEL(name) static __attribute__((unused)) void name
#endif

/* ---- what a launcher fills in ---------------------------------------------------- */

enum { ORIEL_SIGNALS = 64 };

/* Of one rank, in memory that all can reach. The number of barriers that each rank has
 * entered follows: see oriel_arrivals. Signals are 0 when a kernel begins. */
typedef struct oriel_board {
    uint64_t signals[ORIEL_SIGNALS];
    uint64_t waits; /* what the rank waits for, for messages: 0, 1 (a barrier), or
                       2 + slot + (value << 8) */
    uint64_t reserved[7];
} oriel_board;

/* An operand or a result. */
typedef struct oriel_buffer {
    uint64_t bytes;
    void *const *peers; /* [size]: where each rank's is reached from here */
    void *multimem;     /* the multicast address of all of them; NULL: there is none */
} oriel_buffer;

typedef struct oriel_team oriel_team;

/* Host alone: how a team waits. */
typedef struct oriel_team_calls {
    int (*sync)(oriel_team *team);
    int (*barrier)(oriel_team *team);
    int (*signal)(oriel_team *team, int rank, int slot, uint64_t value);
    int (*wait)(oriel_team *team, int slot, uint64_t value);
    int (*failed)(const oriel_team *team);
    void (*trouble)(const oriel_team *team, int what, int64_t value);
} oriel_team_calls;

enum {
    ORIEL_TROUBLE_NONE,
    ORIEL_TROUBLE_LATE,    /* the time is up */
    ORIEL_TROUBLE_ABORT,   /* the comm was revoked */
    ORIEL_TROUBLE_POINTER, /* a pointer into no operand or result */
    ORIEL_TROUBLE_RANK,    /* no such rank */
    ORIEL_TROUBLE_SLOT     /* no such signal */
};

/* One rank's part in one call. */
typedef struct oriel_frame {
    int32_t rank, size; /* in the group */
    uint32_t num_buffers;
    uint32_t reserved;
    const oriel_buffer *buffers; /* operands, then results, each as the kernel has them */
    oriel_board *const *boards;  /* [size] */
    const int64_t *values;       /* attributes, see docs/kernels.md */
    /* CUDA alone */
    uint32_t *error;       /* the first trouble in the low byte, its value above */
    const uint32_t *abort; /* not 0: give up */
    uint64_t *sync;        /* counts who has come to oriel_team_sync; 0 at first */
    uint64_t limit_ns;     /* how long it may take */
    /* host alone */
    const oriel_team_calls *calls;
    void *inner;
} oriel_frame;

/* What one thread knows. */
struct oriel_team {
    const oriel_frame *frame;
    uint32_t thread, threads;
    uint64_t epoch;   /* barriers that this rank has entered */
    uint64_t started; /* CUDA: %globaltimer */
};

/* How many barriers each rank has entered. */
ORIEL_FN uint64_t *oriel_arrivals(oriel_board *board)
{
    return (uint64_t *)(void *)(board + 1);
}

#define ORIEL_BOARD_BYTES(size) (sizeof(oriel_board) + sizeof(uint64_t) * (size_t)(size))

#ifndef ORIEL_KERNEL_TYPES_ONLY

/* ---- elements of 16 bits ------------------------------------------------------------ */

typedef struct oriel_f16 {
    uint16_t bits;
} oriel_f16;
typedef struct oriel_bf16 {
    uint16_t bits;
} oriel_bf16;

ORIEL_FN float oriel_float_of_bits(uint32_t bits)
{
#if defined(__CUDACC__)
    return __uint_as_float(bits);
#else
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

ORIEL_FN uint32_t oriel_bits_of_float(float value)
{
#if defined(__CUDACC__)
    return __float_as_uint(value);
#else
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
#endif
}

ORIEL_FN float oriel_bf16_to_float(oriel_bf16 value)
{
    return oriel_float_of_bits((uint32_t)value.bits << 16);
}

/* To nearest, ties to even; a NaN stays one. */
ORIEL_FN oriel_bf16 oriel_bf16_from_float(float value)
{
    uint32_t bits = oriel_bits_of_float(value);
    oriel_bf16 result;

    if (value != value)
        result.bits = (uint16_t)(bits >> 16 | 0x40);
    else
        result.bits = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    return result;
}

ORIEL_FN float oriel_f16_to_float(oriel_f16 value)
{
    uint32_t sign = (uint32_t)(value.bits & 0x8000) << 16;
    uint32_t rest = value.bits & 0x7fff;

    if (rest >= 0x7c00) /* infinities and NaN */
        return oriel_float_of_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400)
        return oriel_float_of_bits(sign | (rest + (112u << 10)) << 13);
    return oriel_float_of_bits(sign | oriel_bits_of_float((float)rest * 0x1p-24f));
}

/* To nearest, ties to even; a NaN stays one. */
ORIEL_FN oriel_f16 oriel_f16_from_float(float value)
{
    uint32_t bits = oriel_bits_of_float(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t rest = bits & 0x7fffffff;
    oriel_f16 result;

    if (rest > 0x7f800000) /* NaN */
        rest = 0x7e00 | (rest >> 13 & 0x3ff);
    else if (rest >= 0x477ff000) /* rounds to what is too large */
        rest = 0x7c00;
    else if (rest >= 0x38800000)
        rest = (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
    else /* subnormal: the addition rounds, and leaves the bits at the end */
        rest = oriel_bits_of_float(oriel_float_of_bits(rest) + 0.5f) - 0x3f000000;
    result.bits = (uint16_t)(sign | rest);
    return result;
}

/* ---- who and how many ---------------------------------------------------------------- */

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

/* ---- waiting, as the platform does it -------------------------------------------------- */

#if defined(__CUDACC__)

ORIEL_FN uint64_t oriel_cuda_now(void)
{
    uint64_t now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

ORIEL_FN uint64_t oriel_cuda_acquire(const uint64_t *word)
{
    uint64_t value;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

ORIEL_FN uint32_t oriel_cuda_relaxed(const uint32_t *word)
{
    uint32_t value;

    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

ORIEL_FN void oriel_cuda_trouble(const oriel_frame *frame, int what, int64_t value)
{
    uint32_t word = (uint32_t)what | (uint32_t)value << 8;

    atomicCAS_system(frame->error, 0u, word);
}

/* Whether to give up. The abort word is the host's, far away: it is read last. */
ORIEL_FN int oriel_cuda_failed(const oriel_team *team)
{
    if (oriel_cuda_relaxed(team->frame->error) != 0)
        return 1;
    if (oriel_cuda_relaxed(team->frame->abort) != 0)
        oriel_cuda_trouble(team->frame, ORIEL_TROUBLE_ABORT, 0);
    else if (oriel_cuda_now() - team->started > team->frame->limit_ns)
        oriel_cuda_trouble(team->frame, ORIEL_TROUBLE_LATE, 0);
    else
        return 0;
    return 1;
}

/* Until *word >= value, acquire, system; bounded by abort word and deadline. */
ORIEL_FN int oriel_cuda_wait(const oriel_team *team, const uint64_t *word, uint64_t value)
{
    for (uint32_t turn = 0; oriel_cuda_acquire(word) < value; turn++) {
        if (turn % 64 == 63 && oriel_cuda_failed(team))
            return 1;
    }
    return 0;
}

/* All threads of all blocks: the blocks count themselves, and each waits until all of
 * this round have. The counter starts at 0 with the launch and is never reset, so the
 * round follows from it. Thread 0 releases and acquires for its block, which
 * __syncthreads joins to it. Needs all blocks to be resident. */
ORIEL_FN int oriel_cuda_sync(const oriel_team *team)
{
    uint64_t blocks = (uint64_t)gridDim.x;
    int failed = 0;

    __syncthreads();
    if (threadIdx.x == 0 && blocks > 1) {
        unsigned long long *count = (unsigned long long *)team->frame->sync;
        uint64_t before;
        uint64_t goal;

        __threadfence();
        before = atomicAdd(count, 1ull);
        goal = (before / blocks + 1) * blocks;
        failed = oriel_cuda_wait(team, team->frame->sync, goal);
        __threadfence();
    }
    return __syncthreads_or(failed);
}

/* The first block's threads tell one rank each, and wait for one each. */
ORIEL_FN int oriel_cuda_barrier(oriel_team *team)
{
    const oriel_frame *frame = team->frame;
    int failed = oriel_cuda_sync(team);

    team->epoch++;
    if (blockIdx.x == 0) {
        uint64_t *mine = oriel_arrivals(frame->boards[frame->rank]);

        for (uint32_t r = threadIdx.x; r < (uint32_t)frame->size; r += blockDim.x)
            asm volatile("fence.acq_rel.sys; st.release.sys.global.u64 [%0], %1;" ::"l"(
                             oriel_arrivals(frame->boards[r]) + frame->rank),
                         "l"(team->epoch)
                         : "memory");
        for (uint32_t r = threadIdx.x; r < (uint32_t)frame->size; r += blockDim.x)
            failed |= oriel_cuda_wait(team, mine + r, team->epoch);
        /* What this thread has acquired its block gets by __syncthreads, the others by
         * the sync below. */
        __threadfence_system();
    }
    return oriel_cuda_sync(team) | failed;
}

#define ORIEL_TROUBLE(team, what, value) oriel_cuda_trouble((team)->frame, what, value)
#else
#define ORIEL_TROUBLE(team, what, value) (team)->frame->calls->trouble(team, what, value)
#endif

/* ---- buffers ------------------------------------------------------------------------- */

ORIEL_FN const oriel_buffer *oriel_buffer_of(const oriel_team *team, const volatile void *pointer)
{
    const oriel_frame *frame = team->frame;

    for (uint32_t i = 0; i < frame->num_buffers; i++) {
        const oriel_buffer *buffer = &frame->buffers[i];
        uint64_t at = (uint64_t)pointer - (uint64_t)buffer->peers[frame->rank];

        if (at < buffer->bytes || (at == 0 && buffer->bytes == 0))
            return buffer;
    }
    ORIEL_TROUBLE(team, ORIEL_TROUBLE_POINTER, 0);
    return (const oriel_buffer *)0;
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
    return (char *)buffer->peers[rank] + ((uint64_t)pointer - (uint64_t)buffer->peers[frame->rank]);
}

/* Where `rank` has what `pointer`, into an operand or result of this rank, points to.
 * Local: orders nothing, and costs a look-up, so take it out of inner loops. A pointer
 * into no buffer, or a rank that does not exist, fails the call and gives `pointer`. */
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
ORIEL_FN int oriel_barrier(oriel_team *team)
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
#if defined(__CUDACC__)
    return oriel_cuda_wait(team, &team->frame->boards[team->frame->rank]->signals[slot], value);
#else
    return team->frame->calls->wait(team, slot, value);
#endif
}

/* ---- atomics on memory of any rank ------------------------------------------------------ */

/* By one thread; T is int32_t, uint32_t, int64_t, uint64_t, and for add float and
 * double too. System scope. Give back what was there.
 *   oriel_atomic_add(T *p, T v)            relaxed
 *   oriel_atomic_exchange(T *p, T v)       acquire and release
 *   oriel_atomic_cas(T *p, T old, T v)     acquire and release; stores v if *p is old
 *   oriel_load(T *p)                       acquire
 *   oriel_store(T *p, T v)                 release */
#if defined(__CUDACC__)

#define ORIEL_ATOMICS(T, U)                                                                        \
    ORIEL_FN T oriel_atomic_add(T *p, T v)                                                         \
    {                                                                                              \
        return (T)atomicAdd_system((U *)p, (U)v);                                                  \
    }                                                                                              \
    ORIEL_FN T oriel_atomic_exchange(T *p, T v)                                                    \
    {                                                                                              \
        __threadfence_system();                                                                    \
        v = (T)atomicExch_system((U *)p, (U)v);                                                    \
        __threadfence_system();                                                                    \
        return v;                                                                                  \
    }                                                                                              \
    ORIEL_FN T oriel_atomic_cas(T *p, T old, T v)                                                  \
    {                                                                                              \
        __threadfence_system();                                                                    \
        v = (T)atomicCAS_system((U *)p, (U)old, (U)v);                                             \
        __threadfence_system();                                                                    \
        return v;                                                                                  \
    }                                                                                              \
    ORIEL_FN T oriel_load(const T *p)                                                              \
    {                                                                                              \
        T v = *(const volatile T *)p;                                                              \
        __threadfence_system();                                                                    \
        return v;                                                                                  \
    }                                                                                              \
    ORIEL_FN void oriel_store(T *p, T v)                                                           \
    {                                                                                              \
        __threadfence_system();                                                                    \
        *(volatile T *)p = v;                                                                      \
    }
ORIEL_ATOMICS(int32_t, unsigned int)
ORIEL_ATOMICS(uint32_t, unsigned int)
ORIEL_ATOMICS(int64_t, unsigned long long)
ORIEL_ATOMICS(uint64_t, unsigned long long)
#undef ORIEL_ATOMICS
ORIEL_FN float oriel_atomic_add(float *p, float v)
{
    return atomicAdd_system(p, v);
}
ORIEL_FN double oriel_atomic_add(double *p, double v)
{
    return atomicAdd_system(p, v);
}

#else

#define oriel_atomic_exchange(p, v) __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL)
#define oriel_load(p)               __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define oriel_store(p, v)           __atomic_store_n(p, v, __ATOMIC_RELEASE)

#define ORIEL_ATOMICS(T, name)                                                                     \
    ORIEL_FN T oriel_atomic_add_##name(T *p, T v)                                                  \
    {                                                                                              \
        return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);                                         \
    }                                                                                              \
    ORIEL_FN T oriel_atomic_cas_##name(T *p, T old, T v)                                           \
    {                                                                                              \
        __atomic_compare_exchange_n(p, &old, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);            \
        return old;                                                                                \
    }
#define ORIEL_ATOMIC_ADD_FLOAT(T, U, name)                                                         \
    ORIEL_FN T oriel_atomic_add_##name(T *p, T v)                                                  \
    {                                                                                              \
        U before = __atomic_load_n((U *)(void *)p, __ATOMIC_RELAXED), after;                       \
        T old, sum;                                                                                \
                                                                                                   \
        do {                                                                                       \
            __builtin_memcpy(&old, &before, sizeof old);                                           \
            sum = old + v;                                                                         \
            __builtin_memcpy(&after, &sum, sizeof after);                                          \
        } while (!__atomic_compare_exchange_n((U *)(void *)p, &before, after, 1, __ATOMIC_RELAXED, \
                                              __ATOMIC_RELAXED));                                  \
        return old;                                                                                \
    }
ORIEL_ATOMICS(int32_t, s32)
ORIEL_ATOMICS(uint32_t, u32)
ORIEL_ATOMICS(int64_t, s64)
ORIEL_ATOMICS(uint64_t, u64)
ORIEL_ATOMIC_ADD_FLOAT(float, uint32_t, f32)
ORIEL_ATOMIC_ADD_FLOAT(double, uint64_t, f64)
#undef ORIEL_ATOMICS
#undef ORIEL_ATOMIC_ADD_FLOAT

#if defined(__cplusplus)
#define ORIEL_OVERLOAD(T, name)                                                                    \
    ORIEL_FN T oriel_atomic_add(T *p, T v)                                                         \
    {                                                                                              \
        return oriel_atomic_add_##name(p, v);                                                      \
    }
ORIEL_OVERLOAD(int32_t, s32)
ORIEL_OVERLOAD(uint32_t, u32)
ORIEL_OVERLOAD(int64_t, s64)
ORIEL_OVERLOAD(uint64_t, u64)
ORIEL_OVERLOAD(float, f32)
ORIEL_OVERLOAD(double, f64)
#undef ORIEL_OVERLOAD
#define ORIEL_OVERLOAD(T, name)                                                                    \
    ORIEL_FN T oriel_atomic_cas(T *p, T old, T v)                                                  \
    {                                                                                              \
        return oriel_atomic_cas_##name(p, old, v);                                                 \
    }
ORIEL_OVERLOAD(int32_t, s32)
ORIEL_OVERLOAD(uint32_t, u32)
ORIEL_OVERLOAD(int64_t, s64)
ORIEL_OVERLOAD(uint64_t, u64)
#undef ORIEL_OVERLOAD
#else
#define oriel_atomic_add(p, v)                                                                     \
    _Generic((p), int32_t *                                                                        \
             : oriel_atomic_add_s32, uint32_t *                                                    \
             : oriel_atomic_add_u32, int64_t *                                                     \
             : oriel_atomic_add_s64, uint64_t *                                                    \
             : oriel_atomic_add_u64, float *                                                       \
             : oriel_atomic_add_f32, double *                                                      \
             : oriel_atomic_add_f64)(p, v)
#define oriel_atomic_cas(p, old, v)                                                                \
    _Generic((p), int32_t *                                                                        \
             : oriel_atomic_cas_s32, uint32_t *                                                    \
             : oriel_atomic_cas_u32, int64_t *                                                     \
             : oriel_atomic_cas_s64, uint64_t *                                                    \
             : oriel_atomic_cas_u64)(p, old, v)
#endif

#endif

/* ---- by the whole team: copies and reductions --------------------------------------------- */

/* The threads of a team share the work; they order nothing, so a sync, a barrier or a
 * signal after it must say when it is done. */

ORIEL_FN void oriel_copy_share(const oriel_team *team, void *dst, const void *src, size_t bytes)
{
#if defined(__CUDACC__)
    size_t packs = (((uint64_t)dst | (uint64_t)src) % 16) ? 0 : bytes / 16;

    oriel_for_each (i, team, packs) {
        ((uint4 *)dst)[i] = ((const uint4 *)src)[i];
    }
    oriel_for_each (k, team, bytes - 16 * packs) {
        ((char *)dst)[16 * packs + k] = ((const char *)src)[16 * packs + k];
    }
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
    if (bytes > 0)
        oriel_copy_share(team, oriel_peer_address(team, dst, rank), src, bytes);
}

/* Copies `bytes` from where `rank` has `src` to this rank's memory at `dst`. */
ORIEL_FN void oriel_get(const oriel_team *team, int rank, void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        oriel_copy_share(team, dst, oriel_peer_address(team, src, rank), bytes);
}

enum { ORIEL_OP_SUM, ORIEL_OP_PROD, ORIEL_OP_MIN, ORIEL_OP_MAX };

/* Reductions of `count` elements of every rank's `src`, in rank order, so that every
 * rank and every run gets the same bits; f16 and bf16 are combined in float and rounded
 * once, integers wrap, min and max with a NaN are a NaN. `dst` and `src` point into
 * buffers of this rank; they may be the same if nobody else reads or writes there.
 *   oriel_reduce_copy(team, T *dst, const T *src, size_t count, int op)      to this rank
 *   oriel_reduce_copy_all(team, T *dst, const T *src, size_t count, int op)  to all ranks
 * T is float, double, oriel_f16, oriel_bf16, or (u)int8_t to (u)int64_t. */

/* IEEE 754-2019 minimum and maximum: -0 is less than 0. */
#define ORIEL_LEAST(a, b)                                                                          \
    ((a) < (b) || (a) != (a) ? (a) : (a) == 0 && (b) == 0 ? -(-(a) - (b)) : (b))
#define ORIEL_MOST(a, b) ((a) > (b) || (a) != (a) ? (a) : (a) == 0 && (b) == 0 ? (a) + (b) : (b))

#define ORIEL_SAME(x) (x)
/* (element, accumulator, type that sums wrap in, name, to accumulator, to element) */
#define ORIEL_FOR_ELEMENTS(X)                                                                      \
    X(float, float, float, f32, ORIEL_SAME, ORIEL_SAME)                                            \
    X(double, double, double, f64, ORIEL_SAME, ORIEL_SAME)                                         \
    X(oriel_f16, float, float, f16, oriel_f16_to_float, oriel_f16_from_float)                      \
    X(oriel_bf16, float, float, bf16, oriel_bf16_to_float, oriel_bf16_from_float)                  \
    X(int8_t, int8_t, uint32_t, s8, ORIEL_SAME, ORIEL_SAME)                                        \
    X(uint8_t, uint8_t, uint32_t, u8, ORIEL_SAME, ORIEL_SAME)                                      \
    X(int16_t, int16_t, uint32_t, s16, ORIEL_SAME, ORIEL_SAME)                                     \
    X(uint16_t, uint16_t, uint32_t, u16, ORIEL_SAME, ORIEL_SAME)                                   \
    X(int32_t, int32_t, uint32_t, s32, ORIEL_SAME, ORIEL_SAME)                                     \
    X(uint32_t, uint32_t, uint32_t, u32, ORIEL_SAME, ORIEL_SAME)                                   \
    X(int64_t, int64_t, uint64_t, s64, ORIEL_SAME, ORIEL_SAME)                                     \
    X(uint64_t, uint64_t, uint64_t, u64, ORIEL_SAME, ORIEL_SAME)

#if defined(__CUDACC__)

template <class T> struct oriel_element {
};
#define ORIEL_ELEMENT(T, A, W, name, GET, PUT)                                                     \
    template <> struct oriel_element<T> {                                                          \
        typedef A acc;                                                                             \
        typedef W wide;                                                                            \
        static __device__ __forceinline__ A get(T x)                                               \
        {                                                                                          \
            return GET(x);                                                                         \
        }                                                                                          \
        static __device__ __forceinline__ T put(A x)                                               \
        {                                                                                          \
            return PUT(x);                                                                         \
        }                                                                                          \
    };
ORIEL_FOR_ELEMENTS(ORIEL_ELEMENT)
#undef ORIEL_ELEMENT

template <class A, class W> ORIEL_FN A oriel_combine(A a, A b, int op)
{
    if (op == ORIEL_OP_SUM)
        return (A)((W)a + (W)b);
    if (op == ORIEL_OP_PROD)
        return (A)((W)a * (W)b);
    return (A)(op == ORIEL_OP_MIN ? ORIEL_LEAST(a, b) : ORIEL_MOST(a, b));
}

/* 16 bytes at a time where all ranks' addresses allow it, four packs of each rank in
 * flight. The loads are plain, never .nc: what they read was written by others in the
 * same launch, and ordered by an acquire. */
template <class T>
ORIEL_FN void oriel_reduce(const oriel_team *team, T *dst, const T *src, size_t count, int op,
                           int everywhere)
{
    typedef oriel_element<T> E;
    typedef typename E::acc A;
    typedef typename E::wide W;
    const int per = 16 / sizeof(T), flight = 4;
    const oriel_frame *frame = team->frame;
    const oriel_buffer *in, *out;
    uint64_t in_at, out_at, bits = 0;
    size_t packs, threads = team->threads;
    int first = everywhere ? 0 : frame->rank, last = everywhere ? frame->size - 1 : frame->rank;

    if (count == 0)
        return;
    in = oriel_buffer_of(team, src);
    out = oriel_buffer_of(team, dst);
    if (!in || !out)
        return;
    in_at = (uint64_t)src - (uint64_t)in->peers[frame->rank];
    out_at = (uint64_t)dst - (uint64_t)out->peers[frame->rank];
    for (int r = 0; r < frame->size; r++)
        bits |= ((uint64_t)in->peers[r] + in_at) | ((uint64_t)out->peers[r] + out_at);
    packs = bits % 16 ? 0 : count / per;

    for (size_t i = team->thread; i < packs; i += flight * threads) {
        A acc[flight][per];
        union pack {
            uint4 all;
            T each[per];
            __device__ pack()
            {
            }
        } v[flight];

        for (int r = 0; r < frame->size; r++) {
            const uint4 *from = (const uint4 *)((char *)in->peers[r] + in_at);
#pragma unroll
            for (int k = 0; k < flight; k++)
                if (i + k * threads < packs)
                    v[k].all = __ldcs(from + i + k * threads);
#pragma unroll
            for (int k = 0; k < flight; k++)
#pragma unroll
                for (int e = 0; e < per; e++)
                    acc[k][e] = r == 0 ? E::get(v[k].each[e])
                                       : oriel_combine<A, W>(acc[k][e], E::get(v[k].each[e]), op);
        }
#pragma unroll
        for (int k = 0; k < flight; k++)
#pragma unroll
            for (int e = 0; e < per; e++)
                v[k].each[e] = E::put(acc[k][e]);
        for (int r = first; r <= last; r++) {
            uint4 *to = (uint4 *)((char *)out->peers[r] + out_at);
#pragma unroll
            for (int k = 0; k < flight; k++)
                if (i + k * threads < packs)
                    __stcs(to + i + k * threads, v[k].all);
        }
    }
    for (size_t i = packs * per + team->thread; i < count; i += threads) {
        A acc = E::get(((const T *)((char *)in->peers[0] + in_at))[i]);

        for (int r = 1; r < frame->size; r++)
            acc = oriel_combine<A, W>(acc, E::get(((const T *)((char *)in->peers[r] + in_at))[i]),
                                      op);
        for (int r = first; r <= last; r++)
            ((T *)((char *)out->peers[r] + out_at))[i] = E::put(acc);
    }
}

template <class T>
ORIEL_FN void oriel_reduce_copy(const oriel_team *team, T *dst, const T *src, size_t count, int op)
{
    oriel_reduce(team, dst, src, count, op, 0);
}

template <class T>
ORIEL_FN void oriel_reduce_copy_all(const oriel_team *team, T *dst, const T *src, size_t count,
                                    int op)
{
    oriel_reduce(team, dst, src, count, op, 1);
}

#else

enum { ORIEL_REDUCE_BLOCK = 256 };

#define ORIEL_REDUCE_LOOP(expression)                                                              \
    for (size_t i = 0; i < n; i++)                                                                 \
    acc[i] = (expression)

/* A block at a time stays in the cache, and loops without a branch become vectors. */
#define ORIEL_REDUCE(T, A, W, name, GET, PUT)                                                      \
    ORIEL_FN void oriel_reduce_##name(const oriel_team *team, T *dst, const T *src, size_t count,  \
                                      int op, int everywhere)                                      \
    {                                                                                              \
        int first = everywhere ? 0 : team->frame->rank;                                            \
        int last = everywhere ? team->frame->size - 1 : team->frame->rank;                         \
        size_t to = oriel_share_end(team, count), n;                                               \
        A acc[ORIEL_REDUCE_BLOCK];                                                                 \
                                                                                                   \
        for (size_t at = oriel_share_begin(team, count); at < to; at += n) {                       \
            n = to - at < ORIEL_REDUCE_BLOCK ? to - at : (size_t)ORIEL_REDUCE_BLOCK;               \
            for (int r = 0; r < team->frame->size; r++) {                                          \
                const T *x = (const T *)oriel_peer_address(team, src + at, r);                     \
                if (r == 0)                                                                        \
                    ORIEL_REDUCE_LOOP((A)GET(x[i]));                                               \
                else if (op == ORIEL_OP_SUM)                                                       \
                    ORIEL_REDUCE_LOOP((A)((W)acc[i] + (W)GET(x[i])));                              \
                else if (op == ORIEL_OP_PROD)                                                      \
                    ORIEL_REDUCE_LOOP((A)((W)acc[i] * (W)GET(x[i])));                              \
                else if (op == ORIEL_OP_MIN)                                                       \
                    ORIEL_REDUCE_LOOP((A)ORIEL_LEAST(acc[i], GET(x[i])));                          \
                else                                                                               \
                    ORIEL_REDUCE_LOOP((A)ORIEL_MOST(acc[i], GET(x[i])));                           \
            }                                                                                      \
            for (int r = first; r <= last; r++) {                                                  \
                T *y = (T *)oriel_peer_address(team, dst + at, r);                                 \
                for (size_t i = 0; i < n; i++)                                                     \
                    y[i] = PUT(acc[i]);                                                            \
            }                                                                                      \
        }                                                                                          \
    }
ORIEL_FOR_ELEMENTS(ORIEL_REDUCE)
#undef ORIEL_REDUCE
#undef ORIEL_REDUCE_LOOP

#if defined(__cplusplus)
#define ORIEL_OVERLOAD(T, A, W, name, GET, PUT)                                                    \
    ORIEL_FN void oriel_reduce_copy(const oriel_team *team, T *dst, const T *src, size_t count,    \
                                    int op)                                                        \
    {                                                                                              \
        oriel_reduce_##name(team, dst, src, count, op, 0);                                         \
    }                                                                                              \
    ORIEL_FN void oriel_reduce_copy_all(const oriel_team *team, T *dst, const T *src,              \
                                        size_t count, int op)                                      \
    {                                                                                              \
        oriel_reduce_##name(team, dst, src, count, op, 1);                                         \
    }
ORIEL_FOR_ELEMENTS(ORIEL_OVERLOAD)
#undef ORIEL_OVERLOAD
#else
#define ORIEL_REDUCE_OF(dst)                                                                       \
    _Generic((dst), float *                                                                        \
             : oriel_reduce_f32, double *                                                          \
             : oriel_reduce_f64, oriel_f16 *                                                       \
             : oriel_reduce_f16, oriel_bf16 *                                                      \
             : oriel_reduce_bf16, int8_t *                                                         \
             : oriel_reduce_s8, uint8_t *                                                          \
             : oriel_reduce_u8, int16_t *                                                          \
             : oriel_reduce_s16, uint16_t *                                                        \
             : oriel_reduce_u16, int32_t *                                                         \
             : oriel_reduce_s32, uint32_t *                                                        \
             : oriel_reduce_u32, int64_t *                                                         \
             : oriel_reduce_s64, uint64_t *                                                        \
             : oriel_reduce_u64)
#define oriel_reduce_copy(team, dst, src, count, op)                                               \
    ORIEL_REDUCE_OF(dst)(team, dst, src, count, op, 0)
#define oriel_reduce_copy_all(team, dst, src, count, op)                                           \
    ORIEL_REDUCE_OF(dst)(team, dst, src, count, op, 1)
#endif

#endif

/* ---- multicast ------------------------------------------------------------------------- */

/* The one address behind which all ranks' memory at `pointer` is, where the hardware
 * has multicast (sm_90 and NVLink); NULL elsewhere: keep a path without it. Sums taken
 * there have no fixed order, so their bits may differ from run to run. */
ORIEL_FN void *oriel_multimem(const oriel_team *team, const volatile void *pointer)
{
    const oriel_buffer *buffer = oriel_buffer_of(team, pointer);

    if (!buffer || !buffer->multimem)
        return (void *)0;
    return (char *)buffer->multimem +
           ((uint64_t)pointer - (uint64_t)buffer->peers[team->frame->rank]);
}

/* By one thread, at an address of oriel_multimem that is aligned to 16 bytes: the sum of
 * all ranks' four floats there; stores four floats on all ranks. Relaxed, system. */
ORIEL_FN void oriel_multimem_load_sum(const float *multimem, float sums[4])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
                 : "l"(multimem)
                 : "memory");
#else
    for (int i = 0; i < 4; i++)
        sums[i] = multimem[i]; /* nobody has such an address */
#endif
}

ORIEL_FN void oriel_multimem_store(float *multimem, const float values[4])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(multimem),
                 "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3])
                 : "memory");
#else
    for (int i = 0; i < 4; i++)
        multimem[i] = values[i];
#endif
}

/* ---- the way in: what oriel.kernel appends to the author's file --------------------------- */

ORIEL_FN double oriel_real_of(int64_t bits)
{
#if defined(__CUDACC__)
    return __longlong_as_double((long long)bits);
#else
    double value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

#define ORIEL_ARG_BUFFER(T, i)  ((T)team->frame->buffers[i].peers[team->frame->rank])
#define ORIEL_ARG_INTEGER(T, i) ((T)team->frame->values[i])
#define ORIEL_ARG_REAL(T, i)    ((T)oriel_real_of(team->frame->values[i]))
#define ORIEL_ARG_STRING(T, i)  ((const char *)team->frame->values + team->frame->values[i])

#if defined(__CUDACC__)

/* Ranks meet before the body, so that operands are there, and after it, so that
 * results are; who does not meet the others touches nothing of theirs. */
ORIEL_FN int oriel_cuda_begin(oriel_team *team, const oriel_frame *frame)
{
    team->frame = frame;
    team->thread = blockIdx.x * blockDim.x + threadIdx.x;
    team->threads = gridDim.x * blockDim.x;
    team->epoch = oriel_cuda_acquire(oriel_arrivals(frame->boards[frame->rank]) + frame->rank);
    team->started = oriel_cuda_now();
    return oriel_cuda_barrier(team);
}

/* Everybody is past its last signal: the own ones are cleared for the next call. */
ORIEL_FN void oriel_cuda_end(oriel_team *team)
{
    int failed = oriel_cuda_barrier(team);

    for (uint32_t slot = team->thread; !failed && slot < ORIEL_SIGNALS; slot += team->threads)
        team->frame->boards[team->frame->rank]->signals[slot] = 0;
}

#define ORIEL_ENTRY(name, call)                                                                    \
    extern "C" __global__ void oriel_entry_##name(const oriel_frame *frame)                        \
    {                                                                                              \
        oriel_team self;                                                                           \
        oriel_team *team = &self;                                                                  \
        if (oriel_cuda_begin(team, frame) == 0)                                                    \
            call;                                                                                  \
        oriel_cuda_end(team);                                                                      \
    }
#else
#if defined(__cplusplus)
#define ORIEL_EXTERN extern "C"
#else
#define ORIEL_EXTERN extern
#endif
#define ORIEL_ENTRY(name, call)                                                                    \
    ORIEL_EXTERN __attribute__((visibility("default"))) void oriel_entry_##name(oriel_team *);     \
    ORIEL_EXTERN __attribute__((visibility("default"))) void oriel_entry_##name(oriel_team *team)  \
    {                                                                                              \
        call;                                                                                      \
    }
#endif

#endif /* ORIEL_KERNEL_TYPES_ONLY */
#endif
