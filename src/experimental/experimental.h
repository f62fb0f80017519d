/* What is tried out here: further vias of an all-reduce, and kernels between machines. No call
 * takes it unless its caller names it (via=, ORIEL_MULTICAST, ORIEL_GIN). What is collective is set
 * up with the comm: with ORIEL_FABRIC=nccl also what `lsa` and `sym_multimem` need, and a failure
 * there is a reason that those are missing, no failure of the comm. Each file says at its head
 * what it has run on. Core opens and closes it by oriel_experimental_hook and knows no more; ops
 * ask it by the headers beside this one. */
#ifndef ORIEL_EXPERIMENTAL_EXPERIMENTAL_H
#define ORIEL_EXPERIMENTAL_EXPERIMENTAL_H

#include "core/nccl/comm.h"
#include "experimental/nccl_device.h"

/* Reasons are sentences; "": there is none. */
enum { EXPERIMENTAL_WHY = 200 };

/* See multicast.h. */
typedef struct oriel_multicast {
    cu_ptr base;                /* of all heaps together; 0: there is none ... */
    char why[EXPERIMENTAL_WHY]; /* ... for this reason */
    cu_handle handle;           /* of the multicast object */
    size_t bytes;               /* of a heap */
    int num_bound;              /* ranks of this process whose heaps are bound */
} oriel_multicast;

/* NCCL's window of the heaps, for kernels: see via.h. */
typedef struct oriel_via_windows {
    nccl_device_comm made[DEVICE_RANKS]; /* per local rank: what `lsa` is of */
    device_via lsa[DEVICE_RANKS];        /* per local rank: window and barrier */
    cu_ptr multimem[DEVICE_RANKS];       /* per local rank: where the heaps of all are one */
    char no_lsa[EXPERIMENTAL_WHY];       /* why kernels have no barrier of NCCL's */
    char no_multimem[EXPERIMENTAL_WHY];  /* why there are no such addresses */
} oriel_via_windows;

/* See gin.h. */
typedef struct oriel_gin_links {
    nccl_device_comm made[DEVICE_RANKS]; /* per local rank */
    nccl_window windows[DEVICE_RANKS];   /* per local rank: of its heap, mapped once more */
    char why[EXPERIMENTAL_WHY];          /* why there is no GIN */
} oriel_gin_links;

struct oriel_experimental {
    oriel_multicast multicast; /* addresses of all heaps at once */
    oriel_via_windows windows; /* what `lsa` and `sym_multimem` need */
    oriel_gin_links gin;       /* between machines */
};

/* NULL: the ranks are CPUs. */
static inline struct oriel_experimental *oriel_experimental_of(const oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;

    return devices != NULL ? devices->experimental : NULL;
}

#endif
