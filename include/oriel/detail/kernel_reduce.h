/* Reductions, and elements of 16 bits: part of oriel/kernel.h. */
#ifndef ORIEL_KERNEL_REDUCE_H
#define ORIEL_KERNEL_REDUCE_H

#include <oriel/kernel.h>

/* ---- elements of 16 bits ------------------------------------------------------------ */

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

/* ---- reductions ---------------------------------------------------------------------- */

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

/* One of `size` sources and of the targets `first` to `last` for each rank: so far into each
 * rank's buffer. */
struct oriel_reduction {
    void *const *from;         /* [size]: the sources' buffers */
    void *const *to;           /* [size]: the targets' buffers */
    uint64_t from_at, to_at;   /* bytes into them */
    int size, first, last, op; /* see above; op: ORIEL_OP_... */
};

template <class T> union oriel_pack {
    uint4 all;
    T each[16 / sizeof(T)];
    __device__ oriel_pack()
    {
    }
};

/* Strong, so past the L1 cache: what it reads may have been written in the same launch. Not
 * ordered by itself, so that many can be in flight. */
ORIEL_FN uint4 oriel_cuda_load_pack(const void *at)
{
    uint4 pack;

    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pack.x), "=r"(pack.y), "=r"(pack.z), "=r"(pack.w)
                 : "l"(at));
    return pack;
}

/* What becomes of `n` elements from `at` on before they are stored. */
struct oriel_as_they_are {
    template <class A> __device__ __forceinline__ void operator()(A *, int, size_t) const
    {
    }
};

/* Gives it row and column. A division of 64 bits costs as much as all the rest. */
template <class F> struct oriel_in_rows {
    F then;
    size_t cols;

    template <class A> __device__ __forceinline__ void operator()(A *values, int n, size_t at) const
    {
        size_t row = (at | cols) >> 32 ? at / cols : (uint32_t)at / (uint32_t)cols;
        size_t col = at - row * cols;

        if (col + n <= cols) {
            then(values, n, row, col);
            return;
        }
        for (int e = 0; e < n; e++) {
            then(values + e, 1, row, col);
            if (++col == cols) {
                col = 0;
                row++;
            }
        }
    }
};

/* Packs `i`, `i + 32` and so on, U of them in flight for each of P ranks; the number of ranks
 * is a multiple of P. ONE: it is P. */
template <class T, int P, int U, bool ONE, class Then>
ORIEL_FN void oriel_reduce_packs(const oriel_reduction &r, size_t i, const Then &then)
{
    typedef oriel_element<T> E;
    typedef typename E::acc A;
    const int per = 16 / sizeof(T);
    oriel_pack<T> sum[U];
    A acc[U][per];

#pragma unroll 1
    for (int rank = 0; rank < (ONE ? 1 : r.size); rank += P) {
        oriel_pack<T> v[P][U];

#pragma unroll
        for (int p = 0; p < P; p++) {
            const uint4 *from = (const uint4 *)((char *)r.from[rank + p] + r.from_at) + i;
#pragma unroll
            for (int u = 0; u < U; u++)
                v[p][u].all = oriel_cuda_load_pack(from + 32 * u);
        }
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int p = 0; p < P; p++)
#pragma unroll
                for (int e = 0; e < per; e++) {
                    A x = E::get(v[p][u].each[e]);
                    acc[u][e] = p == 0 && (ONE || rank == 0)
                                    ? x
                                    : oriel_combine<A, typename E::wide>(acc[u][e], x, r.op);
                }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        then(acc[u], per, (i + 32 * u) * per);
#pragma unroll
        for (int e = 0; e < per; e++)
            sum[u].each[e] = E::put(acc[u][e]);
    }
#pragma unroll 1
    for (int rank = r.first; rank <= r.last; rank++) {
        uint4 *to = (uint4 *)((char *)r.to[rank] + r.to_at) + i;
#pragma unroll
        for (int u = 0; u < U; u++)
            __stcs(to + 32 * u, sum[u].all);
    }
}

/* Where the team counts what its warps have taken of this reduction; NULL: nowhere. */
ORIEL_FN uint32_t *oriel_reduce_count(const oriel_team *team)
{
    uint32_t k = ((oriel_team *)team)->reductions++;

    if (k >= ORIEL_SHARED)
        return (uint32_t *)0;
    return &team->frame->boards[team->frame->rank]->taken[k];
}

/* Multiprocessors are not equally fast, so warps take items of up to 4 KiB from a common
 * count, the first of each apart; and each asks for the next before it works on the one at
 * hand. */
