/* Device memory that other processes and other GPUs can map, by the driver's virtual memory
 * calls. A descriptor passes through a port (port.h); within a process addresses are enough.
 * Ranks may share a GPU. */
#ifndef ORIEL_FABRIC_CUDA_MEMORY_H
#define ORIEL_FABRIC_CUDA_MEMORY_H

#include "fabric/cuda/driver.h"

/* A device of this process, with its primary context, which other users of the process
 * share. */
typedef struct oriel_gpu {
    int ordinal;        /* as this process counts devices */
    cu_device device;   /* the driver's name for it */
    cu_context context; /* its primary one */
    cu_stream stream;   /* oriel's own: copies that must not wait for the caller's work */
    cu_uuid uuid;       /* the same in every process */
    int sms;            /* multiprocessors */
    int arch;           /* 90 for sm_90 */
    int rdma;           /* NICs may reach its memory */
    int room; /* thread blocks that its holder may have on it at a time; see core/device/device.h */
    char name[64]; /* as the driver calls it */
} oriel_gpu;

/* Physical memory, and where this process maps it. */
typedef struct oriel_cuda_memory {
    cu_ptr base;      /* 0: not mapped */
    size_t bytes;     /* a multiple of the granularity */
    cu_handle handle; /* of the physical memory */
    int fd;           /* what peers fetch; -1: none */
    int lasting;      /* its addresses are kept: see oriel_cuda_memory_create */
} oriel_cuda_memory;

/* Local: the device with this number, checked for what the fabric needs. */
oriel_status oriel_cuda_gpu_open(int ordinal, oriel_gpu *gpu_p);
void oriel_cuda_gpu_close(oriel_gpu *gpu);

/* Makes the device current in this thread, until oriel_cuda_leave. */
static inline void oriel_cuda_enter(const oriel_gpu *gpu)
{
    oriel_cu->context_push(gpu->context);
}
static inline void oriel_cuda_leave(void)
{
    cu_context back;

    oriel_cu->context_pop(&back);
}

/* Makes memory on `gpu`, zeroed, with a descriptor for others. Its addresses are not given back
 * when it is closed, but kept for the next that is as long: a process that makes and closes the
 * same in the same order, as a world and the next of its shape do, finds it at the same place.
 * Captured graphs count on that. */
oriel_status oriel_cuda_memory_create(const oriel_gpu *gpu, size_t bytes,
                                      oriel_cuda_memory *memory_p);
/* Maps memory behind `fd`, which stays the caller's; `lasting` as above. Nobody can touch it before
 * oriel_cuda_memory_open. */
oriel_status oriel_cuda_memory_import(int fd, size_t bytes, int lasting,
                                      oriel_cuda_memory *memory_p);
/* Maps the memory behind [at, at + bytes), which is one mapping, once more: it stays when that
 * is gone. Fails where other processes could not map it. */
oriel_status oriel_cuda_memory_alias(const oriel_gpu *gpu, cu_ptr at, size_t bytes,
                                     oriel_cuda_memory *memory_p);
/* Lets these GPUs of the process read and write it. */
oriel_status oriel_cuda_memory_open(const oriel_cuda_memory *memory, const oriel_gpu *gpus, int n);
void oriel_cuda_memory_close(oriel_cuda_memory *memory);

/* Whether a kernel on `from` can touch memory on `to`, both of this process; a failure is
 * the sentence that says why not. */
oriel_status oriel_cuda_reaches(const oriel_gpu *from, const oriel_gpu *to);

/* Zeroes device memory, or copies a few bytes there, or from there, and waits until it is done. */
oriel_status oriel_cuda_clear(const oriel_gpu *gpu, cu_ptr at, size_t bytes);
oriel_status oriel_cuda_write(const oriel_gpu *gpu, cu_ptr to, const void *from, size_t bytes);
oriel_status oriel_cuda_read(const oriel_gpu *gpu, void *to, cu_ptr from, size_t bytes);

#endif
