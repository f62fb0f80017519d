/* What holds between machines as within one: puts, gets, signals and barriers, and their order.
 * The second half of the ranks may be on another machine. `box` is memory that others write to,
 * one more PART than there are ranks; `wrong` counts what must not be seen. */
#include <oriel/experimental/kernel_gin.h>

#ifndef PART
#define PART 1000
#endif

ORIEL_FN int64_t value_of(int rank, int64_t round, size_t i)
{
    return (rank + 1) * (int64_t)1000000007 + round * 10007 + (int64_t)i;
}

/* Its own data, which may be scribbled over once a put and a sync are over. */
ORIEL_FN void write_part(oriel_team *team, int64_t *part, int64_t round)
{
    oriel_for_each (i, team, PART) {
        part[i] = value_of(oriel_rank(team), round, i);
    }
    oriel_team_sync(team);
}

ORIEL_FN void check_part(oriel_team *team, const int64_t *part, int rank, int64_t round,
                         int64_t *wrong)
{
    oriel_for_each (i, team, PART) {
        if (part[i] != value_of(rank, round, i))
            oriel_atomic_add(wrong, (int64_t)1);
    }
}

ORIEL_FN void begin(oriel_team *team, int64_t *wrong)
{
    oriel_for_each (i, team, oriel_count(team, wrong)) {
        wrong[i] = 0;
    }
    oriel_team_sync(team);
}

ORIEL_FN int opposite(oriel_team *team, int rank)
{
    return (rank + oriel_size(team) / 2) % oriel_size(team);
}

/* Whose opposite it is. */
ORIEL_FN int opposed(oriel_team *team, int rank)
{
    return (rank + oriel_size(team) - oriel_size(team) / 2) % oriel_size(team);
}

/* A ring: a rank that sees the signal sees what was put before it. */
ORIEL_KERNEL(passing)
(oriel_team *team, const int64_t *x, int64_t *box, int64_t *wrong, int64_t rounds)
{
    int next = (oriel_rank(team) + 1) % oriel_size(team);
    int last = (oriel_rank(team) + oriel_size(team) - 1) % oriel_size(team);
    int64_t *out = box + PART;

    begin(team, wrong);
    for (int64_t s = x[0]; s < x[0] + rounds; s++) {
        uint64_t turn = (uint64_t)(s - x[0] + 1);

        write_part(team, out, s);
        oriel_put(team, next, box, out, PART * sizeof *box);
        oriel_team_sync(team);
        oriel_for_each (i, team, PART) {
            out[i] = -1;
        }
        if (oriel_thread(team) == 0)
            oriel_signal(team, next, 0, 1);
        oriel_wait(team, 0, turn);
        check_part(team, box, last, s, &wrong[0]);
        oriel_team_sync(team);
        if (oriel_thread(team) == 0)
            oriel_signal(team, last, 1, 1);
        oriel_wait(team, 1, turn);
    }
}

/* Rank 0 puts to its opposite and tells rank 1 alone, which tells the opposite. */
ORIEL_KERNEL(third_party)
(oriel_team *team, const int64_t *x, int64_t *box, int64_t *wrong, int64_t rounds)
{
    int me = oriel_rank(team), to = opposite(team, 0);
    int64_t *out = box + PART;

    begin(team, wrong);
    for (int64_t s = x[0]; s < x[0] + rounds && oriel_size(team) > 1; s++) {
        uint64_t turn = (uint64_t)(s - x[0] + 1);

        if (me == 0) {
            write_part(team, out, s);
            oriel_put(team, to, box, out, PART * sizeof *box);
            oriel_team_sync(team);
            if (oriel_thread(team) == 0)
                oriel_signal(team, 1, 0, 1);
            oriel_wait(team, 1, turn);
            oriel_team_sync(team);
        } else if (me == 1) {
            if (oriel_thread(team) == 0) {
                oriel_wait(team, 0, turn);
                oriel_signal(team, to, 2, 1);
            }
        }
        if (me == to) {
            oriel_wait(team, 2, turn);
            check_part(team, box, 0, s, &wrong[0]);
            oriel_team_sync(team);
            if (oriel_thread(team) == 0)
                oriel_signal(team, 0, 1, 1);
        }
    }
}

