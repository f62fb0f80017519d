/* One operation of one rank as a state machine: every step does what can be done
 * now and returns. Blocking calls, started calls and calls from XLA all drive
 * the same machine. */
#ifndef ORIEL_OPS_HOST_REQUEST_H
#define ORIEL_OPS_HOST_REQUEST_H

#include "core/protocol/lane.h"
#include "ops/op.h"

enum request_state {
    REQUEST_QUEUE, /* an ordered call that has yet to arrive in the group's lane */
    REQUEST_LANE,  /* it has arrived there, and is over when all have */
    REQUEST_SHOWN, /* it has arrived there, but takes more than the lane */
    REQUEST_READ,  /* all have; it reads the others' memory, then arrives once more */
    REQUEST_ENTER,
    REQUEST_ARRIVED,
    REQUEST_TRANSFER
};

struct oriel_request {
    oriel_comm *comm;
    const oriel_group *group;
    int rank;  /* in the world */
    int index; /* in the group */
    oriel_key key;
    oriel_record record;
    oriel_op op;
    oriel_ragged ragged;         /* what op.ragged points to */
    void *kept;                  /* in place: a copy of send, for those who read it */
    void *arrays;                /* own copy of what op and ragged point to */
    struct ragged_slice *slices; /* what the others' streams began with */

    enum request_state state;
    int wide;         /* ordered calls: takes two numbers in the lane */
    uint64_t call;    /* ... the one it is at */
    size_t brings;    /* ... bytes of payload with the first */
    oriel_seat *seat; /* ordered calls: the rank's place in the lane; NULL: none to look for */
    lane_scan scan;
    heap_cell *cell;
    int from, to;    /* staged: who has to publish for, or to gather from this member */
    uint32_t chunks; /* staged: how many there are */
    uint32_t published, reduced, gathered; /* own progress in staged mode */
    int owes;       /* staged: members that this one has yet to count as finished */
    int unchecked;  /* ragged: members whose slices have not been looked at */
    size_t weight;  /* bytes of a block, about; ragged: as this member alone knows them */
    uint32_t style; /* how its data moves, see core/protocol/style.h ... */
    double moving;  /* ... and since when, for who learns from it */
    int parked;
    uint32_t polls;
    double begun;
    double warn_at;
    uint32_t progress_seen; /* a request that moves is no reason to warn */
    double compare_at;      /* when to look for a peer in a differing call */
    int suspicions;         /* looks in a row that found one */
    int stillborn;          /* its rank had been told of the comm's failure before */
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

/* Fills a request; the caller has checked the arguments. What `op` points to must
 * stay until the outcome, unless oriel_request_keep is called. ORIEL_ERR_SYSTEM: no
 * memory, and nothing to release. */
oriel_status oriel_request_begin(oriel_request *request, const oriel_group *group, int rank,
                                 int index, const oriel_key *key, const oriel_op *op);
/* Makes it the group's next ordered call of its rank. */
void oriel_request_order(oriel_request *request);
/* Makes it one that has arrived in the lane as `call` already. */
void oriel_request_resume(oriel_request *request, uint64_t call, const oriel_record *record);
/* Copies the arrays that describe the call; on failure drops the request. */
oriel_status oriel_request_keep(oriel_request *request);
/* Releases what a request holds; a step that gives an outcome has done so. */
void oriel_request_drop(oriel_request *request);
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

/* ---- started requests (started.c): one list per rank, used by its thread alone ---- */

/* Steps the started requests of `rank`: a rank that waits for one operation must
 * go on with its others, or two ranks that wait in different orders would block
 * each other. */
void oriel_started_step(oriel_comm *comm, int rank);
/* Takes over an allocated request. */
void oriel_started_add(oriel_request *request);

#endif
