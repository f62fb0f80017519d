/* What the tests call; they define T and OP. */
#include <oriel/kernel.h>

ORIEL_KERNEL(reduce)(oriel_team *team, const T *x, T *y)
{
    oriel_reduce_copy(team, y, x, oriel_count(team, x), OP);
}

/* Each rank one part, stored on all; the last rank takes what is left. */
ORIEL_KERNEL(reduce_all)(oriel_team *team, const T *x, T *y)
{
    size_t n = oriel_count(team, x), part = n / (size_t)oriel_size(team);
    size_t from = part * (size_t)oriel_rank(team);
    size_t to = oriel_rank(team) + 1 < oriel_size(team) ? from + part : n;

    oriel_reduce_copy_all(team, y + from, x + from, to - from, OP);
}

/* To the next rank, which waits for it, then from there on, `hops` times in all. */
ORIEL_KERNEL(pass_on)(oriel_team *team, const T *x, T *y, T *z, int32_t hops)
{
    int next = (oriel_rank(team) + 1) % oriel_size(team);
    size_t bytes = oriel_bytes(team, x);
    const T *from = x;

    for (int i = 0; i < hops; i++) {
        T *to = (hops - i) % 2 ? y : z;

        oriel_put(team, next, to, from, bytes);
        oriel_team_sync(team);
        if (oriel_thread(team) == 0)
            oriel_signal(team, next, 5, 1);
        oriel_wait(team, 5, (uint64_t)i + 1);
        oriel_barrier_all(team);
        from = to;
    }
}

ORIEL_KERNEL(gather)(oriel_team *team, const T *x, T *y)
{
    size_t n = oriel_count(team, x);

    for (int r = 0; r < oriel_size(team); r++)
        oriel_get(team, r, y + (size_t)r * n, x, oriel_bytes(team, x));
}
