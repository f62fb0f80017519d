/* One operation of one rank as a state machine: every step does what can be done
 * now and returns. Blocking calls, started calls and calls from XLA all drive
 * the same machine; a small blocking call is its first steps, on the stack. */
#ifndef ORIEL_OPS_HOST_REQUEST_H
#define ORIEL_OPS_HOST_REQUEST_H

#include "core/protocol/lane.h"
#include "ops/choose.h"
#include "ops/op.h"

enum request_state {
    REQUEST_QUEUE,   /* an ordered call that has yet to arrive in the group's lane */
    REQUEST_LANE,    /* it has arrived there, and is over, or goes on, when all have */
    REQUEST_ENTER,   /* it has yet to find its cell */
    REQUEST_ARRIVED, /* it has arrived there */
    REQUEST_TRANSFER /* all have: data moves */
};

/* What a kind of operation brings that differs from the others. */
typedef struct oriel_moves {
    /* How the operation is to be chosen for. */
    oriel_question (*ask)(const oriel_request *request, enum oriel_meeting meeting);
    /* Sets memory of the request's own up. ORIEL_ERR_SYSTEM: none. */
    oriel_status (*begin)(oriel_request *request);
    /* Copies the arrays that describe the call; 0: no memory. */
    int (*keep)(oriel_request *request);
    /* The only member needs nobody. */
    oriel_status (*alone)(oriel_request *request);
    /* Bytes of payload that the member brings to the lane, at most. */
    size_t (*brings)(const oriel_request *request);
    /* Before it arrives there: puts what others read in place. */
    void (*put)(oriel_request *request);
    /* All are there. ORIEL_IN_PROGRESS: the operation goes on in a cell, in the mode that the
     * record has now. Another failure: it is revoked. */
    oriel_status (*take)(oriel_request *request);
} oriel_moves;

/* Operations whose sizes all members know (payload.c), and ragged_all_to_all (ragged_lane.c). */
extern const oriel_moves oriel_moves_fixed, oriel_moves_ragged;

/* A person's kernel or host function as an operation: see op.h. */
struct oriel_custom_moves {
    /* Before arriving: operands are where the others can read them. */
    oriel_status (*expose)(oriel_request *request);
    /* All have arrived. As oriel_transfer_step. */
    oriel_status (*step)(oriel_request *request);
    /* After a failure: nobody touches this rank's memory any more. */
    int (*quiet)(const oriel_request *request);
    /* Poisons the results. */
    void (*fail)(oriel_request *request);
    /* What holds the call up, as a sentence. */
    void (*describe)(const oriel_request *request, char *out, size_t len);
    /* The request is over: frees the call. */
    void (*destroy)(oriel_custom *custom);
};

struct oriel_request {
    oriel_comm *comm;         /* of the group */
    const oriel_group *group; /* whose members meet */
    const oriel_moves *moves; /* what the kind of operation does otherwise */
    int rank;                 /* in the world */
    int index;                /* in the group */
    enum request_state state; /* how far it has come */
    int stream;               /* what others read is stored past the caches */
    oriel_op op;              /* what was called */
    oriel_record record;      /* what all members must ask for */
    oriel_key key;        /* names the call: ordered ones by a count, those of XLA by their site */
    oriel_member *member; /* ordered calls: the rank's place in the lane; NULL: none to look for */
    size_t brings;        /* ordered calls: bytes of payload in the lane */
    lane_scan scan;       /* how much of the lane has been looked at */
    int rung;             /* the group has been rung for the arrival */

    heap_trace *trace;           /* NULL: the request has not waited yet */
    heap_cell *cell;             /* NULL: it is in none */
    void *kept;                  /* a copy of send, where that is overwritten or given back */
    int leaves;                  /* a message of XLA's: its sender need not wait, and if it ... */
    int left;                    /* ... does not, `kept` has what the receiver will take */
    oriel_request *sent;         /* a sendrecv: what it sends, stepped with this one; NULL: none */
    void *arrays;                /* own copy of what op and ragged point to */
    struct ragged_slice *slices; /* what the others' streams began with */
    oriel_ragged ragged;         /* what op.ragged points to */

