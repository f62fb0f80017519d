/* A person's host function: what it is given, and what came of it. A CPU's thread runs it
 * here, a GPU's rank in cuda/op_on.c. */
#ifndef ORIEL_OPS_KERNEL_HOST_OP_H
#define ORIEL_OPS_KERNEL_HOST_OP_H

#include "oriel/op.h"
#include "ops/kernel/kernel.h"

typedef struct host_op {
    oriel_call call; /* what the function gets; it points to the rest */
    oriel_call_buffer buffers[KERNEL_MAX_BUFFERS];          /* operands, then results */
    oriel_call_attribute attributes[KERNEL_MAX_ATTRIBUTES]; /* in the order of the Python call */
} host_op;

/* From a call whose frame.rank, reach and deadline are set: all but the stream and how
 * to wait. */
void oriel_host_op_fill(const oriel_kernel_call *from, host_op *op);
/* Calls it, and keeps what it says in `from`. */
void oriel_host_op_call(oriel_kernel_call *from, host_op *op);
/* As a status of the operation, with its sentence. */
oriel_status oriel_host_op_outcome(const oriel_kernel_call *from);

#endif
