/* labels: valgrind */
/* processes: 3 */
/* Every operation between processes:
 * family [local ranks] [random calls] [1: around the sizes that lanes take] */
#include "core/protocol/cell.h"
#include "ops/choose.h"
#include "support/check.h"
#include "support/family.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/resources.h"

struct plan {
    int calls, lanes;
};

static void edges(oriel_comm *comm, int rank)
{
    size_t chunk = comm->heap.header->chunk_bytes;
    size_t n = (size_t)comm->size;
    size_t eager = oriel_heap_eager_bytes(&comm->heap, comm->size);
    size_t list[] = {0, eager / n, eager / n + 1, eager, eager + 1, chunk + 1, 5 * chunk};
    unsigned seed = 0;

    for (int kind = 1; kind < ORIEL_KIND_KERNEL; kind++) {
        for (unsigned i = 0; i < sizeof list / sizeof *list; i++, seed++) {
            family_call call = {.kind = (enum oriel_kind)kind,
                                .dtype = ORIEL_U8,
                                .count = list[i],
                                .row = 1,
                                .slices = 2,
                                .in_place = (int)(seed % 3),
                                .seed = seed};
            family_check(oriel_comm_world(comm), rank, &call);
        }
    }
}

/* What one place of the lane takes. */
static size_t room_of(const oriel_group *world)
{
    size_t most = oriel_choose_rows(&world->facts);

    return world->facts.place < most ? world->facts.place : most;
}

static void around_lanes(oriel_comm *comm, int rank)
{
    oriel_group *world = oriel_comm_world(comm);
    size_t n = (size_t)comm->size;
    size_t room = room_of(world);
    size_t most = oriel_choose_rows(&world->facts);
    size_t list[] = {(32 << 10) + 1, room / n, room / n + 1,    room - 7,
                     room,           room + 1, (512 << 10) / n, (512 << 10) / n + 1,
                     2 * room,       most / n, 2 * room + 1,    most / n + 1,
                     room + 1,       most,     (32 << 10) + 1,  most + 1};
    unsigned seed = 0;

    for (int kind = 1; kind < ORIEL_KIND_BARRIER; kind++) {
        for (unsigned i = 0; i < sizeof list / sizeof *list; i++, seed++) {
            family_call call = {.kind = (enum oriel_kind)kind,
                                .dtype = ORIEL_U8,
                                .count = list[i],
                                .in_place = (int)(seed % 3),
                                .seed = seed};
            family_check(world, rank, &call);
        }
    }
}

/* All of it in the lane, of one member not, of none; started too. */
static void ragged(oriel_comm *comm, int rank)
{
    oriel_group *world = oriel_comm_world(comm);
    size_t n = (size_t)comm->size;
    size_t list[] = {0,
                     3,
                     room_of(world) / n / 9,
                     room_of(world) / n / 3,
                     oriel_choose_rows(&world->facts) / n / 3,
                     room_of(world),
                     oriel_choose_rows(&world->facts) / n / 9,
                     oriel_choose_rows(&world->facts)};
    unsigned seed = 0;

    for (int lone = 0; lone <= comm->size; lone++) {
        for (unsigned i = 0; i < 2 * sizeof list / sizeof *list; i++, seed++) {
            family_call call = {.kind = ORIEL_KIND_RAGGED_ALL_TO_ALL,
                                .dtype = ORIEL_S16,
                                .count = list[i / 2],
                                .row = 1 + seed % 2,
                                .slices = 1 + (int)(seed % 3),
                                .lone = lone,
                                .seed = seed};
            family_flight flight;

            if (i % 2) {
                family_check(world, rank, &call);
                continue;
            }
            family_start(&flight, world, rank, &call);
            family_check(world, rank, &call);
            family_wait(&flight);
        }
    }
}

/* Several at once, waited for in an order that differs between ranks. */
static void in_flight(oriel_comm *comm, int rank, unsigned round, size_t most)
{
    enum { FLIGHTS = 7 };
    family_flight flights[FLIGHTS];

    for (unsigned i = 0; i < FLIGHTS; i++) {
        family_call call = family_random(round * FLIGHTS + i, most);
        family_start(&flights[i], oriel_comm_world(comm), rank, &call);
    }
    for (int i = 0; i < FLIGHTS; i++)
        family_wait(&flights[(i * (1 + rank % 5) + rank) % FLIGHTS]);
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    const struct plan *plan = arg;

    if (plan->lanes) {
        around_lanes(comm, rank);
        ragged(comm, rank);
        for (unsigned round = 0; round < 20; round++)
            in_flight(comm, rank, round, oriel_choose_rows(&oriel_comm_world(comm)->facts) / 16);
    } else {
        edges(comm, rank);
    }
    for (unsigned i = 0; i < (unsigned)plan->calls; i++) {
        family_call call = family_random(i, i % 50 == 0 ? 400 * 1000 : 4000);
        family_check(oriel_comm_world(comm), rank, &call);
    }
    for (unsigned round = 0; round < (unsigned)plan->calls / 20; round++)
        in_flight(comm, rank, round, 20000);
}

int main(int argc, char **argv)
{
    int local_ranks = process_argument(argc, argv, 1, 1);
    struct plan plan = {.calls = process_argument(argc, argv, 2, 100),
                        .lanes = process_argument(argc, argv, 3, 0)};
    test_resources before = resources_now();
    oriel_comm *comm = process_comm(local_ranks, 60.0, NULL);

    ranks_run(comm, body, &plan);
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "after destroy");
    return 0;
}
