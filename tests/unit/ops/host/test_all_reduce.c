/* labels: tsan valgrind */
/* all_reduce between threads of one process: results in every dtype, op, mode
 * and size, in place and misaligned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "core/protocol/cell.h"
#include "support/check.h"
#include "support/family.h"
#include "support/ranks.h"
#include "support/resources.h"

static const double patience_s = 60.0;
static const int sizes[] = {1, 2, 3, 5, 8};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* ---- every dtype, every op ------------------------------------------------------ */

static void all_pairs(oriel_comm *comm, int rank, void *arg)
{
    family_check_reductions(oriel_comm_world(comm), rank, arg, 2);
}

/* Each size of a comm has two of the counts: ranks that share cores switch in every call. */
static void test_all_pairs(void **state)
{
    size_t counts[] = {0, 1, 3, 17, 130};

    (void)state;
    for (int i = 0; i < SIZES; i++) {
        oriel_comm *direct = ranks_comm(sizes[i], patience_s, NULL);
        oriel_comm *eager = ranks_comm(sizes[i], patience_s, "ORIEL_DIRECT", "0", NULL);

        ranks_run(direct, all_pairs, &counts[i % 4]);
        ranks_run(eager, all_pairs, &counts[(i + 2) % 4]);
        assert_int_equal(oriel_comm_destroy(direct), ORIEL_OK);
        assert_int_equal(oriel_comm_destroy(eager), ORIEL_OK);
    }
}

static void staged_pairs(oriel_comm *comm, int rank, void *arg)
{
    size_t eager = oriel_heap_eager_bytes(&comm->heap, comm->size);

    (void)arg;
    for (int dtype = 0; dtype < ORIEL_DTYPE_COUNT; dtype++) {
        for (int op = 0; op < ORIEL_REDOP_COUNT; op++) {
            family_call call = {.kind = ORIEL_KIND_ALL_REDUCE,
                                .dtype = (oriel_dtype)dtype,
                                .op = (oriel_redop)op,
                                .count = (eager + 5000) / oriel_dtype_size((oriel_dtype)dtype) + 1,
                                .in_place = op % 2};
            family_check(oriel_comm_world(comm), rank, &call);
        }
    }
}

static void test_all_pairs_staged(void **state)
{
    (void)state;
    for (int i = 1; i < SIZES; i++) {
        oriel_comm *comm = ranks_comm(sizes[i], patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK",
                                      "1K", "ORIEL_STAGING", "256K", NULL);

        ranks_run(comm, staged_pairs, NULL);
        assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
    }
}

/* ---- around every edge ------------------------------------------------------------- */

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

static void edges(oriel_comm *comm, int rank, void *arg)
{
    const heap_header *h = comm->heap.header;
    size_t n = (size_t)comm->size;
    size_t area = h->channel_bytes / n;
    size_t chunk = h->chunk_bytes;
    size_t direct = (size_t)64 * 1024;
    size_t eager = oriel_heap_eager_bytes(&comm->heap, comm->size);
    size_t list[] = {16,        64,        64 * n, eager,  chunk,     2 * chunk, 3 * chunk + 64,
                     4 * chunk, 9 * chunk, area,   direct, 2 * direct};

    (void)arg;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        around(comm, rank, list[i], i);
}

static void test_edges(void **state)
{
    static const int ranks[] = {2, 3, 8};

    (void)state;
    for (int i = 0; i < 3; i++) {
        oriel_comm *direct = ranks_comm(ranks[i], patience_s, "ORIEL_STAGING", "256K", NULL);
        oriel_comm *small = ranks_comm(ranks[i], patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK",
                                       "1K", "ORIEL_STAGING", "256K", NULL);
        oriel_comm *odd = ranks_comm(ranks[i], patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK",
                                     "3333", "ORIEL_STAGING", "300001", NULL);

        ranks_run(direct, edges, NULL);
        ranks_run(small, edges, NULL);
        ranks_run(odd, edges, NULL);
        assert_int_equal(oriel_comm_destroy(direct), ORIEL_OK);
        assert_int_equal(oriel_comm_destroy(small), ORIEL_OK);
        assert_int_equal(oriel_comm_destroy(odd), ORIEL_OK);
    }
}