template <class T, int P, int U, bool ONE, class Then>
ORIEL_FN void oriel_reduce_items(const oriel_team *team, const oriel_reduction &r, size_t packs,
                                 const Then &then)
{
    const uint32_t warps = team->threads / 32, lane = team->thread % 32, least = 32 * U;
    const size_t share = (packs / warps / 4 + least - 1) / least * least;
    const uint32_t item_packs = share < least ? least : share > 256 ? 256 : (uint32_t)share;
    uint32_t *taken = oriel_reduce_count(team);

    for (uint32_t item = team->thread / 32; (size_t)item * item_packs < packs;) {
        size_t at = (size_t)item * item_packs + lane;
        uint32_t left = packs - at + lane < item_packs ? (uint32_t)(packs - at + lane) : item_packs;
        uint32_t next = item + warps;

        if (taken && lane == 0)
            next = warps + atomicAdd(taken, 1u);
        for (; left >= least; left -= least, at += least)
            oriel_reduce_packs<T, P, U, ONE>(r, at, then);
        for (; lane<left; left = left> 32 ? left - 32 : 0, at += 32)
            oriel_reduce_packs<T, P, 1, ONE>(r, at, then);
        item = taken ? __shfl_sync(~0u, next, 0) : next;
    }
}

/* What is no whole pack, or not aligned to one, from element `i` on. */
template <class T, class Then>
ORIEL_FN void oriel_reduce_rest(const oriel_reduction &r, size_t i, size_t step, size_t count,
                                const Then &then)
{
    typedef oriel_element<T> E;
    typedef typename E::acc A;

    for (; i < count; i += step) {
        A acc = E::get(((const T *)((char *)r.from[0] + r.from_at))[i]);

        for (int rank = 1; rank < r.size; rank++)
            acc = oriel_combine<A, typename E::wide>(
                acc, E::get(((const T *)((char *)r.from[rank] + r.from_at))[i]), r.op);
        then(&acc, 1, i);
        for (int rank = r.first; rank <= r.last; rank++)
            ((T *)((char *)r.to[rank] + r.to_at))[i] = E::put(acc);
    }
}

template <class T, class Then>
ORIEL_FN void oriel_reduce_parts(const oriel_team *team, T *dst, const T *src, size_t count, int op,
                                 int everywhere, const Then &then)
{
    const oriel_frame *frame = team->frame;
    const size_t per = 16 / sizeof(T);
    const oriel_buffer *in, *out;
    oriel_reduction r;
    uint64_t bits = 0;
    size_t packs;

    if (count == 0)
        return;
    in = oriel_buffer_of(team, src);
    out = oriel_buffer_of(team, dst);
    if (!in || !out)
        return;
    r.from = in->peers;
    r.to = out->peers;
    r.from_at = (uint64_t)src - (uint64_t)in->peers[frame->rank];
    r.to_at = (uint64_t)dst - (uint64_t)out->peers[frame->rank];
    r.size = frame->size;
    r.first = everywhere ? 0 : frame->rank;
    r.last = everywhere ? frame->size - 1 : frame->rank;
    r.op = op;
    for (int rank = 0; rank < r.size; rank++)
        bits |= ((uint64_t)r.from[rank] + r.from_at) | ((uint64_t)r.to[rank] + r.to_at);
    packs = bits % 16 ? 0 : count / per;

    if (r.size == 2)
        oriel_reduce_items<T, 2, 4, true>(team, r, packs, then);
    else if (r.size % 4 == 0)
        oriel_reduce_items<T, 4, 2, false>(team, r, packs, then);
    else
        oriel_reduce_items<T, 1, 4, false>(team, r, packs, then);
    oriel_reduce_rest<T>(r, packs * per + team->thread, team->threads, count, then);
}

template <class T>
ORIEL_FN void oriel_reduce_copy(const oriel_team *team, T *dst, const T *src, size_t count, int op)
{
    oriel_reduce_parts(team, dst, src, count, op, 0, oriel_as_they_are());
}

template <class T>
ORIEL_FN void oriel_reduce_copy_all(const oriel_team *team, T *dst, const T *src, size_t count,
                                    int op)
{
    oriel_reduce_parts(team, dst, src, count, op, 1, oriel_as_they_are());
}

template <class T, class F>
ORIEL_FN void oriel_reduce_rows_by(const oriel_team *team, T *dst, const T *src, size_t rows,
                                   size_t cols, int op, F then)
{
    oriel_reduce_parts(team, dst, src, rows * cols, op, 0, oriel_in_rows<F>{then, cols});
}

/* A lambda, since a function's address would be called, not inlined. */
#define oriel_reduce_rows(team, dst, src, rows, cols, op, then, arg)                               \
    oriel_reduce_rows_by(                                                                          \
        team, dst, src, rows, cols, op,                                                            \
        [&](auto *values, size_t n, size_t row, size_t col) { then(values, n, row, col, arg); })

#else

enum { ORIEL_REDUCE_BLOCK = 256 };

