/* Vias of an all-reduce on a stream: which is meant, and NCCL's own call. launch.c starts those
 * that are kernels of oriel's; src/experimental has all but peer and nccl. */
#ifndef ORIEL_OPS_CUDA_VIA_H
#define ORIEL_OPS_CUDA_VIA_H

#include "core/device/device.h"
#include "ops/op.h"

/* Replaces what the caller named by what it comes to on `stream`: ORIEL_VIA_AUTO where that is the
 * plain kernels. Fails with what is missing. Operations other than all_reduce pass. */
oriel_status oriel_via_resolve(const oriel_group *group, int rank, oriel_op *op, void *stream);
/* NCCL's own call, between what is on `stream` and what comes next there; the rank's context is
 * current, and `call` describes it as one of the plain kernels. */
oriel_status oriel_via_nccl(const oriel_group *group, int rank, const oriel_op *op,
                            device_call *call, void *stream);

#endif
