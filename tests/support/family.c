#include "support/family.h"

#include <stdlib.h>
#include <string.h>

#include "core/world/comm.h"
#include "support/check.h"

static int reduces(const family_call *call)
{
    return call->kind == ORIEL_KIND_ALL_REDUCE || call->kind == ORIEL_KIND_REDUCE_SCATTER ||
           call->kind == ORIEL_KIND_REDUCE || call->kind == ORIEL_KIND_SCAN;
}

/* `send` has a block for each member. */
static int divides(const family_call *call)
{
    return call->kind == ORIEL_KIND_REDUCE_SCATTER || call->kind == ORIEL_KIND_ALL_TO_ALL ||
           call->kind == ORIEL_KIND_SCATTER;
}

/* `recv` has one. */
static int joins(const family_call *call)
{
    return call->kind == ORIEL_KIND_ALL_GATHER || call->kind == ORIEL_KIND_ALL_TO_ALL ||
           call->kind == ORIEL_KIND_GATHER;
}

static int root_of(const family_call *call, int n)
{
    return (int)(call->seed % (unsigned)n);
}

/* The root alone has a `recv`. */
static int takes(const family_call *call)
{
    return call->kind == ORIEL_KIND_GATHER || call->kind == ORIEL_KIND_REDUCE;
}

static int writes(const family_flight *f)
{
    return !takes(&f->call) || f->index == root_of(&f->call, f->n);
}

static size_t block_bytes(const family_call *call)
{
    return call->kind == ORIEL_KIND_BARRIER ? 0 : call->count * oriel_dtype_size(call->dtype);
}

static int in_place(const family_flight *f)
{
    if ((takes(&f->call) || f->call.kind == ORIEL_KIND_SCATTER) &&
        f->index != root_of(&f->call, f->n))
        return 0;
    return f->call.in_place == 1 || (f->call.in_place == 2 && f->index % 2);
}

/* ---- what is sent ------------------------------------------------------------------ */

/* Block `block` of what `rank` sends. */
static void fill_block(const family_call *call, int rank, int block, unsigned char *out,
                       size_t bytes)
{
    if (reduces(call))
        values_fill(out, call->count, call->dtype, call->op, rank,
                    call->seed + 1000 * (unsigned)block);
    else
        values_fill_bytes(out, bytes, (uint64_t)rank * 65536 + (uint64_t)block, call->seed);
}

/* A permutation of some members: shifted lists with some pairs left out. */
static int make_pairs(const family_call *call, int n, int *pairs)
{
    int order[FAMILY_MAX];
    int num = 0;

    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(values_mix(call->seed, (uint64_t)i) % (uint64_t)(i + 1));
        int kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
    for (int i = 0; i < n; i++) {
        if (call->seed % 3 == 0 && values_mix(call->seed, 99 + (uint64_t)i) % 3 == 0)
            continue;
        pairs[2 * num] = i;
        pairs[2 * num++ + 1] = order[i];
    }
    return num;
}

static int source_of(const family_call *call, int n, int index)
{
    int pairs[2 * FAMILY_MAX];
    int num = make_pairs(call, n, pairs);

    for (int i = 0; i < num; i++) {
        if (pairs[2 * i + 1] == index)
            return pairs[2 * i];
    }
    return -1;
}

/* ---- ragged: sizes of every pair of members ------------------------------------------ */

static int64_t rows_between(const family_call *call, int from, int to, int k)
{
    uint64_t h = values_mix(values_mix(call->seed, (uint64_t)(from * 100 + to)), (uint64_t)k);
    size_t most = call->lone == 0 || call->lone == from + 1 ? call->count : 2;

    return h % 4 == 0 ? 0 : (int64_t)(h / 4 % (most + 1));
}

/* Slices lie one after the other with a row now and then that belongs to none. */
static int64_t gap_before(const family_call *call, int member, int k)
{
    return (call->seed + (unsigned)(member + k)) % 3 == 0;
}

/* Where each slice begins of what `member` sends to all, or receives from all. Returns the end. */
static int64_t lay_out(const family_flight *f, int member, int sending, int64_t *offsets)
{
    int64_t at = 0;

    for (int m = 0; m < f->n; m++) {
        for (int k = 0; k < f->call.slices; k++) {
            at += gap_before(&f->call, m, k);
            *offsets++ = at;
            at += sending ? rows_between(&f->call, member, m, k)
                          : rows_between(&f->call, m, member, k);
        }
    }
    return at;
}

