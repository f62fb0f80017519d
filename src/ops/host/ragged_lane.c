/* ragged_all_to_all in a group's lane. Each member shows what it sends to whom, what it
 * expects from whom, and the rows themselves where there is room. All see what all
 * have shown, so all come to the same end without asking again. */
#include <string.h>

#include "base/copy.h"
#include "base/sys.h"
#include "ops/host/ragged.h"
#include "ops/host/transfer.h"

/* Every member looks at every pair of members. */
enum { MOST_MEMBERS = 64, MOST_LOOKS = MOST_MEMBERS * MOST_MEMBERS };

/* One slice between two members: of what is sent to the other, and how many rows are
 * expected from it. */
struct entry {
    uint32_t rows;     /* that are sent */
    uint32_t offset;   /* row of the receiver's `recv` */
    uint32_t expected; /* rows that the other sends here */
};

enum {
    SHOWS_NUMBERS = 1, /* else they are too large for entries */
    SHOWS_ROWS = 2,    /* else where they can be read */
    ROWS_APART = 4,    /* not behind the entries, but in places of their own ... */
    BULKS_AT = 8       /* ... so many: bits from here on */
};

/* An entry for each slice and member; then the rows for all others, in order, or their address.
 * Rows that do not fit a slot with the entries are apart from them. */
struct shown {
    uint32_t flags;         /* SHOWS_... and ROWS_APART */
    uint32_t recv_rows;     /* room for so many */
    struct entry entries[]; /* n * slices, by member */
};