/* ---- who has it --------------------------------------------------------------------------- */

/* The same in plain loops, over elements that are drawn from a few, NaN and both zeros among
 * them. */
static void places_of_floats(oriel_comm *comm, int rank, void *arg)
{
    static const float few[] = {-1.0f, -0.0f, 0.0f, 2.5f, NAN, INFINITY, 7.0f, 7.0f};
    enum { COUNT = 5003 };
    static _Thread_local float all[8][COUNT], best[COUNT];
    static _Thread_local int32_t loc[COUNT];
    int n = comm->size;

    for (int op = ORIEL_MIN; op <= ORIEL_MAX; op++) {
        for (int r = 0; r < n; r++) {
            for (size_t i = 0; i < COUNT; i++)
                all[r][i] = few[values_mix(i + COUNT * (size_t)op, (uint64_t)r) % 8];
        }
        CHECK_OK(oriel_all_reduce_loc(oriel_comm_world(comm), rank, all[rank], best, loc, COUNT,
                                      ORIEL_F32, (oriel_redop)op));
        for (size_t i = 0; i < COUNT; i++) {
            int first = 0;

            for (int r = 1; r < n; r++) {
                float a = all[r][i];
                float b = all[first][i];
                int wins = op == ORIEL_MIN ? a < b : a > b;

                if (!isnan(b) && (wins || isnan(a)))
                    first = r;
            }
            CHECK(loc[i] == first && (best[i] == all[first][i] || isnan(all[first][i])),
                  "element %zu: %g at %d, not at %d", i, (double)best[i], loc[i], first);
        }
    }
    (void)arg;
}

/* Bytes other than 0 and 1 are true. */
static void places_of_others(oriel_comm *comm, int rank, void *arg)
{
    const unsigned char flags[] = {(unsigned char)(rank == 0 ? 0 : rank + 1), 0, 1};
    const double parts[] = {1.0, -(double)rank};
    unsigned char best[3];
    double first[2];
    int32_t loc[3];

    (void)arg;
    CHECK_OK(oriel_all_reduce_loc(oriel_comm_world(comm), rank, flags, best, loc, 3, ORIEL_BOOL,
                                  ORIEL_MAX));
    CHECK(loc[0] == (comm->size > 1) && loc[1] == 0 && loc[2] == 0, "%d %d %d", loc[0], loc[1],
          loc[2]);
    CHECK_OK(oriel_all_reduce_loc(oriel_comm_world(comm), rank, parts, first, loc, 1, ORIEL_C128,
                                  ORIEL_MIN));
    CHECK(loc[0] == comm->size - 1, "%d", loc[0]);
}

static void bad_places(oriel_comm *comm, int rank, void *arg)
{
    oriel_group *world = oriel_comm_world(comm);
    float x = 1, y;
    int32_t loc;
    int32_t at[4] = {0}, pair[2] = {0};

    (void)arg;
    CHECK_IS(ORIEL_ERR_INVALID,
             oriel_all_reduce_loc(world, rank, pair, at + 2, at + 1, 2, ORIEL_S32, ORIEL_MIN));
    check_says("loc overlaps recv", NULL);
    CHECK_IS(ORIEL_ERR_INVALID,
             oriel_all_reduce_loc(world, rank, at, at + 2, at + 1, 1, ORIEL_S64, ORIEL_MIN));
    check_says("loc overlaps send", NULL);
    CHECK_IS(ORIEL_ERR_INVALID,
             oriel_all_reduce_loc(world, rank, &x, &y, &loc, 1, ORIEL_F32, ORIEL_SUM));
    check_says("sum", NULL);
    CHECK_IS(ORIEL_ERR_INVALID,
             oriel_all_reduce_loc(world, rank, &x, &y, NULL, 1, ORIEL_F32, ORIEL_MIN));
    check_says("loc", NULL);
    CHECK_IS(ORIEL_ERR_INVALID,
             oriel_all_reduce_loc(world, rank, &x, &x, &loc, 1, ORIEL_F32, ORIEL_MIN));
    check_says("send is recv", NULL);
    CHECK_IS(ORIEL_ERR_INVALID,
             oriel_all_reduce_loc(NULL, rank, &x, &y, &loc, 1, ORIEL_F32, ORIEL_MIN));
}

