/* Looks into the comms of running processes, from outside and without writing:
 * a comm's heap is a memfd, which /proc offers to other processes of the same
 * user. What is read is a copy; its parts may be of slightly different moments.
 * Each is looked at twice, to tell a rank that waits from one that has just come. */
#ifndef ORIEL_TOOLS_ATTACH_H
#define ORIEL_TOOLS_ATTACH_H

#include <sys/types.h>

#include "core/world/world.h"

enum oriel_process_state {
    ORIEL_PROCESS_STARTING, /* has a place in the comm, but is not there yet */
    ORIEL_PROCESS_ALIVE,
    ORIEL_PROCESS_STOPPED, /* by a signal or a debugger */
    ORIEL_PROCESS_LEFT,
    ORIEL_PROCESS_DEAD,
    ORIEL_PROCESS_ELSEWHERE, /* on another machine, as far as is known here */
    ORIEL_PROCESS_STATE_COUNT
};

typedef struct oriel_process_view {
    enum oriel_process_state state; /* as the system and the heap tell it */
    pid_t pid;                      /* as this process sees it */
} oriel_process_view;

typedef struct oriel_comm_view {
    oriel_heap heap;               /* header, procs and ranks of the copy; no cells and no pools */
    oriel_process_view *processes; /* by number */
    uint64_t *traced_before;       /* per rank: calls begun a moment earlier */
    double taken;                  /* when, as oriel_now says it */
    ino_t inode;                   /* of the heap's memfd, by which a comm is known again */
    int fd;                        /* the memfd, read only */
} oriel_comm_view;

enum { ORIEL_VIEWS_MAX = 64 };
typedef struct oriel_views {
    oriel_comm_view comms[ORIEL_VIEWS_MAX]; /* of different heaps */
    int count;                              /* so many of them */
} oriel_views;

/* Takes a fraction of a second. The comms of process `pid`; when it has none, those of the
 * processes below it (a launcher's). Returns -1 with one sentence in `why` when there are none or
 * they cannot be looked at. */
int oriel_views_take(pid_t pid, oriel_views *views, char *why, size_t bytes);
void oriel_views_free(oriel_views *views);

#endif
