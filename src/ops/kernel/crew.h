/* Threads that run kernels. Those of one call wait for each other, and for those of
 * other calls, so every task gets a thread of its own at once: the crew grows when too
 * few are idle. */
#ifndef ORIEL_OPS_KERNEL_CREW_H
#define ORIEL_OPS_KERNEL_CREW_H

#include "base/status.h"

typedef struct oriel_crew oriel_crew;

typedef struct crew_task {
    void (*run)(struct crew_task *task); /* called once, by a thread of its own */
    struct crew_task *next;              /* NULL: the last of the list */
} crew_task;

oriel_status oriel_crew_create(oriel_crew **crew_p);
/* Waits for what runs; nobody starts anything any more. NULL is fine. */
void oriel_crew_destroy(oriel_crew *crew);
/* Runs the tasks of the list, all at once. They belong to their threads until they
 * have run. ORIEL_ERR_NO_RESOURCE: there are too few threads; none of them runs. */
oriel_status oriel_crew_start(oriel_crew *crew, crew_task *tasks, int n);

#endif
