/* ragged_all_to_all: what goes where is known to the devices alone. Each CTA tells its
 * fellows what this rank has for them, slice by slice, meets them, and then takes its
 * share of what they have for this rank: from their buffers where all can be reached,
 * otherwise from their stages, round by round. What one member has for another is a
 * stream: its slices one after the other; CTA k takes pieces k, k + G, ... of it. */
#ifndef ORIEL_OPS_CUDA_KERNELS_RAGGED_CUH
#define ORIEL_OPS_CUDA_KERNELS_RAGGED_CUH

#include "ops/cuda/kernels/large.cuh"

enum { DETAIL_SIZES = 1, DETAIL_ROWS, DETAIL_INPUT };

/* Entry i of an array of the call. */
DEVICE int64_t index_at(const device_call &c, uint64_t array, uint64_t i)
{
    return c.flags & DEVICE_WIDE_INDEX ? ((const int64_t *)array)[i] : ((const int32_t *)array)[i];
}

/* What `from` has told the owner of `heap`. */
DEVICE device_slice *slices_from(const device_call &c, uint64_t heap, uint32_t from)
{
    return (device_slice *)(heap + c.ragged_at) + (uint64_t)c.ranks[from] * (DEVICE_SLICES + 1);
}

/* Writes this rank's slices to all members, after them the longest stream it has for
 * anybody, as rounds through the stages. */
DEVICE uint32_t tell_slices(const device_call &c, int64_t *longest)
{
    uint32_t error = DEVICE_FINE;

    for (uint32_t i = THREAD; i < c.n * c.slices; i += DEVICE_THREADS) {
        uint32_t p = i / c.slices;
        int64_t from = index_at(c, c.input_offsets, i);
        int64_t rows = index_at(c, c.send_sizes, i);
        int64_t to = index_at(c, c.output_offsets, i);

        if (from < 0 || rows < 0 || to < 0 || from > (int64_t)c.send_rows ||
            rows > (int64_t)c.send_rows - from)
            error = fail(c, DEVICE_RAGGED, (int)p, DETAIL_INPUT, i, from, rows);
        slices_from(c, c.heap[p], c.index)[i % c.slices] = device_slice{from, rows, to};
    }
    if (THREAD < c.n) {
        int64_t rows = 0;

        for (uint32_t k = 0; k < c.slices; k++)
            rows += index_at(c, c.send_sizes, (uint64_t)THREAD * c.slices + k);
        atomicMax((long long *)longest, (long long)rows);
    }
    __syncthreads();
    if (THREAD < c.n)
        slices_from(c, c.heap[THREAD], c.index)[DEVICE_SLICES] = device_slice{*longest, 0, 0};
    return error;
}

/* Compares what the members have for this rank with what it expects. */
DEVICE uint32_t check_slices(const device_call &c)
{
    uint32_t error = DEVICE_FINE;

    for (uint32_t i = THREAD; i < c.n * c.slices && error == DEVICE_FINE; i += DEVICE_THREADS) {
        uint32_t p = i / c.slices;
        device_slice s = slices_from(c, c.table, p)[i % c.slices];
        int64_t expected = index_at(c, c.recv_sizes, i);

        if (s.rows != expected)
            error = fail(c, DEVICE_RAGGED, (int)p, DETAIL_SIZES, i % c.slices, s.rows, expected);
        else if (s.to > (int64_t)c.recv_rows || s.rows > (int64_t)c.recv_rows - s.to)
            error = fail(c, DEVICE_RAGGED, (int)p, DETAIL_ROWS, i % c.slices, s.to, s.rows);
    }
    return __syncthreads_or(error != DEVICE_FINE) ? DEVICE_REVOKED : DEVICE_FINE;
}

/* Bytes [at, at + bytes) of the stream of the slices `s`, from `flat` to where they go. */
DEVICE void unstage_stream(const device_call &c, const device_slice *s, const char *flat,
                           uint64_t at, uint32_t bytes)
{
    uint64_t begin = 0;

    for (uint32_t k = 0; k < c.slices && begin < at + bytes; k++) {
        uint64_t length = (uint64_t)s[k].rows * c.block;
        uint64_t low = begin > at ? begin : at;
        uint64_t high = begin + length < at + bytes ? begin + length : at + bytes;

        if (low < high)
            copy((char *)c.recv + (uint64_t)s[k].to * c.block + (low - begin), flat + (low - at),
                 (uint32_t)(high - low));
        begin += length;
    }
}

