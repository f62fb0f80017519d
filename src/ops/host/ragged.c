#include "ops/host/ragged.h"

#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/sys.h"

static ragged_slice slice_of(const oriel_ragged *r, int to, int k)
{
    size_t i = (size_t)to * (size_t)r->slices + (size_t)k;

    return (ragged_slice){.rows = r->send_sizes[i], .offset = r->output_offsets[i]};
}

static const char *rows_of(const void *send, size_t row, const oriel_ragged *r, int to, int k)
{
    return (const char *)send + (size_t)r->input_offsets[to * r->slices + k] * row;
}

void *oriel_ragged_copy(oriel_ragged *ragged, int n)
{
    const int64_t **arrays[] = {&ragged->input_offsets, &ragged->send_sizes,
                                &ragged->output_offsets, &ragged->recv_sizes};
    size_t count = (size_t)n * (size_t)ragged->slices;
    int64_t *copy = oriel_sys_now->alloc(4 * count * sizeof *copy);

    for (size_t i = 0; copy != NULL && i < 4; i++)
        *arrays[i] = memcpy(copy + i * count, *arrays[i], count * sizeof *copy);
    return copy;
}

/* ---- what only two can know --------------------------------------------------------- */

oriel_status oriel_ragged_compare(const oriel_group *group, int from, int to, int k,
                                  ragged_slice slice, int64_t expected, size_t recv_rows,
                                  ragged_fault *fault)
{
    if (slice.rows != expected) {
        *fault = (ragged_fault){.from = from, .code = ORIEL_ERR_MISMATCH};
        snprintf(fault->text, sizeof fault->text,
                 "rank %d sends %lld rows to rank %d in slice %d, which expects %lld rows there",
                 group->ranks[from], (long long)slice.rows, group->ranks[to], k,
                 (long long)expected);
        return fault->code;
    }
    if ((uint64_t)slice.offset > recv_rows ||
        (uint64_t)slice.rows > recv_rows - (uint64_t)slice.offset) {
        *fault = (ragged_fault){.from = from, .code = ORIEL_ERR_INVALID};
        snprintf(fault->text, sizeof fault->text,
                 "rank %d sends %lld rows to row %lld of rank %d in slice %d, which has %zu rows",
                 group->ranks[from], (long long)slice.rows, (long long)slice.offset,
                 group->ranks[to], k, recv_rows);
        return fault->code;
    }
    return ORIEL_OK;
}

oriel_status oriel_ragged_refuse(const oriel_request *request, const ragged_fault *fault)
{
    int rank = request->group->ranks[fault->from];

    if (request->record.n == 1)
        return oriel_fail(fault->code, "%s", fault->text);
    if (request->cell != NULL)
        oriel_cell_revoke(request->cell);
    oriel_comm_abort(request->comm, fault->code, rank, request->comm->heap.ranks[rank].process,
                     "%s", fault->text);
    oriel_group_ring(request->group);
    return ORIEL_ERR_REVOKED;
}

/* All that one member sends to another of this process. */
static oriel_status move(const oriel_request *request, int from, const oriel_ragged *sent,
                         const void *send, int to, const oriel_ragged *expected, void *recv,
                         ragged_fault *fault)
{
    size_t row = request->record.bytes;
    oriel_status st = ORIEL_OK;

    for (int k = 0; k < sent->slices && st == ORIEL_OK; k++)
        st = oriel_ragged_compare(request->group, from, to, k, slice_of(sent, to, k),
                                  expected->recv_sizes[from * sent->slices + k],
                                  expected->recv_rows, fault);
    for (int k = 0; k < sent->slices && st == ORIEL_OK; k++) {
        ragged_slice slice = slice_of(sent, to, k);

        if (slice.rows > 0 && row > 0)
            oriel_op_copy((char *)recv + (size_t)slice.offset * row,
                          rows_of(send, row, sent, to, k), (size_t)slice.rows * row, 0);
    }
    return st;
}

oriel_status oriel_ragged_move(const oriel_request *request, int from, int to, ragged_fault *fault)
{
    const heap_member *members = oriel_heap_members(&request->comm->heap, request->cell);

    return move(request, from, members[from].ragged, members[from].send, to, members[to].ragged,
                members[to].recv, fault);
}

