/* labels: tsan valgrind */
/* Every operation between threads of one process: results in every mode and around
 * every size at which a mode or a chunk ends, in place and not, blocking and started. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/protocol/cell.h"
#include "support/check.h"
#include "support/family.h"
#include "support/ranks.h"

static const double patience_s = 60.0;
static const int sizes[] = {1, 2, 3, 5};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void with(oriel_comm *comm, void (*body)(oriel_comm *, int, void *), void *arg)
{
    ranks_run(comm, body, arg);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* ---- every kind ---------------------------------------------------------------------- */

static void all_kinds(oriel_comm *comm, int rank, void *arg)
{
    static const size_t counts[] = {0, 1, 3, 61, 700};
    unsigned seed = 0;

    (void)arg;
    for (int kind = 1; kind < ORIEL_KIND_KERNEL; kind++) {
        for (int dtype = 0; dtype < ORIEL_DTYPE_COUNT; dtype += 5) {
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++, seed++) {
                family_call call = {.kind = (enum oriel_kind)kind,
                                    .dtype = (oriel_dtype)dtype,
                                    .op = (oriel_redop)(seed % ORIEL_REDOP_COUNT),
                                    .count = counts[i],
                                    .row = seed % 4,
                                    .slices = 1 + (int)(seed % 3),
                                    .in_place = (int)(seed % 3),
                                    .seed = seed};
                family_check(oriel_comm_world(comm), rank, &call);
            }
        }
    }
}

static void test_all_kinds(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        with(ranks_comm(sizes[i], patience_s, NULL), all_kinds, NULL);
        with(ranks_comm(sizes[i], patience_s, "ORIEL_DIRECT", "0", NULL), all_kinds, NULL);
        with(ranks_comm(sizes[i], patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "1K",
                        "ORIEL_STAGING", "256K", NULL),
             all_kinds, NULL);
    }
}

/* ---- around every edge ------------------------------------------------------------------ */

/* Blocks around `edge` bytes. */
static void around(oriel_comm *comm, int rank, enum oriel_kind kind, size_t edge, unsigned turn)
{
    static const oriel_dtype dtypes[] = {ORIEL_U8, ORIEL_F32, ORIEL_C128, ORIEL_S16};

    for (unsigned k = 0; k < 3; k++) {
        oriel_dtype dtype = dtypes[(turn + k) % 4];
        size_t count = edge / oriel_dtype_size(dtype) + k;
        family_call call = {.kind = kind,
                            .dtype = dtype,
                            .count = count > 0 ? count - 1 : 0,
                            .row = 1,
                            .slices = 1 + (int)k,
                            .in_place = (int)k,
                            .seed = turn * 3 + k};
        family_check(oriel_comm_world(comm), rank, &call);
    }
}

static void edges(oriel_comm *comm, int rank, void *arg)
{
    const heap_header *h = comm->heap.header;
    size_t n = (size_t)comm->size;
    size_t chunk = h->chunk_bytes;
    size_t eager = oriel_heap_eager_bytes(&comm->heap, comm->size);
    size_t list[] = {16,        64,        eager / n, eager,     chunk / (n > 1 ? n - 1 : 1),
                     chunk,     4 * chunk, 5 * chunk, 9 * chunk, h->channel_bytes / n,
                     64 * 1024, 130 * 1024};

    (void)arg;
    for (int kind = 1; kind < ORIEL_KIND_KERNEL; kind++) {
        for (unsigned i = 0; i < sizeof list / sizeof *list; i++)
            around(comm, rank, (enum oriel_kind)kind, list[i], (unsigned)kind + i);
    }
}

static void test_edges(void **state)
{
    static const int ranks[] = {2, 5};

    (void)state;
    for (int i = 0; i < 2; i++) {
        with(ranks_comm(ranks[i], patience_s, "ORIEL_CHUNK", "1K", "ORIEL_STAGING", "256K", NULL),
             edges, NULL);
        with(ranks_comm(ranks[i], patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "1K",
                        "ORIEL_STAGING", "256K", NULL),
             edges, NULL);
        with(ranks_comm(ranks[i], patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "3333",
                        "ORIEL_STAGING", "300001", NULL),
             edges, NULL);
    }
}

