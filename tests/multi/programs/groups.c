/* labels: valgrind */
/* processes: 4 */
/* Random subsets of ranks as groups, some of them twice, many calls in flight:
 * groups [local ranks] [rounds] */
#include <stdlib.h>

#include "support/check.h"
#include "support/family.h"
#include "support/process.h"
#include "support/ranks.h"

enum { GROUPS = 16, MAX_RANKS = 64 };

struct plan {
    int rounds;
    oriel_group *groups[GROUPS];
};

static int random_list(uint64_t seed, int size, int *ranks)
{
    int n = 0;

    for (int r = 0; r < size; r++) {
        if (values_mix(seed, (uint64_t)r) % 3 != 0)
            ranks[n++] = r;
    }
    if (n == 0)
        ranks[n++] = (int)(seed % (uint64_t)size);
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(values_mix(seed, 100 + (uint64_t)i) % (uint64_t)(i + 1));
        int kept = ranks[i];
        ranks[i] = ranks[k];
        ranks[k] = kept;
    }
    return n;
}

/* The same lists in the same order everywhere, so that instances agree. */
static void make_groups(oriel_comm *comm, struct plan *plan)
{
    for (int g = 0; g < GROUPS; g++) {
        int ranks[MAX_RANKS];
        int n = random_list((uint64_t)(g / 2), oriel_comm_size(comm), ranks);

        CHECK_OK(oriel_group_create(comm, ranks, n, &plan->groups[g]));
    }
}

/* Started in one order of its own, awaited in another. */
static void round_of(const struct plan *plan, int rank, unsigned round)
{
    family_flight flights[GROUPS];
    int started[GROUPS];
    int n = 0;

    for (int i = 0; i < GROUPS; i++) {
        int g = (i * 5 + 3 * rank + (int)round) % GROUPS;
        family_call call = family_random_of(ORIEL_KIND_ALL_REDUCE, round * GROUPS + (unsigned)g,
                                            round % 8 ? 2000 : 100000);

        if (oriel_group_index(plan->groups[g], rank) < 0)
            continue;
        family_start(&flights[g], plan->groups[g], rank, &call);
        started[n++] = g;
    }
    for (int i = n - 1; i >= 0; i--) {
        int k = (int)(values_mix(round, (uint64_t)(rank * 100 + i)) % (uint64_t)(i + 1));
        int g = started[k];

        started[k] = started[i];
        family_wait(&flights[g]);
    }
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    const struct plan *plan = arg;

    (void)comm;
    for (unsigned round = 0; round < (unsigned)plan->rounds; round++)
        round_of(plan, rank, round);
}

int main(int argc, char **argv)
{
    oriel_comm *comm = process_comm(process_argument(argc, argv, 1, 1), 60.0, NULL);
    struct plan plan = {.rounds = process_argument(argc, argv, 2, 20)};

    make_groups(comm, &plan);
    ranks_run(comm, body, &plan);
    for (int g = 0; g < GROUPS; g++)
        oriel_group_destroy(plan.groups[g]);
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
