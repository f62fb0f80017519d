/* Large calls, in one of two modes.
 *
 * Direct: each byte is read once and written once for each member that gets it: a member reduces
 * or forwards one of n tiles, for all. Multiprocessors are not equally fast, so a rank's
 * warps take items from a common count, the first of each apart. That is right though each
 * CTA meets its fellows alone: once they have come, so have their ranks' buffers, and a
 * rank's kernel ends when all CTAs of all others have.
 *
 * Staged: through the members' stages, strip by strip, with two meetings for each. A strip
 * is `tile` bytes of every block where each member sends another block to each, otherwise
 * n tiles; CTA k of every member takes each G-th, from k on.
 *
 * All CTAs of all members have the same mode: those of a rank see to it (reachable()), and
 * each then hears the same of every member. */
#ifndef ORIEL_OPS_CUDA_KERNELS_LARGE_CUH
#define ORIEL_OPS_CUDA_KERNELS_LARGE_CUH

#include "ops/cuda/kernels/small.cuh"
#include "experimental/via.cuh"

/* A part of every block, or of the one there is. */
struct range {
    uint64_t at;    /* where it begins */
    uint32_t bytes; /* 0: past the end */
};

DEVICE uint32_t strip_bytes(const device_call &c)
{
    return scatters(c) ? c.tile : c.n * c.tile;
}

DEVICE range clip(const device_call &c, uint64_t at, uint32_t bytes)
{
    uint64_t left = at < c.block ? c.block - at : 0;

    return range{at, left < bytes ? (uint32_t)left : bytes};
}

#define FOR_STRIPS(at)                                                                             \
    for (uint64_t at = (uint64_t)CTA * strip_bytes(c); at < c.block;                               \
         at += (uint64_t)gridDim.x * strip_bytes(c))

/* The threads that work together on a range: a CTA or a warp. */
struct lanes {
    uint32_t first, step; /* the thread among them, and how many they are */
};

enum { DEVICE_WARPS = DEVICE_THREADS / 32 };

DEVICE lanes cta_lanes()
{
    return lanes{THREAD, DEVICE_THREADS};
}

DEVICE lanes warp_lanes()
{
    return lanes{THREAD % 32, 32};
}

/* ---- items that warps take ---------------------------------------------------------- */

/* Whether there are more items than warps; the same for all CTAs. */
DEVICE bool shares_items(uint64_t items)
{
    return items > gridDim.x * DEVICE_WARPS;
}

DEVICE uint32_t first_item()
{
    return CTA * DEVICE_WARPS + THREAD / 32;
}

/* The number of the warp's next item, in its first lane, which asks for it before it works
 * on the one at hand. */
DEVICE uint32_t next_item(const device_call &c, uint64_t items)
{
    if (!shares_items(items) || THREAD % 32 != 0)
        return ~0u;
    return gridDim.x * DEVICE_WARPS + atomicAdd(&own_table(c)->taken, 1);
}

/* The last of all CTAs sets the counts back, and opens the mode. All threads, in every call
 * that did not fail, whichever mode it had. */
DEVICE void end_items(const device_call &c, uint64_t items)
{
    if (!shares_items(items) && !has_windows(c))
        return;
    __syncthreads();
    /* A thread that does not speak: nobody waits for the answer. */
    if (THREAD == DEVICE_THREADS - 1 && atomicAdd(&own_table(c)->done, 1) == gridDim.x - 1) {
        own_table(c)->taken = 0;
        own_table(c)->done = 0;
        own_table(c)->mode = MODE_OPEN;
    }
}

DEVICE uint64_t count_items(const device_call &c)
{
    uint64_t strip = scatters(c) ? c.item : (uint64_t)c.n * c.item;

    return (c.block + strip - 1) / strip;
}

/* ---- copies ------------------------------------------------------------------------ */

