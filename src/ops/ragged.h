/* ragged_all_to_all, as one member describes it. */
#ifndef ORIEL_OPS_RAGGED_H
#define ORIEL_OPS_RAGGED_H

#include "ops/op.h"

oriel_status oriel_ragged_check(const oriel_op *op, int n);
/* Bytes that this member sends in all. */
size_t oriel_ragged_sent(const oriel_op *op, int n);

#endif