struct address {
    uint64_t send;  /* in the member's own process */
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

/* ---- as any operation ------------------------------------------------------------------ */

static oriel_question ask(const oriel_request *request, enum oriel_meeting meeting)
{
    int n = request->group->n;
    int slices = request->ragged.slices;
    int few = (size_t)n * (size_t)n * (size_t)slices <= MOST_LOOKS;

    return (oriel_question){
        .kind = ORIEL_KIND_RAGGED_ALL_TO_ALL,
        .meeting = meeting,
        .block = meeting == MEET_LANE ? 0 : oriel_ragged_sent(&request->op, n) / (size_t)n,
        .payload = few ? most_bytes(n, slices) : SIZE_MAX,
    };
}

/* In place, rows that come may lie anywhere among those that go: these are set aside. Where
 * processes may not read each other's memory, what a staged call needs is there before anybody
 * hears of the call, so that to lack it fails here alone; elsewhere rows are pulled, or direct. */
static oriel_status begin(oriel_request *request)
{
    const oriel_facts *facts = &request->group->facts;
    oriel_op *op = &request->op;
    size_t bytes = op->send == op->recv ? op->ragged->send_rows * oriel_op_block(op) : 0;

    request->ragged = *op->ragged;
    op->ragged = &request->ragged;
    if (!facts->reads && !facts->one_process && oriel_ragged_expect(request) != ORIEL_OK)
        return ORIEL_ERR_SYSTEM;
    if (bytes == 0)
        return ORIEL_OK;
    request->kept = oriel_sys_now->alloc(bytes);
    if (request->kept == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %zu bytes of send", bytes);
    oriel_copy(request->kept, op->send, bytes);
    op->send = request->kept;
    return ORIEL_OK;
}

static int keep(oriel_request *request)
{
    request->arrays = oriel_ragged_copy(&request->ragged, request->group->n);
    return request->arrays != NULL;
}

/* ---- showing ------------------------------------------------------------------------ */

/* Where `index` shows its entries: all know, without having seen them. */
static inline struct shown *shown_by(const oriel_request *request, int index)
{
    size_t most = most_bytes(request->group->n, request->ragged.slices);

    return (struct shown *)(void *)oriel_lane_payload(request->member, request->key.count, index,
                                                      most <= LANE_SMALL ? most
                                                                         : request->member->bulk);
}

/* Where its rows, or their address, are. */
static inline char *rows_of(const oriel_request *request, int index, struct shown *shown)
{
    if (shown->flags & ROWS_APART)
        return oriel_lane_payload(request->member, request->key.count, index,
                                  (size_t)(shown->flags >> BULKS_AT) * request->member->bulk);
    return (char *)shown + head_bytes(request->group->n, request->ragged.slices);
}

/* Rows of a call with few numbers may take several places. */
static size_t most_rows(const oriel_request *request)
{
    return oriel_choose_rows(&request->group->facts);
}

static size_t one_place(const oriel_request *request)
{
    size_t most = most_rows(request);
    size_t place = request->group->facts.place;

    return most < place ? most : place;
}

/* Bytes of rows that go to others. */
static size_t rows_for_others(const oriel_request *request)
{
    const oriel_ragged *r = &request->ragged;
    int own = request->index * r->slices;
    size_t rows = 0;

    for (int i = 0; i < request->group->n * r->slices; i++)
        rows += (size_t)r->send_sizes[i];
    for (int i = own; i < own + r->slices; i++)
        rows -= (size_t)r->send_sizes[i];
    return rows * request->record.bytes;
}

/* The rows are counted only where that may matter: small calls have no time for it. */
static size_t brings(const oriel_request *request)
{
    size_t place = one_place(request);
    size_t bytes;

    if (most_rows(request) == place ||
        most_bytes(request->group->n, request->ragged.slices) > LANE_SMALL)
        return place;
    bytes = rows_for_others(request);
    return bytes > place && bytes <= most_rows(request) ? bytes : place;
}

static void put_rows(const oriel_request *request, char *dst, int stream)
{
    const oriel_ragged *r = &request->ragged;
    size_t row = request->record.bytes;
    int i = 0;

    for (int to = 0; to < request->group->n; to++) {
        for (int k = 0; k < r->slices; k++, i++) {
            size_t bytes = (size_t)r->send_sizes[i] * row;

            if (to == request->index || bytes == 0)
                continue;
            oriel_op_copy(dst, (const char *)request->op.send + (size_t)r->input_offsets[i] * row,
                          bytes, stream);
            dst += bytes;
        }
    }
}

static void put_address(const oriel_request *request, char *dst)
{
    struct address *address = (struct address *)(void *)dst;
    size_t entries = (size_t)request->group->n * (size_t)request->ragged.slices;

    address->send = (uint64_t)(uintptr_t)request->op.send;
    memcpy(address->from, request->ragged.input_offsets, entries * sizeof(int64_t));
}

/* Returns 0 if a number is too large for an entry. */
static int put_entries(const oriel_ragged *r, int entries, struct shown *mine)
{
    uint64_t all = r->recv_rows;

    mine->recv_rows = (uint32_t)r->recv_rows;
    for (int i = 0; i < entries; i++) {
        mine->entries[i] = (struct entry){
            (uint32_t)r->send_sizes[i], (uint32_t)r->output_offsets[i], (uint32_t)r->recv_sizes[i]};
        all |= (uint64_t)(r->send_sizes[i] | r->output_offsets[i] | r->recv_sizes[i]);
    }
    return all <= UINT32_MAX;
}

/* How a member with so many bytes of rows for others shows them. */
static uint32_t flags_for(const oriel_request *request, size_t bytes)
{
    int slices = request->ragged.slices;
    int n = request->group->n;
    size_t head = head_bytes(n, slices);

    if (head + bytes <= LANE_SMALL)
        return SHOWS_ROWS;
    if (most_bytes(n, slices) > LANE_SMALL)
        return bytes <= one_place(request) - head ? SHOWS_ROWS : 0;
    if (bytes > most_rows(request))
        return 0;
    return SHOWS_ROWS | ROWS_APART | oriel_lane_bulks(request->member, bytes) << BULKS_AT;
}

static void put(oriel_request *request)
{
    struct shown *mine = shown_by(request, request->index);
    size_t bytes = rows_for_others(request);
    char *dst;

    mine->flags = 0;
    if (!put_entries(&request->ragged, request->group->n * request->ragged.slices, mine))
        return;
    mine->flags = SHOWS_NUMBERS | flags_for(request, bytes);
    dst = rows_of(request, request->index, mine);
    if (mine->flags & SHOWS_ROWS)
        put_rows(request, dst,
                 oriel_choose_stream(&request->group->facts, request->op.kind, bytes));
    else
        put_address(request, dst);
}

/* ---- seeing ------------------------------------------------------------------------- */

/* What `from` has for `to`, compared with what that one expects: the first slice that is
 * wrong, or -1. */
static int wrong_slice(const struct shown *sends, int from, const struct shown *expects, int to,
                       int slices)
{
    for (int k = 0; k < slices; k++) {
        const struct entry *sent = &sends->entries[to * slices + k];

        if (sent->rows != expects->entries[from * slices + k].expected ||
            (uint64_t)sent->offset + sent->rows > expects->recv_rows)
            return k;
    }
    return -1;
}

/* The same on all members, fault included. */
static oriel_status look_at_pairs(const oriel_request *request, const struct shown *const *all)
{
    int n = request->group->n;
    int slices = request->ragged.slices;
    ragged_fault fault;

    for (int from = 0; from < n; from++) {
        for (int to = 0; to < n; to++) {
            int k = wrong_slice(all[from], from, all[to], to, slices);
            struct entry sent;

            if (k < 0)
                continue;
            sent = all[from]->entries[to * slices + k];
            oriel_ragged_compare(request->group, from, to, k,
                                 (ragged_slice){.rows = sent.rows, .offset = sent.offset},
                                 all[to]->entries[from * slices + k].expected, all[to]->recv_rows,
                                 &fault);
            return oriel_ragged_refuse(request, &fault);
        }
    }
    return ORIEL_OK;
}

/* The own rows, out of `send`. */
static void take_own(const oriel_request *request)
{
    const oriel_ragged *r = &request->ragged;
    size_t row = request->record.bytes;
    int first = request->index * r->slices;

    for (int i = first; i < first + r->slices; i++) {
        if (r->send_sizes[i] > 0 && row > 0)
            oriel_copy((char *)request->op.recv + (size_t)r->output_offsets[i] * row,
                       (const char *)request->op.send + (size_t)r->input_offsets[i] * row,
                       (size_t)r->send_sizes[i] * row);
    }
}

static void take_from(const oriel_request *request, int from)
{
    size_t row = request->record.bytes;
    struct shown *theirs = shown_by(request, from);
    const char *at = rows_of(request, from, theirs);
    int slices = request->ragged.slices;
    int i = 0;

    for (int to = 0; to <= request->index; to++) {
        for (int k = 0; k < slices; k++, i++) {
            struct entry entry = theirs->entries[i];
            size_t bytes = (size_t)entry.rows * row;

            if (to == request->index && bytes > 0)
                oriel_copy((char *)request->op.recv + (size_t)entry.offset * row, at, bytes);
            at += to == from ? 0 : bytes;
        }
    }
}

static oriel_status take(oriel_request *request)
{
    const struct shown *all[MOST_MEMBERS];
    uint32_t common = SHOWS_NUMBERS | SHOWS_ROWS;

    for (int i = 0; i < request->group->n; i++) {
        all[i] = shown_by(request, i);
        common &= all[i]->flags;
    }
    if (common & SHOWS_NUMBERS && look_at_pairs(request, all) != ORIEL_OK)
        return ORIEL_ERR_REVOKED;
    if (!(common & SHOWS_ROWS)) {
        oriel_request_choose(request, common & SHOWS_NUMBERS ? MEET_SHOWN : MEET_CELL);
        return ORIEL_IN_PROGRESS;
    }
    for (int from = 0; from < request->group->n; from++) {
        if (from != request->index)
            take_from(request, from);
    }
    take_own(request);
    return ORIEL_OK;
}

oriel_status oriel_ragged_pull(const oriel_request *request, int from)
{
    struct shown *theirs = shown_by(request, from);
    const struct address *address =
        (const struct address *)(const void *)rows_of(request, from, theirs);
    int first = request->index * request->ragged.slices;
    size_t row = request->record.bytes;
    oriel_status st = ORIEL_OK;

    if (from == request->index) {
        take_own(request);
        return ORIEL_OK;
    }
    if (theirs->flags & SHOWS_ROWS) {
        take_from(request, from);
        return ORIEL_OK;
    }
    for (int i = first; i < first + request->ragged.slices && st == ORIEL_OK; i++)
        st = oriel_pull_read(
            request, from, (char *)request->op.recv + (size_t)theirs->entries[i].offset * row,
            (const char *)(uintptr_t)address->send + (size_t)address->from[i] * row,
            (size_t)theirs->entries[i].rows * row);
    return st;
}

const oriel_moves oriel_moves_ragged = {
    .ask = ask,
    .begin = begin,
    .keep = keep,
    .alone = oriel_ragged_self,
    .brings = brings,
    .put = put,
    .take = take,
};
