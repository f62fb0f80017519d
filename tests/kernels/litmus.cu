/* What docs/kernels.md promises about order, one kernel for each promise. They run on
 * the CPU under TSan with pauses at random (ORIEL_JITTER), and on GPUs. `box` is memory
 * that all ranks use; `wrong` counts what must not be seen. Data that is passed is plain
 * everywhere, so a missing order is a race. */
#include <oriel/kernel.h>

enum { DATA = 16, FLAG = 0, ACK = 1, LOCK = 2, TOTAL = 3, HEADS = 4, SUMS = 5 };

ORIEL_FN void clear(oriel_team *team, int64_t *box, int64_t *wrong)
{
    oriel_for_each (i, team, oriel_count(team, box)) {
        box[i] = 0;
    }
    oriel_for_each (k, team, oriel_count(team, wrong)) {
        wrong[k] = 0;
    }
    oriel_barrier_all(team);
}

ORIEL_FN void await(oriel_team *team, const int64_t *word, int64_t value)
{
    while (oriel_load(word) < value && !oriel_failed(team)) {
    }
}

ORIEL_FN int next_of(oriel_team *team)
{
    return (oriel_rank(team) + 1) % oriel_size(team);
}

ORIEL_FN int last_of(oriel_team *team)
{
    return (oriel_rank(team) + oriel_size(team) - 1) % oriel_size(team);
}

/* oriel_store releases, oriel_load acquires: a rank that sees the flag sees the data. */
ORIEL_KERNEL(message_passing)
(oriel_team *team, const int64_t *x, int64_t *box, int64_t *wrong, int64_t rounds)
{
    int64_t *to = oriel_peer(team, box, next_of(team));
    int64_t *from = oriel_peer(team, box, last_of(team));

    clear(team, box, wrong);
    for (int64_t s = 1; s <= rounds; s++) {
        if (oriel_thread(team) == 0) {
            to[DATA] = x[0] + s;
            to[DATA + 9] = x[0] - s;
            oriel_store(&to[FLAG], s);
        }
        if (oriel_thread(team) == oriel_threads(team) - 1) {
            await(team, &box[FLAG], s);
            if (box[DATA] != x[0] + s || box[DATA + 9] != x[0] - s)
                oriel_atomic_add(&wrong[0], (int64_t)1);
            oriel_store(&from[ACK], s);
        }
        if (oriel_thread(team) == 0)
            await(team, &box[ACK], s);
    }
}

/* All store, meet, and load what the others stored: nobody sees less than everything,
 * neither on its own rank nor on others. */
ORIEL_KERNEL(store_buffering)
(oriel_team *team, const int64_t *x, int64_t *box, int64_t *wrong, int64_t rounds)
{
    size_t n = oriel_count(team, box) - DATA;

    clear(team, box, wrong);
    for (int64_t s = 1; s <= rounds; s++) {
        oriel_for_each (i, team, n) {
            box[DATA + i] = x[0] + s;
        }
        oriel_barrier_all(team);
        for (int r = 0; r < oriel_size(team); r++) {
            const int64_t *theirs = oriel_peer(team, box, r) + DATA;
            for (size_t i = oriel_thread(team) % 3; i < n; i += 3) {
                if (theirs[i] != x[0] + s)
                    oriel_atomic_add(&wrong[0], (int64_t)1);
            }
        }
        oriel_barrier_all(team);
    }
}

/* A put of the whole team, synced, signalled by one thread: whoever waits sees all of
 * it. The way back is a signal too. */
ORIEL_KERNEL(signals)
(oriel_team *team, const int64_t *x, int64_t *box, int64_t *wrong, int64_t rounds)
{
    size_t n = oriel_count(team, x);

    clear(team, box, wrong);
    for (int64_t s = 1; s <= rounds; s++) {
        oriel_put(team, next_of(team), box + DATA, x, oriel_bytes(team, x));
        oriel_team_sync(team);
        if (oriel_thread(team) == 0)
            oriel_signal(team, next_of(team), 7, 1);
        oriel_wait(team, 7, (uint64_t)s);
        for (size_t i = 0; i < n; i++) {
            if (box[DATA + i] != (int64_t)i)
                oriel_atomic_add(&wrong[0], (int64_t)1);
        }
        oriel_team_sync(team);
        oriel_for_each (k, team, n) {
            box[DATA + k] = -1;
        }
        oriel_team_sync(team);
        if (oriel_thread(team) == oriel_threads(team) - 1)
            oriel_signal(team, last_of(team), 63, 2);
        oriel_wait(team, 63, 2 * (uint64_t)s);
    }
}

