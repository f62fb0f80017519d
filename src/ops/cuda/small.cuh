/* Small calls: one exchange through the slots, each line of which carries its own tag, so
 * that nothing but the data itself has to arrive. A CTA takes DEVICE_SMALL_BYTES of every
 * block, a thread 8 bytes: one line to and one from each member. Thread 0 exchanges a line
 * with every member in every call, whatever it has to send.
 *
 * Slots are used in turn, two for each pair of ranks and CTA. Who writes a slot for the
 * second time has seen its peer's lines of the call between, which the peer sent after its
 * kernel of the call before had ended: the slot has been read. */
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

DEVICE char *slot_line(const device_call &c, uint64_t heap, uint32_t from, uint32_t turn)
{
    uint64_t slot = (uint64_t)(turn & 1) * c.world + from;

    return (char *)heap + c.slots_at +
           ((slot * DEVICE_SMALL_CTAS + CTA) * DEVICE_THREADS + THREAD) * 16;
}

/* Up to 8 bytes, of any alignment. */
DEVICE uint64_t load_some(const char *at, uint32_t bytes)
{
    uint64_t word = 0;

    if (bytes == 8 && (uint64_t)at % 8 == 0)
        return *(const uint64_t *)at;
    for (uint32_t i = 0; i < bytes; i++)
        word |= (uint64_t)(uint8_t)at[i] << 8 * i;
    return word;
}

DEVICE void store_some(char *at, uint32_t bytes, uint64_t word)
{
    if (bytes == 8 && (uint64_t)at % 8 == 0) {
        *(uint64_t *)at = word;
        return;
    }
    for (uint32_t i = 0; i < bytes; i++)
        at[i] = (char)(word >> 8 * i);
}

struct piece {
    uint64_t at; /* in a block */
    uint32_t bytes;
};

DEVICE piece own_piece(const device_call &c)
{
    uint64_t at = (uint64_t)CTA * DEVICE_SMALL_BYTES + 8 * THREAD;
    uint64_t left = at < c.block ? c.block - at : 0;

    return piece{at, (uint32_t)(left < 8 ? left : 8)};
}

/* A rank that has failed sends no more: it may not have heard its peers, who may still read
 * what it would overwrite, or compare what it asked for with what it asks for now. The error
 * is looked at last, so that other loads do not wait for its. */
DEVICE void small_send(const device_call &c, piece piece, uint32_t error)
{
    const char *send = (const char *)c.send + piece.at;

    for (uint32_t k = 1; k < c.n; k++) {
        uint32_t p = c.index + k < c.n ? c.index + k : c.index + k - c.n;
        uint32_t turn = own_table(c)->counts[CTA][c.ranks[p]].slots + 1;
        bool data = piece.bytes > 0 && gives(c, p);
        uint64_t word = 0;

        if (data)
            word = load_some(send + (scatters(c) ? p * c.block : 0), piece.bytes);
        if ((data || THREAD == 0) && error == DEVICE_FINE)
            store_line(slot_line(c, c.heap[p], own_rank(c), turn), word,
                       (uint64_t)c.hash << 32 | turn);
    }
    if (speaks(c) && CTA == 0 && error == DEVICE_FINE)
        announce(c, own_counts(c)->calls);
}

/* What `member` sent to this thread. */
DEVICE uint32_t small_take(const device_call &c, uint32_t member, uint64_t &word)
{
    uint32_t turn = own_table(c)->counts[CTA][c.ranks[member]].slots + 1;
    const char *line = slot_line(c, c.table, c.ranks[member], turn);

    return spin(c, member, [&] {
        uint64_t tag;

        load_line(line, word, tag);
        return tag == ((uint64_t)c.hash << 32 | turn);
    });
}

/* The turns are counted once all threads have read them. */
DEVICE void small_end(const device_call &c, uint32_t error)
{
    if (__syncthreads_or(error != DEVICE_FINE)) {
        poison(c);
        return;
    }
    if (speaks(c)) {
        device_counts *counts = own_counts(c);

        counts->slots++;
        counts->calls++;
    }
}

/* all_reduce and reduce_scatter of at most 8-byte elements. */
template <class C> DEVICE void small_reduce(const device_call &c)
{
    piece piece = own_piece(c);
    const char *own = (const char *)c.send + piece.at + (scatters(c) ? c.index * c.block : 0);
    uint32_t error = load_relaxed(&own_table(c)->error);
    accumulator<C, 1> sum;
    uint64_t word = 0;

    small_send(c, piece, error);
    for (uint32_t p = 0; p < c.n && error == DEVICE_FINE; p++) {
        if (p == c.index)
            word = load_some(own, piece.bytes);
        else if (piece.bytes > 0 || THREAD == 0)
            error = small_take(c, p, word);
        if (p == 0)
            sum.begin(&word);
        else
            sum.add(&word);
    }
    sum.end(&word);
    if (error == DEVICE_FINE)
        store_some((char *)c.recv + piece.at, piece.bytes, word);
    small_end(c, error);
}

/* All that only copies. */
DEVICE void small_copy(const device_call &c)
{
    piece piece = own_piece(c);
    bool each = c.kind == ALL_GATHER || c.kind == ALL_TO_ALL;
    uint32_t error = load_relaxed(&own_table(c)->error);
    char *recv = (char *)c.recv + piece.at;
    const char *send = (const char *)c.send + piece.at;
    uint64_t mine = 0;

    if (piece.bytes > 0 && wants(c, c.index))
        mine = load_some(send + (scatters(c) ? c.index * c.block : 0), piece.bytes);
    small_send(c, piece, error);
    if (c.kind == PERMUTE && c.source < 0)
        store_some(recv, piece.bytes, 0);
    for (uint32_t p = 0; p < c.n && error == DEVICE_FINE; p++) {
        bool data = piece.bytes > 0 && wants(c, p);
        uint64_t word = mine;

        if (p != c.index && (data || THREAD == 0))
            error = small_take(c, p, word);
        if (data && error == DEVICE_FINE)
            store_some(recv + (each ? p * c.block : 0), piece.bytes, word);
    }
    small_end(c, error);
}

#endif
