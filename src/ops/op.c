#include "ops/op.h"

#include <stdio.h>
#include <string.h>

#include "base/copy.h"
#include "core/protocol/lane.h"
#include "base/hash.h"
#include "ops/arrays.h"
#include "ops/ragged.h"
#include "ops/reduce/reduce.h"

const oriel_op_form oriel_op_forms[ORIEL_KIND_COUNT] = {
    [ORIEL_KIND_ALL_REDUCE] = {.send = OP_ONE, .recv = OP_ONE, .reduces = 1, .lists = 1},
    [ORIEL_KIND_ALL_GATHER] = {.send = OP_ONE, .recv = OP_EACH, .lists = 1},
    [ORIEL_KIND_REDUCE_SCATTER] = {.send = OP_EACH, .recv = OP_ONE, .reduces = 1, .lists = 1},
    [ORIEL_KIND_ALL_TO_ALL] = {.send = OP_EACH, .recv = OP_EACH},
    [ORIEL_KIND_BROADCAST] = {.send = OP_ONE, .recv = OP_ONE, .root = OP_ROOT_GIVES, .lists = 1},
    [ORIEL_KIND_PERMUTE] = {.send = OP_ONE, .recv = OP_ONE},
    [ORIEL_KIND_BARRIER] = {.send = OP_NONE},
    [ORIEL_KIND_RAGGED_ALL_TO_ALL] = {.send = OP_EACH, .recv = OP_EACH},
    [ORIEL_KIND_GATHER] = {.send = OP_ONE, .recv = OP_EACH, .root = OP_ROOT_TAKES},
    [ORIEL_KIND_SCATTER] = {.send = OP_EACH, .recv = OP_ONE, .root = OP_ROOT_GIVES},
    [ORIEL_KIND_REDUCE] = {.send = OP_ONE, .recv = OP_ONE, .reduces = 1, .root = OP_ROOT_TAKES},
    [ORIEL_KIND_SCAN] = {.send = OP_ONE, .recv = OP_ONE, .reduces = 1},
    [ORIEL_KIND_KERNEL] = {.send = OP_NONE},
    [ORIEL_KIND_MESSAGE] = {.send = OP_ONE, .recv = OP_ONE, .root = OP_ROOT_PARTS},
};

size_t oriel_op_recv_count(const oriel_op *op, int n, int index)
{
    if (!oriel_op_writes(op, index))
        return 0;
    if (op->ragged != NULL)
        return op->ragged->recv_rows * op->ragged->row;
    return op->count * oriel_op_times(oriel_op_forms[op->kind].recv, n);
}

int oriel_op_other_end(const oriel_op *op, int index, int end)
{
    for (int i = 0; i < op->num_pairs; i++) {
        if (op->pairs[2 * i + end] == index)
            return op->pairs[2 * i + !end];
    }
    return OP_NOBODY;
}

/* ---- checking --------------------------------------------------------------------- */

oriel_status oriel_op_check_member(const oriel_group *group, int rank)
{
    const oriel_comm *comm;

    if (group == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "group is NULL");
    comm = group->comm;
    if (rank < comm->first_rank || rank >= comm->first_rank + comm->local_ranks)
        return oriel_fail(ORIEL_ERR_INVALID, "rank is %d; process %d holds ranks %d to %d", rank,
                          comm->process, comm->first_rank,
                          comm->first_rank + comm->local_ranks - 1);
    if (group->members[rank - comm->first_rank].index < 0)
        return oriel_fail(ORIEL_ERR_INVALID, "rank %d is no member of the group", rank);
    return ORIEL_OK;
}

static int overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a;
    uintptr_t y = (uintptr_t)b;

    return x < y ? y - x < a_bytes : x - y < b_bytes;
}

static oriel_status check_size(const oriel_op *op, int n)
{
    const oriel_op_form form = oriel_op_forms[op->kind];
    const size_t most = (size_t)1 << 47;
    size_t block = oriel_op_block(op);

    if (op->count <= most && block * oriel_op_times(form.send, n) <= most &&
        block * oriel_op_times(form.recv, n) <= most)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_INVALID,
                      "count is %zu elements of %zu bytes for each of %d members: too large",
                      op->count, oriel_dtype_size(op->dtype), n);
}

