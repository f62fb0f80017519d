/* EXPERIMENTAL. Has run on one H200 between processes that count as machines, with a plugin of the
 * tests in the network's place; on no NIC.
 *
 * NCCL's GIN beneath a comm that spans machines, with ORIEL_GIN=1: kernels of one's own reach
 * ranks of other machines by it. Made with the comm, since it is collective; where it cannot be
 * had that is known from then on, the same on all ranks, and why. */
#ifndef ORIEL_EXPERIMENTAL_GIN_H
#define ORIEL_EXPERIMENTAL_GIN_H

#include "experimental/experimental.h"

/* Collective over processes, bounded, by the holder of all communicators. Fails only with what
 * revoked the comm. */
oriel_status oriel_gin_open(oriel_comm *comm);
/* Local, while the communicators are good. */
void oriel_gin_close(oriel_comm *comm);
/* Why there is none; NULL: there is. */
const char *oriel_gin_missing(const oriel_comm *comm);

#endif
