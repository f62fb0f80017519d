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

/* What the handlers keep of a rank that is a GPU. */
typedef struct attached_gpu {
    pthread_mutex_t lock;    /* several threads may start programs on it */
    void *stream;            /* of the last call; NULL: there was none */
    oriel_ffi_cost costs[2]; /* of initialize and of execute */
} attached_gpu;

/* Stages of an execution hold the lock for reading, once each; attach and detach for writing. */
typedef struct oriel_attached_comm {
    pthread_rwlock_t lock;           /* of all below, but what is atomic */
    oriel_comm *comm;                /* NULL: nothing is attached */
    _Atomic uint64_t world;          /* which of all that were attached it is: 1, 2, ... */
    oriel_engine *engine;            /* CPUs alone */
    oriel_crew *crew;                /* likewise */
    oriel_calls calls;               /* the arrivals at them in this world */
    int num_devices;                 /* of local ranks, each a device */
    int ordinals[ATTACHED_RANKS];    /* XLA's, of each local rank */
    attached_gpu gpus[DEVICE_RANKS]; /* of each local rank */
    uint64_t layout;                 /* of GPUs: see oriel_devices_layout */
    _Atomic uint64_t captured;       /* that of the world in which graphs have captured calls */
    _Atomic int stale;               /* graphs have captured calls that no other world can use */
    _Atomic int lost;                /* a message that its sender has left has failed */
    _Atomic int told; /* a program or a check has failed with what revoked the comm */
} oriel_attached_comm;

extern oriel_attached_comm oriel_attached;

/* The instantiate stage, on either kind of device. */
xla_error *oriel_attached_instantiate(xla_frame *frame, int64_t *type_id);

/* The callers of these hold the lock. */

/* The rank that XLA's device is; -1: none. There is a comm. */
int oriel_attached_rank(int ordinal);
/* Fails unless there is a comm, and its ranks are GPUs or CPUs as the program's devices are. */
oriel_status oriel_attached_check(const oriel_site *site, int gpus);
/* Finds which member of the call the frame's device is. The site keeps that, so that a world is
 * searched once. Fails where a graph that was captured in an earlier world has the call. */
oriel_status oriel_attached_member(const xla_frame *frame, oriel_site *site,
                                   site_member **member_p);

#endif