static oriel_status check_buffers(const oriel_op *op, int n, int index)
{
    const oriel_op_form form = oriel_op_forms[op->kind];
    size_t block = oriel_op_block(op);
    size_t sent = block * oriel_op_times(form.send, n);
    size_t received = block * oriel_op_times(form.recv, n);
    int reads = oriel_op_reads(op, index);
    int writes = oriel_op_writes(op, index);
    /* In place, the block of `send` that stays with this member lies where it
     * belongs in `recv`. */
    uintptr_t send = (uintptr_t)op->send + oriel_op_part(op, index);
    uintptr_t recv = (uintptr_t)op->recv + (form.recv == OP_EACH ? (size_t)index * block : 0);

    if (op->count == 0)
        return ORIEL_OK;
    if ((reads && op->send == NULL) || (writes && op->recv == NULL))
        return oriel_fail(ORIEL_ERR_INVALID, "%s is NULL",
                          writes && op->recv == NULL ? "recv" : "send");
    if (reads && writes && send != recv && overlap(op->send, sent, op->recv, received))
        return oriel_fail(ORIEL_ERR_INVALID, "send and recv overlap without being in place");
    return ORIEL_OK;
}

static oriel_status check_arrays(const oriel_op *op, int n, int index)
{
    oriel_walk walk;

    for (oriel_walk_begin(&walk, op, 0, oriel_op_block(op)); oriel_walk_next(&walk);) {
        oriel_status st = check_buffers(walk.one, n, index);
        char text[128];

        if (st == ORIEL_OK)
            continue;
        snprintf(text, sizeof text, "%s", oriel_last_error());
        return oriel_fail(st, "arrays[%d]: %s", walk.number, text);
    }
    return ORIEL_OK;
}

static oriel_status check_pair(const oriel_op *op, int n, int i, uint64_t *seen)
{
    static const char *const ends[] = {"source", "destination"};
    int member = op->pairs[i];
    uint64_t bit = 1ull << (member & 63);

    if (member < 0 || member >= n)
        return oriel_fail(ORIEL_ERR_INVALID, "pairs[%d] is %d in a group of %d", i, member, n);
    if (seen[member / 64] & bit)
        return oriel_fail(ORIEL_ERR_INVALID, "pairs[%d] makes member %d a %s twice", i, member,
                          ends[i % 2]);
    seen[member / 64] |= bit;
    return ORIEL_OK;
}

/* Finds most permutations right at once. */
static int pairs_are_right(const oriel_op *op, int n)
{
    uint64_t sources = 0;
    uint64_t destinations = 0;

    for (int i = 0; i < op->num_pairs && n <= 64; i++) {
        unsigned from = (unsigned)op->pairs[2 * i];
        unsigned to = (unsigned)op->pairs[2 * i + 1];

        if (from >= (unsigned)n || to >= (unsigned)n ||
            ((sources >> from | destinations >> to) & 1) != 0)
            return 0;
        sources |= 1ull << from;
        destinations |= 1ull << to;
    }
    return n <= 64;
}

static oriel_status check_pairs(const oriel_op *op, int n)
{
    uint64_t seen[2][HEAP_MAX_RANKS / 64];
    oriel_status st = ORIEL_OK;

    if (op->num_pairs < 0 || op->num_pairs > n)
        return oriel_fail(ORIEL_ERR_INVALID, "num_pairs is %d in a group of %d", op->num_pairs, n);
    if (op->num_pairs > 0 && op->pairs == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "pairs is NULL");
    if (pairs_are_right(op, n))
        return ORIEL_OK;
    for (int w = 0; w * 64 < n; w++)
        seen[0][w] = seen[1][w] = 0;
    for (int i = 0; i < 2 * op->num_pairs && st == ORIEL_OK; i++)
        st = check_pair(op, n, i, seen[i % 2]);
    return st;
}

static oriel_status check(const oriel_group *group, int rank, const oriel_op *op)
{
    oriel_status st = oriel_op_check_member(group, rank);
    int index;

    if (st != ORIEL_OK || op->kind == ORIEL_KIND_BARRIER || op->kind == ORIEL_KIND_KERNEL)
        return st;
    if (!oriel_dtype_known(op->dtype))
        return oriel_fail(ORIEL_ERR_INVALID, "dtype is %d, which is none", (int)op->dtype);
    if (op->kind == ORIEL_KIND_RAGGED_ALL_TO_ALL)
        return oriel_ragged_check(op, group->n);
    if (oriel_op_reduces(op) && !oriel_reduce_supported(op->dtype, op->redop))
        return oriel_fail(ORIEL_ERR_INVALID, "redop is %d (%s), which is none for %s",
                          (int)op->redop, oriel_redop_name(op->redop), oriel_dtype_name(op->dtype));
    if (oriel_op_forms[op->kind].root != OP_ROOTLESS && (op->root < 0 || op->root >= group->n))
        return oriel_fail(ORIEL_ERR_INVALID, "root is %d in a group of %d", op->root, group->n);
    if (op->kind == ORIEL_KIND_PERMUTE)
        st = check_pairs(op, group->n);
    if (st == ORIEL_OK)
        st = check_size(op, group->n);
    if (st != ORIEL_OK)
        return st;
    index = group->members[rank - group->comm->first_rank].index;
    return op->arrays != NULL ? check_arrays(op, group->n, index)
                              : check_buffers(op, group->n, index);
}