/* The same of what this rank has for `p`, the other way. */
DEVICE void stage_stream(const device_call &c, char *stage, uint32_t p, uint64_t at, uint32_t bytes)
{
    uint64_t begin = 0;

    for (uint32_t k = 0; k < c.slices && begin < at + bytes; k++) {
        uint64_t i = (uint64_t)p * c.slices + k;
        uint64_t length = (uint64_t)index_at(c, c.send_sizes, i) * c.block;
        uint64_t low = begin > at ? begin : at;
        uint64_t high = begin + length < at + bytes ? begin + length : at + bytes;

        if (low < high)
            copy(stage + (low - at),
                 (const char *)c.send + (uint64_t)index_at(c, c.input_offsets, i) * c.block +
                     (low - begin),
                 (uint32_t)(high - low));
        begin += length;
    }
}

/* Straight from the members' buffers: every slice in pieces, which the CTAs take in turn. */
DEVICE void pull_slices(const device_call &c, meeting &m)
{
    uint64_t turn = 0;

    for (uint32_t i = 0; i < c.n * c.slices; i++) {
        uint32_t p = i / c.slices;
        device_slice s = slices_from(c, c.table, p)[i % c.slices];
        uint64_t length = (uint64_t)s.rows * c.block;

        for (uint64_t at = 0; at < length; at += c.tile, turn++) {
            uint32_t bytes = length - at < c.tile ? (uint32_t)(length - at) : c.tile;

            if (turn % gridDim.x == CTA)
                copy((char *)c.recv + (uint64_t)s.to * c.block + at,
                     m.send[p] + (uint64_t)s.from * c.block + at, bytes);
        }
    }
}

DEVICE uint32_t ragged_staged(const device_call &c, meeting &m)
{
    uint64_t round_bytes = (uint64_t)gridDim.x * c.tile;
    uint64_t longest = 0;
    uint32_t error = DEVICE_FINE;

    for (uint32_t p = 0; p < c.n; p++) {
        uint64_t bytes = (uint64_t)slices_from(c, c.table, p)[DEVICE_SLICES].from * c.block;

        longest = bytes > longest ? bytes : longest;
    }
    for (uint64_t first = 0; first < longest && error == DEVICE_FINE; first += round_bytes) {
        uint64_t at = first + (uint64_t)CTA * c.tile;

        for (uint32_t p = 0; p < c.n; p++)
            stage_stream(c, m.stage[c.index] + (uint64_t)p * c.tile, p, at, c.tile);
        error = sync(c, m);
        for (uint32_t p = 0; p < c.n && error == DEVICE_FINE; p++)
            unstage_stream(c, slices_from(c, c.table, p), m.stage[p] + (uint64_t)c.index * c.tile,
                           at, c.tile);
        if (error == DEVICE_FINE)
            error = sync(c, m);
    }
    return error;
}

DEVICE void ragged(const device_call &c)
{
    __shared__ meeting m;
    __shared__ int64_t longest;
    uint32_t error;

    if (THREAD == 0)
        longest = 0;
    error = enter(c, m, reachable(c, m));
    /* Buffers are touched after a first meeting, and until a second. */
    if (error == DEVICE_FINE && m.direct && speaks(c))
        m.speakers[THREAD].exit++;
    if (error == DEVICE_FINE) {
        error = tell_slices(c, &longest);
        error = __syncthreads_or(error != DEVICE_FINE) ? DEVICE_REVOKED : DEVICE_FINE;
    }
    if (error == DEVICE_FINE)
        error = sync(c, m);
    if (error == DEVICE_FINE)
        error = check_slices(c);
    if (error == DEVICE_FINE && m.direct) {
        pull_slices(c, m);
        error = sync(c, m);
    } else if (error == DEVICE_FINE) {
        error = ragged_staged(c, m);
    }
    if (error == DEVICE_FINE)
        end_items(c, 0);
    leave(c, m, error);
}

#endif
