/* labels: valgrind-soak */
/* processes: 2 */
/* Each way to copy the data of large operations: copies [local ranks] [calls] [1: nobody may read
 * another's memory] */
#include "base/sys.h"
#include "core/world/comm.h"
#include "support/check.h"
#include "support/family.h"
#include "support/lists/lists.h"
#include "support/process.h"
#include "support/ranks.h"

static struct {
    int calls, private;
} options;

static family_call call_of(int kind, size_t bytes, unsigned seed)
{
    return (family_call){.kind = (enum oriel_kind)kind,
                         .dtype = ORIEL_U8,
                         .count = bytes,
                         .row = 1,
                         .slices = 1,
                         .shift = seed % 64,
                         .in_place = (int)(seed % 3),
                         .seed = seed};
}

/* The last ones have arrays so large that each is read out of the other's memory. */
static void lists(oriel_group *world, int rank)
{
    for (int i = 0; i < 4 * options.calls; i++) {
        list_call call = list_random((unsigned)i, i % 4 == 0 ? 1500 * 1000 : 20 * 1000);

        list_check(world, rank, &call);
    }
    for (int in_place = 0; in_place < 3; in_place++) {
        list_call call = {.kind = ORIEL_KIND_ALL_GATHER,
                          .dtype = ORIEL_F32,
                          .num = 4,
                          .most = 300 * 1000,
                          .in_place = in_place,
                          .started = in_place % 2,
                          .seed = 5};

        list_check(world, rank, &call);
    }
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    static const size_t sizes[] = {40 << 10, 150 << 10, 2200 << 10};
    oriel_group *world = oriel_comm_world(comm);
    int calls = options.calls;

    (void)arg;
    for (int kind = 1; kind < ORIEL_KIND_KERNEL; kind++) {
        if (kind == ORIEL_KIND_BARRIER)
            continue;
        for (unsigned i = 0; i < 3; i++, calls = options.calls / (i == 2 ? 4 : 1)) {
            for (int k = 0; k < calls; k++) {
                family_call call = call_of(kind, sizes[i], (unsigned)k);
                family_flight flight;

                if (k % 5 != 0) {
                    family_check(world, rank, &call);
                    continue;
                }
                family_start(&flight, world, rank, &call);
                family_check(world, rank, &call); /* while the other one is under way */
                family_wait(&flight);
            }
        }
    }
    lists(world, rank);
}

int main(int argc, char **argv)
{
    int local_ranks = process_argument(argc, argv, 1, 1);
    oriel_comm *comm;
    oriel_facts *facts;

    options.calls = process_argument(argc, argv, 2, 5);
    options.private = process_argument(argc, argv, 3, 0);
    comm = process_comm(local_ranks, 60.0, NULL);
    facts = &oriel_comm_world(comm)->facts;
    CHECK(facts->reads == !options.private, "reads: %d", facts->reads);
    for (int way = 0; way < 4; way++) { /* past the caches or not, reading or not */
        CHECK_OK(oriel_comm_barrier(comm));
        facts->apart = way % 2;
        facts->reads = way < 2 && !options.private;
        ranks_run(comm, body, NULL);
    }
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
