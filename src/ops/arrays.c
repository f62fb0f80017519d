#include "ops/arrays.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/math.h"
#include "base/sys.h"
#include "core/protocol/lane.h"
#include "ops/reduce/reduce.h"

/* ---- a walk --------------------------------------------------------------------------- */

void oriel_walk_begin(oriel_walk *walk, const oriel_op *op, size_t at, size_t len)
{
    walk->all = op;
    walk->skip = at;
    walk->left = len;
    walk->next = 0;
    walk->len = walk->done = 0;
    walk->one = op;
    if (op->arrays == NULL)
        return;
    walk->one = &walk->copy;
    walk->copy = *op;
    walk->copy.arrays = NULL;
    walk->copy.num_arrays = 0;
}

/* The caller walks no further than the arrays go. */
static int walk_list(oriel_walk *walk)
{
    const oriel_array *array = &walk->all->arrays[walk->next];
    unsigned shift = oriel_dtype_shift(walk->all->dtype);

    if (walk->left == 0)
        return 0;
    for (; walk->skip >= array->count << shift; array++)
        walk->skip -= array->count << shift;
    walk->copy.send = array->send;
    walk->copy.recv = array->recv;
    walk->copy.count = array->count;
    walk->number = (int)(array - walk->all->arrays);
    walk->next = walk->number + 1;
    walk->at = walk->skip;
    walk->len = oriel_least((array->count << shift) - walk->skip, walk->left);
    walk->skip = 0;
    walk->left -= walk->len;
    return 1;
}

int oriel_walk_next(oriel_walk *walk)
{
    walk->done += walk->len;
    if (walk->all->arrays != NULL)
        return walk_list(walk);
    walk->number = 0;
    walk->at = walk->skip;
    walk->len = walk->left;
    walk->left = 0;
    return walk->len > 0;
}

/* ---- copies ------------------------------------------------------------------------------- */

void oriel_op_put(const oriel_op *op, int to, size_t at, char *dst, size_t len, int stream)
{
    oriel_walk walk;

    for (oriel_walk_begin(&walk, op, at, len); oriel_walk_next(&walk);)
        oriel_op_copy(dst + walk.done, (const char *)oriel_op_own(walk.one, to) + walk.at, walk.len,
                      stream);
}

void oriel_op_get(const oriel_op *op, int from, size_t at, const char *src, size_t len)
{
    size_t block = oriel_op_gathers(op) ? (size_t)from : 0;
    oriel_walk walk;

    for (oriel_walk_begin(&walk, op, at, len); oriel_walk_next(&walk);)
        oriel_op_copy((char *)walk.one->recv + block * oriel_op_block(walk.one) + walk.at,
                      src + walk.done, walk.len, 0);
}

void oriel_arrays_show(const oriel_op *op, int n, int index, char *dst, int stream)
{
    size_t bytes = oriel_op_payload(op, n, index);
    size_t block = oriel_op_block(op);

    if (bytes > 0 && !oriel_op_scatters(op))
        oriel_op_put(op, 0, 0, dst, bytes, stream);
    for (int to = 0; bytes > 0 && oriel_op_scatters(op) && to < n; to++) {
        if (to != index)
            oriel_op_put(op, to, 0, dst + (size_t)to * block, block, stream);
    }
}

void oriel_op_poison(const oriel_op *op, int n, int index)
{
    oriel_walk walk;

    if (op->arrays == NULL && op->recv != NULL)
        oriel_poison(op->recv, oriel_op_recv_count(op, n, index), op->dtype);
    if (op->arrays == NULL)
        return;
    for (oriel_walk_begin(&walk, op, 0, oriel_op_block(op)); oriel_walk_next(&walk);)
        oriel_poison(walk.one->recv, oriel_op_recv_count(walk.one, n, index), op->dtype);
}

/* ---- checking ------------------------------------------------------------------------------- */

