/* One operation of one rank as a state machine: every step does what can be done
 * now and returns. Blocking calls, started calls and calls from XLA all drive
 * the same machine. */
#ifndef ORIEL_OPS_REQUEST_H
#define ORIEL_OPS_REQUEST_H

#include "core/cell.h"
#include "core/trace.h"

enum request_state { REQUEST_ENTER, REQUEST_ARRIVED, REQUEST_TRANSFER };

struct oriel_request {
    oriel_comm *comm;
    const oriel_group *group;
    int rank;  /* in the world */
    int index; /* in the group */
    oriel_key key;
    oriel_record record;
    const void *send;
    void *recv;
    size_t count;

    enum request_state state;
    heap_cell *cell;
    uint32_t published, reduced, gathered; /* own progress in staged mode */
    int parked;
    uint32_t polls;
    double begun;
    double warn_at;
    uint32_t progress_seen; /* a request that moves is no reason to warn */
    double compare_at;      /* when to look for a peer in a differing call */
    int suspicions;         /* looks in a row that found one */
    heap_trace *trace;

    struct oriel_request *next; /* in the engine's or the rank's list */

    /* started calls: the outcome, until somebody asks for it */
    int ended;
    oriel_status outcome;
    char *text;

    /* engine: calls from XLA that did not end at once */
    void (*done)(struct oriel_request *request, oriel_status status);
    void *done_arg[3];
};

/* Fills a request; the caller has checked the arguments. */
void oriel_request_begin(oriel_request *request, const oriel_group *group, int rank, int index,
                         const oriel_key *key, const oriel_record *record, const void *send,
                         void *recv, size_t count);
/* Changes whenever a step has moved something. */
static inline uint32_t oriel_request_progress(const oriel_request *request)
{
    return (uint32_t)request->state + request->published + request->reduced + request->gathered;
}

/* ORIEL_IN_PROGRESS, or the outcome. */
oriel_status oriel_request_step(oriel_request *request);
/* Steps until the outcome. */
oriel_status oriel_request_run(oriel_request *request);
/* Steps until the outcome, or until nothing has moved for a while that XLA's
 * threads can be kept. */
oriel_status oriel_request_linger(oriel_request *request);

/* Steps the started requests of `rank`: a rank that waits for one operation must
 * go on with its others, or two ranks that wait in different orders would block
 * each other. */
void oriel_started_step(oriel_comm *comm, int rank);

/* ---- the transfer of each operation ------------------------------------------ */

/* Puts the payload or the addresses where the others find them. */
void oriel_all_reduce_expose(oriel_request *request);
/* All have arrived: moves data. ORIEL_OK: this rank's result is complete.
 * ORIEL_ERR_REVOKED: the operation is revoked. */
oriel_status oriel_all_reduce_transfer(oriel_request *request);
/* Fills `record_p`; the mode follows from size, group and heap alone. */
void oriel_all_reduce_record(const oriel_group *group, size_t count, oriel_dtype dtype,
                             oriel_redop op, oriel_record *record_p);

#endif