    /* From here on set when the request first waits: most small calls end before. */
    double begun;           /* by oriel_now */
    double warn_at;         /* when to log that it still waits */
    double compare_at;      /* when to look for a peer in a differing call */
    uint32_t polls;         /* looks since then */
    uint32_t progress_seen; /* a request that moves is no reason to warn */
    int suspicions;         /* looks in a row that found a peer in a differing call */
    int told;               /* the rank knew of the comm's failure before the call */
    int parked;             /* counted as one that waits for a resource */
    int from, to;           /* staged: members that publish for this one, or gather from it */
    uint32_t chunks;        /* staged: how many there are */
    uint32_t published, reduced, gathered; /* own progress in staged mode */
    int finished;                          /* staged: it has counted itself as finished */
    int unchecked; /* ragged: members whose slices have not been looked at */

    struct oriel_request *next; /* in the engine's or the rank's list */

    /* started calls: the outcome, until somebody asks for it */
    int ended;            /* 1: it has one */
    oriel_status outcome; /* ORIEL_OK, or why not */
    char *text;           /* what oriel_last_error says then; NULL: nothing */

    /* engine: calls from XLA that did not end at once */
    void (*done)(struct oriel_request *request, oriel_status status); /* called with it, once */
    void *done_arg[3];                                                /* the caller's, for `done` */
};

/* Fills a request, but for its `op`, which the caller has put there and checked: to copy it costs
 * a small call more than to fill it. What `op` points to must stay until the outcome, unless
 * oriel_request_keep is called. `key` is NULL for a call that will be ordered. ORIEL_ERR_SYSTEM:
 * no memory, and nothing to release. */
oriel_status oriel_request_begin(oriel_request *request, const oriel_group *group, int rank,
                                 int index, const oriel_key *key);
/* Makes it the group's next ordered call of its rank. */
void oriel_request_order(oriel_request *request);
/* Makes `received` a sendrecv: its steps are those of `sent` as well, which nobody else steps, and
 * its outcome is that of both. Both have begun; what is sent stays in place, and is not copied. */
void oriel_request_pair(oriel_request *received, oriel_request *sent);
/* Copies the arrays that describe the call; on failure drops the request. */
oriel_status oriel_request_keep(oriel_request *request);
/* Chooses mode and copies for the place where the members meet. */
void oriel_request_choose(oriel_request *request, enum oriel_meeting meeting);
/* XLA runs some programs one call after the other, so two that first send to each other would wait
 * for ever. Where the receiver is not there yet, or there is no room for a cell, the sender goes
 * on, and what it sends is kept; a small message lies beside its cell, once it has one. */
void oriel_request_leave(oriel_request *request);
/* Releases what a request holds; a step that gives an outcome has done so. */
void oriel_request_drop(oriel_request *request);
/* Whether the call goes by the group's lane: it arrives there before all else. */
static inline int oriel_request_in_lane(const oriel_request *request)
{
    return request->member != NULL && request->member->lane != NULL && request->key.count > 0;
}
/* Changes whenever a step has moved something. */
static inline uint32_t oriel_request_progress(const oriel_request *request)
{
    return (uint32_t)request->state + request->published + request->reduced + request->gathered;
}

/* ORIEL_IN_PROGRESS, or the outcome. */
oriel_status oriel_request_step(oriel_request *request);
/* Steps until the outcome. */
oriel_status oriel_request_run(oriel_request *request);

/* ---- started requests (started.c): one list per rank, used by its thread alone ---- */

/* Steps the started requests of `rank`: a rank that waits for one operation must
 * go on with its others, or two ranks that wait in different orders would block
 * each other. */
void oriel_started_step(oriel_comm *comm, int rank);
/* Takes over an allocated request. */
void oriel_started_add(oriel_request *request);

#endif