#define ORIEL_REDUCE_LOOP(expression)                                                              \
    for (size_t i = 0; i < n; i++)                                                                 \
    acc[i] = (expression)

/* A block at a time stays in the cache, and loops without a branch become vectors. */
#define ORIEL_REDUCE(T, A, W, name, GET, PUT)                                                      \
    ORIEL_FN void oriel_reduce_block_##name(const oriel_team *team, A *acc, const T *src,          \
                                            size_t n, int op)                                      \
    {                                                                                              \
        for (int r = 0; r < team->frame->size; r++) {                                              \
            const T *x = (const T *)oriel_peer_address(team, src, r);                              \
            if (r == 0)                                                                            \
                ORIEL_REDUCE_LOOP((A)GET(x[i]));                                                   \
            else if (op == ORIEL_OP_SUM)                                                           \
                ORIEL_REDUCE_LOOP((A)((W)acc[i] + (W)GET(x[i])));                                  \
            else if (op == ORIEL_OP_PROD)                                                          \
                ORIEL_REDUCE_LOOP((A)((W)acc[i] * (W)GET(x[i])));                                  \
            else if (op == ORIEL_OP_MIN)                                                           \
                ORIEL_REDUCE_LOOP((A)ORIEL_LEAST(acc[i], GET(x[i])));                              \
            else                                                                                   \
                ORIEL_REDUCE_LOOP((A)ORIEL_MOST(acc[i], GET(x[i])));                               \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
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
            oriel_reduce_block_##name(team, acc, src + at, n, op);                                 \
            for (int r = first; r <= last; r++) {                                                  \
                T *y = (T *)oriel_peer_address(team, dst + at, r);                                 \
                for (size_t i = 0; i < n; i++)                                                     \
                    y[i] = PUT(acc[i]);                                                            \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    ORIEL_FN void oriel_reduce_rows_##name(                                                        \
        const oriel_team *team, T *dst, const T *src, size_t rows, size_t cols, int op,            \
        void (*then)(A *, size_t, size_t, size_t, const void *), const void *arg)                  \
    {                                                                                              \
        size_t at = oriel_share_begin(team, rows * cols), to = oriel_share_end(team, rows * cols); \
        A acc[ORIEL_REDUCE_BLOCK];                                                                 \
                                                                                                   \
        for (size_t n, row = cols ? at / cols : 0, col = at - row * cols; at < to; at += n) {      \
            n = to - at < ORIEL_REDUCE_BLOCK ? to - at : (size_t)ORIEL_REDUCE_BLOCK;               \
            n = cols - col < n ? cols - col : n;                                                   \
            oriel_reduce_block_##name(team, acc, src + at, n, op);                                 \
            then(acc, n, row, col, arg);                                                           \
            for (size_t i = 0; i < n; i++)                                                         \
                dst[at + i] = PUT(acc[i]);                                                         \
            col += n;                                                                              \
            if (col == cols) {                                                                     \
                col = 0;                                                                           \
                row++;                                                                             \
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
    }                                                                                              \
    ORIEL_FN void oriel_reduce_rows(                                                               \
        const oriel_team *team, T *dst, const T *src, size_t rows, size_t cols, int op,            \
        void (*then)(A *, size_t, size_t, size_t, const void *), const void *arg)                  \
    {                                                                                              \
        oriel_reduce_rows_##name(team, dst, src, rows, cols, op, then, arg);                       \
    }
ORIEL_FOR_ELEMENTS(ORIEL_OVERLOAD)
#undef ORIEL_OVERLOAD
#else
#define ORIEL_REDUCE_OF(dst, what)                                                                 \
    _Generic((dst), float *                                                                        \
             : what##f32, double *                                                                 \
             : what##f64, oriel_f16 *                                                              \
             : what##f16, oriel_bf16 *                                                             \
             : what##bf16, int8_t *                                                                \
             : what##s8, uint8_t *                                                                 \
             : what##u8, int16_t *                                                                 \
             : what##s16, uint16_t *                                                               \
             : what##u16, int32_t *                                                                \
             : what##s32, uint32_t *                                                               \
             : what##u32, int64_t *                                                                \
             : what##s64, uint64_t *                                                               \
             : what##u64)
#define oriel_reduce_copy(team, dst, src, count, op)                                               \
    ORIEL_REDUCE_OF(dst, oriel_reduce_)(team, dst, src, count, op, 0)
#define oriel_reduce_copy_all(team, dst, src, count, op)                                           \
    ORIEL_REDUCE_OF(dst, oriel_reduce_)(team, dst, src, count, op, 1)
#define oriel_reduce_rows(team, dst, src, rows, cols, op, then, arg)                               \
    ORIEL_REDUCE_OF(dst, oriel_reduce_rows_)(team, dst, src, rows, cols, op, then, arg)
#endif

#endif

#endif
