/* One member's call, as the public functions and the XLA handlers describe it. */
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

/* Checks everything that this member can know to be wrong; the sentence names
 * the argument and the value. */
oriel_status oriel_op_check(const oriel_group *group, int rank, const oriel_op *op);

#endif