oriel_status oriel_arrays_describe(oriel_op *op, const oriel_array *arrays, int num)
{
    if (num < 0 || num > ORIEL_ARRAYS_MAX)
        return oriel_fail(ORIEL_ERR_INVALID, "num_arrays is %d; a call takes 0 to %d", num,
                          ORIEL_ARRAYS_MAX);
    if (num > 0 && arrays == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "arrays is NULL");
    op->count = 0;
    for (int i = 0; i < num; i++) {
        if (__builtin_add_overflow(op->count, arrays[i].count, &op->count))
            return oriel_fail(ORIEL_ERR_INVALID,
                              "arrays[%d].count is %zu elements: with those before too many", i,
                              arrays[i].count);
    }
    if (num == 1) {
        op->send = arrays[0].send;
        op->recv = arrays[0].recv;
    }
    if (num > 1) {
        op->arrays = arrays;
        op->num_arrays = num;
    }
    return ORIEL_OK;
}

/* Of an array that is in place both its `send` and its `recv`. */
struct span {
    uintptr_t at, end;
    int written; /* by this call */
    int number;  /* of the array */
};

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a;
    const struct span *y = b;

    return x->at < y->at ? -1 : x->at > y->at;
}

/* Adds what an array reads alone, or what it writes. Returns how many spans that is. */
static size_t add_span(const oriel_op *one, int n, int index, int written, struct span *span)
{
    const oriel_op_form form = oriel_op_forms[one->kind];
    size_t block = oriel_op_block(one);
    struct span sent = {.at = (uintptr_t)one->send,
                        .end = (uintptr_t)one->send + block * oriel_op_times(form.send, n)};
    struct span got = {.at = (uintptr_t)one->recv,
                       .end = (uintptr_t)one->recv + block * oriel_op_times(form.recv, n),
                       .written = 1};

    if (!oriel_op_reads(one, index) || (got.at <= sent.at && sent.end <= got.end))
        sent = got;
    sent.written |= sent.at <= got.at && got.end <= sent.end;
    *span = written && !sent.written ? got : sent;
    return span->written == written;
}

/* As arrays often are that were made one after the other. */
static int in_order(const struct span *spans, size_t num)
{
    size_t i = 1;

    while (i < num && spans[i - 1].at <= spans[i].at)
        i++;
    return i >= num;
}

static oriel_status overlaps(const struct span *written, const struct span *other)
{
    return oriel_fail(ORIEL_ERR_INVALID, "recv of arrays[%d] overlaps arrays[%d]", written->number,
                      other->number);
}

static oriel_status compare_arrays(struct span *spans, size_t num)
{
    struct span none = {0};
    const struct span *last = &none;    /* of those before, the one that ends last */
    const struct span *written = &none; /* of those that are written */

    if (!in_order(spans, num))
        qsort(spans, num, sizeof *spans, compare_spans);
    for (size_t i = 0; i < num; i++) {
        const struct span *s = &spans[i];

        if (s->at < written->end)
            return overlaps(written, s);
        if (s->written && s->at < last->end)
            return overlaps(s, last);
        if (s->end > last->end)
            last = s;
        if (s->written)
            written = s;
    }
    return ORIEL_OK;
}

oriel_status oriel_arrays_apart(const oriel_group *group, int rank, const oriel_op *op)
{
    int index = group->members[rank - group->comm->first_rank].index;
    struct span *spans;
    size_t num = 0;
    oriel_walk walk;
    oriel_status st;

    if (op->arrays == NULL)
        return ORIEL_OK;
    spans = oriel_sys_now->alloc((2 * (size_t)op->num_arrays + 1) * sizeof *spans);
    if (spans == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a list of %d arrays",
                          op->num_arrays);
    /* Those that lie first in memory come first: they may be in order then. */
    for (int pass = 0; pass <= 1; pass++) {
        int written = pass ^ ((uintptr_t)op->arrays[0].recv < (uintptr_t)op->arrays[0].send);

        for (oriel_walk_begin(&walk, op, 0, oriel_op_block(op)); oriel_walk_next(&walk);) {
            size_t more = add_span(walk.one, group->n, index, written, &spans[num]);

            spans[num].number = walk.number;
            num += more;
        }
    }
    st = compare_arrays(spans, num);
    oriel_sys_now->release(spans);
    return st;
}

uint64_t oriel_arrays_shape(const oriel_op *op)
{
    uint64_t sum = 0;

    if (op->arrays == NULL)
        return 0;
    for (int i = 0; i < op->num_arrays; i++)
        sum = oriel_mix(sum ^ op->arrays[i].count);
    return sum << 16 | (uint64_t)op->num_arrays;
}
