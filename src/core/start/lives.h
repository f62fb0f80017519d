/* The lives of the processes that are meeting, before they share a heap: the system tells of those
 * that run beside this one. */
#ifndef ORIEL_CORE_START_LIVES_H
#define ORIEL_CORE_START_LIVES_H

#include <poll.h>
#include <stdint.h>

typedef struct oriel_life {
    char boot[40]; /* the machine's start; empty: unknown */
    char pids[40]; /* the namespace of its pid; empty: unknown */
    int32_t pid;   /* there */
} oriel_life;

typedef struct oriel_lives {
    int n;              /* processes */
    oriel_life own;     /* of this one */
    oriel_life *of;     /* of each that was shown; NULL: memory was short, and none is watched */
    struct pollfd *fds; /* readable when it has ended; -1: the system does not tell */
} oriel_lives;

/* How others know the life of this process. */
void oriel_life_show(oriel_life *life_p);

void oriel_lives_open(oriel_lives *lives, int num_processes);
void oriel_lives_close(oriel_lives *lives);
/* Watches a process from now on, if it runs beside this one. It may be dead already. */
void oriel_lives_follow(oriel_lives *lives, int process, const oriel_life *life);
/* Whether a life is known to go on, and is not this process's own. */
int oriel_lives_goes_on(const oriel_lives *lives, const oriel_life *life);
/* Waits at most `seconds` for one to end: which; -1: none. */
int oriel_lives_ended(const oriel_lives *lives, double seconds);

#endif
