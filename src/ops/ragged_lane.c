/* ragged_all_to_all in a group's lane. Each member shows what it sends to whom, what it
 * expects from whom, and the rows themselves where there is room. All see what all
 * have shown, so all come to the same end without asking again. */
#include <string.h>

#include "base/copy.h"
#include "core/style.h"
#include "ops/ragged.h"

/* Every member looks at every pair of members. */
enum { MOST_MEMBERS = 64, MOST_LOOKS = MOST_MEMBERS * MOST_MEMBERS, PIECE = 4 << 20 };

/* One slice between two members: of what is sent to the other, and how many rows are
 * expected from it. Short, so that a small call's rows fit the same line. */
struct entry {
    uint32_t rows;
    uint32_t offset; /* row of the receiver's `recv` */
    uint32_t expected;
};

enum { SHOWS_ROWS = 1, SHOWS_ADDRESS = 2, WANTS_PULL = 4, ROWS_APART = 8 };

/* An entry for each slice and member; then the rows for all others, in order, or, where
 * there is no room for them, where they can be read. Rows that do not fit a slot with the
 * entries are apart from them. A member whose numbers are too large for entries shows
 * neither. */
struct shown {
    uint32_t flags;
    uint32_t recv_rows;
    struct entry entries[];
};

struct address {
    uint64_t send;
    int64_t from[]; /* row of `send`, for each entry */
};

static inline size_t head_bytes(int n, int slices)
{
    size_t bytes = sizeof(struct shown) + (size_t)n * (size_t)slices * sizeof(struct entry);

    return (bytes + 7) / 8 * 8;
}

static inline size_t most_bytes(int n, int slices)
{
    return head_bytes(n, slices) + sizeof(struct address) +
           (size_t)n * (size_t)slices * sizeof(int64_t);
}

int oriel_ragged_lanes(const oriel_group *group, const oriel_op *op)
{
    size_t n = (size_t)group->n;
    int direct = group->one_process && group->comm->heap.header->direct;

    return !direct && n * n * (size_t)op->ragged->slices <= MOST_LOOKS &&
           most_bytes(group->n, op->ragged->slices) <= group->room;
}

/* Where `index` shows its entries: all know, without having seen them. */
static inline struct shown *shown_by(const oriel_seat *seat, uint64_t call, int index, int slices)
{
    return (struct shown *)(void *)oriel_lane_payload(seat, call, index,
                                                      most_bytes((int)seat->n, slices));
}

/* Where its rows, or their address, are. */
static inline char *rows_of(const oriel_seat *seat, uint64_t call, int index, struct shown *shown,
                            int slices)
{
    if (shown->flags & ROWS_APART)
        return oriel_lane_payload(seat, call, index, LANE_SMALL + 1);
    return (char *)shown + head_bytes((int)seat->n, slices);
}

/* ---- showing ------------------------------------------------------------------------ */

static void put_rows(const oriel_op *op, int n, int index, char *dst)
{
    const oriel_ragged *r = op->ragged;
    size_t row = oriel_op_block(op);
    int i = 0;

    for (int to = 0; to < n; to++) {
        for (int k = 0; k < r->slices; k++, i++) {
            size_t bytes = (size_t)r->send_sizes[i] * row;

            if (to == index || bytes == 0)
                continue;
            oriel_copy(dst, (const char *)op->send + (size_t)r->input_offsets[i] * row, bytes);
            dst += bytes;
        }
    }
}

static void put_address(const oriel_op *op, int n, char *dst)
{
    struct address *address = (struct address *)(void *)dst;

    address->send = (uint64_t)(uintptr_t)op->send;
    memcpy(address->from, op->ragged->input_offsets,
           (size_t)n * (size_t)op->ragged->slices * sizeof(int64_t));
}

