#include "ops/host/ragged.h"

#include <stdio.h>
#include <string.h>

#include "base/copy.h"
#include "base/sys.h"

#define MOST_BYTES ((size_t)1 << 47)
enum { MOST_SLICES = 1 << 20 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static ragged_slice slice_of(const oriel_ragged *r, int to, int k)
{
    size_t i = (size_t)to * (size_t)r->slices + (size_t)k;

    return (ragged_slice){.rows = r->send_sizes[i], .offset = r->output_offsets[i]};
}

static const char *rows_of(const void *send, size_t row, const oriel_ragged *r, int to, int k)
{
    return (const char *)send + (size_t)r->input_offsets[to * r->slices + k] * row;
}

/* ---- what one member can know ------------------------------------------------------ */

static oriel_status name_negative(const oriel_ragged *r, size_t i)
{
    static const char *const names[] = {"input_offsets", "send_sizes", "output_offsets",
                                        "recv_sizes"};
    const int64_t values[] = {r->input_offsets[i], r->send_sizes[i], r->output_offsets[i],
                              r->recv_sizes[i]};
    int a = 0;

    while (values[a] >= 0)
        a++;
    return oriel_fail(ORIEL_ERR_INVALID, "%s[%zu] is %lld", names[a], i, (long long)values[a]);
}

static oriel_status check_sizes(const oriel_ragged *r, size_t i)
{
    int64_t from = r->input_offsets[i];
    int64_t rows = r->send_sizes[i];

    if ((from | rows | r->output_offsets[i] | r->recv_sizes[i]) < 0)
        return name_negative(r, i);
    if ((uint64_t)from > r->send_rows || (uint64_t)rows > r->send_rows - (uint64_t)from)
        return oriel_fail(
            ORIEL_ERR_INVALID,
            "input_offsets[%zu] is %lld and send_sizes[%zu] is %lld, but send has %zu "
            "rows",
            i, (long long)from, i, (long long)rows, r->send_rows);
    return ORIEL_OK;
}

/* A product, since small calls feel a division. */
static int too_large(size_t rows, size_t row)
{
    size_t bytes;

    return __builtin_mul_overflow(rows, row > 0 ? row : 1, &bytes) || bytes > MOST_BYTES;
}

static oriel_status check_buffers(const oriel_op *op, size_t row)
{
    const oriel_ragged *r = op->ragged;
    uintptr_t send = (uintptr_t)op->send;
    uintptr_t recv = (uintptr_t)op->recv;

    if (too_large(r->send_rows, row))
        return oriel_fail(ORIEL_ERR_INVALID, "send_rows is %zu rows of %zu bytes: too large",
                          r->send_rows, row);
    if (too_large(r->recv_rows, row))
        return oriel_fail(ORIEL_ERR_INVALID, "recv_rows is %zu rows of %zu bytes: too large",
                          r->recv_rows, row);
    if (op->send == NULL && r->send_rows * row > 0)
        return oriel_fail(ORIEL_ERR_INVALID, "send is NULL");
    if (op->recv == NULL && r->recv_rows * row > 0)
        return oriel_fail(ORIEL_ERR_INVALID, "recv is NULL");
    if (send != recv && send < recv + r->recv_rows * row && recv < send + r->send_rows * row)
        return oriel_fail(ORIEL_ERR_INVALID, "send and recv overlap without being in place");
    return ORIEL_OK;
}

oriel_status oriel_ragged_check(const oriel_op *op, int n)
{
    const oriel_ragged *r = op->ragged;
    size_t size = oriel_dtype_size(op->dtype);
    oriel_status st;

    if (r == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "ragged is NULL");
    if (r->struct_size != sizeof *r)
        return oriel_fail(ORIEL_ERR_INVALID, "struct_size is %zu; use ORIEL_RAGGED_INIT",
                          r->struct_size);
    if (r->slices < 1 || r->slices > MOST_SLICES)
        return oriel_fail(ORIEL_ERR_INVALID, "slices is %d; 1 to %d are possible", r->slices,
                          MOST_SLICES);
    if (too_large(r->row, size))
        return oriel_fail(ORIEL_ERR_INVALID, "row is %zu elements of %zu bytes: too large", r->row,
                          size);
    if (r->input_offsets == NULL || r->send_sizes == NULL || r->output_offsets == NULL ||
        r->recv_sizes == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "%s is NULL",
                          r->input_offsets == NULL    ? "input_offsets"
                          : r->send_sizes == NULL     ? "send_sizes"
                          : r->output_offsets == NULL ? "output_offsets"
                                                      : "recv_sizes");
    st = check_buffers(op, r->row * size);
    for (size_t i = 0; st == ORIEL_OK && i < (size_t)n * (size_t)r->slices; i++)
        st = check_sizes(r, i);
    return st;
}

size_t oriel_ragged_sent(const oriel_op *op, int n)
{
    size_t rows = 0;

    for (size_t i = 0; i < (size_t)n * (size_t)op->ragged->slices; i++)
        rows += (size_t)op->ragged->send_sizes[i];
    return rows * oriel_op_block(op);
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
                         int stream, ragged_fault *fault)
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
                          rows_of(send, row, sent, to, k), (size_t)slice.rows * row, stream);
    }
    return st;
}

oriel_status oriel_ragged_move(const oriel_request *request, int from, int to, ragged_fault *fault)
{
    const heap_member *members = oriel_heap_members(&request->comm->heap, request->cell);

    return move(request, from, members[from].ragged, members[from].send, to, members[to].ragged,
                members[to].recv, 0, fault);
}

oriel_status oriel_ragged_self(oriel_request *request, int stream)
{
    int self = request->index;
    ragged_fault fault;
    oriel_status st = move(request, self, &request->ragged, request->op.send, self,
                           &request->ragged, request->op.recv, stream, &fault);

    request->unchecked--;
    return st == ORIEL_OK ? st : oriel_ragged_refuse(request, &fault);
}

/* ---- streams -------------------------------------------------------------------------- */

static size_t head_bytes(const oriel_ragged *r)
{
    return (size_t)r->slices * sizeof(ragged_slice);
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
    size_t end = least(at + len, begin + bytes);

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
                               size_t len, int stream)
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
                          src + here, part, stream);
        begin += bytes;
    }
    return st;
}