static void make_ragged(family_flight *f)
{
    size_t slices = (size_t)f->call.slices;
    size_t count = (size_t)f->n * slices;
    int64_t *a = f->arrays = calloc(5 * count, sizeof *a);
    int64_t *theirs = a + 4 * count;
    int64_t sent, received;

    CHECK(a != NULL, "%zu slices", count);
    sent = lay_out(f, f->index, 1, a);
    for (int m = 0; m < f->n; m++) {
        size_t first = (size_t)m * slices;

        lay_out(f, m, 0, theirs);
        memcpy(a + 2 * count + first, theirs + (size_t)f->index * slices, slices * sizeof *a);
        for (size_t k = 0; k < slices; k++) {
            a[count + first + k] = rows_between(&f->call, f->index, m, (int)k);
            a[3 * count + first + k] = rows_between(&f->call, m, f->index, (int)k);
        }
    }
    received = lay_out(f, f->index, 0, theirs);
    f->ragged = (oriel_ragged){
        .struct_size = sizeof f->ragged,
        .row = f->call.row,
        .send_rows = (size_t)sent,
        .recv_rows = (size_t)received,
        .slices = f->call.slices,
        .input_offsets = a,
        .send_sizes = a + count,
        .output_offsets = a + 2 * count,
        .recv_sizes = a + 3 * count,
    };
}

static void fill_ragged(const family_flight *f, int sending, unsigned char *out)
{
    size_t row = f->call.row * oriel_dtype_size(f->call.dtype);

    for (int m = 0; m < f->n; m++) {
        for (int k = 0; k < f->call.slices; k++) {
            int from = sending ? f->index : m;
            int to = sending ? m : f->index;
            size_t bytes = (size_t)rows_between(&f->call, from, to, k) * row;

            out += (size_t)gap_before(&f->call, m, k) * row;
            fill_block(&f->call, f->group->ranks[from], to * f->call.slices + k, out, bytes);
            out += bytes;
        }
    }
}

/* ---- buffers -------------------------------------------------------------------------- */

static size_t send_bytes(const family_flight *f)
{
    if (f->call.kind == ORIEL_KIND_RAGGED_ALL_TO_ALL)
        return f->ragged.send_rows * f->call.row * oriel_dtype_size(f->call.dtype);
    return block_bytes(&f->call) * (divides(&f->call) ? (size_t)f->n : 1);
}

static size_t recv_bytes(const family_flight *f)
{
    if (f->call.kind == ORIEL_KIND_RAGGED_ALL_TO_ALL)
        return f->ragged.recv_rows * f->call.row * oriel_dtype_size(f->call.dtype);
    return block_bytes(&f->call) * (joins(&f->call) ? (size_t)f->n : 1);
}

/* Of the buffer that is sent from, and in place received into. */
static size_t both_bytes(const family_flight *f)
{
    size_t sent = send_bytes(f);
    size_t received = in_place(f) ? recv_bytes(f) : 0;

    return sent > received ? sent : received;
}

static unsigned char *send_of(const family_flight *f)
{
    if (f->send.base != NULL)
        return f->send.data;
    return f->recv.data +
           (joins(&f->call) && !divides(&f->call)) * (size_t)f->index * block_bytes(&f->call);
}

static unsigned char *recv_of(const family_flight *f)
{
    if (f->recv.base != NULL)
        return f->recv.data;
    return f->send.data +
           (divides(&f->call) && !joins(&f->call)) * (size_t)f->index * block_bytes(&f->call);
}

static void fill_send(const family_flight *f, unsigned char *out)
{
    size_t block = block_bytes(&f->call);

    if (f->call.kind == ORIEL_KIND_RAGGED_ALL_TO_ALL)
        fill_ragged(f, 1, out);
    for (size_t at = 0; f->call.kind != ORIEL_KIND_RAGGED_ALL_TO_ALL && at < send_bytes(f);
         at += block)
        fill_block(&f->call, f->rank, (int)(at / block), out + at, block);
}

void family_open(family_flight *f, oriel_group *group, int rank, const family_call *call)
{
    *f = (family_flight){.group = group,
                         .rank = rank,
                         .n = group->n,
                         .index = oriel_group_index(group, rank),
                         .call = *call};
    f->call.op = values_op(call->dtype, call->op);
    if (call->kind == ORIEL_KIND_PERMUTE)
        f->num_pairs = make_pairs(call, f->n, f->pairs);
    if (call->kind == ORIEL_KIND_RAGGED_ALL_TO_ALL)
        make_ragged(f);
    /* In place the longer one is both. */
    if (!in_place(f) || !joins(call) || divides(call))
        f->send = buffer_make(both_bytes(f), call->shift);
    if (!in_place(f) || (joins(call) && !divides(call)))
        f->recv = buffer_make(recv_bytes(f), (call->shift * 3) % 64);
    fill_send(f, send_of(f));
}

