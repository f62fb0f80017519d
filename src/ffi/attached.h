/* The comm that programs run on, and which device is which rank of it: what the handlers of
 * CPUs and of GPUs share. */
#ifndef ORIEL_FFI_ATTACHED_H
#define ORIEL_FFI_ATTACHED_H

#include <pthread.h>

#include "core/device/device.h"
#include "ffi/ffi.h"
#include "ffi/frame.h"
#include "ops/host/engine.h"

enum { ATTACHED_RANKS = 1024 };

/* A rank that is a GPU. */
typedef struct attached_gpu {
    pthread_mutex_t lock;    /* programs may be started by several threads */
    void *stream;            /* of the last call; NULL: there was none */
    oriel_ffi_cost costs[2]; /* of initialize and of execute */
} attached_gpu;

/* Executions hold the lock for reading. */
typedef struct oriel_attached_comm {
    pthread_rwlock_t lock;
    oriel_comm *comm;
    _Atomic uint64_t world; /* which of all that were attached it is: 1, 2, ... */
    oriel_engine *engine;   /* CPUs alone */
    oriel_crew *crew;       /* likewise */
    int num_devices;
    int ordinals[ATTACHED_RANKS];
    attached_gpu gpus[DEVICE_RANKS];
    _Atomic int told; /* a program or a check has failed with what revoked the comm */
} oriel_attached_comm;

extern oriel_attached_comm oriel_attached;

/* The instantiate stage, on either kind of device. */
xla_error *attached_instantiate(xla_frame *frame, int64_t *type_id);

/* With the lock held. */

/* There is a comm, of GPUs or of CPUs as the program's devices are. */
oriel_status attached_check(const oriel_site *site, int gpus);
/* The part of the frame's device in the call: what the site keeps of it, or found out now. Fails
 * where a graph of an earlier world has the call. */
oriel_status attached_member(const xla_frame *frame, oriel_site *site, site_member **member_p);

#endif
