/* ragged_all_to_all in a group's lane. Each member shows what it sends to whom, what it
 * expects from whom, and the rows themselves where there is room. All see what all
 * have shown, so all come to the same end without asking again. */
#include <string.h>

#include "base/copy.h"
#include "core/protocol/style.h"
#include "ops/host/ragged.h"

/* Every member looks at every pair of members. */
enum { MOST_MEMBERS = 64, MOST_LOOKS = MOST_MEMBERS * MOST_MEMBERS, PIECE = 4 << 20 };

/* One slice between two members: of what is sent to the other, and how many rows are
 * expected from it. */
struct entry {
    uint32_t rows;
    uint32_t offset; /* row of the receiver's `recv` */
    uint32_t expected;
};

/* The same in one word, so that a small call's rows fit the same line: rows and expected have 8
 * bits, offset 16. A word, since it is read back at once as it was stored. */
typedef uint32_t brief;

enum {
    SHOWS_ROWS = 1,
    SHOWS_ADDRESS = 2,
    WANTS_PULL = 4,
    ROWS_APART = 8,
    IN_BRIEF = 16,
    IN_FULL = 32,
    BULKS_AT = 8 /* bits from here on: how many bulks rows that are apart take */
};

/* An entry for each slice and member, all in brief or none; then the rows for all others, in
 * order, or, where there is no room for them, where they can be read. Rows that do not fit a
 * slot with the entries are apart from them. A member whose numbers are too large for entries
 * shows neither. */
struct shown {
    uint16_t flags;
    uint16_t recv_rows; /* in brief, else in `full` */
    uint32_t entries[]; /* brief [], or struct full */
};

struct full {
    uint32_t recv_rows;
    struct entry entries[];
};

struct address {
    uint64_t send;
    int64_t from[]; /* row of `send`, for each entry */
};

static inline size_t head_bytes(int n, int slices, uint32_t flags)
{
    size_t entries = (size_t)n * (size_t)slices;
    size_t bytes = flags & IN_BRIEF ? sizeof(struct shown) + entries * sizeof(brief)
                                    : sizeof(struct shown) + sizeof(struct full) +
                                          entries * sizeof(struct entry);

    return (bytes + 7) / 8 * 8;
}

static inline size_t most_bytes(int n, int slices)
{
    return head_bytes(n, slices, 0) + sizeof(struct address) +
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
    size_t most = most_bytes((int)seat->n, slices);

    return (struct shown *)(void *)oriel_lane_payload(seat, call, index,
                                                      most <= LANE_SMALL ? most : seat->bulk);
}

/* Where its rows, or their address, are. */
static inline char *rows_of(const oriel_seat *seat, uint64_t call, int index, struct shown *shown,
                            int slices)
{
    if (shown->flags & ROWS_APART)
        return oriel_lane_payload(seat, call, index,
                                  (size_t)(shown->flags >> BULKS_AT) * seat->bulk);
    return (char *)shown + head_bytes((int)seat->n, slices, shown->flags);
}

static inline struct entry entry_of(const struct shown *shown, int i)
{
    brief b = shown->entries[i];

    return shown->flags & IN_BRIEF ? (struct entry){b & 0xff, b >> 8 & 0xffff, b >> 24}
                                   : ((const struct full *)shown->entries)->entries[i];
}

static inline uint32_t recv_rows_of(const struct shown *shown)
{
    return shown->flags & IN_BRIEF ? shown->recv_rows
                                   : ((const struct full *)shown->entries)->recv_rows;
}

/* ---- showing ------------------------------------------------------------------------ */

