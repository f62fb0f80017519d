/* labels: valgrind-soak */
/* processes: 2 */
/* The same call again and again, so that each way to copy its data is tried:
 * styles [local ranks] [calls] [1: nobody may read another's memory] */
#include "base/sys.h"
#include "core/world/comm.h"
#include "core/protocol/style.h"
#include "support/check.h"
#include "support/family.h"
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
}

/* How many entries of the table know what a style costs. */
static int known(const oriel_comm *comm, uint32_t style)
{
    int n = 0;

    for (int i = 0; i < HEAP_STYLES; i++)
        n += atomic_load(&comm->heap.styles[i].cost[style]) > 0;
    return n;
}

int main(int argc, char **argv)
{
    int local_ranks = process_argument(argc, argv, 1, 1);
    oriel_comm *comm;

    options.calls = process_argument(argc, argv, 2, 20);
    options.private = process_argument(argc, argv, 3, 0);
    comm = process_comm(local_ranks, 60.0, NULL);
    comm->cache = 0; /* as if no cache held anything: then each way is tried a few times alone */
    ranks_run(comm, body, NULL);
    CHECK_OK(oriel_comm_barrier(comm));
    CHECK(known(comm, 0) > 0, "nothing was staged");
    CHECK(known(comm, STYLE_STREAM_OUT) > 0, "nothing was streamed");
    CHECK(known(comm, STYLE_STREAM_IN) > 0, "no result was streamed");
    CHECK((known(comm, STYLE_PULL) > 0) == !options.private, "pulled: %d", known(comm, STYLE_PULL));
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
