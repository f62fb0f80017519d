/* How often each rank of this process has arrived at each call, in one world: what a call is
 * found by beside its name. The counts are the world's and not a program's: programs that were
 * compiled for other shapes, compiled anew or ahead of time share them. */
#ifndef ORIEL_FFI_CALLS_H
#define ORIEL_FFI_CALLS_H

#include "base/status.h"

/* A rank at a call; or at a program, whose executions are counted. */
typedef struct oriel_arrival_count {
    uint64_t group, name;   /* of the call, or of the program */
    int rank;               /* in the world */
    _Atomic uint64_t count; /* arrivals so far */
    _Atomic uint64_t last;  /* the site and the run of the last one: see oriel_site_arrive; of a
                             * program its last run and, in the low half, how many there were */
    _Atomic int doubtful;   /* XLA may have copied the call */
    struct oriel_arrival_count *next; /* of the same row */
} oriel_arrival_count;

/* Zero is empty. */
typedef struct oriel_calls {
    oriel_arrival_count *rows[256]; /* by name */
} oriel_calls;

/* Finds or makes one, which stays until the calls are freed. One thread at a time. */
oriel_status oriel_calls_find(oriel_calls *calls, uint64_t group, uint64_t name, int rank,
                              oriel_arrival_count **arrivals_p);
void oriel_calls_free(oriel_calls *calls);

#endif
