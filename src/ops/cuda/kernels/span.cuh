/* What a call that spans machines needs on the device beside NCCL's kernels and the judge, which
 * comes last. None of these waits for anybody, so they need no particular grid: one CTA where
 * nothing else is said. */
#ifndef ORIEL_OPS_CUDA_KERNELS_SPAN_CUH
#define ORIEL_OPS_CUDA_KERNELS_SPAN_CUH

#include "ops/cuda/kernels/ragged.cuh"

/* ---- calls of another library ------------------------------------------------------------- */

/* Such a call lies between these two on the stream, each of one CTA: a meeting, so that it finds
 * all ranks there and asking for the same; and one that poisons the result if the comm is revoked
 * by then, since that is how the library is made to end early. The host, which revokes, writes
 * the abort word before. It also sees when one has begun and does not end. */
DEVICE void judge_begin(const device_call &c)
{
    if (THREAD == 0)
        store_relaxed(&((device_report *)own_table(c)->report)->begun, ++own_table(c)->begun);
}

DEVICE void judge(const device_call &c)
{
    device_table *self = own_table(c);
    device_report *report = (device_report *)self->report;

    if (load_relaxed(&self->error) != DEVICE_FINE || load_relaxed(&report->abort) != 0) {
        if (THREAD == 0)
            swap_if(&self->error, DEVICE_FINE, DEVICE_ABORTED);
        poison(c);
    }
    if (THREAD == 0)
        store_relaxed(&report->ended, self->begun);
}

/* Writes what this rank asks for, to be sent to its neighbour in the group. */
DEVICE void span_begin(const device_call &c, device_record *at)
{
    judge_begin(c);
    if (THREAD != 0)
        return;
    *at = device_record{0, c.hash, c.what, c.n, c.block, c.shape};
}

/* Compares it with what `member` asked for. Members form a ring, so if any two differ, two
 * neighbours do. */
DEVICE void span_compare(const device_call &c, const device_record *theirs, uint32_t member)
{
    device_table *self = own_table(c);
    uint32_t rank = c.ranks[member];

    if (THREAD != 0 || theirs->hash == c.hash || theirs->what == 0)
        return;
    /* Where fail() looks for it. */
    self->record[rank] = *theirs;
    self->record[rank].call = self->counts[0][rank].calls + 1;
    fail(c, DEVICE_DIFFERENT, (int)member);
}

/* ---- reductions ---------------------------------------------------------------------------- */

DEVICE void load_two(const char *at, uint32_t bytes, uint64_t *words)
{
    if (bytes == 16 && (uint64_t)at % 16 == 0) {
        ulonglong2 pack = load_pack(at);

        words[0] = pack.x;
        words[1] = pack.y;
        return;
    }
    words[0] = load_some(at, bytes < 8 ? bytes : 8);
    words[1] = load_some(at + 8, bytes < 8 ? 0 : bytes - 8);
}

/* Of s.n buffers, in their order. A grid of any size; `to` may be one of them. */
template <class C> DEVICE void span_reduce(const device_span &s)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x * 16;

    for (uint64_t at = ((uint64_t)CTA * blockDim.x + THREAD) * 16; at < s.bytes; at += step) {
        uint32_t bytes = s.bytes - at < 16 ? (uint32_t)(s.bytes - at) : 16;
        accumulator<C, 2> sum;
        uint64_t words[2];

        load_two((const char *)s.from[0] + at, bytes, words);
        sum.begin(words);
        for (uint32_t i = 1; i < s.n; i++) {
            load_two((const char *)s.from[i] + at, bytes, words);
            sum.add(words);
        }
        sum.end(words);
        store_some((char *)s.to + at, bytes < 8 ? bytes : 8, words[0]);
        store_some((char *)s.to + at + 8, bytes < 8 ? 0 : bytes - 8, words[1]);
    }
}

/* ---- ragged_all_to_all --------------------------------------------------------------------- */

enum { SPAN_FROM, SPAN_ROWS, SPAN_TO };

/* Entry k of table `which` that member p has for this rank. */
DEVICE int64_t span_entry(const device_call &c, const device_pick &p, uint32_t member, int which,
                          uint32_t k)
{
    return index_at(c, p.tables, ((uint64_t)member * 3 + which) * c.slices + k);
}

/* As check_slices() and tell_slices(). */
DEVICE uint32_t span_check(const device_call &c, const device_pick &p)
{
    uint32_t error = load_relaxed(&own_table(c)->error);

    for (uint32_t i = THREAD; p.checks && i < c.n * c.slices && error == DEVICE_FINE;
         i += blockDim.x) {
        uint32_t from = i / c.slices;
        uint32_t k = i % c.slices;
        int64_t start = span_entry(c, p, from, SPAN_FROM, k);
        int64_t rows = span_entry(c, p, from, SPAN_ROWS, k);
        int64_t to = span_entry(c, p, from, SPAN_TO, k);
        int64_t expected = index_at(c, c.recv_sizes, i);

        if (start < 0 || rows < 0 || to < 0 || start > (int64_t)c.send_rows ||
            rows > (int64_t)c.send_rows - start)
            error = fail(c, DEVICE_RAGGED, (int)from, DETAIL_INPUT, i, start, rows);
        else if (rows != expected)
            error = fail(c, DEVICE_RAGGED, (int)from, DETAIL_SIZES, k, rows, expected);
        else if (to > (int64_t)c.recv_rows || rows > (int64_t)c.recv_rows - to)
            error = fail(c, DEVICE_RAGGED, (int)from, DETAIL_ROWS, k, to, rows);
    }
    return __syncthreads_or(error != DEVICE_FINE) ? DEVICE_REVOKED : DEVICE_FINE;
}

/* Takes this rank's rows out of those at hand. Every CTA checks all sizes, so that none copies
 * by wrong ones. */
DEVICE void span_pick(const device_call &c, const device_pick &p)
{
    uint64_t turn = 0;

    if (span_check(c, p) != DEVICE_FINE)
        return;
    for (uint32_t i = 0; i < c.n * c.slices; i++) {
        uint32_t from = i / c.slices;
        int64_t start = span_entry(c, p, from, SPAN_FROM, i % c.slices);
        int64_t rows = span_entry(c, p, from, SPAN_ROWS, i % c.slices);
        int64_t to = span_entry(c, p, from, SPAN_TO, i % c.slices);
        int64_t low = start > (int64_t)p.first ? start : (int64_t)p.first;
        int64_t high =
            start + rows < (int64_t)(p.first + p.rows) ? start + rows : (int64_t)(p.first + p.rows);
        const char *data = (const char *)p.data + from * p.block;
        uint64_t length = low < high ? (uint64_t)(high - low) * c.block : 0;

        for (uint64_t at = 0; at < length; at += c.tile, turn++) {
            uint32_t bytes = length - at < c.tile ? (uint32_t)(length - at) : c.tile;

            if (turn % gridDim.x == CTA)
                copy((char *)c.recv + (uint64_t)(to + low - start) * c.block + at,
                     data + (uint64_t)(low - (int64_t)p.first) * c.block + at, bytes);
        }
    }
}

#endif
