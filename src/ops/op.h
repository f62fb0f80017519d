/* One member's call, as the public functions and the XLA handlers describe it,
 * and what follows from it alone: no heap, no peer. */
#ifndef ORIEL_OPS_OP_H
#define ORIEL_OPS_OP_H

#include "base/types.h"
#include "core/protocol/cell.h"
#include "core/world/trace.h"

typedef struct oriel_op {
    enum oriel_kind kind; /* which operation it is */
    oriel_dtype dtype;    /* of the elements; barriers and kernels have none */
    oriel_redop redop;    /* operations that reduce */
    const void *send;     /* NULL where nothing is read */
    void *recv;           /* NULL where nothing is written */
    size_t count;         /* elements of one block, as in the public header */
    oriel_via via;        /* all_reduce on GPUs: ORIEL_VIA_AUTO if that is oriel's plain kernels */
    int root;             /* of what has one: broadcast, gather, scatter, reduce; message: 0 */
    const int *pairs;     /* permute: (source, destination), ... */
    int num_pairs;        /* permute: each is two positions in the group */
    uint64_t call;        /* which call of an XLA program it is: the record's; 0: from C */
    uint16_t execution;   /* likewise */
    const oriel_array *arrays;        /* a list, in the place of `send` and `recv`; NULL: none */
    int num_arrays;                   /* of the list: `count` is of all together; see arrays.h */
    const oriel_ragged *ragged;       /* ragged_all_to_all; NULL: another */
    struct oriel_kernel_call *kernel; /* begins with an oriel_custom */
} oriel_op;

/* An operation that is a person's own: what all ranks must have alike, and the functions that
 * move its data (ops/host/request.h). */
typedef struct oriel_custom {
    const struct oriel_custom_moves *moves; /* what its requests do on CPUs */
    uint64_t identity;                      /* a hash of the kernel, shapes and attributes */
    uint64_t bytes;                         /* of operands and results */
    uint64_t call;                          /* as in an oriel_op */
} oriel_custom;

/* NULL: it is one of oriel's. */
static inline oriel_custom *oriel_op_custom(const oriel_op *op)
{
    return (oriel_custom *)(void *)op->kernel;
}

/* Instead of a position in the group. */
enum { OP_NOBODY = -1, OP_EVERYBODY = -2 };

/* Checks everything that this member can know to be wrong; the sentence names
 * the argument and the value. */
oriel_status oriel_op_check(const oriel_group *group, int rank, const oriel_op *op);
/* The first thing that it checks: that `rank` is one of this process's, and a member. */
oriel_status oriel_op_check_member(const oriel_group *group, int rank);
/* The same for a call on a stream: there a group may span machines. */
oriel_status oriel_op_check_on(const oriel_group *group, int rank, const oriel_op *op);
/* What all members must agree on, but for the mode: choose.h. `shape` is the via of an all_reduce,
 * the root where there is one, a hash of a permutation that does not depend on the order of its
 * pairs, the slices of ragged_all_to_all, or the identity of a kernel's call; of lists there is
 * oriel_arrays_shape above its lowest 16 bits. */
void oriel_op_describe(const oriel_group *group, const oriel_op *op, oriel_record *record_p);

/* ---- what follows from the kind ------------------------------------------------------ */

/* What `send` and `recv` have: nothing, one block, or one for each member. */
enum op_extent { OP_NONE, OP_ONE, OP_EACH };

/* Whether there is a root, and what it alone does; one that parts with its data keeps none. */
enum op_root { OP_ROOTLESS, OP_ROOT_GIVES, OP_ROOT_TAKES, OP_ROOT_PARTS };

typedef struct oriel_op_form {
    unsigned char send, recv; /* enum op_extent */
    unsigned char reduces;    /* 1: elements are combined */
    unsigned char root;       /* enum op_root */
    unsigned char lists;      /* 1: lists of arrays are taken */
} oriel_op_form;

extern const oriel_op_form oriel_op_forms[ORIEL_KIND_COUNT];

static inline size_t oriel_op_times(unsigned extent, int n)
{
    return extent == OP_EACH ? (size_t)n : extent;
}

static inline int oriel_op_reduces(const oriel_op *op)
{
    return oriel_op_forms[op->kind].reduces;
}

/* `send` has a block for each member. */
static inline int oriel_op_scatters(const oriel_op *op)
{
    return oriel_op_forms[op->kind].send == OP_EACH;
}

