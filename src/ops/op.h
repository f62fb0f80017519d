/* One member's call, as the public functions and the XLA handlers describe it,
 * and what follows from it alone: no heap, no peer. */
#ifndef ORIEL_OPS_OP_H
#define ORIEL_OPS_OP_H

#include "core/cell.h"
#include "core/trace.h"

typedef struct oriel_op {
    enum oriel_kind kind;
    oriel_dtype dtype;
    oriel_redop redop;
    const void *send;
    void *recv;
    size_t count;     /* elements of one block, as in the public header */
    int root;         /* broadcast */
    const int *pairs; /* permute: (source, destination), ... */
    int num_pairs;
    const oriel_ragged *ragged;
} oriel_op;

/* Instead of a position in the group. */
enum { OP_NOBODY = -1, OP_EVERYBODY = -2 };

/* Checks everything that this member can know to be wrong; the sentence names
 * the argument and the value. */
oriel_status oriel_op_check(const oriel_group *group, int rank, const oriel_op *op);
/* What all members must agree on; the mode follows from the rest, the group and
 * the heap. `shape` is the root of a broadcast, a hash of a permutation that does
 * not depend on the order of its pairs, or the slices of ragged_all_to_all. */
void oriel_op_record(const oriel_group *group, const oriel_op *op, oriel_record *record_p);
/* The same without the mode. */
void oriel_op_describe(const oriel_group *group, const oriel_op *op, oriel_record *record_p);

int oriel_op_reduces(const oriel_op *op);
int oriel_op_scatters(const oriel_op *op); /* `send` has a block for each member */
int oriel_op_gathers(const oriel_op *op);  /* `recv` has one */
/* Bytes of one block; of a row in ragged_all_to_all. */
size_t oriel_op_block(const oriel_op *op);
/* Elements of all of `recv`. */
size_t oriel_op_recv_count(const oriel_op *op, int n);
/* Bytes of `send` that member `index` shows to others: its first so many. */
size_t oriel_op_payload(const oriel_op *op, int n, int index);
/* The most that any member shows. */
size_t oriel_op_widest(const oriel_op *op, int n);
/* Where in a payload what member `index` needs begins. */
size_t oriel_op_part(const oriel_op *op, int index);
/* Whose `send` member `index` needs, or to whom `index` gives: a position,
 * OP_NOBODY or OP_EVERYBODY. */
int oriel_op_source(const oriel_op *op, int index);
int oriel_op_destination(const oriel_op *op, int index);

/* Produces bytes [at, at + len) of each block of member `index`'s `recv`. `src[i]`
 * is where those bytes of member i's part for `index` are; only sources need be
 * set. The own entry may be `send` itself, also in place. `stream`: store past the
 * caches. */
void oriel_op_take(const oriel_op *op, int n, int index, const void *const *src, size_t at,
                   size_t len, int stream);
/* Fills `recv` from the payloads of all members. The own entry is not looked at:
 * `send` is. Not for ragged_all_to_all. */
void oriel_op_consume(const oriel_op *op, int n, int index, const void *const *payload);

/* Copies, past the caches if `stream`; nothing where both are the same. */
void oriel_op_copy(void *dst, const void *src, size_t len, int stream);

#endif