/* ---- results ---------------------------------------------------------------------------- */

static void fail(const family_flight *f, const char *what, size_t at)
{
    CHECK(0,
          "%s: rank %d, %d of %d, %s, count %zu, row %zu, slices %d, lone %d, in place %d, seed "
          "%u: %s is wrong from %zu on",
          oriel_kind_name(f->call.kind), f->rank, f->index, f->n, oriel_dtype_name(f->call.dtype),
          f->call.count, f->call.row, f->call.slices, f->call.lone, f->call.in_place, f->call.seed,
          what, at);
}

static void compare(const family_flight *f, const char *what, const unsigned char *have,
                    const unsigned char *want, size_t bytes)
{
    size_t at = 0;

    if (bytes == 0 || memcmp(have, want, bytes) == 0)
        return;
    while (have[at] == want[at])
        at++;
    fail(f, what, at);
}

/* What must be in recv, for kinds that move bytes. */
static void expected(const family_flight *f, unsigned char *out)
{
    const family_call *c = &f->call;
    const int *ranks = f->group->ranks;
    size_t block = block_bytes(c);
    int from;

    switch (c->kind) {
    case ORIEL_KIND_ALL_GATHER:
    case ORIEL_KIND_ALL_TO_ALL:
        for (int j = 0; j < f->n; j++)
            fill_block(c, ranks[j], c->kind == ORIEL_KIND_ALL_TO_ALL ? f->index : 0,
                       out + (size_t)j * block, block);
        break;
    case ORIEL_KIND_GATHER:
        for (int j = 0; j < f->n && writes(f); j++)
            fill_block(c, ranks[j], 0, out + (size_t)j * block, block);
        break;
    case ORIEL_KIND_SCATTER:
        fill_block(c, ranks[root_of(c, f->n)], f->index, out, block);
        break;
    case ORIEL_KIND_BROADCAST:
        fill_block(c, ranks[root_of(c, f->n)], 0, out, block);
        break;
    case ORIEL_KIND_PERMUTE:
        from = source_of(c, f->n, f->index);
        memset(out, 0, block);
        if (from >= 0)
            fill_block(c, ranks[from], 0, out, block);
        break;
    case ORIEL_KIND_RAGGED_ALL_TO_ALL:
        if (in_place(f))
            fill_ragged(f, 1, out);
        fill_ragged(f, 0, out);
        break;
    default:
        break;
    }
}

static void check_recv(const family_flight *f)
{
    const family_call *c = &f->call;
    int rows_stay = c->kind == ORIEL_KIND_RAGGED_ALL_TO_ALL && in_place(f);
    size_t bytes = rows_stay ? both_bytes(f) : recv_bytes(f);
    test_buffer want;
    long wrong;

    if (reduces(c) && writes(f)) {
        unsigned block = c->kind == ORIEL_KIND_REDUCE_SCATTER ? (unsigned)f->index : 0;
        int members = c->kind == ORIEL_KIND_SCAN ? f->index + 1 : f->n;

        wrong = values_wrong(recv_of(f), c->count, c->dtype, c->op, f->group->ranks, members,
                             c->seed + 1000 * block);
        if (wrong >= 0)
            fail(f, "an element of recv", (size_t)wrong);
        return;
    }
    want = buffer_make(bytes, 0); /* what nobody writes is the same in recv */
    expected(f, want.data);
    compare(f, "recv", recv_of(f), want.data, bytes);
    buffer_free(&want);
}

/* What a call must leave as it was: in place, what recv does not cover. */
static void check_send(const family_flight *f)
{
    size_t block = block_bytes(&f->call);
    test_buffer want = buffer_make(send_bytes(f), 0);

    fill_send(f, want.data);
    for (size_t at = 0; at<send_bytes(f); at += block> 0 ? block : send_bytes(f)) {
        size_t bytes = block > 0 && block < send_bytes(f) - at ? block : send_bytes(f) - at;

        if (in_place(f) &&
            (!divides(&f->call) || joins(&f->call) || at == (size_t)f->index * block))
            continue;
        compare(f, "send", send_of(f) + at, want.data + at, bytes);
    }
    buffer_free(&want);
}

void family_check_poison(const family_flight *f)
{
    size_t count = recv_bytes(f) / oriel_dtype_size(f->call.dtype);
    long wrong = writes(f) ? values_unpoisoned(recv_of(f), count, f->call.dtype) : -1;

    if (wrong >= 0)
        fail(f, "the poison in recv", (size_t)wrong);
}