/* Writes the entries and returns how many rows go to others; -1: numbers too large. */
static int64_t put_entries(const oriel_ragged *r, int n, int index, struct shown *mine)
{
    uint64_t all = r->recv_rows;
    int64_t rows = 0;
    int i = 0;

    for (int to = 0; to < n; to++) {
        for (int k = 0; k < r->slices; k++, i++) {
            mine->entries[i] =
                (struct entry){(uint32_t)r->send_sizes[i], (uint32_t)r->output_offsets[i],
                               (uint32_t)r->recv_sizes[i]};
            all |= (uint64_t)(r->send_sizes[i] | r->output_offsets[i] | r->recv_sizes[i]);
            rows += to == index ? 0 : r->send_sizes[i];
        }
    }
    mine->recv_rows = (uint32_t)r->recv_rows;
    return all > UINT32_MAX ? -1 : rows;
}

/* How a member with so many bytes of rows shows them. */
static uint32_t way_of(const oriel_group *group, size_t bytes, int slices)
{
    size_t head = head_bytes(group->n, slices);

    if (head + bytes <= LANE_SMALL)
        return SHOWS_ROWS;
    if (most_bytes(group->n, slices) <= LANE_SMALL)
        return bytes <= group->room ? SHOWS_ROWS | ROWS_APART : SHOWS_ADDRESS;
    return bytes <= group->room - head ? SHOWS_ROWS : SHOWS_ADDRESS;
}

void oriel_ragged_show(const oriel_group *group, const oriel_seat *seat, uint64_t call,
                       const oriel_op *op)
{
    const oriel_ragged *r = op->ragged;
    struct shown *mine = shown_by(seat, call, seat->index, r->slices);
    int64_t rows = put_entries(r, group->n, seat->index, mine);
    char *dst;

    mine->flags = 0;
    if (rows < 0)
        return;
    mine->flags = way_of(group, (size_t)rows * oriel_op_block(op), r->slices);
    dst = rows_of(seat, call, seat->index, mine, r->slices);
    if (mine->flags & SHOWS_ROWS) {
        put_rows(op, group->n, seat->index, dst);
        return;
    }
    put_address(op, group->n, dst);
    if (seat->index == 0 && oriel_style_pulls(group, op->kind, oriel_ragged_weight(op, group->n)))
        mine->flags |= WANTS_PULL;
}

/* ---- seeing ------------------------------------------------------------------------- */

/* What `from` has for `to`, compared with what that one expects: the first slice that is
 * wrong, or -1. */
static int wrong_slice(const struct shown *sends, int from, const struct shown *expects, int to,
                       int slices)
{
    const struct entry *sent = sends->entries + (ptrdiff_t)to * slices;
    const struct entry *wanted = expects->entries + (ptrdiff_t)from * slices;

    for (int k = 0; k < slices; k++) {
        if (sent[k].rows != wanted[k].expected ||
            (uint64_t)sent[k].offset + sent[k].rows > expects->recv_rows)
            return k;
    }
    return -1;
}

static enum ragged_view look_at_pairs(const oriel_group *group, const struct shown *const *all,
                                      int slices, ragged_fault *fault)
{
    for (int from = 0; from < group->n; from++) {
        for (int to = 0; to < group->n; to++) {
            int k = wrong_slice(all[from], from, all[to], to, slices);
            const struct entry *sent = &all[from]->entries[to * slices + k];

            if (k < 0)
                continue;
            oriel_ragged_compare(
                group, from, to, k, (ragged_slice){.rows = sent->rows, .offset = sent->offset},
                all[to]->entries[from * slices + k].expected, all[to]->recv_rows, fault);
            return RAGGED_WRONG;
        }
    }
    return RAGGED_FITS;
}

