/* Random operations, sizes, groups, dtypes and delays, in place or not, blocking or
 * started, each compared with an exact reference:
 *
 *     soak [--seconds S] [--seed X] [--from N] [--until N] [--ranks R]
 *
 * Everything follows from the seed and the number of the operation, so that all ranks
 * draw the same; --from goes on at any epoch (a multiple of 200). */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "core/world/comm.h"
#include "support/check.h"
#include "support/family.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/resources.h"

enum { GROUPS = 10, EPOCH = 200, FLIGHTS = 6 };

struct soak {
    double seconds;
    uint64_t seed;
    uint64_t from;
    uint64_t until;
    int local_ranks;

    oriel_group *groups[GROUPS]; /* of the present epoch, made once per process */
    pthread_barrier_t local;     /* the ranks of this process */
    double deadline;
};

struct rank_state {
    family_flight flights[FLIGHTS];
    int busy[FLIGHTS];
};

static uint64_t draw(const struct soak *soak, uint64_t number, uint64_t what)
{
    return values_mix(values_mix(soak->seed, number), what);
}

/* ---- groups: some lists come back, as further instances --------------------------------- */

static oriel_group *make_group(const struct soak *soak, oriel_comm *comm, uint64_t epoch, int slot)
{
    int ranks[HEAP_MAX_RANKS];
    int n = 0;
    int size = oriel_comm_size(comm);
    uint64_t kind = draw(soak, epoch, 1000 + (uint64_t)slot);
    oriel_group *group = NULL;

    for (int r = 0; r < size; r++) {
        int rank =
            (int)(((uint64_t)r * (kind % 2 ? (uint64_t)size - 1 : 1) + kind / 2) % (uint64_t)size);
        if (slot < 3 || values_mix(kind, (uint64_t)rank) % 3 != 0)
            ranks[n++] = rank;
    }
    if (n == 0)
        ranks[n++] = (int)(kind % (uint64_t)size);
    CHECK_OK(oriel_group_create(comm, ranks, n, &group));
    return group;
}

static void change_groups(struct soak *soak, oriel_comm *comm, uint64_t epoch)
{
    for (int slot = 0; slot < GROUPS; slot++) {
        oriel_group_destroy(soak->groups[slot]);
        soak->groups[slot] = epoch == UINT64_MAX ? NULL : make_group(soak, comm, epoch, slot);
    }
}

/* ---- one operation --------------------------------------------------------------------- */

static family_call call_of(const struct soak *soak, uint64_t number)
{
    static const size_t sizes[] = {64, 64, 1000, 1000, 9000, 9000, 40000, 300000};

    return family_random((unsigned)draw(soak, number, 1), sizes[draw(soak, number, 2) % 8]);
}

/* One rank in a while comes late: short of a sleep, a sleep, or much of one. */
static void come_late(const struct soak *soak, int rank, uint64_t number)
{
    uint64_t luck = draw(soak, number, 100 + (uint64_t)rank);

    if (luck % 50 == 0)
        poll(NULL, 0, luck / 50 % 40 == 0 ? 20 : (int)(luck / 50 % 2));
    else
        for (uint64_t turns = luck % 8 == 1 ? luck / 50 % 2000 : 0; turns > 0; turns--)
            oriel_relax(0);
}

static void finish(struct rank_state *state, int at)
{
    if (state->busy[at])
        family_wait(&state->flights[at]);
    state->busy[at] = 0;
}

static void operate(const struct soak *soak, struct rank_state *state, int rank, uint64_t number)
{
    oriel_group *group = soak->groups[draw(soak, number, 3) % GROUPS];
    family_call call = call_of(soak, number);
    /* Ranks wait for their flights in different orders. */
    int at = (int)(draw(soak, number, 200 + (uint64_t)rank) % FLIGHTS);

    if (oriel_group_index(group, rank) < 0)
        return;
    come_late(soak, rank, number);
    if (draw(soak, number, 4) % 2) {
        family_check(group, rank, &call);
        return;
    }
    finish(state, at);
    family_start(&state->flights[at], group, rank, &call);
    state->busy[at] = 1;
    if (draw(soak, number, 5) % 4 == 0 && family_test(&state->flights[at]))
        state->busy[at] = 0;
}

/* ---- epochs ------------------------------------------------------------------------------ */

/* Whether all go on: the clock of one is the clock of all. */
static int go_on(const struct soak *soak, oriel_comm *comm, int rank, uint64_t number)
{
    int32_t done = number >= soak->until || oriel_now() > soak->deadline;

    CHECK_OK(oriel_all_reduce(oriel_comm_world(comm), rank, &done, &done, 1, ORIEL_S32, ORIEL_MAX));
    return !done;
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    struct soak *soak = arg;
    struct rank_state state = {0};
    uint64_t number = soak->from;
    int first = rank == oriel_comm_first_rank(comm);
    double told = 0;

    while (go_on(soak, comm, rank, number)) {
        pthread_barrier_wait(&soak->local);
        if (first)
            change_groups(soak, comm, number / EPOCH);
        pthread_barrier_wait(&soak->local);
        if (rank == 0 && oriel_now() > told + 1.0) {
            printf("at --seed %llu --from %llu\n", (unsigned long long)soak->seed,
                   (unsigned long long)number);
            fflush(stdout);
            told = oriel_now();
        }
        for (int i = 0; i < EPOCH; i++)
            operate(soak, &state, rank, number++);
        for (int at = 0; at < FLIGHTS; at++)
            finish(&state, (at + rank) % FLIGHTS);
    }
    pthread_barrier_wait(&soak->local);
    if (first)
        change_groups(soak, comm, UINT64_MAX);
    if (rank == 0)
        printf("%llu operations\n", (unsigned long long)(number - soak->from));
}

static struct soak parse(int argc, char **argv)
{
    struct soak soak = {.seconds = 5, .seed = 1, .until = UINT64_MAX, .local_ranks = 1};

    for (int i = 1; i < argc; i += 2) {
        CHECK(i + 1 < argc, "%s needs a value", argv[i]);
        if (strcmp(argv[i], "--seconds") == 0)
            soak.seconds = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--seed") == 0)
            soak.seed = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--from") == 0)
            soak.from = strtoull(argv[i + 1], NULL, 10) / EPOCH * EPOCH;
        else if (strcmp(argv[i], "--until") == 0)
            soak.until = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--ranks") == 0)
            soak.local_ranks = (int)strtol(argv[i + 1], NULL, 10);
        else
            CHECK(0, "what is %s?", argv[i]);
    }
    return soak;
}

int main(int argc, char **argv)
{
    struct soak soak = parse(argc, argv);
    test_resources before = resources_now();
    oriel_comm *comm = process_comm(soak.local_ranks, 120.0, NULL);

    pthread_barrier_init(&soak.local, NULL, (unsigned)soak.local_ranks);
    soak.deadline = oriel_now() + soak.seconds;
    ranks_run(comm, body, &soak);
    pthread_barrier_destroy(&soak.local);
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "at the end");
    return 0;
}
