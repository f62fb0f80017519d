/* One member's call as a kernel on a stream. */
#ifndef ORIEL_OPS_CUDA_LAUNCH_H
#define ORIEL_OPS_CUDA_LAUNCH_H

#include "ops/op.h"

/* Checks the call, chooses the kernel and its grid, and launches. Returns at once; no
 * allocation, no lock, no system call but the driver's. */
oriel_status oriel_launch(oriel_group *group, int rank, const oriel_op *op, void *stream);
/* The same for ragged_all_to_all, whose op has no arrays. */
oriel_status oriel_launch_ragged(oriel_group *group, int rank, const oriel_op *op,
                                 const oriel_ragged_on *ragged, void *stream);

#endif
