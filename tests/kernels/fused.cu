#include <oriel/kernel.h>

ORIEL_KERNEL(sum_bias)(oriel_team *team, const float *x, const float *bias, float *y)
{
    size_t n = oriel_count(team, x);

    oriel_reduce_copy(team, y, x, n, ORIEL_OP_SUM);
    oriel_team_sync(team);
    oriel_for_each (i, team, n) {
        y[i] += bias[i];
    }
}
