#include <oriel/kernel.h>

/* y = relu(sum over ranks of my rows of x, plus bias): reduce_scatter and what
 * follows it in one pass, so the sum is never written and read again. x has rows for
 * every rank, `cols` long; y has mine. */
ORIEL_KERNEL(sum_bias_relu)(oriel_team *team, const float *x, const float *bias, float *y)
{
    size_t n = oriel_count(team, y), cols = oriel_count(team, bias);
    const float *mine = x + (size_t)oriel_rank(team) * n;

    oriel_for_each(i, team, n) {
        float sum = oriel_peer(team, mine, 0)[i];

        for (int r = 1; r < oriel_size(team); r++)
            sum += oriel_peer(team, mine, r)[i];
        sum += bias[i % cols];
        y[i] = sum > 0 ? sum : 0;
    }
}
