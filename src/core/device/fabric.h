/* How ranks that are GPUs reach each other's memory: one const table for each fabric of device
 * memory, every slot filled. The devices call through it and know no fabric by name;
 * core/start/fabrics.c has the ordered list, and chooses. */
#ifndef ORIEL_CORE_DEVICE_FABRIC_H
#define ORIEL_CORE_DEVICE_FABRIC_H

#include "core/device/device.h"

/* Names of fabrics travel as words of the heap. */
enum { DEVICE_FABRIC_NAME = sizeof(uint64_t) };

typedef struct oriel_device_fabric {
    const char *name; /* as ORIEL_FABRIC has it; shorter than DEVICE_FABRIC_NAME */
    int spans;        /* for worlds on several machines; else for those on one */

    /* Local, process 0 before the others join: what all need to find each other. */
    oriel_status (*invite)(oriel_invitation *invitation_p);
    /* Local: a rank's heap, zeroed, of at least so many bytes. Closing takes an empty one. */
    oriel_status (*heap_create)(const oriel_gpu *gpu, size_t bytes, oriel_cuda_memory *heap_p);
    void (*heap_close)(const oriel_gpu *gpu, oriel_cuda_memory *heap);
    /* Collective over processes, bounded: each brings what it has to say so far. Afterwards each
     * local rank's `heaps` has the heaps of all that it can address. */
    oriel_status (*connect)(oriel_comm *comm, oriel_status mine);

    /* The registrar's thread, in the rank's context: makes what peers need to map a buffer. */
    oriel_status (*buffer_export)(const oriel_device_rank *rank, oriel_export *buffer);
    /* The registrar's thread: a peer shows a window, with a generation that is new; whether
     * something moved. */
    int (*buffer_import)(oriel_comm *comm, int rank, int number, uint32_t generation);
    /* Fabrics that map buffers in rounds of all ranks. The registrar's thread takes a step, and
     * does not end before it may. */
    oriel_status (*rounds_open)(oriel_comm *comm);
    int (*rounds_step)(oriel_comm *comm);
    int (*rounds_may_end)(oriel_comm *comm);

    /* Local, no wait, one thread at a time: passes failures of the fabric on to the comm, and ends
     * what the fabric has on GPUs of ranks whose abort word is written. */
    void (*look)(oriel_comm *comm);
    /* Collective, before the comm is freed: no kernel of any rank uses memory of others. */
    oriel_status (*part)(oriel_comm *comm);
    /* Local and bounded, when own kernels and the registrar have ended. False: the fabric still
     * uses memory, which must not be freed. */
    int (*close)(oriel_comm *comm);
} oriel_device_fabric;

extern const oriel_device_fabric oriel_device_cuda; /* descriptors, on one machine */

/* Slots of the cuda fabric, for those that are built on it. */
void oriel_cuda_heap_close(const oriel_gpu *gpu, oriel_cuda_memory *heap);
oriel_status oriel_cuda_connect(oriel_comm *comm, oriel_status mine);
oriel_status oriel_cuda_buffer_export(const oriel_device_rank *rank, oriel_export *buffer);
int oriel_cuda_buffer_import(oriel_comm *comm, int rank, int number, uint32_t generation);
oriel_status oriel_no_rounds_open(oriel_comm *comm);
int oriel_no_rounds_step(oriel_comm *comm);
int oriel_no_rounds_may_end(oriel_comm *comm);

#endif