void family_close(family_flight *f)
{
    if (f->send.base != NULL)
        buffer_free(&f->send);
    if (f->recv.base != NULL)
        buffer_free(&f->recv);
    free(f->arrays);
}

void family_finish(family_flight *f)
{
    check_recv(f);
    check_send(f);
    family_close(f);
}

/* ---- calls ---------------------------------------------------------------------------------- */

oriel_status family_run(family_flight *f)
{
    const family_call *c = &f->call;
    int root = root_of(c, f->n);
    const void *given = f->index == root || in_place(f) || c->seed % 2 ? send_of(f) : NULL;
    unsigned char *send = send_of(f);
    unsigned char *recv = recv_of(f);
    void *wanted = writes(f) || c->seed % 2 ? recv : NULL;

    switch (c->kind) {
    case ORIEL_KIND_ALL_REDUCE:
        return oriel_all_reduce(f->group, f->rank, send, recv, c->count, c->dtype, c->op);
    case ORIEL_KIND_ALL_GATHER:
        return oriel_all_gather(f->group, f->rank, send, recv, c->count, c->dtype);
    case ORIEL_KIND_REDUCE_SCATTER:
        return oriel_reduce_scatter(f->group, f->rank, send, recv, c->count, c->dtype, c->op);
    case ORIEL_KIND_ALL_TO_ALL:
        return oriel_all_to_all(f->group, f->rank, send, recv, c->count, c->dtype);
    case ORIEL_KIND_BROADCAST:
        return oriel_broadcast(f->group, f->rank, given, recv, c->count, c->dtype, root);
    case ORIEL_KIND_PERMUTE:
        return oriel_permute(f->group, f->rank, send, recv, c->count, c->dtype, f->pairs,
                             f->num_pairs);
    case ORIEL_KIND_BARRIER:
        return oriel_barrier(f->group, f->rank);
    case ORIEL_KIND_GATHER:
        return oriel_gather(f->group, f->rank, send, wanted, c->count, c->dtype, root);
    case ORIEL_KIND_SCATTER:
        return oriel_scatter(f->group, f->rank, given, recv, c->count, c->dtype, root);
    case ORIEL_KIND_REDUCE:
        return oriel_reduce(f->group, f->rank, send, wanted, c->count, c->dtype, c->op, root);
    case ORIEL_KIND_SCAN:
        return oriel_scan(f->group, f->rank, send, recv, c->count, c->dtype, c->op);
    default:
        return oriel_ragged_all_to_all(f->group, f->rank, send, recv, c->dtype, &f->ragged);
    }
}

static oriel_status call_started(family_flight *f)
{
    const family_call *c = &f->call;
    int root = root_of(c, f->n);
    unsigned char *send = send_of(f);
    unsigned char *recv = recv_of(f);
    oriel_request **r = &f->request;

    switch (c->kind) {
    case ORIEL_KIND_ALL_REDUCE:
        return oriel_all_reduce_start(f->group, f->rank, send, recv, c->count, c->dtype, c->op, r);
    case ORIEL_KIND_ALL_GATHER:
        return oriel_all_gather_start(f->group, f->rank, send, recv, c->count, c->dtype, r);
    case ORIEL_KIND_REDUCE_SCATTER:
        return oriel_reduce_scatter_start(f->group, f->rank, send, recv, c->count, c->dtype, c->op,
                                          r);
    case ORIEL_KIND_ALL_TO_ALL:
        return oriel_all_to_all_start(f->group, f->rank, send, recv, c->count, c->dtype, r);
    case ORIEL_KIND_BROADCAST:
        return oriel_broadcast_start(f->group, f->rank, send, recv, c->count, c->dtype, root, r);
    case ORIEL_KIND_PERMUTE:
        return oriel_permute_start(f->group, f->rank, send, recv, c->count, c->dtype, f->pairs,
                                   f->num_pairs, r);
    case ORIEL_KIND_BARRIER:
        return oriel_barrier_start(f->group, f->rank, r);
    case ORIEL_KIND_GATHER:
        return oriel_gather_start(f->group, f->rank, send, recv, c->count, c->dtype, root, r);
    case ORIEL_KIND_SCATTER:
        return oriel_scatter_start(f->group, f->rank, send, recv, c->count, c->dtype, root, r);
    case ORIEL_KIND_REDUCE:
        return oriel_reduce_start(f->group, f->rank, send, recv, c->count, c->dtype, c->op, root,
                                  r);
    case ORIEL_KIND_SCAN:
        return oriel_scan_start(f->group, f->rank, send, recv, c->count, c->dtype, c->op, r);
    default:
        return oriel_ragged_all_to_all_start(f->group, f->rank, send, recv, c->dtype, &f->ragged,
                                             r);
    }
}