template <class U> DEVICE void copy_units(lanes l, char *to, const char *from, uint32_t bytes)
{
    for (uint32_t i = l.first; i < bytes / sizeof(U); i += l.step)
        ((U *)to)[i] = ((const volatile U *)from)[i];
}

/* Addresses that are no multiples of 16, or an odd end. */
SLOW void copy_odd(lanes l, char *to, const char *from, uint32_t bytes)
{
    uint64_t all = (uint64_t)to | (uint64_t)from | bytes;

    if (all % 4 == 0)
        copy_units<uint32_t>(l, to, from, bytes);
    else
        copy_units<uint8_t>(l, to, from, bytes);
}

/* Number i of the packs, or the last: loads past the end are made all the same, so that
 * no branch keeps the others from being in flight together. */
DEVICE uint32_t pack_at(uint32_t i, uint32_t packs)
{
    return 16 * (i < packs ? i : packs - 1);
}

/* Where a range goes: so far into each of n places. */
struct places {
    char *const *to; /* where each begins */
    uint64_t at;     /* bytes */
    uint32_t n;      /* 1 or more */
};

/* U packs for each lane, from number i on; not to where they come from. */
template <int U>
DEVICE void copy_packs(lanes l, places d, const char *from, uint32_t i, uint32_t packs)
{
    ulonglong2 pack[U];

#pragma unroll
    for (int u = 0; u < U; u++)
        pack[u] = load_pack(from + pack_at(i + u * l.step, packs));
#pragma unroll 1
    for (uint32_t p = 0; p < d.n; p++) {
        char *there = d.to[p] + d.at;

        if (there == from)
            continue;
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (i + u * l.step < packs)
                store_pack(there + 16 * (i + u * l.step), pack[u]);
        }
    }
}

SLOW void copy_to(lanes l, bool odd, places d, const char *from, uint32_t bytes)
{
    uint32_t packs = odd ? 0 : bytes / 16;
    uint32_t i = l.first;

    for (; i - l.first + 4 * l.step < packs; i += 8 * l.step)
        copy_packs<8>(l, d, from, i, packs);
    for (; i - l.first + l.step < packs; i += 4 * l.step)
        copy_packs<4>(l, d, from, i, packs);
    if (i < packs)
        copy_packs<1>(l, d, from, i, packs);
    for (uint32_t p = 0; p < d.n && 16 * packs < bytes; p++) {
        if (d.to[p] + d.at != from)
            copy_odd(l, d.to[p] + d.at + 16 * packs, from + 16 * packs, bytes - 16 * packs);
    }
}

DEVICE void copy_with(lanes l, char *to, const char *from, uint32_t bytes)
{
    copy_to(l, ((uint64_t)to | (uint64_t)from) % 16 != 0, places{&to, 0, 1}, from, bytes);
}

DEVICE void copy(char *to, const char *from, uint32_t bytes)
{
    copy_with(cta_lanes(), to, from, bytes);
}

DEVICE void zero(lanes l, char *to, uint32_t bytes)
{
    for (uint32_t i = l.first; i < bytes; i += l.step)
        to[i] = 0;
}

/* Copies what this rank sends of a strip to where the others find it. */
SLOW void stage_strip(const device_call &c, const meeting &m, range r)
{
    const char *send = (const char *)c.send + r.at;

    if (scatters(c)) {
        for (uint32_t p = 0; p < c.n; p++)
            copy(m.stage[c.index] + (uint64_t)p * c.tile, send + p * c.block, r.bytes);
    } else if (c.kind == ALL_GATHER || c.kind == ALL_REDUCE || c.root == (int)c.index ||
               c.destination >= 0) {
        copy(m.stage[c.index], send, r.bytes);
    }
}

/* ---- reductions -------------------------------------------------------------------- */

