/* EXPERIMENTAL. lsa and sym_peer have run with ranks that share one H200, on no two GPUs;
 * multicast and sym_multimem, which need an NVSwitch, on no hardware: drivers and NCCLs of the
 * tests stood in for it.
 *
 * Vias of an all-reduce on a stream beside oriel's plain kernels and NCCL's own call: those two
 * belong to ops/cuda/via.c, which asks here for the others. */
#ifndef ORIEL_EXPERIMENTAL_VIA_H
#define ORIEL_EXPERIMENTAL_VIA_H

#include "experimental/experimental.h"

/* Collective over processes, bounded, by the holder of all communicators, once the heaps are
 * windows. Fails only with what revoked the comm. */
oriel_status oriel_via_windows_open(oriel_comm *comm);

/* Why a comm of GPUs does not have it; NULL: it does. */
const char *oriel_experimental_missing(const oriel_comm *comm, oriel_via via);
/* Whether it works on groups of fewer ranks than the world has. */
int oriel_experimental_any_group(oriel_via via);
/* Whether it has such a reduction. */
int oriel_experimental_reduces(oriel_via via, oriel_dtype dtype, oriel_redop op);
/* Whether its data passes through the stages; if so, what its kernel must know beside. */
int oriel_experimental_staged(oriel_via via);
void oriel_experimental_describe(const oriel_comm *comm, int rank, oriel_via via, oriel_dtype dtype,
                                 oriel_redop op, device_call *call);

/* What multimem instructions have for a type and an operation: enum device_multimem. */
uint32_t oriel_multimem_op(oriel_dtype dtype, oriel_redop op);
/* The address that stands for all ranks' memory where `at` is in the own heap, `bytes` of it;
 * 0: it is not in there, or not aligned to 16 bytes. */
cu_ptr oriel_multimem_address(cu_ptr multimem, cu_ptr heap, size_t heap_bytes, cu_ptr at,
                              size_t bytes);

#endif
