/* One member's call on a group that spans machines: for span.c and span_ops.c.
 *
 * Members are thought of as a table: a row for each machine, in group order, and in it a column
 * for each of its members. Data moves between machines within a column, by NCCL, and within a
 * row as in any other call. Where a group has no such table (machines with different numbers of
 * members, or members of one that do not stand together) each member is a row of its own. */
#ifndef ORIEL_OPS_CUDA_SPAN_H
#define ORIEL_OPS_CUDA_SPAN_H

#include "core/nccl/comm.h"
#include "ops/cuda/launch.h"

typedef struct oriel_span {
    oriel_group *group;            /* all members */
    oriel_group *line;             /* this rank's row, if that has others */
    int rank;                      /* in the world */
    void *stream;                  /* the caller's */
    const oriel_op *op;            /* as it was called */
    const oriel_ragged_on *ragged; /* NULL: another operation */
    const oriel_device_rank *self; /* its GPU and its heap */
    device_call call;              /* what the machine's own kernels are told */
    int n, rows, columns;          /* of members; the table's size: rows * columns = n */
    int index, row, column;        /* of this member */
    char *head;                    /* HEAD bytes of device memory for what is not data ... */
    char *room;                    /* ... and as much for what is; 256-byte aligned */
    size_t room_bytes;             /* the same on all */
    /* Of the exchange under way. */
    const nccl_library *nccl; /* its functions */
    nccl_comm link;           /* this rank's communicator */
    nccl_result result;       /* the first failure, else NCCL_SUCCESS */
} oriel_span;

enum { SPAN_HEAD = 64 << 10, SPAN_LINE = 256 };

/* An exchange: all that is given and taken between the two moves at once, or in any order.
 * `member` is a position in the group. After a failed begin there must be no end. */
oriel_status oriel_span_begin(oriel_span *span);
void oriel_span_give(oriel_span *span, const void *from, size_t bytes, int member);
void oriel_span_take(oriel_span *span, void *to, size_t bytes, int member);
oriel_status oriel_span_end(oriel_span *span);

/* All but the meeting before it and the verdict after it (span_ops.c). */
oriel_status oriel_span_move(oriel_span *span);

#endif