template <class C> DEVICE void load_element(const char *at, uint64_t *words)
{
    switch (C::size) {
    case 1:
        words[0] = *(const volatile uint8_t *)at;
        break;
    case 2:
        words[0] = *(const volatile uint16_t *)at;
        break;
    case 4:
        words[0] = *(const volatile uint32_t *)at;
        break;
    default:
        for (int w = 0; w < C::size / 8; w++)
            words[w] = ((const volatile uint64_t *)at)[w];
    }
}

template <class C> DEVICE void store_element(char *at, const uint64_t *words)
{
    switch (C::size) {
    case 1:
        *(uint8_t *)at = (uint8_t)words[0];
        break;
    case 2:
        *(uint16_t *)at = (uint16_t)words[0];
        break;
    case 4:
        *(uint32_t *)at = (uint32_t)words[0];
        break;
    default:
        for (int w = 0; w < C::size / 8; w++)
            ((uint64_t *)at)[w] = words[w];
    }
}

/* From n places, which are so far into each of `from`, to `copies` of them. */
struct sum_of {
    const char *const *from; /* in the order of the members */
    uint64_t from_at;        /* bytes into each */
    uint32_t n, copies;      /* sources; targets */
    char *const *to;         /* each gets the same */
    uint64_t to_at;          /* bytes into each */
};

/* One element at a time, which its type's alignment allows. */
template <class C> DEVICE void reduce_odd(lanes l, const sum_of &r, uint32_t begin, uint32_t end)
{
    for (uint32_t at = begin + l.first * C::size; at < end; at += l.step * C::size) {
        typename C::value sum;
        uint64_t words[2];

#pragma unroll 1
        for (uint32_t p = 0; p < r.n; p++) {
            load_element<C>(r.from[p] + r.from_at + at, words);
            sum = p == 0 ? C::get(words, 0) : C::join(sum, C::get(words, 0));
        }
        words[0] = words[1] = 0;
        C::put(words, 0, sum);
#pragma unroll 1
        for (uint32_t p = 0; p < r.copies; p++)
            store_element<C>(r.to[p] + r.to_at + at, words);
    }
}

/* U packs for each lane, from number i on, P members at a time: so many loads are in
 * flight. n is a multiple of P; ONE: it is P. */
template <class C, int P, int U, bool ONE>
DEVICE void reduce_packs(lanes l, const sum_of &r, uint32_t i, uint32_t packs)
{
    accumulator<C, 2> sum[U];
    uint64_t words[U][2];

#pragma unroll 1
    for (uint32_t first = 0; first < (ONE ? 1 : r.n); first += P) {
        ulonglong2 pack[P][U];

#pragma unroll
        for (int p = 0; p < P; p++) {
            const char *from = r.from[first + p] + r.from_at;
#pragma unroll
            for (int u = 0; u < U; u++)
                pack[p][u] = load_pack(from + pack_at(i + u * l.step, packs));
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int p = 0; p < P; p++) {
                uint64_t words[2] = {pack[p][u].x, pack[p][u].y};

                if (p == 0 && (ONE || first == 0))
                    sum[u].begin(words);
                else
                    sum[u].add(words);
            }
        }
    }
#pragma unroll
    for (int u = 0; u < U; u++)
        sum[u].end(words[u]);
#pragma unroll 1
    for (uint32_t p = 0; p < r.copies; p++) {
        char *there = r.to[p] + r.to_at + 16 * i;

#pragma unroll
        for (int u = 0; u < U; u++) {
            if (i + u * l.step < packs)
                store_pack(there + 16 * u * l.step, ulonglong2{words[u][0], words[u][1]});
        }
    }
}

/* The sum, in the order of the members. */
template <class C> DEVICE void reduce(lanes l, bool odd, const sum_of &r, uint32_t bytes)
{
    uint32_t packs = odd ? 0 : bytes / 16;
    uint32_t i = l.first;

    if (r.n == 2) {
        for (; i < packs; i += 4 * l.step)
            reduce_packs<C, 2, 4, true>(l, r, i, packs);
    } else if (r.n % 4 == 0) {
        for (; i < packs; i += 2 * l.step)
            reduce_packs<C, 4, 2, false>(l, r, i, packs);
    } else {
        for (; i < packs; i += 2 * l.step)
            reduce_packs<C, 1, 2, false>(l, r, i, packs);
    }
    reduce_odd<C>(l, r, 16 * packs, bytes);
}

