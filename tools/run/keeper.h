/* A small process that outlives a launcher killed with SIGKILL just long enough
 * to kill the process groups the launcher had started. The children themselves
 * die with the launcher (PR_SET_PDEATHSIG), but that mark does not reach their
 * own children: `oriel run -- sh -c 'python train.py; true'`. */
#ifndef ORIEL_TOOLS_KEEPER_H
#define ORIEL_TOOLS_KEEPER_H

#include <sys/types.h>

typedef struct oriel_keeper {
    pid_t pid;              /* of the keeper */
    int wire;               /* its end tells the keeper that we are gone */
    volatile pid_t *groups; /* shared with the keeper; 0: nothing to kill */
    int count;              /* length of `groups` */
} oriel_keeper;

/* Call before any other thread exists. Returns -1 with errno set. */
int oriel_keeper_create(int count, oriel_keeper *keeper_p);
/* Ends the keeper; it still kills the groups that are in the table. */
void oriel_keeper_destroy(oriel_keeper *keeper);

#endif
