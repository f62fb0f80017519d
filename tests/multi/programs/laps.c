/* Many operations while somebody sleeps, many groups, permutations that leave ranks
 * out: nothing is lapped, nothing mixed up. laps [local ranks] [broadcasts] [groups] */
#include <poll.h>
#include <stdlib.h>

#include "base/sys.h"
#include "core/world/comm.h"
#include "core/protocol/lane.h"
#include "support/check.h"
#include "support/family.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/resources.h"

enum { FLIGHTS = 32, MANY = 30000, SOME = 500, FEW = 12 };

struct plan {
    int broadcasts;
    int num_groups;
    oriel_group **groups;
};

/* Broadcast number `i` carries its own number in every word. */
static size_t words_of(unsigned i)
{
    return i % 97 == 0 ? MANY : i % 7 == 0 ? SOME : FEW;
}

static void fill(uint64_t *words, unsigned i)
{
    for (size_t k = 0; k < words_of(i); k++)
        words[k] = ((uint64_t)i << 32) + k;
}

static void check_words(const uint64_t *words, unsigned i, int rank)
{
    for (size_t k = 0; k < words_of(i); k++)
        CHECK(words[k] == ((uint64_t)i << 32) + k, "rank %d, broadcast %u: word %zu is of %llu",
              rank, i, k, (unsigned long long)(words[k] >> 32));
}

/* The last rank pauses now and then, for longer than any spin. */
static void pause_at_random(const oriel_comm *comm, int rank, unsigned i)
{
    uint64_t luck = values_mix(i, 5);

    if (rank == oriel_comm_size(comm) - 1 && luck % 100 == 0)
        poll(NULL, 0, luck % 1000 == 0 ? 30 : (int)(luck / 1000 % 3));
}

/* The root does not look at what it sent any more, and sends the next. */
static void blocking(oriel_comm *comm, int rank, unsigned n)
{
    uint64_t *words = malloc(MANY * sizeof *words);
    oriel_group *world = oriel_comm_world(comm);

    for (unsigned i = 0; i < n; i++) {
        if (rank == 0)
            fill(words, i);
        pause_at_random(comm, rank, i);
        CHECK_OK(oriel_broadcast(world, rank, words, words, words_of(i), ORIEL_U64, 0));
        check_words(words, i, rank);
    }
    free(words);
}

/* The last rank sleeps long enough for the root to use up its room: there the root waits,
 * and what it has sent before is still all there. */
static void stalled(oriel_comm *comm, int rank)
{
    enum { SLEEP_MS = 300, CALLS = 2 * LANE_SLOTS };
    oriel_group *world = oriel_comm_world(comm);
    int last = oriel_comm_size(comm) - 1;
    double when[HEAP_MAX_RANKS] = {0};
    uint64_t words[SOME];

    CHECK_OK(oriel_barrier(world, rank));
    if (rank == last)
        poll(NULL, 0, SLEEP_MS);
    when[rank] = oriel_now(); /* the last rank comes; of the root see below */
    for (unsigned i = 1; i <= CALLS; i++) {
        if (rank == 0)
            fill(words, i);
        CHECK_OK(oriel_broadcast(world, rank, words, words, words_of(i), ORIEL_U64, 0));
        check_words(words, i, rank);
        if (rank == 0 && i == LANE_SLOTS + 1)
            when[rank] = oriel_now(); /* the first call without room has ended */
    }
    CHECK_OK(oriel_all_gather(world, rank, when + rank, when, 1, ORIEL_F64));
    CHECK(last == 0 || when[0] >= when[last],
          "the root was ahead by more than its room, %g s early", when[last] - when[0]);
}

/* The root is up to FLIGHTS broadcasts ahead. */
static void started(oriel_comm *comm, int rank, unsigned n)
{
    uint64_t *words[FLIGHTS];
    oriel_request *requests[FLIGHTS];

    for (unsigned k = 0; k < FLIGHTS; k++)
        words[k] = malloc(MANY * sizeof **words);
    for (unsigned i = 0; i < n + FLIGHTS; i++) {
        unsigned at = i % FLIGHTS;

        if (i >= FLIGHTS) {
            CHECK_OK(oriel_request_wait(requests[at]));
            check_words(words[at], i - FLIGHTS, rank);
        }
        if (i >= n)
            continue;
        if (rank == 0)
            fill(words[at], i);
        pause_at_random(comm, rank, i);
        CHECK_OK(oriel_broadcast_start(oriel_comm_world(comm), rank, words[at], words[at],
                                       words_of(i), ORIEL_U64, 0, &requests[at]));
    }
    for (unsigned k = 0; k < FLIGHTS; k++)
        free(words[k]);
}

