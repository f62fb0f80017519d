/* Threads that end by themselves, of which one is to be sure that none runs any more: each
 * joins the one that left before it, and a thread that waits for the end joins the last. */
#ifndef ORIEL_BASE_LEAVE_H
#define ORIEL_BASE_LEAVE_H

#include <pthread.h>

typedef struct oriel_leavers {
    int any;        /* a thread has left that nobody has joined ... */
    pthread_t last; /* ... this one */
} oriel_leavers;

/* Called with the lock held that guards `leavers`; gives it up. */
void oriel_leave(oriel_leavers *leavers, pthread_mutex_t *lock);

#endif
