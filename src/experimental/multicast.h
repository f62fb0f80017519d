/* EXPERIMENTAL. Has run on no hardware: a driver of the tests stood in for it.
 *
 * With ORIEL_MULTICAST=1: a multicast object over the heaps of all ranks, without NCCL: an address
 * of which the switch sums and stores in all of them at once. Needs a GPU of sm_90 or newer for
 * each rank, behind an NVSwitch. */
#ifndef ORIEL_EXPERIMENTAL_MULTICAST_H
#define ORIEL_EXPERIMENTAL_MULTICAST_H

#include "experimental/experimental.h"

/* Collective over processes, bounded, once the heaps are there. Fails only with what revoked the
 * comm: without multicast, the reason stands in `why`. */
oriel_status oriel_multicast_open(oriel_comm *comm);
/* Local, before the heaps go. */
void oriel_multicast_close(oriel_comm *comm);
/* NULL: the ranks are CPUs. */
const oriel_multicast *oriel_multicast_of(const oriel_comm *comm);

#endif
