#include <oriel/kernel.h>

/* y = relu(sum over ranks of my rows of x, plus bias): reduce_scatter and what
 * follows it in one kernel. x has rows for every rank, as long as bias; y has mine. */
ORIEL_KERNEL(sum_bias_relu)(oriel_team *team, const float *x, const float *bias, float *y)
{
    size_t n = oriel_count(team, y), cols = oriel_count(team, bias);

    oriel_reduce_copy(team, y, x + (size_t)oriel_rank(team) * n, n, ORIEL_OP_SUM);
    oriel_team_sync(team); /* the threads share the work in another way now */
    oriel_for_each_2d (row, col, team, n / cols, cols) {
        float sum = y[row * cols + col] + bias[col];

        y[row * cols + col] = sum > 0 ? sum : 0;
    }
}
