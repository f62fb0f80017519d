/* The vias of all_reduce, for programs on GPUs that try all of them. */
#ifndef TESTS_SUPPORT_VIAS_H
#define TESTS_SUPPORT_VIAS_H

#include "support/gpu/gpu.h"

/* Opens the driver and, with ORIEL_FABRIC=nccl, NCCL (ORIEL_NCCL); where one is missing the
 * program ends as skipped. */
void vias_open(void);
/* Whether the world can sum f32 by it. */
int vias_has(oriel_comm *comm, oriel_via via);
/* A sum of f32 over the world. */
oriel_status vias_sum(oriel_comm *comm, int rank, cu_ptr send, cu_ptr recv, size_t count,
                      oriel_via via, cu_stream stream);

/* A kernel that takes its time; in the current context, compiled before others wait. */
cu_function vias_delay(void);
void vias_delay_launch(cu_function delay, unsigned long long ns, cu_stream stream);

#endif
