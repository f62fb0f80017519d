/* Small calls: one exchange through the slots, each line of which carries its own tag, so
 * that nothing but the data itself has to arrive. A CTA takes DEVICE_SMALL_BYTES of every
 * block, a thread 8 bytes: one line to and one from each member; or, for more bytes, several
 * times as much. Thread 0 exchanges a line with every member in every call, whatever it has
 * to send.
 *
 * Slots are used in turn, two for each pair of ranks and CTA. Who writes a slot for the
 * second time has seen its peer's lines of the call between, which the peer sent after its
 * kernel of the call before had ended: the slot has been read. A kernel may be launched
 * while the one before it still runs, but waits for its end first thing (kernels.cu). */
#ifndef ORIEL_OPS_CUDA_SMALL_CUH
#define ORIEL_OPS_CUDA_SMALL_CUH

#include "ops/cuda/element.cuh"

/* As oriel_kind in core/trace.h. */
enum kind {
    ALL_REDUCE = 1,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    BROADCAST,
    PERMUTE,
    BARRIER,
    RAGGED_ALL_TO_ALL
};

DEVICE bool scatters(const device_call &c)
{
    return c.kind == REDUCE_SCATTER || c.kind == ALL_TO_ALL;
}

/* Whether this rank has data for `member`, or wants some of it. */
DEVICE bool gives(const device_call &c, uint32_t member)
{
    return c.kind == BROADCAST ? c.root == (int)c.index
                               : c.kind != PERMUTE || c.destination == (int)member;
}

DEVICE bool wants(const device_call &c, uint32_t member)
{
    return c.kind == BROADCAST ? c.root == (int)member
                               : c.kind != PERMUTE || c.source == (int)member;
}

/* Line number l of this thread. */
DEVICE char *slot_line(const device_call &c, uint64_t heap, uint32_t from, uint32_t turn, int l)
{
    uint64_t slot = (uint64_t)(turn & 1) * c.world + from;
    uint64_t first = (slot * DEVICE_SMALL_CTAS + CTA) * c.slot_lines + l;

    return (char *)heap + c.slots_at + (first * DEVICE_THREADS + THREAD) * 16;
}

/* Up to 8 bytes, of any alignment. */
SLOW uint64_t load_odd(const char *at, uint32_t bytes)
{
    uint64_t word = 0;

    for (uint32_t i = 0; i < bytes; i++)
        word |= (uint64_t)(uint8_t)at[i] << 8 * i;
    return word;
}

SLOW void store_odd(char *at, uint32_t bytes, uint64_t word)
{
    for (uint32_t i = 0; i < bytes; i++)
        at[i] = (char)(word >> 8 * i);
}

DEVICE uint64_t load_some(const char *at, uint32_t bytes)
{
    if (bytes == 8 && (uint64_t)at % 8 == 0)
        return *(const uint64_t *)at;
    return bytes > 0 ? load_odd(at, bytes) : 0;
}

DEVICE void store_some(char *at, uint32_t bytes, uint64_t word)
{
    if (bytes == 8 && (uint64_t)at % 8 == 0)
        *(uint64_t *)at = word;
    else if (bytes > 0)
        store_odd(at, bytes, word);
}

/* What a thread has of a block: L pieces, DEVICE_SMALL_BYTES apart. */
template <int L> struct share {
    uint64_t at;
    uint32_t bytes[L];
};

template <int L> DEVICE share<L> own_share(const device_call &c)
{
    share<L> s;

    s.at = (uint64_t)CTA * (L * DEVICE_SMALL_BYTES) + 8 * THREAD;
#pragma unroll
    for (int l = 0; l < L; l++) {
        uint64_t at = s.at + l * DEVICE_SMALL_BYTES;
        uint64_t left = at < c.block ? c.block - at : 0;

        s.bytes[l] = (uint32_t)(left < 8 ? left : 8);
    }
    return s;
}

template <int L> DEVICE void load_share(const char *from, const share<L> &s, uint64_t *words)
{
#pragma unroll
    for (int l = 0; l < L; l++)
        words[l] = load_some(from + s.at + l * DEVICE_SMALL_BYTES, s.bytes[l]);
}

template <int L> DEVICE void store_share(char *to, const share<L> &s, const uint64_t *words)
{
#pragma unroll
    for (int l = 0; l < L; l++)
        store_some(to + s.at + l * DEVICE_SMALL_BYTES, s.bytes[l], words[l]);
}

/* Whether line l goes to, or comes from, somebody for whom there is data. */
template <int L> DEVICE bool has_line(const share<L> &s, bool data, int l)
{
    return (data && s.bytes[l] > 0) || (l == 0 && THREAD == 0);
}

/* A rank that has failed sends no more: it may not have heard its peers, who may still read
 * what it would overwrite, or compare what it asked for with what it asks for now. The error
 * is looked at last, so that other loads do not wait for its. */
