/* EXPERIMENTAL. Has run on one H200 that ranks share, with NCCL 2.30.7, GIN with a plugin of the
 * tests in the network's place; on no two GPUs, and on no NIC.
 *
 * What oriel reads of the device side of an NCCL communicator, as 2.30 lays it out: a library
 * takes what was written for an older one than itself, from 2.30 on. A rank that gets one compares
 * what it knows of it: its number, the sizes, the number of barriers. */
#ifndef ORIEL_EXPERIMENTAL_NCCL_DEVICE_H
#define ORIEL_EXPERIMENTAL_NCCL_DEVICE_H

#include "fabric/nccl/links.h"

enum { NCCL_DEVICE_VERSION = 23000, NCCL_BUFFER_UNIT = 128 };

/* How ncclDevCommRequirements begins; NCCL has defaults for the rest. */
typedef struct nccl_device_needs {
    size_t size;
    unsigned magic;
    unsigned version;
    void *resources;
    void *teams;
    _Bool multimem;
    int barriers; /* these and the last three would need more than load and store */
    int lsa_barriers;
    int rail_barriers;
    int a2a_blocks, a2a_slots;
} nccl_device_needs;

/* How ncclDevComm begins; there is room for what follows. */
typedef struct nccl_device_comm {
    unsigned magic;
    unsigned version;
    int rank, size;
    unsigned size_inverse;
    int lsa_rank, lsa_size;
    unsigned lsa_size_inverse;
    void *windows;
    nccl_window resources;
    struct {
        char reserved[8];
        unsigned long long base; /* of rank 0 ... */
        char reserved_too[8];
        unsigned stride; /* ... and to the next rank's, in units of 4 GiB */
        unsigned multicast_at;
        char rest[40];
    } resource_window;
    void *multimem;
    unsigned lsa_barrier_at; /* in the resource window, in units of NCCL_BUFFER_UNIT */
    int lsa_barriers;
    char rail_barrier[8];
    /* GIN, from 2.30.5 on: connections, one for each NIC of the rank ... */
    unsigned char gin_connections;
    unsigned char gin_types[4]; /* NCCL_GIN_PROXY ... */
    void *gin_contexts[4];      /* ... in device memory */
    int gin_signals, gin_counters;
    char rest[928];
} nccl_device_comm;

/* ---- GIN: puts, gets and signals over the network ------------------------------------------- */

enum {
    NCCL_GIN_VERSION = 23005,
    NCCL_GIN_NONE = 0,
    NCCL_GIN_PROXY = 2, /* kernels queue what a thread of NCCL's on the host does */
    NCCL_GIN_FULL = 1   /* connects each rank with each other */
};

/* The whole of ncclDevCommRequirements. */
typedef struct nccl_gin_needs {
    nccl_device_needs first;
    _Bool force;
    int contexts, signals, counters;
    int connection; /* NCCL_GIN_FULL */
    _Bool exclusive;
    int depth;
    int traffic_class; /* NCCL_UNDEFINED */
    int world_barriers;
    _Bool strong_signals, va_signals;
} nccl_gin_needs;

/* How ncclCommProperties begins; there is room for what follows. */
typedef struct nccl_properties {
    size_t size;
    unsigned magic, version;
    int rank, ranks, cuda_device, nvml_device;
    _Bool device_api, multimem;
    int gin_type; /* between all ranks */
    char rest[64];
} nccl_properties;

/* The proxy's side of one context in device memory; longer in some versions. */
typedef struct nccl_gin_proxy {
    int ranks;
    unsigned queue_size; /* a power of 2 */
    cu_ptr queues;       /* [ranks][queue_size], each of 128 bytes: see kernel_gin.h */
    cu_ptr posted;       /* [ranks]: how many, counted by kernels ... */
    cu_ptr taken;        /* ... and of those that have been done, by the host */
    cu_ptr counters, signals;
} nccl_gin_proxy;

/* What GIN needs of a window. */
typedef struct nccl_gin_window {
    nccl_window_head head;
    unsigned at; /* in what the NIC knows, in units of NCCL_WINDOW_ALIGNMENT */
    cu_ptr handles[4];
} nccl_gin_window;

/* Collective over all ranks: made_p[i] is the device side of link i. */
oriel_status oriel_nccl_device_create(const oriel_nccl_links *links, const nccl_device_needs *needs,
                                      const oriel_nccl_wait *wait, nccl_device_comm *made_p);
/* Local, while the communicators are good: those that were created. */
void oriel_nccl_device_destroy(const oriel_nccl_links *links, const nccl_device_comm *made);

/* NCCL's GIN: kernels put, get and signal over the network. Of its kinds the proxy's is used,
 * whose queues can be described without NCCL's headers, and polled with a deadline. */

/* Local: whether there is one between all ranks; a failure is a sentence that says what lacks. */
oriel_status oriel_nccl_gin_check(const oriel_nccl_links *links);
/* Collective over all ranks: made_p[i] is the device side of link i, with so many signals. From
 * then on a thread of NCCL's polls for each link. */
oriel_status oriel_nccl_gin_open(const oriel_nccl_links *links, int signals,
                                 const oriel_nccl_wait *wait, nccl_device_comm *made_p);
/* Local: reads what kernels need of link i, and of its window. */
oriel_status oriel_nccl_gin_read(const oriel_nccl_links *links, int i, const nccl_device_comm *made,
                                 nccl_window window, nccl_gin_proxy *proxy_p,
                                 nccl_gin_window *window_p);

#endif