/* ---- many ---------------------------------------------------------------------------- */

static void many(oriel_comm *comm, int rank, void *arg)
{
    const int *calls = arg;

    for (int i = 0; i < *calls; i++) {
        family_call call = family_random((unsigned)i, i % 25 == 0 ? 200 * 1000 : 3000);
        family_check(oriel_comm_world(comm), rank, &call);
    }
}

static void test_many(void **state)
{
    int calls = getenv("SOAK") ? 20000 : 150;

    (void)state;
    for (int n = 2; n <= 5; n++) {
        with(ranks_comm(n, patience_s, NULL), many, &calls);
        with(ranks_comm(n, patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "4K", NULL), many,
             &calls);
    }
    with(ranks_comm(3, patience_s, "ORIEL_DIRECT", "0", "ORIEL_SPIN", "0", NULL), many, &calls);
}

/* So little in a slot that it has no room for all receivers at once. */
static void tiny(oriel_comm *comm, int rank, void *arg)
{
    static const enum oriel_kind kinds[] = {
        ORIEL_KIND_REDUCE_SCATTER, ORIEL_KIND_ALL_TO_ALL, ORIEL_KIND_SCATTER,
        ORIEL_KIND_GATHER,         ORIEL_KIND_SCAN,       ORIEL_KIND_RAGGED_ALL_TO_ALL};
    unsigned seed = 0;

    (void)arg;
    for (int k = 0; k < 6; k++) {
        for (int in_place = 0; in_place <= 2; in_place++, seed++) {
            family_call call = {.kind = kinds[k],
                                .dtype = ORIEL_S16,
                                .count = 700 + seed,
                                .row = 1,
                                .slices = 1 + in_place,
                                .in_place = in_place,
                                .seed = seed};
            family_check(oriel_comm_world(comm), rank, &call);
        }
    }
}

static void test_tiny_slots(void **state)
{
    (void)state;
    for (int n = 4; n <= 7; n++) {
        oriel_comm *comm =
            ranks_comm(n, patience_s, "ORIEL_DIRECT", "0", "ORIEL_STAGING", "256K", NULL);

        /* No option is that small; the slots of worlds of hundreds of ranks are. */
        comm->heap.header->chunk_bytes = n % 2 ? 64 : 128;
        with(comm, tiny, NULL);
    }
}

/* More numbers than the lane takes, by way of which they would overwrite each other. */
static void many_slices(oriel_comm *comm, int rank, void *arg)
{
    family_call call = {.kind = ORIEL_KIND_RAGGED_ALL_TO_ALL,
                        .dtype = ORIEL_F32,
                        .count = 3,
                        .row = 300,
                        .slices = 1500};

    (void)arg;
    for (; call.seed < 4; call.seed++)
        family_check(oriel_comm_world(comm), rank, &call);
}

static void test_many_slices(void **state)
{
    (void)state;
    for (int apart = 0; apart <= 1; apart++) {
        oriel_comm *comm = ranks_comm(2, patience_s, "ORIEL_DIRECT", "0", NULL);

        /* As on a machine with a core for each rank, whose cores share a cache or not. */
        oriel_comm_world(comm)->facts.crowded = 0;
        oriel_comm_world(comm)->facts.apart = apart;
        with(comm, many_slices, NULL);
    }
}

/* ---- started ----------------------------------------------------------------------------- */

enum { GROUPS = 6 };