/* The part of [at, at + bytes) that falls to this warp when its CTA shares it. */
DEVICE range warp_share(range r)
{
    uint32_t share = (r.bytes + 512 * DEVICE_WARPS - 1) / (512 * DEVICE_WARPS) * 512;
    uint32_t begin = THREAD / 32 * share;
    uint32_t left = begin < r.bytes ? r.bytes - begin : 0;

    return range{r.at + begin, left < share ? left : share};
}

/* Where the sum of `own`, of the strip from `at` on, comes from and goes to. */
DEVICE sum_of sum_at(const device_call &c, const meeting &m, uint64_t at, range own)
{
    bool one = scatters(c);
    uint64_t staged = own.at - at + (one ? (uint64_t)c.index * c.tile : 0);

    return one ? sum_of{m.stage, staged, c.n, 1, &m.recv[c.index], own.at}
               : sum_of{m.stage, staged, c.n, c.n, m.stage, c.stage + staged};
}

/* Not inlined, since strips are the slower mode. It holds no barrier, and must not: with
 * the meetings inside, some warps' sums were not written (seen on an H200 with NVRTC 13.0,
 * reduce_scatter of f64 by 3 ranks). Why was not found: every barrier stands behind a
 * WARPSYNC.ALL in the machine code, and racecheck finds nothing in what is here. */
template <class C> SLOW void reduce_share(bool odd, const sum_of &r, uint32_t bytes)
{
    reduce<C>(warp_lanes(), odd, r, bytes);
}

/* Where this CTA's stage is among those of its rank. */
DEVICE uint64_t own_stage(const device_call &c)
{
    return 2ull * CTA * c.stage;
}

/* Staged: the strips of this CTA. */
template <class C> DEVICE uint32_t reduce_strips(const device_call &c, meeting &m)
{
    uint32_t error = DEVICE_FINE;

    FOR_STRIPS(at)
    {
        range all = clip(c, at, strip_bytes(c));

        stage_strip(c, m, all);
        error = sync(c, m);
        if (error == DEVICE_FINE) {
            uint64_t first = scatters(c) ? 0 : (uint64_t)c.index * c.tile;
            range own = warp_share(clip(c, at + first, c.tile));

            if (c.via.multimem != 0)
                multimem_share(c, own_stage(c) + own.at - at, own_stage(c) + c.stage + own.at - at,
                               own.bytes);
            else
                reduce_share<C>(m.odd, sum_at(c, m, at, own), own.bytes);
            error = sync(c, m);
        }
        if (error != DEVICE_FINE)
            return error;
        if (!scatters(c))
            copy((char *)c.recv + all.at, m.stage[c.index] + c.stage, all.bytes);
    }
    return error;
}

/* The items that fall to this warp. */
template <class C> DEVICE void reduce_items(const device_call &c, const meeting &m)
{
    const bool one = scatters(c);
    const uint64_t items = count_items(c);
    const uint64_t strip = one ? c.item : (uint64_t)c.n * c.item;
    const uint64_t skip = one ? c.index * c.block : 0;
    const uint64_t first = one ? 0 : (uint64_t)c.index * c.item;
    sum_of sum = {m.send, 0, c.n, one ? 1 : c.n, &m.recv[one ? c.index : 0], 0};

    for (uint32_t item = first_item(); item < items;) {
        uint32_t next = next_item(c, items);
        range own = clip(c, item * strip + first, c.item);

        sum.from_at = skip + own.at;
        sum.to_at = own.at;
        reduce<C>(warp_lanes(), m.odd, sum, own.bytes);
        item = __shfl_sync(~0u, next, 0);
    }
}

