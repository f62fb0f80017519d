/* Kernels that fail. */
#include <oriel/kernel.h>

ORIEL_KERNEL(never_signals)(oriel_team *team, const float *x, float *y)
{
    if (oriel_rank(team) == 0)
        oriel_wait(team, 3, 2);
    if (oriel_rank(team) == 1 && oriel_thread(team) == 0)
        oriel_signal(team, 0, 3, 1);
    oriel_for_each (i, team, oriel_count(team, x)) {
        y[i] = x[i];
    }
}

ORIEL_KERNEL(stray_pointer)(oriel_team *team, const float *x, float *y)
{
    float own = 1;

    y[0] = x[0] + oriel_peer(team, &own, 0)[0];
}

ORIEL_KERNEL(stray_rank)(oriel_team *team, const float *x, float *y)
{
    y[0] = oriel_peer(team, x, oriel_size(team))[0];
}

ORIEL_KERNEL(stray_slot)(oriel_team *team, const float *x, float *y)
{
    y[0] = x[0];
    oriel_signal(team, 0, 64, 1);
}

/* Fails on one rank; the others have long ended. */
ORIEL_KERNEL(one_fails)(oriel_team *team, const float *x, float *y)
{
    y[0] = oriel_peer(team, x, oriel_rank(team) == 2 ? -1 : 0)[0];
}

/* One rank comes to the barrier, the others do not. */
ORIEL_KERNEL(lonely_barrier)(oriel_team *team, const float *x, float *y)
{
    if (oriel_rank(team) == 1)
        oriel_barrier_all(team);
    y[0] = x[0];
}
