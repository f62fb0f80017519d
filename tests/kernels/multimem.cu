#include <oriel/experimental/kernel_multimem.h>

/* An all-reduce of one's part, four floats at a time, by multicast where there is one. */
ORIEL_KERNEL(multimem)(oriel_team *team, const float *x, float *y, int32_t *has)
{
    size_t packs = oriel_count(team, x) / 4, ranks = (size_t)oriel_size(team);

    oriel_for_each (i, team, packs) {
        float sums[4];

        if (i % ranks != (size_t)oriel_rank(team))
            continue;
        oriel_multimem_load_sum(team, x + 4 * i, sums);
        oriel_multimem_store(team, y + 4 * i, sums);
    }
    if (oriel_thread(team) == 0)
        has[0] = oriel_has_multimem(team, x);
}
