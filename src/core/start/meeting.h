/* Where the processes of a job meet while they make a comm: a key-value store, the caller's or
 * one of their own. What one says, all others can ask for, and how it ends is said once:
 * docs/protocol.md, "How processes meet". */
#ifndef ORIEL_CORE_START_MEETING_H
#define ORIEL_CORE_START_MEETING_H

#include "core/start/lives.h"
#include "core/store/store.h"
#include "core/world/comm.h"

/* What a process says first. */
typedef struct oriel_hello {
    oriel_life life;       /* by which others see that it has ended */
    char version[16];      /* of oriel: all run one */
    char boot[40];         /* empty: unknown */
    char net[40];          /* its network namespace; empty: unknown */
    char host[64];         /* ORIEL_HOSTID */
    int32_t num_processes; /* of the job, as this process was told */
    int32_t local_ranks;   /* ranks it brings */
    int32_t team;          /* ORIEL_TEAM: kernels count on one number of threads */
    uint32_t uid;          /* its user: the same for all of a machine */
} oriel_hello;

typedef struct oriel_meeting {
    const oriel_store *kv;      /* the store in use: the caller's or `own` */
    const char *job;            /* prefix of the keys */
    unsigned number;            /* of the meeting in the job, by the store */
    int process;                /* this one's number */
    int num_processes;          /* of the job */
    double deadline;            /* as oriel_now() */
    double pause;               /* until the next look at what else may end a wait */
    int culprit;                /* the process that this one's failure is about */
    int heard;                  /* a failure that is known to all */
    int stranger;               /* this process has no place in the meeting, and keeps quiet */
    oriel_lives lives;          /* of those whose hello this process has read */
    oriel_store_server *server; /* if this process holds the store */
    oriel_store own;            /* if the caller brings none */
} oriel_meeting;

/* Opens the store, finds the meeting, and says hello there, by which process 0 begins it. With a
 * failure as `mine` the process has come to tell that alone. oriel_meeting_close follows, also
 * after a failure. */
oriel_status oriel_meeting_open(oriel_meeting *meeting, const oriel_comm *comm,
                                const oriel_comm_params *params, const oriel_hello *hello,
                                oriel_status mine);
void oriel_meeting_close(oriel_meeting *meeting);

/* `what` of `process`: of that very length. Waits for it until the deadline, unless the meeting
 * fails before: by another process's word, by its end, or because this one is interrupted. */
oriel_status oriel_meeting_get(oriel_meeting *meeting, const char *what, int process, void *value,
                               size_t len);
/* The same, but waits for a moment alone: ORIEL_IN_PROGRESS. */
oriel_status oriel_meeting_try(oriel_meeting *meeting, const char *what, int process, void *value,
                               size_t len);
oriel_status oriel_meeting_set(const oriel_meeting *meeting, const char *what, int process,
                               const void *value, size_t len);

/* How the meeting ends, for all alike: the first to say it decides. Process 0: all have come and
 * joined. Fails with what another has said before. */
oriel_status oriel_meeting_succeed(oriel_meeting *meeting);
/* The others, who have joined: waits for that word. */
oriel_status oriel_meeting_end(oriel_meeting *meeting);
/* Any process: it cannot go on, and oriel_last_error says why. Returns the failure that stands, if
 * another's was said before. */
oriel_status oriel_meeting_fail(oriel_meeting *meeting, oriel_status st);

#endif