template <int L> DEVICE void small_send(const device_call &c, const share<L> &s, uint32_t error)
{
    for (uint32_t k = 1; k < c.n; k++) {
        uint32_t p = c.index + k < c.n ? c.index + k : c.index + k - c.n;
        uint32_t turn = own_table(c)->counts[CTA][c.ranks[p]].slots + 1;
        bool data = gives(c, p);
        uint64_t words[L] = {};

        if (data)
            load_share((const char *)c.send + (scatters(c) ? p * c.block : 0), s, words);
#pragma unroll
        for (int l = 0; l < L; l++) {
            if (has_line(s, data, l) && error == DEVICE_FINE)
                store_line(slot_line(c, c.heap[p], own_rank(c), turn, l), words[l],
                           (uint64_t)c.hash << 32 | turn);
        }
    }
}

/* What `member` sent to this thread. */
template <int L>
DEVICE uint32_t small_take(const device_call &c, uint32_t member, const share<L> &s, bool data,
                           uint64_t *words)
{
    uint32_t turn = own_table(c)->counts[CTA][c.ranks[member]].slots + 1;

    return spin(c, member, [&] {
        bool all = true;

#pragma unroll
        for (int l = 0; l < L; l++) {
            uint64_t tag;

            if (!has_line(s, data, l))
                continue;
            load_line(slot_line(c, c.table, c.ranks[member], turn, l), words[l], tag);
            all = all && tag == ((uint64_t)c.hash << 32 | turn);
        }
        return all;
    });
}

/* What the speakers know from the start, so that nobody waits for it in the end. */
DEVICE device_counts small_counts(const device_call &c)
{
    return speaks(c) ? *own_counts(c) : device_counts{};
}

/* The turns are counted once all threads have read them. */
DEVICE void small_end(const device_call &c, const device_counts &counts, uint32_t error)
{
    if (__syncthreads_or(error != DEVICE_FINE)) {
        poison(c);
        return;
    }
    if (speaks(c)) {
        own_counts(c)->slots = counts.slots + 1;
        own_counts(c)->calls = counts.calls + 1;
    }
}

/* all_reduce and reduce_scatter of at most 8-byte elements. */
template <class C, int L> DEVICE void small_reduce(const device_call &c)
{
    const share<L> s = own_share<L>(c);
    const device_counts counts = small_counts(c);
    const char *own = (const char *)c.send + (scatters(c) ? c.index * c.block : 0);
    uint32_t error = load_relaxed(&own_table(c)->error);
    accumulator<C, 1> sum[L];
    uint64_t words[L] = {};

    small_send(c, s, error);
    if (speaks(c) && error == DEVICE_FINE) /* later than the data, which is waited for */
        announce(c, counts.calls);
    for (uint32_t p = 0; p < c.n && error == DEVICE_FINE; p++) {
        if (p == c.index)
            load_share(own, s, words);
        else
            error = small_take(c, p, s, true, words);
#pragma unroll
        for (int l = 0; l < L; l++) {
            if (p == 0)
                sum[l].begin(&words[l]);
            else
                sum[l].add(&words[l]);
        }
    }
#pragma unroll
    for (int l = 0; l < L; l++)
        sum[l].end(&words[l]);
    if (error == DEVICE_FINE)
        store_share((char *)c.recv, s, words);
    small_end(c, counts, error);
}

/* All that only copies. */
template <int L> DEVICE void small_copy(const device_call &c)
{
    const share<L> s = own_share<L>(c);
    const device_counts counts = small_counts(c);
    bool each = c.kind == ALL_GATHER || c.kind == ALL_TO_ALL;
    uint32_t error = load_relaxed(&own_table(c)->error);
    uint64_t mine[L] = {};

    /* A barrier: what the stream did before it, all see after it. Thread 0 speaks alone. */
    if (c.kind == BARRIER && THREAD == 0)
        __threadfence_system();
    if (wants(c, c.index))
        load_share((const char *)c.send + (scatters(c) ? c.index * c.block : 0), s, mine);
    small_send(c, s, error);
    if (speaks(c) && error == DEVICE_FINE)
        announce(c, counts.calls);
    if (c.kind == PERMUTE && c.source < 0) {
        const uint64_t none[L] = {};

        store_share((char *)c.recv, s, none);
    }
    for (uint32_t p = 0; p < c.n && error == DEVICE_FINE; p++) {
        bool data = wants(c, p);
        char *recv = (char *)c.recv + (each ? p * c.block : 0);
        uint64_t words[L];

        if (p == c.index) {
            if (data)
                store_share(recv, s, mine);
            continue;
        }
        error = small_take(c, p, s, data, words);
        if (data && error == DEVICE_FINE)
            store_share(recv, s, words);
    }
    if (c.kind == BARRIER && THREAD == 0)
        __threadfence_system();
    small_end(c, counts, error);
}

#endif
