#include "base/interrupt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char reason[200];
static _Atomic int interrupted;

void oriel_interrupt(const char *why)
{
    pthread_mutex_lock(&lock);
    snprintf(reason, sizeof reason, "%s", why != NULL ? why : "");
    pthread_mutex_unlock(&lock);
    atomic_store(&interrupted, why != NULL);
}

int oriel_interrupted(void)
{
    return atomic_load_explicit(&interrupted, memory_order_relaxed);
}

oriel_status oriel_interrupt_fail(void)
{
    char why[sizeof reason];

    pthread_mutex_lock(&lock);
    snprintf(why, sizeof why, "%s", reason);
    pthread_mutex_unlock(&lock);
    return oriel_fail(ORIEL_ERR_PEER, "%s", why);
}
