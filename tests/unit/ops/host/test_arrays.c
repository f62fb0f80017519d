/* labels: tsan valgrind */
/* Lists of arrays between threads of one process: the same bits as one by one in every mode, and
 * what is wrong with a list is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/protocol/cell.h"
#include "support/check.h"
#include "support/lists/lists.h"
#include "support/ranks.h"

static const double patience_s = 60.0;

static void with(oriel_comm *comm, void (*body)(oriel_comm *, int, void *), void *arg)
{
    ranks_run(comm, body, arg);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* ---- the same bits ------------------------------------------------------------------------ */

static void many(oriel_comm *comm, int rank, void *arg)
{
    const int *calls = arg;

    for (int i = 0; i < *calls; i++) {
        list_call call = list_random((unsigned)i, i % 10 == 0 ? 200 * 1000 : 6000);
        list_check(oriel_comm_world(comm), rank, &call);
    }
}

static void test_many(void **state)
{
    int calls = getenv("SOAK") ? 5000 : 60;

    (void)state;
    for (int n = 1; n <= 4; n++) {
        with(ranks_comm(n, patience_s, NULL), many, &calls);
        with(ranks_comm(n, patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "1K", NULL), many,
             &calls);
    }
    with(ranks_comm(3, patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "3333", "ORIEL_STAGING",
                    "300001", NULL),
         many, &calls);
}

/* Groups of their own, whose first call has no lane: it is eager, staged or direct. */
static void first(oriel_comm *comm, int rank, void *arg)
{
    oriel_group *const *groups = arg;
    (void)comm;

    for (unsigned g = 0; g < 16; g++) {
        list_call call = list_random(100 + g, g % 2 ? 300 * 1000 : 2000);
        list_check(groups[g], rank, &call);
    }
}

static void test_first_calls(void **state)
{
    static const int ranks[] = {2, 0, 1};

    (void)state;
    for (int direct = 0; direct <= 1; direct++) {
        oriel_comm *comm = ranks_comm(3, patience_s, "ORIEL_DIRECT", direct ? "1" : "0", NULL);
        oriel_group *groups[16];

        for (int g = 0; g < 16; g++)
            CHECK_OK(oriel_group_create(comm, ranks, 3, &groups[g]));
        ranks_run(comm, first, groups);
        for (int g = 0; g < 16; g++)
            oriel_group_destroy(groups[g]);
        CHECK_OK(oriel_comm_destroy(comm));
    }
}

/* Sums of whole numbers, which are known without any other call. */
static void sums(oriel_comm *comm, int rank, void *arg)
{
    enum { NUM = 5 };
    static const size_t counts[NUM] = {3, 0, 1000, 1, 40000};
    const int *ids = oriel_comm_world(comm)->ranks;
    oriel_array arrays[NUM];
    test_buffer buffers[NUM];

    (void)arg;
    for (unsigned i = 0; i < NUM; i++) {
        buffers[i] = buffer_make(counts[i] * sizeof(float), i);
        values_fill(buffers[i].data, counts[i], ORIEL_F32, ORIEL_SUM, rank, i);
        arrays[i] = (oriel_array){buffers[i].data, buffers[i].data, counts[i]};
    }
    CHECK_OK(
        oriel_all_reduce_many(oriel_comm_world(comm), rank, arrays, NUM, ORIEL_F32, ORIEL_SUM));
    for (unsigned i = 0; i < NUM; i++) {
        CHECK(values_wrong(buffers[i].data, counts[i], ORIEL_F32, ORIEL_SUM, ids,
                           oriel_comm_size(comm), i) < 0,
              "array %u", i);
        buffer_free(&buffers[i]);
    }
}

static void test_sums(void **state)
{
    (void)state;
    with(ranks_comm(3, patience_s, NULL), sums, NULL);
    with(ranks_comm(3, patience_s, "ORIEL_DIRECT", "0", NULL), sums, NULL);
}

/* ---- one operation --------------------------------------------------------------------------- */