static void test_places(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n += 2) {
        oriel_comm *comm = ranks_comm(n, patience_s, "ORIEL_DIRECT", n == 3 ? "0" : "1", NULL);

        ranks_run(comm, places_of_floats, NULL);
        ranks_run(comm, places_of_others, NULL);
        ranks_run(comm, bad_places, NULL);
        assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
    }
}

/* ---- any address ---------------------------------------------------------------------- */

static void shifts(oriel_comm *comm, int rank, void *arg)
{
    static const size_t bytes[] = {24, 4000, 100 * 1000};

    (void)arg;
    for (size_t shift = 1; shift < 64; shift += 2) {
        size_t own = (shift + 8 * (size_t)rank) % 64; /* differs between ranks */
        family_call call = {.kind = ORIEL_KIND_ALL_REDUCE,
                            .dtype = (oriel_dtype)(shift % ORIEL_DTYPE_COUNT),
                            .op = (oriel_redop)(shift % ORIEL_REDOP_COUNT),
                            .shift = own,
                            .in_place = shift % 8 == 7};
        call.count = bytes[shift % 3] / oriel_dtype_size(call.dtype);
        family_check(oriel_comm_world(comm), rank, &call);
    }
}

static void test_misaligned(void **state)
{
    oriel_comm *direct = ranks_comm(3, patience_s, NULL);
    oriel_comm *staged = ranks_comm(3, patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "2K", NULL);

    (void)state;
    ranks_run(direct, shifts, NULL);
    ranks_run(staged, shifts, NULL);
    assert_int_equal(oriel_comm_destroy(direct), ORIEL_OK);
    assert_int_equal(oriel_comm_destroy(staged), ORIEL_OK);
}

/* NULL stands for the address of nothing. */
static void nothing(oriel_comm *comm, int rank, void *arg)
{
    (void)arg;
    CHECK_OK(oriel_all_reduce(oriel_comm_world(comm), rank, NULL, NULL, 0, ORIEL_F32, ORIEL_SUM));
    CHECK_OK(oriel_all_reduce(oriel_comm_world(comm), rank, NULL, arg, 0, ORIEL_C128, ORIEL_MAX));
}

static void test_nothing(void **state)
{
    char somewhere;

    (void)state;
    for (int n = 1; n <= 3; n++) {
        oriel_comm *comm = ranks_comm(n, patience_s, "ORIEL_DIRECT", n == 3 ? "0" : "1", NULL);

        ranks_run(comm, nothing, &somewhere);
        assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
    }
}

/* ---- the same bits -------------------------------------------------------------------- */

enum { BITS_COUNT = 3000, BITS_RANKS = 8 };

struct bits {
    oriel_dtype dtype;
    unsigned char result[BITS_RANKS][BITS_COUNT * 16];
};

/* Floats of many magnitudes, so that another order of summing shows. */
static void bits_body(oriel_comm *comm, int rank, void *arg)
{
    struct bits *bits = arg;
    size_t bytes = BITS_COUNT * oriel_dtype_size(bits->dtype);
    test_buffer send = buffer_make(bytes, 0);

    for (size_t i = 0; i < bytes; i++)
        send.data[i] = (unsigned char)values_mix(i, (uint64_t)rank + 100);
    CHECK_OK(oriel_all_reduce(oriel_comm_world(comm), rank, send.data, bits->result[rank],
                              BITS_COUNT, bits->dtype, ORIEL_SUM));
    buffer_free(&send);
}

static void bits_in(oriel_dtype dtype, const char *direct, const char *chunk, const char *staging,
                    struct bits *bits)
{
    size_t bytes = BITS_COUNT * oriel_dtype_size(dtype);
    oriel_comm *comm = ranks_comm(BITS_RANKS, patience_s, "ORIEL_DIRECT", direct, "ORIEL_CHUNK",
                                  chunk, "ORIEL_STAGING", staging, NULL);

    bits->dtype = dtype;
    memset(bits->result, 0x33, sizeof bits->result);
    ranks_run(comm, bits_body, bits);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
    for (int r = 1; r < BITS_RANKS; r++)
        assert_memory_equal(bits->result[0], bits->result[r], bytes);
}