/* Groups of some ranks in an order of their own. */
static void make_groups(oriel_comm *comm, oriel_group **groups)
{
    int n = oriel_comm_size(comm);

    for (int g = 0; g < GROUPS; g++) {
        int ranks[8];
        int left = 0;

        for (int r = 0; r < n; r++) {
            int rank = (r * (g % 2 ? n - 1 : 1) + g) % n; /* turned, and backwards */
            if (g < 2 || (rank + g) % 3 != 0)
                ranks[left++] = rank;
        }
        assert_int_equal(oriel_group_create(comm, ranks, left, &groups[g]), ORIEL_OK);
    }
}

/* Each rank starts its calls in an order of its own and waits in another. */
static void in_any_order(oriel_comm *comm, int rank, void *arg)
{
    oriel_group **groups = arg;
    family_flight flights[GROUPS];

    (void)comm;
    for (unsigned round = 0; round < 16; round++) {
        int started[GROUPS];
        int n = 0;

        for (int i = 0; i < GROUPS; i++) {
            int g = (i * 5 + 3 * rank + (int)round) % GROUPS;
            family_call call =
                family_random(round * GROUPS + (unsigned)g, round % 8 ? 2000 : 60000);

            if (oriel_group_index(groups[g], rank) < 0)
                continue;
            family_start(&flights[g], groups[g], rank, &call);
            started[n++] = g;
        }
        while (n > 0) {
            int k = (int)(values_mix(round, (uint64_t)(rank * 100 + n)) % (uint64_t)n);
            int g = started[k];

            started[k] = started[--n];
            family_wait(&flights[g]);
        }
    }
}

static void test_any_order(void **state)
{
    static const char *const staging[] = {"8M", "256K"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        oriel_comm *comm = ranks_comm(4 + i / 2, patience_s, "ORIEL_DIRECT", i % 2 ? "0" : "1",
                                      "ORIEL_CHUNK", "1K", "ORIEL_STAGING", staging[i / 2], NULL);
        oriel_group *groups[GROUPS];

        make_groups(comm, groups);
        ranks_run(comm, in_any_order, groups);
        for (int g = 0; g < GROUPS; g++)
            oriel_group_destroy(groups[g]);
        assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
    }
}

/* A ragged call in which one member alone has many chunks, and comes to the cell last. */
static void test_many_chunks_of_the_last(void **state)
{
    oriel_comm *comm = ranks_comm(2, patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "4K", NULL);
    family_call first = {.kind = ORIEL_KIND_BARRIER};
    family_call call = {.kind = ORIEL_KIND_RAGGED_ALL_TO_ALL,
                        .dtype = ORIEL_F32,
                        .count = 3000,
                        .row = 300,
                        .slices = 1,
                        .lone = 1};

    (void)state;
    for (int i = 0; i < 5; i++) {
        const family_call *made = i == 0 ? &first : &call; /* the first has no lane */
        family_flight flights[2];
        int done[2] = {0};

        for (int r = 0; r < 2; r++)
            family_start(&flights[r], oriel_comm_world(comm), r, made);
        for (int r = 0; !(done[0] && done[1]); r = !r) {
            if (!done[r])
                done[r] = family_test(&flights[r]);
        }
    }
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* One thread holds all ranks and asks each in turn. */
static void test_one_thread_for_all(void **state)
{
    (void)state;
    for (int direct = 0; direct <= 1; direct++) {
        oriel_comm *comm = ranks_comm(4, patience_s, "ORIEL_DIRECT", direct ? "1" : "0",
                                      "ORIEL_CHUNK", "1K", NULL);
        family_flight flights[4];

        for (unsigned seed = 0; seed < 40; seed++) {
            family_call call = family_random(seed, 20000);
            int done[4] = {0};
            int left = 4;

            for (int r = 0; r < 4; r++)
                family_start(&flights[r], oriel_comm_world(comm), r, &call);
            for (int r = 0; left > 0; r = (r + 1) % 4) {
                if (!done[r])
                    left -= done[r] = family_test(&flights[r]);
            }
        }
        assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_tiny_slots),
        cmocka_unit_test(test_many_slices),
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_many_chunks_of_the_last),
        cmocka_unit_test(test_one_thread_for_all),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
