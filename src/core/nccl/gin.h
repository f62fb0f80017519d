/* NCCL's GIN beneath a comm that spans machines, with ORIEL_GIN=1: kernels of one's own reach
 * ranks of other machines by it. Made with the comm, since it is collective; where it cannot be
 * had that is known from then on, the same on all ranks, and why. */
#ifndef ORIEL_CORE_NCCL_GIN_H
#define ORIEL_CORE_NCCL_GIN_H

#include "core/nccl/comm.h"

/* Collective over processes, bounded, once the communicators are there. */
oriel_status oriel_gin_open(oriel_comm *comm, struct oriel_nccl *nccl);
/* Local, before the communicators go. `all`: they are still good. */
void oriel_gin_close(struct oriel_nccl *nccl, int all);
/* Local, after. */
void oriel_gin_free(struct oriel_nccl *nccl);
/* Why there is none; NULL: there is. */
const char *oriel_gin_missing(const oriel_comm *comm);

#endif
