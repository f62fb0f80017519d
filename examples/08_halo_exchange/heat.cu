#include <oriel/kernel.h>

enum { FROM_ABOVE, FROM_BELOW }; /* signals: a neighbour has done one more step */

/* `steps` steps of the heat equation on a plate of which each rank holds some rows.
 * The row above the first and the one below the last are the neighbours', and are
 * read where they are. a and b take turns; the last step goes to a. Around the plate
 * it is cold. */
ORIEL_KERNEL(heat)
(oriel_team *team, const float *u, float *a, float *b, int64_t cols, int64_t steps, float k)
{
    size_t n = (size_t)cols, rows = oriel_count(team, u) / n;
    int up = oriel_rank(team) - 1;
    int down = oriel_rank(team) + 1 < oriel_size(team) ? oriel_rank(team) + 1 : -1;

    for (int64_t s = 0; s < steps; s++) {
        float *to = (steps - s) % 2 ? a : b;
        const float *above = up < 0 ? u : oriel_peer(team, u, up) + (rows - 1) * n;
        const float *below = down < 0 ? u : oriel_peer(team, u, down);

        oriel_for_each_2d (row, col, team, rows, n) {
            size_t i = row * n + col;
            float north = row > 0 ? u[i - n] : up < 0 ? 0 : above[col];
            float south = row < rows - 1 ? u[i + n] : down < 0 ? 0 : below[col];
            float west = col > 0 ? u[i - 1] : 0, east = col < n - 1 ? u[i + 1] : 0;

            to[i] = u[i] + k * (north + south + west + east - 4 * u[i]);
        }

        /* My part of the step is done: tell the neighbours, wait for theirs. Then
         * they have also read what the step after next overwrites. */
        oriel_team_sync(team);
        if (oriel_thread(team) == 0 && up >= 0)
            oriel_signal(team, up, FROM_BELOW, 1);
        if (oriel_thread(team) == 0 && down >= 0)
            oriel_signal(team, down, FROM_ABOVE, 1);
        if (up >= 0)
            oriel_wait(team, FROM_ABOVE, (uint64_t)s + 1);
        if (down >= 0)
            oriel_wait(team, FROM_BELOW, (uint64_t)s + 1);
        u = to;
    }
}