static void test_same_bits(void **state)
{
    static const oriel_dtype dtypes[] = {ORIEL_F32, ORIEL_F64, ORIEL_F16, ORIEL_BF16, ORIEL_C64};
    struct bits *first = malloc(sizeof *first);
    struct bits *other = malloc(sizeof *other);

    (void)state;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        size_t bytes = BITS_COUNT * oriel_dtype_size(dtypes[d]);

        bits_in(dtypes[d], "1", "128K", "8M", first); /* direct */
        bits_in(dtypes[d], "0", "128K", "8M", other);
        assert_memory_equal(first->result[0], other->result[0], bytes);
        bits_in(dtypes[d], "0", "1K", "256K", other);
        assert_memory_equal(first->result[0], other->result[0], bytes);
        bits_in(dtypes[d], "0", "1984", "300K", other);
        assert_memory_equal(first->result[0], other->result[0], bytes);
    }
    free(first);
    free(other);
}

/* Eager is for small messages alone: each element by itself must come out as in
 * the long message. */
static void test_same_bits_eager(void **state)
{
    struct bits *whole = malloc(sizeof *whole);
    oriel_comm *comm;

    (void)state;
    bits_in(ORIEL_F32, "0", "1K", "256K", whole);
    comm = ranks_comm(BITS_RANKS, patience_s, "ORIEL_DIRECT", "0", NULL);
    for (size_t at = 0; at < BITS_COUNT; at += 300) {
        float sends[BITS_RANKS][300];
        float recvs[BITS_RANKS][300];
        oriel_request *requests[BITS_RANKS];
        int left = BITS_RANKS;

        for (int r = 0; r < BITS_RANKS; r++) {
            for (size_t i = 0; i < sizeof sends[r]; i++)
                ((unsigned char *)sends[r])[i] =
                    (unsigned char)values_mix(at * sizeof(float) + i, (uint64_t)r + 100);
            CHECK_OK(oriel_all_reduce_start(oriel_comm_world(comm), r, sends[r], recvs[r], 300,
                                            ORIEL_F32, ORIEL_SUM, &requests[r]));
        }
        while (left > 0) {
            for (int r = 0; r < BITS_RANKS; r++) {
                if (requests[r] != NULL && oriel_request_test(requests[r]) == ORIEL_OK) {
                    requests[r] = NULL;
                    left--;
                }
            }
        }
        for (int r = 0; r < BITS_RANKS; r++)
            assert_memory_equal(recvs[r], whole->result[0] + at * sizeof(float), sizeof recvs[r]);
    }
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
    free(whole);
}

/* ---- many -------------------------------------------------------------------------------- */

static void many(oriel_comm *comm, int rank, void *arg)
{
    const int *calls = arg;

    for (int i = 0; i < *calls; i++) {
        family_call call =
            family_random_of(ORIEL_KIND_ALL_REDUCE, (unsigned)i, i % 100 == 0 ? 300 * 1000 : 2000);
        family_check(oriel_comm_world(comm), rank, &call);
    }
}

static void test_many(void **state)
{
    int calls = getenv("SOAK") ? 50000 : 500;

    (void)state;
    for (int n = 2; n <= 4; n += 2) {
        oriel_comm *direct = ranks_comm(n, patience_s, NULL);
        oriel_comm *staged =
            ranks_comm(n, patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "4K", NULL);
        oriel_comm *sleepy =
            ranks_comm(n, patience_s, "ORIEL_DIRECT", "0", "ORIEL_SPIN", "0", NULL);

        ranks_run(direct, many, &calls);
        ranks_run(staged, many, &calls);
        ranks_run(sleepy, many, &calls);
        assert_int_equal(oriel_comm_destroy(direct), ORIEL_OK);
        assert_int_equal(oriel_comm_destroy(staged), ORIEL_OK);
        assert_int_equal(oriel_comm_destroy(sleepy), ORIEL_OK);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_pairs),  cmocka_unit_test(test_all_pairs_staged),
        cmocka_unit_test(test_edges),      cmocka_unit_test(test_places),
        cmocka_unit_test(test_misaligned), cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_same_bits),  cmocka_unit_test(test_same_bits_eager),
        cmocka_unit_test(test_many),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