static void test_counts_once(void **state)
{
    oriel_comm *comm = ranks_comm(1, patience_s, NULL);
    oriel_group *world = oriel_comm_world(comm);
    float x[4] = {1, 2, 3, 4};
    oriel_array arrays[] = {{x, x, 1}, {x + 1, x + 1, 1}, {x + 2, x + 2, 2}};

    (void)state;
    CHECK_OK(oriel_all_reduce_many(world, 0, arrays, 3, ORIEL_F32, ORIEL_SUM));
    assert_int_equal(world->sequence[0], 1);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* A list of one array is the operation on that array, and members may ask for it either way. */
static void one_array(oriel_comm *comm, int rank, void *arg)
{
    oriel_group *world = oriel_comm_world(comm);
    int32_t x = 1;
    oriel_array array = {&x, &x, 1};

    (void)arg;
    if (rank == 0)
        CHECK_OK(oriel_all_reduce_many(world, rank, &array, 1, ORIEL_S32, ORIEL_SUM));
    else
        CHECK_OK(oriel_all_reduce(world, rank, &x, &x, 1, ORIEL_S32, ORIEL_SUM));
    assert_int_equal(x, 2);
    if (rank == 0)
        CHECK_OK(oriel_all_reduce_many(world, rank, NULL, 0, ORIEL_S32, ORIEL_SUM));
    else
        CHECK_OK(oriel_all_reduce(world, rank, NULL, NULL, 0, ORIEL_S32, ORIEL_SUM));
}

static void test_one_array(void **state)
{
    (void)state;
    with(ranks_comm(2, patience_s, NULL), one_array, NULL);
}

/* ---- what is wrong ------------------------------------------------------------------------------
 */

/* As many elements, divided in another way; as many arrays, of other kinds. */
static void differ(oriel_comm *comm, int rank, void *arg)
{
    static const size_t counts[] = {10, 20};
    const size_t *scale = arg;
    oriel_array arrays[2];
    test_buffer buffers[2];

    for (int i = 0; i < 2; i++) {
        size_t count = counts[(i + rank) % 2] * *scale;
        buffers[i] = buffer_make(count * 4, 0);
        arrays[i] = (oriel_array){buffers[i].data, buffers[i].data, count};
    }
    CHECK_IS(ORIEL_ERR_MISMATCH,
             oriel_all_reduce_many(oriel_comm_world(comm), rank, arrays, 2, ORIEL_S32, ORIEL_SUM));
    check_says("rank 0", "rank 1", "in 2 arrays (counts", NULL);
    for (int i = 0; i < 2; i++) {
        CHECK(values_unpoisoned(buffers[i].data, arrays[i].count, ORIEL_S32) < 0, "array %d", i);
        buffer_free(&buffers[i]);
    }
}

static void number_differs(oriel_comm *comm, int rank, void *arg)
{
    int32_t x[4] = {0};
    oriel_array arrays[] = {{x, x, 1}, {x + 1, x + 1, 1}, {x + 2, x + 2, 2}};

    (void)arg;
    arrays[1].count = rank == 0 ? 3 : 1;
    CHECK_IS(ORIEL_ERR_MISMATCH, oriel_broadcast_many(oriel_comm_world(comm), rank, arrays,
                                                      rank == 0 ? 2 : 3, ORIEL_S32, 1));
    check_says("16 bytes of s32 from root 1 in 2 arrays", "16 bytes of s32 from root 1 in 3 arrays",
               NULL);
}

static void barrier_first(oriel_comm *comm, int rank, void *arg)
{
    (void)arg;
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
}

static void test_differ(void **state)
{
    (void)state;
    for (int direct = 0; direct <= 1; direct++) {
        for (int lane = 0; lane <= 1; lane++) {
            for (size_t scale = 1; scale <= 10000; scale *= 10000) {
                oriel_comm *comm =
                    ranks_comm(2, patience_s, "ORIEL_DIRECT", direct ? "1" : "0", NULL);

                if (lane)
                    ranks_run(comm, barrier_first, NULL);
                with(comm, differ, &scale);
            }
            with(ranks_comm(2, patience_s, "ORIEL_DIRECT", direct ? "1" : "0", NULL),
                 number_differs, NULL);
        }
    }
}

static void expect(oriel_comm *comm, const oriel_array *arrays, int num, const char *says)
{
    oriel_request *request = NULL;
    oriel_group *world = oriel_comm_world(comm);

    CHECK_IS(ORIEL_ERR_INVALID, oriel_all_reduce_many(world, 0, arrays, num, ORIEL_S32, ORIEL_SUM));
    check_says(says, NULL);
    CHECK_IS(ORIEL_ERR_INVALID,
             oriel_all_reduce_many_start(world, 0, arrays, num, ORIEL_S32, ORIEL_SUM, &request));
    check_says(says, NULL);
    assert_null(request);
}

static void test_refused(void **state)
{
    oriel_comm *comm = ranks_comm(1, patience_s, NULL);
    int32_t x[12];
    oriel_array huge[] = {{x, x, SIZE_MAX}, {x, x, 2}};
    oriel_array large[] = {{x, x, 1}, {x + 1, x + 1, (size_t)1 << 46}};
    oriel_array none[] = {{NULL, x, 0}, {x, x, 1}, {NULL, x + 1, 1}};
    oriel_array askew[] = {{x, x, 1}, {x + 4, x + 5, 2}};
    oriel_array twice[] = {{x, x, 4}, {x + 8, x + 4, 4}, {x + 3, x + 3, 2}};
    oriel_array over[] = {{x + 4, x + 8, 4}, {x, x + 4, 1}};

    (void)state;
    expect(comm, NULL, 2, "arrays is NULL");
    expect(comm, huge, -1, "num_arrays is -1");
    expect(comm, huge, ORIEL_ARRAYS_MAX + 1, "num_arrays is 65536");
    expect(comm, huge, 2, "arrays[1].count is 2");
    expect(comm, large, 2, "too large");
    expect(comm, none, 3, "arrays[2]: send is NULL");
    expect(comm, askew, 2, "arrays[1]: send and recv overlap");
    expect(comm, twice, 3, "recv of arrays[0] overlaps arrays[2]");
    expect(comm, over, 2, "recv of arrays[1] overlaps arrays[0]");
    assert_int_equal(oriel_comm_world(comm)->sequence[0], 0);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* What is read may be read twice. */
static void test_same_send(void **state)
{
    oriel_comm *comm = ranks_comm(1, patience_s, NULL);
    int32_t x[4] = {5, 6, 0, 0};
    oriel_array arrays[] = {{x, x + 2, 1}, {x, x + 3, 1}};

    (void)state;
    CHECK_OK(oriel_broadcast_many(oriel_comm_world(comm), 0, arrays, 2, ORIEL_S32, 0));
    assert_int_equal(x[2], 5);
    assert_int_equal(x[3], 5);
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),      cmocka_unit_test(test_first_calls),
        cmocka_unit_test(test_sums),      cmocka_unit_test(test_counts_once),
        cmocka_unit_test(test_one_array), cmocka_unit_test(test_differ),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_same_send),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
