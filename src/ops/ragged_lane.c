/* ragged_all_to_all in a group's lane. Each member shows what it sends to whom, what it
 * expects from whom, and the rows themselves where there is room. All see what all
 * have shown, so all come to the same end without asking again. */
#include "base/copy.h"
#include "core/style.h"
#include "ops/ragged.h"

/* Every member looks at every pair of members. */
enum { MOST_LOOKS = 4096 };
enum { PIECE = 4 << 20 };

/* One slice between two members: of what is sent to the other, and of what is
 * expected from it. */
struct entry {
    int64_t rows;
    int64_t offset; /* row of the receiver's `recv` */
    int64_t from;   /* row of `send` */
    int64_t expected;
};

struct shown {
    uint64_t send; /* its address */
    uint64_t recv_rows;
    uint32_t fits; /* the rows for all others follow the entries, in order */
    uint32_t pull; /* the first member's: where they do not fit, whether to read them */
    struct entry entries[];
};

static size_t head_bytes(int n, int slices)
{
    return sizeof(struct shown) + (size_t)n * (size_t)slices * sizeof(struct entry);
}

int oriel_ragged_lanes(const oriel_group *group, const oriel_op *op)
{
    size_t n = (size_t)group->n;
    int direct = group->one_process && group->comm->heap.header->direct;

    return !direct && n * n * (size_t)op->ragged->slices <= MOST_LOOKS &&
           head_bytes(group->n, op->ragged->slices) <= group->room;
}

/* ---- showing ------------------------------------------------------------------------ */

static void put_rows(const oriel_op *op, int n, int index, char *to)
{
    const oriel_ragged *r = op->ragged;
    size_t row = oriel_op_block(op);

    for (int i = 0; i < n * r->slices; i++) {
        size_t bytes = (size_t)r->send_sizes[i] * row;

        if (i / r->slices == index || bytes == 0)
            continue;
        oriel_copy(to, (const char *)op->send + (size_t)r->input_offsets[i] * row, bytes);
        to += bytes;
    }
}

void oriel_ragged_show(const oriel_group *group, const oriel_op *op, int index, char *payload)
{
    const oriel_ragged *r = op->ragged;
    struct shown *mine = (struct shown *)(void *)payload;
    size_t head = head_bytes(group->n, r->slices);
    size_t rows = 0;

    for (int i = 0; i < group->n * r->slices; i++) {
        mine->entries[i] = (struct entry){r->send_sizes[i], r->output_offsets[i],
                                          r->input_offsets[i], r->recv_sizes[i]};
        rows += i / r->slices == index ? 0 : (size_t)r->send_sizes[i];
    }
    *mine = (struct shown){.send = (uint64_t)(uintptr_t)op->send,
                           .recv_rows = r->recv_rows,
                           .fits = rows * oriel_op_block(op) <= group->room - head};
    if (mine->fits)
        put_rows(op, group->n, index, payload + head);
    else if (index == 0)
        mine->pull =
            (uint32_t)oriel_style_pulls(group, op->kind, oriel_ragged_weight(op, group->n));
}

/* ---- seeing ------------------------------------------------------------------------- */

static const struct shown *shown_by(const oriel_seat *seat, uint64_t call, int index)
{
    return (const struct shown *)(const void *)oriel_lane_payload(seat, call, index);
}

/* What `from` has for `to`, compared with what that one expects. */
static oriel_status compare_pair(const oriel_group *group, const oriel_seat *seat, uint64_t call,
                                 int slices, int from, int to, ragged_fault *fault)
{
    const struct entry *sent = shown_by(seat, call, from)->entries + (ptrdiff_t)to * slices;
    const struct shown *theirs = shown_by(seat, call, to);
    const struct entry *wanted = theirs->entries + (ptrdiff_t)from * slices;
    oriel_status st = ORIEL_OK;

    for (int k = 0; k < slices && st == ORIEL_OK; k++) {
        ragged_slice slice = {.rows = sent[k].rows, .offset = sent[k].offset};

        st = oriel_ragged_compare(group, from, to, k, slice, wanted[k].expected, theirs->recv_rows,
                                  fault);
    }
    return st;
}

enum ragged_view oriel_ragged_look(const oriel_group *group, const oriel_seat *seat, uint64_t call,
                                   const oriel_op *op, ragged_fault *fault)
{
    int fit = 1;

    for (int from = 0; from < group->n; from++) {
        for (int to = 0; to < group->n; to++) {
            if (compare_pair(group, seat, call, op->ragged->slices, from, to, fault) != ORIEL_OK)
                return RAGGED_WRONG;
        }
        fit &= (int)shown_by(seat, call, from)->fits;
    }
    if (fit)
        return RAGGED_FITS;
    return shown_by(seat, call, 0)->pull ? RAGGED_PULLS : RAGGED_LARGE;
}

/* The own rows come from `send`, those of others from behind their entries. */
static void take_from(const oriel_seat *seat, uint64_t call, const oriel_op *op, int from)
{
    const struct shown *theirs = shown_by(seat, call, from);
    size_t row = oriel_op_block(op);
    int slices = op->ragged->slices;
    const char *at = (const char *)theirs + head_bytes((int)seat->n, slices);

    for (int i = 0; i < (seat->index + 1) * slices; i++) {
        const struct entry *entry = &theirs->entries[i];
        size_t bytes = (size_t)entry->rows * row;
        const char *src = at;

        if (from == seat->index)
            src = (const char *)op->send + (size_t)entry->from * row;
        else if (i / slices != from)
            at += bytes;
        if (i / slices == seat->index && bytes > 0)
            oriel_copy((char *)op->recv + (size_t)entry->offset * row, src, bytes);
    }
}

void oriel_ragged_see(const oriel_seat *seat, uint64_t call, const oriel_op *op)
{
    for (uint32_t from = 0; from < seat->n; from++)
        take_from(seat, call, op, (int)from);
}

/* ---- reading ------------------------------------------------------------------------ */

static oriel_status pull_slice(const oriel_request *request, int from, char *dst, const char *src,
                               size_t bytes)
{
    int process = request->comm->heap.ranks[request->group->ranks[from]].process;
    oriel_status st = ORIEL_OK;

    if (from == request->index) {
        oriel_copy(dst, src, bytes);
        return ORIEL_OK;
    }
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
    const struct shown *theirs = shown_by(request->seat, request->key.count, from);
    const struct entry *entries =
        theirs->entries + (ptrdiff_t)request->index * request->ragged.slices;
    const char *send = (const char *)(uintptr_t)theirs->send;
    size_t row = request->record.bytes;
    oriel_status st = ORIEL_OK;

    for (int k = 0; k < request->ragged.slices && st == ORIEL_OK; k++)
        st = pull_slice(request, from, (char *)request->op.recv + (size_t)entries[k].offset * row,
                        send + (size_t)entries[k].from * row, (size_t)entries[k].rows * row);
    return st;
}
