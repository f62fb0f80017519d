/* How data moves in calls on groups that span machines. What is reduced: each machine's members
 * first, in group order, then the machines, in group order. All members get the same bits,
 * since each element is reduced by one of them. With one member on each machine, and wherever
 * members have no table of rows and columns, that is group order throughout. */
#include "ops/cuda/span.h"

#include "base/math.h"

enum { REDUCE_STEP = DEVICE_THREADS * 16 * 4, PICK_TILE = 32 << 10 };

static size_t padded(size_t bytes)
{
    return oriel_round_up(bytes, SPAN_LINE);
}

/* Bytes of each of `parts` pieces that fit the room together. */
static size_t piece_of(size_t room, int parts)
{
    return room / (size_t)parts / SPAN_LINE * SPAN_LINE;
}

/* Piece by piece, the same ones on all members. */
static oriel_status by_pieces(oriel_span *span, int parts,
                              oriel_status (*move)(oriel_span *span, size_t at, size_t bytes))
{
    size_t block = oriel_op_block(span->op);
    size_t piece = piece_of(span->room_bytes, parts);
    oriel_status st = ORIEL_OK;

    for (size_t at = 0; at < block && st == ORIEL_OK; at += piece)
        st = move(span, at, oriel_least(piece, block - at));
    return st;
}

static int member_at(const oriel_span *span, int row, int column)
{
    return row * span->columns + column;
}

static oriel_status copy(const oriel_span *span, void *to, const void *from, size_t bytes)
{
    if (to == from || bytes == 0)
        return ORIEL_OK;
    return oriel_cuda_check(
        oriel_cu->copy((cu_ptr)(uintptr_t)to, (cu_ptr)(uintptr_t)from, bytes, span->stream),
        "copying on the device");
}

/* A call of this machine's members. */
static oriel_status call_line(const oriel_span *span, enum oriel_kind kind, const void *send,
                              void *recv, size_t bytes, int root)
{
    const oriel_op op = {.kind = kind,
                         .dtype = span->op->dtype,
                         .redop = span->op->redop,
                         .send = send,
                         .recv = recv,
                         .count = bytes >> oriel_dtype_shift(span->op->dtype),
                         .root = root};

    return oriel_launch(span->line, span->rank, &op, span->stream);
}

/* ---- reductions ----------------------------------------------------------------------------- */

static oriel_status reduce(const oriel_span *span, device_span *parts)
{
    const oriel_devices *devices = span->group->comm->devices;
    cu_function function = span->self->code->reduce[DEVICE_SPAN][span->op->dtype][span->op->redop];
    size_t ctas = (parts->bytes + REDUCE_STEP - 1) / REDUCE_STEP;
    void *params[] = {parts};

    return oriel_launch_start(span->self, function,
                              (unsigned)oriel_least(ctas, (size_t)devices->ctas), DEVICE_THREADS, 0,
                              params, span->stream);
}

/* What this machine's members have for each member of this column, in the room from `at` on.
 * Blocks lie `stride` apart; a call needs them side by side. */
static oriel_status reduce_lines(const oriel_span *span, const char *blocks, size_t stride,
                                 size_t bytes, char *at)
{
    char *packed = at + (size_t)span->rows * padded(bytes);
    oriel_status st = ORIEL_OK;

    for (int q = 0; q < span->rows && st == ORIEL_OK; q++) {
        const char *from = blocks + (size_t)member_at(span, q, 0) * stride;

        for (int j = 0; j < span->columns && stride != bytes && st == ORIEL_OK; j++)
            st = copy(span, packed + (size_t)j * bytes, from + (size_t)j * stride, bytes);
        if (st == ORIEL_OK)
            st = call_line(span, ORIEL_KIND_REDUCE_SCATTER, stride != bytes ? packed : from,
                           at + (size_t)q * padded(bytes), bytes, 0);
    }
    return st;
}

/* Block i of member m, for all m, is reduced to `to` on member i. Takes room for two pieces a
 * row, and for one a column where the stride is another. */
