/* What oriel reads of the device side of an NCCL communicator, as 2.30 lays it out: a library
 * takes what was written for an older one than itself, from 2.30 on. Whoever gets one compares
 * what it knows of it: the rank, the sizes, the number of barriers. */
#ifndef ORIEL_FABRIC_NCCL_DEVICE_H
#define ORIEL_FABRIC_NCCL_DEVICE_H

#include "fabric/nccl_library.h"

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
    char rest[1024];
} nccl_device_comm;

#endif