enum ragged_view oriel_ragged_look(const oriel_group *group, const oriel_seat *seat, uint64_t call,
                                   const oriel_op *op, ragged_fault *fault)
{
    const struct shown *all[MOST_MEMBERS];
    uint32_t common = SHOWS_ROWS;
    int silent = 0;

    for (int i = 0; i < group->n; i++) {
        all[i] = shown_by(seat, call, i, op->ragged->slices);
        common &= all[i]->flags;
        silent |= all[i]->flags == 0;
    }
    if (silent)
        return RAGGED_LARGE;
    if (look_at_pairs(group, all, op->ragged->slices, fault) == RAGGED_WRONG)
        return RAGGED_WRONG;
    if (common & SHOWS_ROWS)
        return RAGGED_FITS;
    return all[0]->flags & WANTS_PULL ? RAGGED_PULLS : RAGGED_LARGE;
}

/* The own rows, out of `send`. */
static void take_own(const oriel_seat *seat, const oriel_op *op)
{
    const oriel_ragged *r = op->ragged;
    size_t row = oriel_op_block(op);

    for (int i = seat->index * r->slices; i < (seat->index + 1) * r->slices; i++) {
        if (r->send_sizes[i] > 0 && row > 0)
            oriel_copy((char *)op->recv + (size_t)r->output_offsets[i] * row,
                       (const char *)op->send + (size_t)r->input_offsets[i] * row,
                       (size_t)r->send_sizes[i] * row);
    }
}

static void take_from(const oriel_seat *seat, uint64_t call, int from, const oriel_op *op)
{
    size_t row = oriel_op_block(op);
    int slices = op->ragged->slices;
    struct shown *theirs = shown_by(seat, call, from, slices);
    const char *at = rows_of(seat, call, from, theirs, slices);
    int i = 0;

    for (int to = 0; to <= seat->index; to++) {
        for (int k = 0; k < slices; k++, i++) {
            const struct entry *entry = &theirs->entries[i];
            size_t bytes = (size_t)entry->rows * row;

            if (to == seat->index && bytes > 0)
                oriel_copy((char *)op->recv + (size_t)entry->offset * row, at, bytes);
            at += to == from ? 0 : bytes;
        }
    }
}

void oriel_ragged_see(const oriel_seat *seat, uint64_t call, const oriel_op *op)
{
    take_own(seat, op);
    for (int from = 0; from < (int)seat->n; from++) {
        if (from != seat->index)
            take_from(seat, call, from, op);
    }
}

/* ---- reading ------------------------------------------------------------------------ */

static oriel_status pull_slice(const oriel_request *request, int from, char *dst, const char *src,
                               size_t bytes)
{
    int process = request->comm->heap.ranks[request->group->ranks[from]].process;
    oriel_status st = ORIEL_OK;

    for (size_t at = 0; at < bytes && st == ORIEL_OK; at += PIECE) {
        if (oriel_comm_aborted(request->comm))
            return ORIEL_ERR_REVOKED;
        st = oriel_reads_copy(request->comm, process, dst + at, src + at,
                              bytes - at < PIECE ? bytes - at : PIECE);
    }
    return st;
}

oriel_status oriel_ragged_pull(const oriel_request *request, int from)
{
    uint64_t call = request->key.count;
    int slices = request->ragged.slices;
    int first = request->index * slices;
    struct shown *theirs = shown_by(request->seat, call, from, slices);
    const struct address *address =
        (const struct address *)(const void *)rows_of(request->seat, call, from, theirs, slices);
    size_t row = request->record.bytes;
    oriel_status st = ORIEL_OK;

    if (from == request->index) {
        take_own(request->seat, &request->op);
        return ORIEL_OK;
    }
    if (theirs->flags & SHOWS_ROWS) {
        take_from(request->seat, call, from, &request->op);
        return ORIEL_OK;
    }
    for (int i = first; i < first + slices && st == ORIEL_OK; i++)
        st = pull_slice(request, from,
                        (char *)request->op.recv + (size_t)theirs->entries[i].offset * row,
                        (const char *)(uintptr_t)address->send + (size_t)address->from[i] * row,
                        (size_t)theirs->entries[i].rows * row);
    return st;
}