template <class C> DEVICE void large_reduce(const device_call &c)
{
    __shared__ meeting m;
    uint32_t error = enter(c, m, reachable(c, m));

    if (error == DEVICE_FINE && m.direct)
        reduce_items<C>(c, m);
    else if (error == DEVICE_FINE)
        error = reduce_strips<C>(c, m);
    if (error == DEVICE_FINE)
        end_items(c, count_items(c));
    if (error == DEVICE_FINE && m.direct)
        error = sync(c, m);
    leave(c, m, error);
}

/* ---- what only copies -------------------------------------------------------------- */

/* What a warp does of an item: for all_gather and broadcast all that others get of it. */
DEVICE void copy_item(const device_call &c, meeting &m, uint64_t at)
{
    lanes l = warp_lanes();
    range r = clip(c, at, scatters(c) ? c.item : c.n * c.item);
    range own = clip(c, at + (uint64_t)c.index * c.item, c.item);

    switch (c.kind) {
    case ALL_GATHER:
        copy_to(l, m.odd, places{m.recv, c.index * c.block + r.at, c.n},
                (const char *)c.send + r.at, r.bytes);
        break;
    case BROADCAST:
        copy_to(l, m.odd, places{m.recv, own.at, c.n}, m.send[c.root] + own.at, own.bytes);
        break;
    case ALL_TO_ALL:
        for (uint32_t p = 0; p < c.n; p++)
            copy_with(l, (char *)c.recv + p * c.block + r.at, m.send[p] + c.index * c.block + r.at,
                      r.bytes);
        break;
    case PERMUTE:
        if (c.source >= 0)
            copy_with(l, (char *)c.recv + r.at, m.send[c.source] + r.at, r.bytes);
        else
            zero(l, (char *)c.recv + r.at, r.bytes);
        break;
    }
}

DEVICE void unstage_strip(const device_call &c, const meeting &m, range r)
{
    char *recv = (char *)c.recv + r.at;

    if (c.kind == ALL_GATHER || c.kind == ALL_TO_ALL) {
        uint64_t skip = c.kind == ALL_TO_ALL ? (uint64_t)c.index * c.tile : 0;

        for (uint32_t p = 0; p < c.n; p++)
            copy(recv + p * c.block, m.stage[p] + skip, r.bytes);
        return;
    }
    if (c.kind == PERMUTE && c.source < 0)
        zero(cta_lanes(), recv, r.bytes);
    else
        copy(recv, m.stage[c.kind == BROADCAST ? c.root : c.source], r.bytes);
}

DEVICE uint32_t copy_staged(const device_call &c, meeting &m)
{
    uint32_t error = DEVICE_FINE;

    FOR_STRIPS(at)
    {
        range r = clip(c, at, strip_bytes(c));

        stage_strip(c, m, r);
        error = sync(c, m);
        if (error == DEVICE_FINE) {
            unstage_strip(c, m, r);
            error = sync(c, m);
        }
        if (error != DEVICE_FINE)
            return error;
    }
    return error;
}

DEVICE void large_copy(const device_call &c)
{
    __shared__ meeting m;
    const uint64_t items = count_items(c);
    uint32_t error = enter(c, m, reachable(c, m));

    if (error == DEVICE_FINE && m.direct) {
        uint64_t strip = scatters(c) ? c.item : (uint64_t)c.n * c.item;

        for (uint32_t item = first_item(); item < items;) {
            uint32_t next = next_item(c, items);

            copy_item(c, m, item * strip);
            item = __shfl_sync(~0u, next, 0);
        }
    } else if (error == DEVICE_FINE) {
        error = copy_staged(c, m);
    }
    if (error == DEVICE_FINE)
        end_items(c, items);
    if (error == DEVICE_FINE && m.direct)
        error = sync(c, m);
    leave(c, m, error);
}

#endif