void family_check(oriel_group *group, int rank, const family_call *call)
{
    family_flight flight;

    family_open(&flight, group, rank, call);
    CHECK_OK(family_run(&flight));
    family_finish(&flight);
}

void family_check_reductions(oriel_group *group, int rank, const size_t *counts, int n)
{
    unsigned seed = 0;

    for (int dtype = 0; dtype < ORIEL_DTYPE_COUNT; dtype++) {
        for (int op = 0; op < ORIEL_REDOP_COUNT; op++) {
            for (int i = 0; i < n; i++, seed++) {
                family_call call = {.kind = ORIEL_KIND_ALL_REDUCE,
                                    .dtype = (oriel_dtype)dtype,
                                    .op = (oriel_redop)op,
                                    .count = counts[i],
                                    .in_place = seed % 3 == 0,
                                    .seed = seed};
                family_check(group, rank, &call);
            }
        }
    }
}

oriel_status family_try(oriel_group *group, int rank, const family_call *call)
{
    family_flight flight;
    oriel_status st;

    family_open(&flight, group, rank, call);
    st = family_run(&flight);
    if (st == ORIEL_OK) {
        family_finish(&flight);
        return ORIEL_OK;
    }
    family_check_poison(&flight);
    family_close(&flight);
    return st;
}

int family_needs(const family_call *call, int n, int index, int other)
{
    if (takes(call))
        return index != other && root_of(call, n) == index;
    if (call->kind == ORIEL_KIND_SCAN)
        return other < index;
    if (call->kind == ORIEL_KIND_BROADCAST || call->kind == ORIEL_KIND_SCATTER)
        return index != other && root_of(call, n) == other;
    if (call->kind == ORIEL_KIND_PERMUTE)
        return index != other && source_of(call, n, index) == other;
    return 1;
}

void family_begin(family_flight *f)
{
    CHECK_OK(call_started(f));
    /* The arrays are the caller's again. */
    memset(f->pairs, 0xff, sizeof f->pairs);
    if (f->arrays != NULL)
        memset(f->arrays, 0xff, 4 * (size_t)(f->n * f->call.slices) * sizeof *f->arrays);
}

void family_start(family_flight *f, oriel_group *group, int rank, const family_call *call)
{
    family_open(f, group, rank, call);
    family_begin(f);
}

void family_wait(family_flight *flight)
{
    CHECK_OK(oriel_request_wait(flight->request));
    family_finish(flight);
}

int family_test(family_flight *flight)
{
    oriel_status st = oriel_request_test(flight->request);

    if (st == ORIEL_IN_PROGRESS)
        return 0;
    CHECK_OK(st);
    family_finish(flight);
    return 1;
}

enum oriel_kind family_kind(const char *name)
{
    int kind = 1;

    while (kind < ORIEL_KIND_KERNEL && strcmp(oriel_kind_name((uint32_t)kind), name) != 0)
        kind++;
    CHECK(kind < ORIEL_KIND_KERNEL, "no operation \"%s\"", name);
    return (enum oriel_kind)kind;
}

family_call family_random(unsigned seed, size_t max_bytes)
{
    uint64_t luck = values_mix(seed, 23);

    return family_random_of((enum oriel_kind)(1 + luck % (ORIEL_KIND_KERNEL - 1)), seed, max_bytes);
}

family_call family_random_of(enum oriel_kind kind, unsigned seed, size_t max_bytes)
{
    uint64_t h = values_mix(seed, 23);
    family_call call = {.kind = kind,
                        .dtype = (oriel_dtype)(h / 8 % ORIEL_DTYPE_COUNT),
                        .op = (oriel_redop)(h / 256 % ORIEL_REDOP_COUNT),
                        .row = 1 + h / 1024 % 5,
                        .slices = 1 + (int)(h / 8192 % 3),
                        .shift = h / 65536 % 4 == 0 ? h / 262144 % 64 : 0,
                        .in_place = (int)(h / 16777216 % 3),
                        .seed = seed};
    size_t most = max_bytes / oriel_dtype_size(call.dtype);

    if (call.kind == ORIEL_KIND_RAGGED_ALL_TO_ALL)
        most /= call.row * (size_t)call.slices;
    /* Sizes of all magnitudes alike. */
    for (uint64_t bits = h >> 28 & 63; bits > 0 && most > 1; bits /= 2)
        most = bits & 1 ? most / 3 : most;
    call.count = values_mix(h, 3) % (most + 1);
    return call;
}
