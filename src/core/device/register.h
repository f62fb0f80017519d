/* Between the registrar (register.c) and the fabrics that map buffers for it. */
#ifndef ORIEL_CORE_DEVICE_REGISTER_H
#define ORIEL_CORE_DEVICE_REGISTER_H

#include "core/device/device.h"

enum export_state { FREE, WANTED, SHOWN, READY, NEVER, STALE, WITHDRAWN };

typedef struct oriel_import {
    uint32_t generation;      /* last seen */
    oriel_cuda_memory memory; /* where this process maps it */
} oriel_import;

static inline heap_export *shown_of(const oriel_comm *comm, int rank, int number)
{
    return &oriel_exports(&comm->heap, rank)->all[number];
}

/* Tells a rank's device where it sees window `number` of `rank`; 0: nowhere. */
oriel_status oriel_window_tell(const oriel_device_rank *r, int rank, int number, cu_ptr base);
/* The same for all ranks of this process. */
oriel_status oriel_windows_tell(const oriel_devices *devices, int rank, int number, cu_ptr base);

#endif
