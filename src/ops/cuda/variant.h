/* The ways of an all-reduce on a stream: which are to be had, which is meant, and how they are
 * gone. Oriel's own kernels go all but one of them; launch.c starts those. */
#ifndef ORIEL_OPS_CUDA_VARIANT_H
#define ORIEL_OPS_CUDA_VARIANT_H

#include "core/device/device.h"
#include "ops/op.h"

/* Replaces what the caller named by what it comes to on `stream`: ORIEL_VIA_AUTO where that is the
 * plain kernels. Fails with what is missing. Operations other than all_reduce pass. */
oriel_status oriel_variant_resolve(const oriel_group *group, int rank, oriel_op *op, void *stream);
/* Of a resolved op: whether its data passes through the stages, and what its kernel must know
 * beside. */
int oriel_variant_staged(const oriel_op *op);
void oriel_variant_describe(const oriel_group *group, int rank, const oriel_op *op,
                            device_call *call);
/* NCCL's own call, between what is on `stream` and what comes next there; the rank's context is
 * current, and `call` describes it as one of the plain kernels. */
oriel_status oriel_variant_nccl(const oriel_group *group, int rank, const oriel_op *op,
                                const device_call *call, void *stream);

/* What multimem instructions have for a type and an operation: enum device_multimem. */
uint32_t oriel_multimem_op(oriel_dtype dtype, oriel_redop op);
/* The address that stands for all ranks' memory where `at` is in the own heap, `bytes` of it;
 * 0: it is not in there, or not aligned to 16 bytes. */
cu_ptr oriel_multimem_address(cu_ptr multimem, cu_ptr heap, size_t heap_bytes, cu_ptr at,
                              size_t bytes);

#endif
