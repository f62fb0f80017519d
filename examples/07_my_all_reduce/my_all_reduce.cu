#include <oriel/kernel.h>

/* One shot: every rank loads everybody's x and adds it up, in rank order. Operands of
 * all ranks are there when a kernel begins, so there is nothing to wait for. */
ORIEL_KERNEL(one_shot)(oriel_team *team, const float *x, float *y, float scale)
{
    oriel_for_each (i, team, oriel_count(team, x)) {
        float sum = oriel_peer(team, x, 0)[i];

        for (int r = 1; r < oriel_size(team); r++)
            sum += oriel_peer(team, x, r)[i];
        y[i] = scale * sum;
    }
}

/* Two shots, of which each rank does its part: it adds up one slice and stores that
 * on all ranks. A result is read when all ranks have ended, so this needs no wait
 * either. */
ORIEL_KERNEL(two_shot)(oriel_team *team, const float *x, float *y)
{
    size_t n = oriel_count(team, x) / 4, ranks = (size_t)oriel_size(team);
    size_t from = 4 * (n * (size_t)oriel_rank(team) / ranks);
    size_t to = 4 * (n * ((size_t)oriel_rank(team) + 1) / ranks);

    if (oriel_rank(team) == oriel_size(team) - 1)
        to = oriel_count(team, x);
    oriel_reduce_copy_all(team, y + from, x + from, to - from, ORIEL_OP_SUM);
}
