/* What all_reduce by way of NCCL needs of a rank's communicator beside it: a stream for calls
 * that the host launches, and the device side of windows and barriers. Made with the comm, since
 * most of it is collective; what cannot be had is known from then on, the same on all ranks. */
#ifndef ORIEL_CORE_NCCL_VIA_H
#define ORIEL_CORE_NCCL_VIA_H

#include "core/device/layout.h"
#include "core/nccl/comm.h"
#include "fabric/nccl/device.h"

typedef struct oriel_nccl_way {
    cu_stream stream;    /* NCCL's kernels run here ... */
    cu_event fork, join; /* ... after the one and before the other */
    device_via lsa;      /* window and barrier of the kernels that use them */
    cu_ptr multimem;     /* where the heaps of all ranks are one; 0: nowhere */
} oriel_nccl_way;

typedef struct oriel_nccl_ways {
    oriel_nccl_way *of;     /* per local rank ... */
    nccl_device_comm *made; /* ... what its `lsa` is of */
    int n;
    char no_calls[200], no_lsa[200], no_multimem[200]; /* why not; "": there is */
} oriel_nccl_ways;

/* Collective over processes, bounded, once the communicators are there and the heaps are
 * registered. */
oriel_status oriel_nccl_ways_open(oriel_comm *comm, struct oriel_nccl *nccl);
/* Local, before the communicators go. `all`: they are still good. */
void oriel_nccl_ways_close(struct oriel_nccl *nccl, int all);

/* NULL: the comm has no NCCL. */
const oriel_nccl_ways *oriel_nccl_ways_of(const oriel_comm *comm);

#endif
