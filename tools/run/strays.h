/* Processes that the started processes left behind: members of their groups,
 * and orphans, which come to `oriel run` because it is a child subreaper. */
#ifndef ORIEL_TOOLS_STRAYS_H
#define ORIEL_TOOLS_STRAYS_H

#include <sys/types.h>

typedef struct oriel_family {
    const volatile pid_t *groups; /* the started processes; each leads a group */
    int count;                    /* length of `groups` */
    pid_t keeper;                 /* a child of ours that is no stray */
} oriel_family;

/* Collects orphans that have ended, sends `signal` (0: none) to the strays that
 * live and returns their number. The started processes are not counted: call it
 * for the living ones only after those have ended. */
int oriel_strays_signal(const oriel_family *family, int signal);

#endif