/* All put to their opposites; after a barrier all see it, also in the memory of others. */
ORIEL_KERNEL(barriers)
(oriel_team *team, const int64_t *x, int64_t *box, int64_t *wrong, int64_t rounds)
{
    int64_t *out = box + PART;

    begin(team, wrong);
    for (int64_t s = x[0]; s < x[0] + rounds; s++) {
        write_part(team, out, s);
        oriel_put(team, opposite(team, oriel_rank(team)), box, out, PART * sizeof *box);
        oriel_barrier_all(team);
        for (int r = 0; r < oriel_size(team); r++) {
            if (oriel_reaches(team, r))
                check_part(team, oriel_peer(team, box, r), opposed(team, r), s, &wrong[0]);
        }
        oriel_barrier_all(team);
    }
}

/* Everybody takes from everybody; and signals everybody, on one slot. */
ORIEL_KERNEL(gets)(oriel_team *team, const int64_t *x, int64_t *box, int64_t *wrong, int64_t rounds)
{
    begin(team, wrong);
    for (int64_t s = x[0]; s < x[0] + rounds; s++) {
        write_part(team, box, s);
        oriel_barrier_all(team);
        for (int r = 0; r < oriel_size(team); r++) {
            int64_t *into = box + (1 + r) * PART;

            oriel_get(team, r, into, box, PART * sizeof *box);
            oriel_team_sync(team);
            check_part(team, into, r, s, &wrong[0]);
            if (oriel_thread(team) == 0)
                oriel_signal(team, r, 7, (uint64_t)r + 1);
        }
        oriel_wait(team, 7, (uint64_t)((s - x[0] + 1) * oriel_size(team) * (oriel_rank(team) + 1)));
        oriel_barrier_all(team);
    }
}

/* Waits for what nobody sends. */
ORIEL_KERNEL(stuck)
(oriel_team *team, const int64_t *x, int64_t *box, int64_t *wrong, int64_t rounds)
{
    begin(team, wrong);
    if (oriel_thread(team) == 0)
        box[0] = x[0];
    if (oriel_rank(team) == 0)
        oriel_wait(team, 5, (uint64_t)rounds);
}

/* Rank 0 takes the address of what may be on another machine. */
ORIEL_KERNEL(address)
(oriel_team *team, const int64_t *x, int64_t *box, int64_t *wrong, int64_t rounds)
{
    begin(team, wrong);
    if (oriel_rank(team) == 0 && oriel_thread(team) == 0)
        oriel_peer(team, box, opposite(team, 0))[0] = x[0] + rounds;
}

/* The heat equation of example 08, whose edges are put into the neighbours' `halo`: rows from
 * above and from below, for even and for odd steps. */
ORIEL_KERNEL(heat_put)
(oriel_team *team, const float *u, float *a, float *b, float *halo, int64_t cols, int64_t steps,
 float k)
{
    size_t n = (size_t)cols, rows = oriel_count(team, u) / n;
    int up = oriel_rank(team) - 1;
    int down = oriel_rank(team) + 1 < oriel_size(team) ? oriel_rank(team) + 1 : -1;

    for (int64_t s = 0; s < steps; s++) {
        float *to = (steps - s) % 2 ? a : b;
        float *above = halo + (s % 2 ? 2 : 0) * n, *below = above + n;

        if (up >= 0)
            oriel_put(team, up, below, u, n * sizeof *u);
        if (down >= 0)
            oriel_put(team, down, above, u + (rows - 1) * n, n * sizeof *u);
        oriel_team_sync(team);
        if (oriel_thread(team) == 0 && up >= 0)
            oriel_signal(team, up, 1, 1);
        if (oriel_thread(team) == 0 && down >= 0)
            oriel_signal(team, down, 0, 1);
        if (up >= 0)
            oriel_wait(team, 0, (uint64_t)s + 1);
        if (down >= 0)
            oriel_wait(team, 1, (uint64_t)s + 1);
        oriel_for_each_2d (row, col, team, rows, n) {
            size_t i = row * n + col;
            float north = row > 0 ? u[i - n] : up < 0 ? 0 : above[col];
            float south = row < rows - 1 ? u[i + n] : down < 0 ? 0 : below[col];
            float west = col > 0 ? u[i - 1] : 0, east = col < n - 1 ? u[i + 1] : 0;

            to[i] = u[i] + k * (north + south + west + east - 4 * u[i]);
        }
        oriel_team_sync(team);
        u = to;
    }
}