/* `recv` has one. */
static inline int oriel_op_gathers(const oriel_op *op)
{
    return oriel_op_forms[op->kind].recv == OP_EACH;
}

/* Bytes of one block; of a row in ragged_all_to_all. */
static inline size_t oriel_op_block(const oriel_op *op)
{
    return (op->ragged != NULL ? op->ragged->row : op->count) << oriel_dtype_shift(op->dtype);
}

/* Where in `send`, and in a payload, what member `index` needs begins. */
static inline size_t oriel_op_part(const oriel_op *op, int index)
{
    return oriel_op_scatters(op) ? (size_t)index * oriel_op_block(op) : 0;
}

/* Whether `send` of member `index` is read, and its `recv` written. */
static inline int oriel_op_reads(const oriel_op *op, int index)
{
    unsigned root = oriel_op_forms[op->kind].root;

    return index == op->root || root == OP_ROOTLESS || root == OP_ROOT_TAKES;
}

static inline int oriel_op_writes(const oriel_op *op, int index)
{
    unsigned root = oriel_op_forms[op->kind].root;

    return index == op->root ? root != OP_ROOT_PARTS : root != OP_ROOT_TAKES;
}

/* What member `index` has for itself; NULL where its `send` is, and in a list. */
static inline const void *oriel_op_own(const oriel_op *op, int index)
{
    return op->send == NULL ? NULL : (const char *)op->send + oriel_op_part(op, index);
}

/* Whether the member is in place, and what others need of its `send` is in its `recv`. Those of an
 * all_reduce have all read a part before anybody writes it. */
static inline int oriel_op_overwrites(const oriel_op *op)
{
    return op->send == op->recv && (op->kind == ORIEL_KIND_ALL_TO_ALL ||
                                    op->kind == ORIEL_KIND_PERMUTE || op->kind == ORIEL_KIND_SCAN);
}

/* Elements of all of `recv`, as far as it is written. */
size_t oriel_op_recv_count(const oriel_op *op, int n, int index);

/* The other end of the pair whose `end` (0: source, 1: destination) is `index`. */
int oriel_op_other_end(const oriel_op *op, int index, int end);

/* Whose `send` member `index` needs, or to whom `index` gives: a position,
 * OP_NOBODY or OP_EVERYBODY. */
static inline int oriel_op_source(const oriel_op *op, int index)
{
    unsigned root = oriel_op_forms[op->kind].root;

    if (!oriel_op_writes(op, index))
        return OP_NOBODY;
    if (root == OP_ROOT_GIVES || root == OP_ROOT_PARTS)
        return op->root;
    return op->kind == ORIEL_KIND_PERMUTE ? oriel_op_other_end(op, index, 1) : OP_EVERYBODY;
}

static inline int oriel_op_destination(const oriel_op *op, int index)
{
    if (!oriel_op_reads(op, index))
        return OP_NOBODY;
    if (oriel_op_forms[op->kind].root == OP_ROOT_TAKES)
        return index == op->root ? OP_NOBODY : op->root;
    if (op->kind == ORIEL_KIND_MESSAGE)
        return 1; /* its group has two members */
    return op->kind == ORIEL_KIND_PERMUTE ? oriel_op_other_end(op, index, 0) : OP_EVERYBODY;
}

/* A member whose source is OP_EVERYBODY needs the first so many. */
static inline int oriel_op_needed(const oriel_op *op, int n, int index)
{
    return op->kind == ORIEL_KIND_SCAN ? index + 1 : n;
}

/* The most bytes of `send` that any member shows to others. */
static inline size_t oriel_op_widest(const oriel_op *op, int n)
{
    return oriel_op_block(op) * oriel_op_times(oriel_op_forms[op->kind].send, n);
}

/* Those that member `index` shows: its first so many. */
static inline size_t oriel_op_payload(const oriel_op *op, int n, int index)
{
    return oriel_op_destination(op, index) == OP_NOBODY ? 0 : oriel_op_widest(op, n);
}

/* ---- results ---------------------------------------------------------------------------- */

/* Produces bytes [at, at + len) of each block of member `index`'s `recv`. `src[i]`
 * is where those bytes of member i's part for `index` are; only sources need be
 * set. The own entry may be `send` itself, also in place; that of a list is not looked at. */
void oriel_op_take(const oriel_op *op, int n, int index, const void *const *src, size_t at,
                   size_t len);
/* Copies, past the caches if `stream`; nothing where both are the same. */
void oriel_op_copy(void *dst, const void *src, size_t len, int stream);

#endif