static void use_group(oriel_group *group, int rank, unsigned seed)
{
    family_call call = family_random(seed, seed % 40 == 0 ? 60 * 1000 : 500);

    if (oriel_group_index(group, rank) >= 0)
        family_check(group, rank, &call);
}

/* Each group is used, out of order, and again with the others in between. */
static void crowd(const struct plan *plan, int rank)
{
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < plan->num_groups; i++) {
            int at = (i * 7 + turn * 13) % plan->num_groups;

            use_group(plan->groups[at], rank, (unsigned)(at + turn * plan->num_groups));
        }
    }
}

/* Several groups at once, some over the same list, begun in another order by each rank. */
static void at_once(const struct plan *plan, int rank)
{
    enum { BATCH = 16 };
    family_flight flights[BATCH];

    for (int base = 0; base + BATCH <= plan->num_groups; base += BATCH) {
        for (int i = 0; i < BATCH; i++) {
            int at = (i * (2 * rank + 1) + rank) % BATCH;
            family_call call = family_random((unsigned)(base + at), 300);

            flights[at].request = NULL;
            if (oriel_group_index(plan->groups[base + at], rank) >= 0)
                family_start(&flights[at], plan->groups[base + at], rank, &call);
        }
        for (int i = 0; i < BATCH; i++) {
            if (flights[i].request != NULL)
                family_wait(&flights[i]);
        }
    }
}

static void permutations(oriel_comm *comm, int rank)
{
    for (unsigned i = 0; i < 300; i++) {
        family_call call = {.kind = ORIEL_KIND_PERMUTE,
                            .dtype = ORIEL_U8,
                            .count = i % 50 == 0 ? 300 * 1000 : 1 + i * 11,
                            .in_place = (int)(i % 3),
                            .seed = 3 * i}; /* every third seed leaves some out */
        family_check(oriel_comm_world(comm), rank, &call);
    }
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    const struct plan *plan = arg;

    if (plan->broadcasts > 0)
        stalled(comm, rank);
    blocking(comm, rank, (unsigned)plan->broadcasts / 2);
    started(comm, rank, (unsigned)(plan->broadcasts - plan->broadcasts / 2));
    permutations(comm, rank);
    crowd(plan, rank);
    at_once(plan, rank);
}

/* Some ranks in some order; many groups share a list. */
static oriel_group *make_group(oriel_comm *comm, unsigned number)
{
    int ranks[HEAP_MAX_RANKS];
    int n = 0;
    oriel_group *group = NULL;

    for (int r = 0; r < oriel_comm_size(comm); r++) {
        int rank = number % 2 ? oriel_comm_size(comm) - 1 - r : r;
        if (values_mix(number, (uint64_t)rank) % 4 != 0)
            ranks[n++] = rank;
    }
    if (n == 0)
        ranks[n++] = (int)(number % (unsigned)oriel_comm_size(comm));
    CHECK_OK(oriel_group_create(comm, ranks, n, &group));
    return group;
}

int main(int argc, char **argv)
{
    int local_ranks = process_argument(argc, argv, 1, 1);
    struct plan plan = {.broadcasts = process_argument(argc, argv, 2, 10000),
                        .num_groups = process_argument(argc, argv, 3, 1000)};
    test_resources before = resources_now();
    oriel_comm *comm = process_comm(local_ranks, 120.0, NULL);

    plan.groups = calloc((size_t)plan.num_groups, sizeof *plan.groups);
    for (int i = 0; i < plan.num_groups; i++)
        plan.groups[i] = make_group(comm, (unsigned)i);
    ranks_run(comm, body, &plan);
    for (int i = 0; i < plan.num_groups; i += 2) { /* every second is replaced */
        oriel_group_destroy(plan.groups[i]);
        plan.groups[i] = make_group(comm, (unsigned)i);
    }
    plan.broadcasts = 0;
    ranks_run(comm, body, &plan);
    for (int i = 0; i < plan.num_groups; i++)
        oriel_group_destroy(plan.groups[(i * 7) % plan.num_groups]);
    free(plan.groups);
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "at the end");
    return 0;
}
