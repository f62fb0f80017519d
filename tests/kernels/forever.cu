#include <oriel/kernel.h>

/* Barriers until one fails. */
ORIEL_KERNEL(forever)(oriel_team *team, const float *x, float *y)
{
    while (oriel_barrier_all(team) == 0)
        y[oriel_thread(team)] = x[0];
}
