#include "base/leave.h"

void oriel_leave(oriel_leavers *leavers, pthread_mutex_t *lock)
{
    oriel_leavers before = *leavers;

    *leavers = (oriel_leavers){.any = 1, .last = pthread_self()};
    pthread_mutex_unlock(lock);
    if (before.any)
        pthread_join(before.last, NULL);
}