/* Inline, so that small ones, whose style is 0, pay nothing for it. */
static inline __attribute__((always_inline)) void
put_rows(const oriel_group *group, const oriel_op *op, int index, uint32_t style, char *dst)
{
    const oriel_ragged *r = op->ragged;
    size_t row = oriel_op_block(op);
    int i = 0;

    for (int to = 0; to < group->n; to++) {
        int streams = style != 0 && oriel_style_streams(group, style, to);

        for (int k = 0; k < r->slices; k++, i++) {
            size_t bytes = (size_t)r->send_sizes[i] * row;

            if (to == index || bytes == 0)
                continue;
            (streams ? oriel_copy_stream : oriel_copy)(
                dst, (const char *)op->send + (size_t)r->input_offsets[i] * row, bytes);
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

/* Writes the entries, in brief if their numbers are small, and returns the flags: 0, if they are
 * too large for either. */
static uint32_t put_entries(const oriel_ragged *r, int entries, struct shown *mine, size_t *rows_p)
{
    struct full *full = (struct full *)mine->entries;
    uint64_t offsets = r->recv_rows;
    uint64_t sizes = 0;
    uint64_t rows = 0;

    for (int i = 0; i < entries; i++) {
        uint64_t sent = (uint64_t)r->send_sizes[i];
        uint64_t offset = (uint64_t)r->output_offsets[i];
        uint64_t expected = (uint64_t)r->recv_sizes[i];

        mine->entries[i] = (brief)(sent | offset << 8 | expected << 24);
        sizes |= sent | expected;
        offsets |= offset;
        rows += sent;
    }
    *rows_p = rows;
    mine->recv_rows = (uint16_t)r->recv_rows;
    if (sizes <= UINT8_MAX && offsets <= UINT16_MAX)
        return IN_BRIEF;
    full->recv_rows = (uint32_t)r->recv_rows;
    for (int i = 0; i < entries; i++)
        full->entries[i] = (struct entry){
            (uint32_t)r->send_sizes[i], (uint32_t)r->output_offsets[i], (uint32_t)r->recv_sizes[i]};
    return (sizes | offsets) > UINT32_MAX ? 0 : IN_FULL;
}

/* How a member with so many bytes of rows for others shows them. */
static uint32_t way_of(const oriel_group *group, const oriel_seat *seat, size_t bytes, int slices,
                       uint32_t flags)
{
    size_t head = head_bytes(group->n, slices, flags);

    if (head + bytes <= LANE_SMALL)
        return SHOWS_ROWS;
    if (most_bytes(group->n, slices) > LANE_SMALL)
        return bytes <= group->room - head ? SHOWS_ROWS : SHOWS_ADDRESS;
    if (bytes > group->most)
        return SHOWS_ADDRESS;
    return SHOWS_ROWS | ROWS_APART | oriel_lane_bulks(seat, bytes) << BULKS_AT;
}

/* The rows are counted only where that may matter: small calls have no time for it. */
size_t oriel_ragged_brings(const oriel_group *group, const oriel_seat *seat, const oriel_op *op)
{
    const oriel_ragged *r = op->ragged;
    size_t bytes;

    if (group->most == group->room || most_bytes(group->n, r->slices) > LANE_SMALL)
        return group->room;
    bytes = oriel_ragged_sent(op, group->n);
    for (int i = seat->index * r->slices; i < (seat->index + 1) * r->slices; i++)
        bytes -= (size_t)r->send_sizes[i] * oriel_op_block(op);
    return bytes > group->room && bytes <= group->most ? bytes : group->room;
}

void oriel_ragged_show(const oriel_group *group, oriel_seat *seat, uint64_t call,
                       const oriel_op *op)
{
    const oriel_ragged *r = op->ragged;
    struct shown *mine = shown_by(seat, call, seat->index, r->slices);
    size_t rows;
    uint32_t flags = put_entries(r, group->n * r->slices, mine, &rows);
    uint32_t style;
    char *dst;

    mine->flags = (uint16_t)flags;
    if (flags == 0)
        return;
    for (int i = seat->index * r->slices; i < (seat->index + 1) * r->slices; i++)
        rows -= (size_t)r->send_sizes[i]; /* what stays here */
    mine->flags |= (uint16_t)way_of(group, seat, rows * oriel_op_block(op), r->slices, flags);
    dst = rows_of(seat, call, seat->index, mine, r->slices);
    if (mine->flags & SHOWS_ROWS) {
        style = oriel_style_store(group, seat, call, (uint32_t)op->kind, rows * oriel_op_block(op));
        if (style == 0)
            put_rows(group, op, seat->index, 0, dst);
        else
            put_rows(group, op, seat->index, style, dst);
        oriel_style_stored(seat, call);
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
    for (int k = 0; k < slices; k++) {
        struct entry sent = entry_of(sends, to * slices + k);

        if (sent.rows != entry_of(expects, from * slices + k).expected ||
            (uint64_t)sent.offset + sent.rows > recv_rows_of(expects))
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
            struct entry sent;

            if (k < 0)
                continue;
            sent = entry_of(all[from], to * slices + k);
            oriel_ragged_compare(
                group, from, to, k, (ragged_slice){.rows = sent.rows, .offset = sent.offset},
                entry_of(all[to], from * slices + k).expected, recv_rows_of(all[to]), fault);
            return RAGGED_WRONG;
        }
    }
    return RAGGED_FITS;
}

/* The same of entries that are all in brief, for when nothing is wrong. */
static int fits_in_brief(const struct shown *const *all, int n, int slices)
{
    int wrong = 0;

    for (int from = 0; from < n; from++) {
        for (int to = 0; to < n; to++) {
            const brief *sent = all[from]->entries + (ptrdiff_t)to * slices;
            const brief *wanted = all[to]->entries + (ptrdiff_t)from * slices;

            for (int k = 0; k < slices; k++)
                wrong |= (sent[k] & 0xff) != wanted[k] >> 24 ||
                         (sent[k] >> 8 & 0xffff) + (sent[k] & 0xff) > all[to]->recv_rows;
        }
    }
    return !wrong;
}

enum ragged_view oriel_ragged_look(const oriel_group *group, const oriel_seat *seat, uint64_t call,
                                   const oriel_op *op, ragged_fault *fault)
{
    const struct shown *all[MOST_MEMBERS];
    uint32_t common = SHOWS_ROWS | IN_BRIEF;
    int silent = 0;

    for (int i = 0; i < group->n; i++) {
        all[i] = shown_by(seat, call, i, op->ragged->slices);
        common &= all[i]->flags;
        silent |= all[i]->flags == 0;
    }
    if (silent)
        return RAGGED_LARGE;
    if (!(common & IN_BRIEF && fits_in_brief(all, group->n, op->ragged->slices)) &&
        look_at_pairs(group, all, op->ragged->slices, fault) == RAGGED_WRONG)
        return RAGGED_WRONG;
    if (common & SHOWS_ROWS)
        return RAGGED_FITS;
    return all[0]->flags & WANTS_PULL ? RAGGED_PULLS : RAGGED_LARGE;
}

/* The own rows, out of `send`. */
static void take_own(const oriel_seat *seat, const oriel_op *op, int stream)
{
    const oriel_ragged *r = op->ragged;
    size_t row = oriel_op_block(op);

    for (int i = seat->index * r->slices; i < (seat->index + 1) * r->slices; i++) {
        if (r->send_sizes[i] > 0 && row > 0)
            (stream ? oriel_copy_stream
                    : oriel_copy)((char *)op->recv + (size_t)r->output_offsets[i] * row,
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
            struct entry entry = entry_of(theirs, i);
            size_t bytes = (size_t)entry.rows * row;

            if (to == seat->index && bytes > 0)
                oriel_copy((char *)op->recv + (size_t)entry.offset * row, at, bytes);
            at += to == from ? 0 : bytes;
        }
    }
}

void oriel_ragged_see(const oriel_group *group, oriel_seat *seat, uint64_t call, const oriel_op *op)
{
    oriel_style_take(seat, call);
    take_own(seat, op, 0);
    for (int from = 0; from < (int)seat->n; from++) {
        if (from != seat->index)
            take_from(seat, call, from, op);
    }
    oriel_style_taken(group, seat, call);
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
        take_own(request->seat, &request->op,
                 oriel_style_overflows(request->group, request->record.kind, request->weight));
        return ORIEL_OK;
    }
    if (theirs->flags & SHOWS_ROWS) {
        take_from(request->seat, call, from, &request->op);
        return ORIEL_OK;
    }
    for (int i = first; i < first + slices && st == ORIEL_OK; i++) {
        struct entry entry = entry_of(theirs, i);

        st = pull_slice(request, from, (char *)request->op.recv + (size_t)entry.offset * row,
                        (const char *)(uintptr_t)address->send + (size_t)address->from[i] * row,
                        (size_t)entry.rows * row);
    }
    return st;
}