oriel_status oriel_ragged_self(oriel_request *request)
{
    int self = request->index;
    ragged_fault fault;
    oriel_status st = move(request, self, &request->ragged, request->op.send, self,
                           &request->ragged, request->op.recv, &fault);

    return st == ORIEL_OK ? st : oriel_ragged_refuse(request, &fault);
}

/* ---- streams -------------------------------------------------------------------------- */

static size_t head_bytes(const oriel_ragged *r)
{
    return (size_t)r->slices * sizeof(ragged_slice);
}

oriel_status oriel_ragged_expect(oriel_request *request)
{
    int n = request->group->n;
    int slices = request->ragged.slices;

    if (request->slices != NULL)
        return ORIEL_OK;
    request->slices = oriel_sys_now->alloc((size_t)n * (size_t)slices * sizeof *request->slices);
    if (request->slices == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %d slices of %d members", slices, n);
    return ORIEL_OK;
}

size_t oriel_ragged_stream(const oriel_op *op, int to)
{
    size_t rows = 0;

    for (int k = 0; k < op->ragged->slices; k++)
        rows += (size_t)slice_of(op->ragged, to, k).rows;
    return head_bytes(op->ragged) + rows * oriel_op_block(op);
}

/* The part of [at, at + len) that lies in the `bytes` bytes from `begin` on: its
 * length, where it is in them and where in [at, ...). */
static size_t common(size_t at, size_t len, size_t begin, size_t bytes, size_t *there_p,
                     size_t *here_p)
{
    size_t first = at > begin ? at : begin;
    size_t end = oriel_least(at + len, begin + bytes);

    *there_p = first - begin;
    *here_p = first - at;
    return first < end ? end - first : 0;
}

void oriel_ragged_put(const oriel_op *op, int to, size_t at, char *dst, size_t len, int stream)
{
    const oriel_ragged *r = op->ragged;
    size_t row = oriel_op_block(op);
    size_t begin = 0;
    size_t there, here, part;

    for (int k = 0; k < r->slices && at < head_bytes(r); k++, begin += sizeof(ragged_slice)) {
        ragged_slice slice = slice_of(r, to, k);

        part = common(at, len, begin, sizeof slice, &there, &here);
        if (part > 0)
            memcpy(dst + here, (const char *)&slice + there, part);
    }
    begin = head_bytes(r);
    for (int k = 0; k < r->slices && begin < at + len; k++) {
        size_t bytes = (size_t)slice_of(r, to, k).rows * row;

        part = common(at, len, begin, bytes, &there, &here);
        if (part > 0)
            oriel_op_copy(dst + here, rows_of(op->send, row, r, to, k) + there, part, stream);
        begin += bytes;
    }
}

/* The beginning of the stream is complete. */
static oriel_status look_at_slices(oriel_request *request, int from, const ragged_slice *slices)
{
    const oriel_ragged *r = &request->ragged;
    ragged_fault fault;
    oriel_status st = ORIEL_OK;

    for (int k = 0; k < r->slices && st == ORIEL_OK; k++)
        st = oriel_ragged_compare(request->group, from, request->index, k, slices[k],
                                  r->recv_sizes[from * r->slices + k], r->recv_rows, &fault);
    request->unchecked--;
    return st == ORIEL_OK ? st : oriel_ragged_refuse(request, &fault);
}

oriel_status oriel_ragged_take(oriel_request *request, int from, size_t at, const char *src,
                               size_t len)
{
    const oriel_ragged *r = &request->ragged;
    ragged_slice *slices = request->slices + (size_t)from * (size_t)r->slices;
    size_t row = request->record.bytes;
    size_t begin = head_bytes(r);
    size_t there, here, part;
    oriel_status st = ORIEL_OK;

    part = common(at, len, 0, begin, &there, &here);
    if (part > 0) {
        memcpy((char *)slices + there, src + here, part);
        if (there + part == begin)
            st = look_at_slices(request, from, slices);
    }
    for (int k = 0; k < r->slices && begin < at + len && st == ORIEL_OK; k++) {
        size_t bytes = (size_t)slices[k].rows * row;

        part = common(at, len, begin, bytes, &there, &here);
        if (part > 0)
            oriel_op_copy((char *)request->op.recv + (size_t)slices[k].offset * row + there,
                          src + here, part, 0);
        begin += bytes;
    }
    return st;
}
