/* An operation on a list of arrays, as one: its block is those of the arrays, one after the other.
 * What is copied anyway is copied array by array, so nothing is packed, and elements are combined
 * as they would be one by one. */
#ifndef ORIEL_OPS_ARRAYS_H
#define ORIEL_OPS_ARRAYS_H

#include "ops/op.h"

/* Makes `op`, which is otherwise filled in, one on the arrays, which stay the caller's. One array
 * is no list: such a call is the ordinary one. */
oriel_status oriel_arrays_describe(oriel_op *op, const oriel_array *arrays, int num);
/* Whether arrays overlap that have nothing to do with each other. ORIEL_ERR_SYSTEM: no memory. */
oriel_status oriel_arrays_apart(const oriel_group *group, int rank, const oriel_op *op);
/* Tells lists of other arrays apart: their number in the lower 16 bits, which messages show, and
 * above them a digest of their counts. */
uint64_t oriel_arrays_shape(const oriel_op *op);

/* A walk along bytes [at, at + len) of a block, array by array. An operation that is no list is
 * one array. */
typedef struct oriel_walk {
    const oriel_op *one; /* the operation on this array alone ... */
    int number;          /* ... which is the array of this number, and of which it is ... */
    size_t at, len;      /* ... bytes [at, at + len) of a block, ... */
    size_t done;         /* ... after so many in arrays before */
    const oriel_op *all; /* the whole operation */
    size_t skip, left;   /* bytes from the next array on: not yet there, and of the walk */
    int next;            /* its number */
    oriel_op copy;       /* what `one` points to in a list */
} oriel_walk;

void oriel_walk_begin(oriel_walk *walk, const oriel_op *op, size_t at, size_t len);
/* 0: that was all. Arrays without elements are passed over. */
int oriel_walk_next(oriel_walk *walk);

/* Copies bytes [at, at + len) of what goes to `to` out of `send`, past the caches if `stream`. */
void oriel_op_put(const oriel_op *op, int to, size_t at, char *dst, size_t len, int stream);
/* Copies them into the block of `recv` that comes from `from`. */
void oriel_op_get(const oriel_op *op, int from, size_t at, const char *src, size_t len);
/* Copies what member `index` of `n` shows to the others of a list: its payload, but for the own
 * block of what is scattered, which nobody reads. */
void oriel_arrays_show(const oriel_op *op, int n, int index, char *dst, int stream);
/* After a failure. */
void oriel_op_poison(const oriel_op *op, int n, int index);

#endif
