/* Where the processes of a job meet while they make a comm: a key-value store, the caller's or
 * one of their own. What one says, all others can ask for. */
#ifndef ORIEL_CORE_START_MEETING_H
#define ORIEL_CORE_START_MEETING_H

#include "core/world/comm.h"
#include "core/store/store.h"

typedef struct oriel_meeting {
    const oriel_store *kv;
    char prefix[128]; /* of the keys: which comm of the job it is */
    double deadline;
    oriel_store_server *server; /* if this process holds the store */
    oriel_store own;            /* if the caller brings none */
} oriel_meeting;

/* Names the meeting that this comm is made in, and its end. */
oriel_status oriel_meeting_plan(oriel_meeting *meeting, const oriel_comm *comm,
                                const oriel_comm_params *params);
/* Opens the store. oriel_meeting_close follows, also after a failure. */
oriel_status oriel_meeting_open(oriel_meeting *meeting, const oriel_comm *comm,
                                const oriel_comm_params *params);
void oriel_meeting_close(oriel_meeting *meeting);

/* `what` of `process`: of that very length. */
oriel_status oriel_meeting_get(const oriel_meeting *meeting, const char *what, int process,
                               void *value, size_t len);
oriel_status oriel_meeting_set(const oriel_meeting *meeting, const char *what, int process,
                               const void *value, size_t len);

#endif
