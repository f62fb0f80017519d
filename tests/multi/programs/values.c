/* labels: valgrind */
/* processes: 3 */
/* all_reduce between processes: values [local ranks] [random calls] */
#include "core/protocol/cell.h"
#include "support/check.h"
#include "support/family.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/resources.h"

/* Sizes around `edge` bytes, in dtypes that take turns. */
static void around(oriel_comm *comm, int rank, size_t edge, size_t turn)
{
    static const oriel_dtype dtypes[] = {ORIEL_U8, ORIEL_F32, ORIEL_C128, ORIEL_S16};

    for (size_t k = 0; k < 3; k++) {
        oriel_dtype dtype = dtypes[(turn + k) % 4];
        family_call call = {.kind = ORIEL_KIND_ALL_REDUCE,
                            .dtype = dtype,
                            .count = edge / oriel_dtype_size(dtype) + k - 1,
                            .in_place = k == 1,
                            .seed = (unsigned)(edge + k)};
        family_check(oriel_comm_world(comm), rank, &call);
    }
}

static void edges(oriel_comm *comm, int rank)
{
    const heap_header *h = comm->heap.header;
    size_t chunk = h->chunk_bytes;
    size_t list[] = {64,
                     64 * (size_t)comm->size,
                     oriel_heap_eager_bytes(&comm->heap, comm->size),
                     chunk,
                     4 * chunk,
                     5 * chunk,
                     h->channel_bytes / (size_t)comm->size};

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (list[i] <= 2 << 20)
            around(comm, rank, list[i], i);
    }
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    static const size_t counts[] = {0, 1, 3, 61};
    const int *calls = arg;

    family_check_reductions(oriel_comm_world(comm), rank, counts, 4);
    edges(comm, rank);
    for (unsigned i = 0; i < (unsigned)*calls; i++) {
        family_call call =
            family_random_of(ORIEL_KIND_ALL_REDUCE, i, i % 50 == 0 ? 400 * 1000 : 3000);
        family_check(oriel_comm_world(comm), rank, &call);
    }
}

int main(int argc, char **argv)
{
    int local_ranks = process_argument(argc, argv, 1, 1);
    int calls = process_argument(argc, argv, 2, 100);
    test_resources before = resources_now();
    oriel_comm *comm = process_comm(local_ranks, 60.0, NULL);

    ranks_run(comm, body, &calls);
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "after destroy");
    return 0;
}
