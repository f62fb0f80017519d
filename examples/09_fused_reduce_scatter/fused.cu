#include <oriel/kernel.h>

/* n sums of a row, from `col` on, before they are stored. */
ORIEL_FN void bias_relu(float *sums, size_t n, size_t row, size_t col, const void *bias)
{
    (void)row;
    for (size_t k = 0; k < n; k++) {
        float sum = sums[k] + ((const float *)bias)[col + k];

        sums[k] = sum > 0 ? sum : 0;
    }
}

/* y = relu(sum over ranks of my rows of x, plus bias): reduce_scatter and what
 * follows it in one pass. x has rows for every rank, as long as bias; y has mine. */
ORIEL_KERNEL(sum_bias_relu)(oriel_team *team, const float *x, const float *bias, float *y)
{
    size_t n = oriel_count(team, y), cols = oriel_count(team, bias);

    oriel_reduce_rows(team, y, x + (size_t)oriel_rank(team) * n, n / cols, cols, ORIEL_OP_SUM,
                      bias_relu, bias);
}
