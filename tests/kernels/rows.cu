#include <oriel/kernel.h>

/* What is reduced gets its place added: seen in float, whatever T is. */
ORIEL_FN void add_place(float *values, size_t n, size_t row, size_t col, const void *weight)
{
    for (size_t k = 0; k < n; k++)
        values[k] += (float)(100 * row) + ((const float *)weight)[col + k];
}

/* The rows of this rank. */
ORIEL_KERNEL(rows)(oriel_team *team, const T *x, const float *weight, T *y)
{
    size_t n = oriel_count(team, y), cols = oriel_count(team, weight);

    oriel_reduce_rows(team, y, x + (size_t)oriel_rank(team) * n, n / cols, cols, ORIEL_OP_SUM,
                      add_place, weight);
}