static oriel_status reduce_piece(oriel_span *span, const char *blocks, size_t stride, size_t bytes,
                                 char *to)
{
    size_t pad = padded(bytes);
    char *lines = span->room + (size_t)span->rows * pad;
    device_span parts = {.to = (cu_ptr)(uintptr_t)to, .bytes = bytes, .n = (uint32_t)span->rows};
    oriel_status st = ORIEL_OK;

    if (span->columns > 1)
        st = reduce_lines(span, blocks, stride, bytes, lines);
    if (st == ORIEL_OK)
        st = oriel_span_begin(span);
    if (st != ORIEL_OK)
        return st;
    for (int q = 0; q < span->rows; q++) {
        const char *mine =
            span->columns > 1 ? lines + (size_t)q * pad : blocks + (size_t)q * stride;
        char *got = span->room + (size_t)q * pad;

        parts.from[q] = (cu_ptr)(uintptr_t)(q == span->row ? mine : got);
        if (q == span->row)
            continue;
        oriel_span_give(span, mine, bytes, member_at(span, q, span->column));
        oriel_span_take(span, got, bytes, member_at(span, q, span->column));
    }
    st = oriel_span_end(span);
    return st == ORIEL_OK ? reduce(span, &parts) : st;
}

static oriel_status reduce_scatter(oriel_span *span)
{
    size_t block = oriel_op_block(span->op);
    size_t piece = piece_of(span->room_bytes, 2 * span->rows + span->columns);
    oriel_status st = ORIEL_OK;

    /* Whole blocks lie side by side. */
    if (padded(block) <= piece_of(span->room_bytes, 2 * span->rows))
        piece = block;
    for (size_t at = 0; at < block && st == ORIEL_OK; at += piece)
        st = reduce_piece(span, (const char *)span->op->send + at, block,
                          oriel_least(piece, block - at), (char *)span->op->recv + at);
    return st;
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* `mine` may lie where it belongs in `to`. */
static oriel_status gather(oriel_span *span, const char *mine, char *to, size_t block)
{
    oriel_status st = oriel_span_begin(span);

    if (st != ORIEL_OK)
        return st;
    for (int q = 0; q < span->rows; q++) {
        int member = member_at(span, q, span->column);

        if (q == span->row)
            continue;
        oriel_span_give(span, mine, block, member);
        oriel_span_take(span, to + (size_t)member * block, block, member);
    }
    st = oriel_span_end(span);
    if (st == ORIEL_OK && span->columns == 1)
        return copy(span, to + (size_t)span->index * block, mine, block);
    for (int q = 0; q < span->rows && st == ORIEL_OK; q++) {
        char *line = to + (size_t)member_at(span, q, 0) * block;

        st = call_line(span, ORIEL_KIND_ALL_GATHER,
                       q == span->row ? mine : line + (size_t)span->column * block, line, block, 0);
    }
    return st;
}

static oriel_status all_gather(oriel_span *span)
{
    return gather(span, span->op->send, span->op->recv, oriel_op_block(span->op));
}

/* n blocks of `block` bytes, side by side. */
static oriel_status all_reduce_piece(oriel_span *span, const char *from, char *to, size_t block)
{
    char *mine = to + (size_t)span->index * block;
    oriel_status st = reduce_piece(span, from, block, block, mine);

    return st == ORIEL_OK ? gather(span, mine, to, block) : st;
}

/* Each member reduces a part, which all then gather. What does not divide passes through the
 * room. */
static oriel_status all_reduce(oriel_span *span)
{
    const char *send = span->op->send;
    char *recv = span->op->recv;
    size_t n = (size_t)span->n;
    size_t bytes = oriel_op_block(span->op);
    size_t whole = bytes / (n * SPAN_LINE) * (n * SPAN_LINE);
    char *rest = span->room + span->room_bytes / SPAN_LINE * SPAN_LINE - n * SPAN_LINE;
    size_t most = piece_of(span->room_bytes - n * SPAN_LINE, 2 * span->rows);
    oriel_status st = ORIEL_OK;

    for (size_t at = 0; at < whole && st == ORIEL_OK;) {
        size_t piece = oriel_least(most, (whole - at) / n);

        st = all_reduce_piece(span, send + at, recv + at, piece);
        at += n * piece;
    }
    if (st != ORIEL_OK || whole == bytes)
        return st;
    st = copy(span, rest, send + whole, bytes - whole);
    if (st == ORIEL_OK)
        st = all_reduce_piece(span, rest, rest, SPAN_LINE);
    return st == ORIEL_OK ? copy(span, recv + whole, rest, bytes - whole) : st;
}

/* ---- what only moves ---------------------------------------------------------------------------
 */

static oriel_status broadcast(oriel_span *span)
{
    const oriel_op *op = span->op;
    size_t bytes = oriel_op_block(op);
    int row = op->root / span->columns;
    int column = op->root % span->columns;
    const void *from = span->index == op->root ? op->send : op->recv;
    oriel_status st = ORIEL_OK;

    if (span->column == column) {
        st = oriel_span_begin(span);
        if (st != ORIEL_OK)
            return st;
        for (int q = 0; q < span->rows && span->row == row; q++) {
            if (q != row)
                oriel_span_give(span, op->send, bytes, member_at(span, q, column));
        }
        if (span->row != row)
            oriel_span_take(span, op->recv, bytes, op->root);
        st = oriel_span_end(span);
    }
    if (st == ORIEL_OK && span->columns > 1)
        return call_line(span, ORIEL_KIND_BROADCAST, from, op->recv, bytes, column);
    return st == ORIEL_OK ? copy(span, op->recv, from, bytes) : st;
}

/* NCCL may write what it receives before it has read what it sends: in place, that waits in the
 * room. All members move the same pieces, in place or not. */
static oriel_status permute_piece(oriel_span *span, size_t at, size_t bytes)
{
    const oriel_op *op = span->op;
    int source = oriel_op_source(op, span->index);
    int destination = oriel_op_destination(op, span->index);
    const char *from = (const char *)op->send + at;
    char *recv = (char *)op->recv + at;
    char *to = op->send == op->recv ? span->room : recv;
    oriel_status st = oriel_span_begin(span);

    if (st != ORIEL_OK)
        return st;
    if (destination >= 0 && destination != span->index)
        oriel_span_give(span, from, bytes, destination);
    if (source >= 0 && source != span->index)
        oriel_span_take(span, to, bytes, source);
    st = oriel_span_end(span);
    if (st == ORIEL_OK && source == OP_NOBODY)
        return oriel_cuda_check(oriel_cu->fill((cu_ptr)(uintptr_t)recv, 0, bytes, span->stream),
                                "clearing memory");
    if (st == ORIEL_OK)
        st = copy(span, recv, source == span->index ? from : to, bytes);
    return st;
}

static oriel_status permute(oriel_span *span)
{
    return by_pieces(span, 1, permute_piece);
}

static oriel_status all_to_all_piece(oriel_span *span, size_t at, size_t bytes)
{
    const oriel_op *op = span->op;
    size_t block = oriel_op_block(op);
    int in_place = op->send == op->recv;
    oriel_status st = oriel_span_begin(span);

    if (st != ORIEL_OK)
        return st;
    for (int i = 0; i < span->n; i++) {
        char *recv = (char *)op->recv + (size_t)i * block + at;

        if (i == span->index)
            continue;
        oriel_span_give(span, (const char *)op->send + (size_t)i * block + at, bytes, i);
        oriel_span_take(span, in_place ? span->room + (size_t)i * padded(bytes) : recv, bytes, i);
    }
    st = oriel_span_end(span);
    for (int i = 0; i < span->n && st == ORIEL_OK; i++) {
        size_t to = (size_t)i * block + at;

        if (i == span->index)
            st = copy(span, (char *)op->recv + to, (const char *)op->send + to, bytes);
        else if (in_place)
            st = copy(span, (char *)op->recv + to, span->room + (size_t)i * padded(bytes), bytes);
    }
    return st;
}

static oriel_status all_to_all(oriel_span *span)
{
    return by_pieces(span, span->n, all_to_all_piece);
}

/* Each machine's members meet, then each column, then each machine's members again. */
static oriel_status barrier(oriel_span *span)
{
    oriel_status st = ORIEL_OK;

    if (span->columns > 1)
        st = call_line(span, ORIEL_KIND_BARRIER, NULL, NULL, 0, 0);
    if (st == ORIEL_OK)
        st = gather(span, span->head, span->room, SPAN_LINE);
    return st;
}

/* ---- ragged_all_to_all --------------------------------------------------------------------------
 */

/* Of each of the three arrays the part that is for a member, to that member. */
static oriel_status send_tables(oriel_span *span, char *tables)
{
    const oriel_ragged_on *r = span->ragged;
    const char *arrays[] = {r->input_offsets, r->send_sizes, r->output_offsets};
    size_t part = (size_t)r->slices * (r->index == ORIEL_S64 ? 8 : 4);
    oriel_status st = oriel_span_begin(span);

    if (st != ORIEL_OK)
        return st;
    for (int i = 0; i < span->n; i++) {
        for (int a = 0; a < 3 && i != span->index; a++) {
            oriel_span_give(span, arrays[a] + (size_t)i * part, part, i);
            oriel_span_take(span, tables + ((size_t)i * 3 + (size_t)a) * part, part, i);
        }
    }
    st = oriel_span_end(span);
    for (int a = 0; a < 3 && st == ORIEL_OK; a++)
        st = copy(span, tables + ((size_t)span->index * 3 + (size_t)a) * part,
                  arrays[a] + (size_t)span->index * part, part);
    return st;
}

static oriel_status pick(oriel_span *span, device_pick *rows)
{
    const oriel_devices *devices = span->group->comm->devices;
    void *params[] = {&span->call, rows};

    span->call.tile = PICK_TILE;
    return oriel_launch_start(span->self, span->self->code->span_pick, (unsigned)devices->ctas,
                              DEVICE_THREADS, 0, params, span->stream);
}

/* The host does not know how much a member has for another, so all rows go everywhere, piece by
 * piece, and each member takes what is its own. */
static oriel_status ragged_all_to_all(oriel_span *span)
{
    const oriel_ragged_on *r = span->ragged;
    size_t row = oriel_op_block(span->op);
    size_t tables = padded(3 * (size_t)span->n * (size_t)r->slices * 8);
    size_t rows = row > 0 ? (span->room_bytes - tables) / ((size_t)span->n * row) : 0;
    char *data = span->room + tables;
    oriel_status st;

    if (tables > span->room_bytes || (row > 0 && rows == 0))
        return oriel_fail(ORIEL_ERR_NO_RESOURCE,
                          "ragged_all_to_all over machines needs room for a row of %zu bytes and "
                          "the sizes of each of %d members; ORIEL_GPU_ARENA is too small",
                          row, span->n);
    st = send_tables(span, span->room);
    for (size_t first = 0; (first < r->send_rows || first == 0) && st == ORIEL_OK;
         first += rows > 0 ? rows : 1) {
        size_t here = row > 0 && r->send_rows > first ? oriel_least(rows, r->send_rows - first) : 0;
        device_pick part = {.data = (cu_ptr)(uintptr_t)data,
                            .block = here * row,
                            .first = first,
                            .rows = here,
                            .tables = (cu_ptr)(uintptr_t)span->room,
                            .checks = first == 0};

        if (here > 0)
            st = gather(span, (const char *)span->op->send + first * row, data, here * row);
        if (st == ORIEL_OK)
            st = pick(span, &part);
        if (here == 0)
            break;
    }
    return st;
}

oriel_status oriel_span_move(oriel_span *span)
{
    static oriel_status (*const moves[ORIEL_KIND_COUNT])(oriel_span *) = {
        [ORIEL_KIND_ALL_REDUCE] = all_reduce,
        [ORIEL_KIND_ALL_GATHER] = all_gather,
        [ORIEL_KIND_REDUCE_SCATTER] = reduce_scatter,
        [ORIEL_KIND_ALL_TO_ALL] = all_to_all,
        [ORIEL_KIND_BROADCAST] = broadcast,
        [ORIEL_KIND_PERMUTE] = permute,
        [ORIEL_KIND_RAGGED_ALL_TO_ALL] = ragged_all_to_all,
        [ORIEL_KIND_BARRIER] = barrier,
    };

    return moves[span->op->kind](span);
}