oriel_status oriel_op_check_on(const oriel_group *group, int rank, const oriel_op *op)
{
    if ((op->kind >= ORIEL_KIND_GATHER && op->kind < ORIEL_KIND_KERNEL) ||
        op->kind == ORIEL_KIND_MESSAGE)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "%s on a stream: it works on host memory alone; all_gather, "
                          "reduce_scatter, all_reduce and broadcast work on streams",
                          oriel_kind_name(op->kind));
    return check(group, rank, op);
}

oriel_status oriel_op_check(const oriel_group *group, int rank, const oriel_op *op)
{
    oriel_status st = check(group, rank, op);

    if (st == ORIEL_OK && group->spans)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "%s on a group of %d ranks that spans machines: host memory is shared "
                          "within one machine (between machines it will need UCX); groups within "
                          "a machine work, and GPU memory does everywhere",
                          oriel_kind_name(op->kind), group->n);
    return st;
}

/* ---- agreeing --------------------------------------------------------------------- */

static uint64_t shape_of(const oriel_op *op)
{
    uint64_t sum = 0;

    if (op->kind == ORIEL_KIND_ALL_REDUCE)
        return (uint64_t)op->via;
    if (oriel_op_forms[op->kind].root != OP_ROOTLESS)
        return (uint64_t)op->root;
    if (op->kind == ORIEL_KIND_RAGGED_ALL_TO_ALL)
        return (uint64_t)op->ragged->slices;
    if (op->kind == ORIEL_KIND_KERNEL)
        return oriel_op_custom(op)->identity;
    for (int i = 0; op->kind == ORIEL_KIND_PERMUTE && i < op->num_pairs; i++)
        sum += oriel_mix((uint64_t)op->pairs[2 * i] << 32 | (uint32_t)op->pairs[2 * i + 1]);
    return sum;
}

void oriel_op_describe(const oriel_group *group, const oriel_op *op, oriel_record *record_p)
{
    *record_p = (oriel_record){
        .bytes = op->kernel != NULL ? oriel_op_custom(op)->bytes : oriel_op_block(op),
        .shape = shape_of(op) | oriel_arrays_shape(op) << 16,
        .n = (uint16_t)group->n,
        .execution = op->execution,
        .call = op->call,
        .kind = (uint8_t)op->kind,
        .dtype = (uint8_t)op->dtype,
        .redop = oriel_op_reduces(op) ? (uint8_t)op->redop : 0,
    };
}

/* ---- results ---------------------------------------------------------------------- */

void oriel_op_copy(void *dst, const void *src, size_t len, int stream)
{
    if (dst == src)
        return;
    if (stream)
        oriel_copy_stream(dst, src, len);
    else
        oriel_copy(dst, src, len);
}

static void take_list(const oriel_op *op, int n, int index, const void *const *src, size_t at,
                      size_t len)
{
    int from = oriel_op_source(op, index);
    int needed = oriel_op_needed(op, n, index);
    const void *here[HEAP_MAX_RANKS];
    oriel_walk walk;

    for (oriel_walk_begin(&walk, op, at, len); oriel_walk_next(&walk);) {
        for (int i = from >= 0 ? from : 0; i < (from >= 0 ? from + 1 : needed); i++) {
            const void *first = i == index ? oriel_op_own(walk.one, index) : src[i];

            here[i] = (const char *)first + (i == index ? walk.at : walk.done);
        }
        oriel_op_take(walk.one, n, index, here, walk.at, walk.len);
    }
}

void oriel_op_take(const oriel_op *op, int n, int index, const void *const *src, size_t at,
                   size_t len)
{
    int from = oriel_op_source(op, index);
    char *recv;

    if (len == 0 || !oriel_op_writes(op, index))
        return;
    if (op->arrays != NULL) {
        take_list(op, n, index, src, at, len);
        return;
    }
    recv = (char *)op->recv + at;
    if (oriel_op_reduces(op)) {
        oriel_reduce_elements(recv, src, oriel_op_needed(op, n, index),
                              len >> oriel_dtype_shift(op->dtype), op->dtype, op->redop);
        return;
    }
    for (int i = 0; from == OP_EVERYBODY && i < n; i++)
        oriel_op_copy(recv + (size_t)i * oriel_op_block(op), src[i], len, 0);
    if (from >= 0)
        oriel_op_copy(recv, src[from], len, 0);
    if (from == OP_NOBODY)
        memset(recv, 0, len);
}