/* Every addition counts, on memory of another rank too, and what cas and exchange guard
 * is one thread's at a time. */
ORIEL_KERNEL(atomics)
(oriel_team *team, const int64_t *x, int64_t *box, int64_t *wrong, int64_t rounds)
{
    int64_t *home = oriel_peer(team, box, oriel_size(team) - 1);
    double *sum = (double *)(void *)&home[SUMS];
    float *small = (float *)(void *)&home[SUMS + 1];
    int64_t heads;

    clear(team, box, wrong);
    oriel_atomic_add(&home[HEADS], (int64_t)1);
    for (int64_t s = 1; s <= rounds; s++) {
        oriel_atomic_add(&home[TOTAL], s);
        oriel_atomic_add(sum, 0.5);
        oriel_atomic_add(small, 0.25f);
        oriel_atomic_add((int32_t *)(void *)&home[SUMS + 2], 1);
        if (oriel_thread(team) > 1)
            continue;
        while (oriel_atomic_cas(&home[LOCK], (int64_t)0, s) != 0 && !oriel_failed(team)) {
        }
        home[DATA] += x[0] + 1;
        if (oriel_atomic_exchange(&home[LOCK], (int64_t)0) != s)
            oriel_atomic_add(&wrong[0], (int64_t)1);
    }
    oriel_barrier_all(team);
    heads = home[HEADS];
    if (home[TOTAL] != heads * rounds * (rounds + 1) / 2 || *sum != 0.5 * (double)(heads * rounds))
        oriel_atomic_add(&wrong[0], (int64_t)1);
    if (*small != 0.25f * (float)(heads * rounds) ||
        *(int32_t *)(void *)&home[SUMS + 2] != heads * rounds)
        oriel_atomic_add(&wrong[0], (int64_t)1);
    if (oriel_threads(team) > 1 && home[DATA] != 2 * oriel_size(team) * rounds)
        oriel_atomic_add(&wrong[0], (int64_t)1);
}

/* Threads of one team, without any other rank. */
ORIEL_KERNEL(team_sync)
(oriel_team *team, const int64_t *x, int64_t *box, int64_t *wrong, int64_t rounds)
{
    size_t n = oriel_count(team, box);

    clear(team, box, wrong);
    for (int64_t s = 1; s <= rounds; s++) {
        oriel_for_each (i, team, n) {
            box[i] = s * (int64_t)i + x[0];
        }
        oriel_team_sync(team);
        oriel_for_each (k, team, n) {
            if (box[n - 1 - k] != s * (int64_t)(n - 1 - k) + x[0])
                oriel_atomic_add(&wrong[0], (int64_t)1);
        }
        oriel_team_sync(team);
    }
}

/* What one thread has acquired another gets from it: rank to rank to rank, by signals
 * that each pass on what came before. */
ORIEL_KERNEL(causality)
(oriel_team *team, const int64_t *x, int64_t *box, int64_t *wrong, int64_t rounds)
{
    int first = oriel_rank(team) == 0, size = oriel_size(team);

    clear(team, box, wrong);
    for (int64_t s = 1; s <= rounds && oriel_thread(team) == 0; s++) {
        if (first) {
            for (int r = 0; r < size; r++)
                oriel_peer(team, box, r)[DATA] = s + x[0];
        } else {
            oriel_wait(team, 0, (uint64_t)s);
            if (box[DATA] != s + x[0])
                oriel_atomic_add(&wrong[0], (int64_t)1);
        }
        if (size > 1)
            oriel_signal(team, next_of(team), 0, 1);
        if (first && size > 1)
            oriel_wait(team, 0, (uint64_t)s);
    }
}
