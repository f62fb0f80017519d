/* labels: tsan valgrind */
/* Calls as a user makes them: wrong arguments, and operations that are started
 * and end in whatever order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/check.h"
#include "support/family.h"
#include "support/ranks.h"

static const double patience_s = 60.0;

/* ---- wrong arguments ------------------------------------------------------------- */

enum { ROOM = 16 };

static float input[ROOM];
static float output[ROOM];

struct bad_call {
    const char *says;
    int null_group;
    int rank;
    const void *send;
    void *recv;
    size_t count;
    int dtype, op;
};

/* Ranks 0 and 1 are members of the group, rank 2 is not, 3 does not exist. */
static const struct bad_call bad_calls[] = {
    {"group", 1, 0, input, output, 4, ORIEL_F32, ORIEL_SUM},
    {"-1", 0, -1, input, output, 4, ORIEL_F32, ORIEL_SUM},
    {"rank is 3", 0, 3, input, output, 4, ORIEL_F32, ORIEL_SUM},
    {"rank 2 is no member", 0, 2, input, output, 4, ORIEL_F32, ORIEL_SUM},
    {"2147483647", 0, INT32_MAX, input, output, 4, ORIEL_F32, ORIEL_SUM},
    {"-2147483648", 0, INT32_MIN, input, output, 4, ORIEL_F32, ORIEL_SUM},
    {"send", 0, 0, NULL, output, 4, ORIEL_F32, ORIEL_SUM},
    {"recv", 0, 0, input, NULL, 4, ORIEL_F32, ORIEL_SUM},
    {"dtype is 17", 0, 0, input, output, 4, ORIEL_DTYPE_COUNT, ORIEL_SUM},
    {"dtype is -1", 0, 0, input, output, 4, -1, ORIEL_SUM},
    {"dtype is 1000000", 0, 0, input, output, 4, 1000000, ORIEL_SUM},
    {"redop is 7", 0, 0, input, output, 4, ORIEL_F32, ORIEL_REDOP_COUNT},
    {"redop is 6 (xor), which is none for f32", 0, 0, input, output, 4, ORIEL_F32, ORIEL_XOR},
    {"redop is -1", 0, 0, input, output, 4, ORIEL_F32, -1},
    {"redop is 260", 0, 0, input, output, 4, ORIEL_F32, 260},
    {"overlap", 0, 0, input, input + 1, 4, ORIEL_F32, ORIEL_SUM},
    {"overlap", 0, 0, input + 3, input, 4, ORIEL_F32, ORIEL_SUM},
    {"18446744073709551615", 0, 0, input, output, SIZE_MAX, ORIEL_U8, ORIEL_SUM},
    {"4611686018427387905", 0, 0, input, output, SIZE_MAX / 4 + 2, ORIEL_F32, ORIEL_SUM},
    {"1152921504606846976", 0, 0, input, output, SIZE_MAX / 16 + 1, ORIEL_C128, ORIEL_SUM},
};

static void test_bad_calls(void **state)
{
    static const int ranks[] = {0, 1};
    oriel_comm *comm = ranks_comm(3, patience_s, NULL);
    oriel_group *group = NULL;

    (void)state;
    assert_int_equal(oriel_group_create(comm, ranks, 2, &group), ORIEL_OK);
    memset(output, 0x11, sizeof output);
    for (size_t i = 0; i < sizeof bad_calls / sizeof *bad_calls; i++) {
        const struct bad_call *c = &bad_calls[i];
        oriel_group *given = c->null_group ? NULL : group;
        oriel_request *request = (oriel_request *)output;

        CHECK_IS(ORIEL_ERR_INVALID, oriel_all_reduce(given, c->rank, c->send, c->recv, c->count,
                                                     (oriel_dtype)c->dtype, (oriel_redop)c->op));
        check_says(c->says, NULL);
        CHECK_IS(ORIEL_ERR_INVALID,
                 oriel_all_reduce_start(given, c->rank, c->send, c->recv, c->count,
                                        (oriel_dtype)c->dtype, (oriel_redop)c->op, &request));
        check_says(c->says, NULL);
        assert_ptr_equal(request, output);
    }
    CHECK_IS(ORIEL_ERR_INVALID,
             oriel_all_reduce_start(group, 0, input, output, 1, ORIEL_F32, ORIEL_SUM, NULL));
    check_says("request_p", NULL);
    for (size_t i = 0; i < sizeof output; i++)
        assert_int_equal(((unsigned char *)output)[i], 0x11);
    oriel_group_destroy(group);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* Neighbours in one array do not overlap. */
static void next_to_each_other(oriel_comm *comm, int rank, void *arg)
{
    float pair[2][4] = {{1, 2, 3, 4}, {0}};

    (void)arg;
    CHECK_OK(
        oriel_all_reduce(oriel_comm_world(comm), rank, pair[0], pair[1], 4, ORIEL_F32, ORIEL_SUM));
    CHECK(pair[1][3] == 8, "%g", pair[1][3]);
    CHECK_OK(
        oriel_all_reduce(oriel_comm_world(comm), rank, pair[1], pair[0], 4, ORIEL_F32, ORIEL_SUM));
    CHECK(pair[0][0] == 4, "%g", pair[0][0]);
}

/* Wrong calls send nothing and count for nothing: the right ones still match. */
static void wrong_then_right(oriel_comm *comm, int rank, void *arg)
{
    family_call call = {
        .kind = ORIEL_KIND_ALL_REDUCE, .dtype = ORIEL_S32, .op = ORIEL_SUM, .count = 9};
    int x = 0;

    (void)arg;
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < rank; k++)
            CHECK_IS(ORIEL_ERR_INVALID, oriel_all_reduce(oriel_comm_world(comm), rank, &x, &x, 1,
                                                         ORIEL_S32, (oriel_redop)99));
        call.seed = (unsigned)i;
        family_check(oriel_comm_world(comm), rank, &call);
    }
    CHECK_OK(oriel_comm_check(comm));
}

static void test_right_after_wrong(void **state)
{
    oriel_comm *pair = ranks_comm(2, patience_s, NULL);
    oriel_comm *comm = ranks_comm(3, patience_s, NULL);

    (void)state;
    ranks_run(pair, next_to_each_other, NULL);
    ranks_run(comm, wrong_then_right, NULL);
    assert_int_equal(oriel_comm_destroy(pair), ORIEL_OK);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

static void test_null_requests(void **state)
{
    (void)state;
    CHECK_IS(ORIEL_ERR_INVALID, oriel_request_test(NULL));
    check_says("request is NULL", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_request_wait(NULL));
}

/* ---- several in flight --------------------------------------------------------------- */

enum { FLIGHTS = 12 };

static void shuffle(int *order, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(values_mix(seed, (uint64_t)i) % (uint64_t)(i + 1));
        int kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

/* Started in one order, awaited in another on each rank. */
static void wait_shuffled(oriel_comm *comm, int rank, void *arg)
{
    const size_t *max_bytes = arg;
    family_flight flights[FLIGHTS];
    int order[FLIGHTS];

    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < FLIGHTS; i++) {
            family_call call =
                family_random_of(ORIEL_KIND_ALL_REDUCE, round * FLIGHTS + i, *max_bytes);
            family_start(&flights[i], oriel_comm_world(comm), rank, &call);
        }
        shuffle(order, FLIGHTS, round * 64 + (unsigned)rank);
        for (int i = 0; i < FLIGHTS; i++)
            family_wait(&flights[order[i]]);
    }
}

static void test_shuffled(oriel_comm *comm, void (*body)(oriel_comm *, int, void *), size_t bytes)
{
    ranks_run(comm, body, &bytes);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

static void test_wait_in_any_order(void **state)
{
    (void)state;
    test_shuffled(ranks_comm(3, patience_s, "ORIEL_DIRECT", "0", NULL), wait_shuffled, 1000);
    test_shuffled(ranks_comm(3, patience_s, NULL), wait_shuffled, 100000);
    test_shuffled(ranks_comm(3, patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "1K", NULL),
                  wait_shuffled, 20000);
}

/* More in flight than there are blocks (2) and channels (1) per rank. */
static void test_wait_with_little_room(void **state)
{
    (void)state;
    test_shuffled(ranks_comm(2, patience_s, "ORIEL_DIRECT", "0", "ORIEL_STAGING", "256K", NULL),
                  wait_shuffled, 30000);
}

enum { CROSSED = 14 };

/* Each rank starts calls on a group that the other one turns to only after both have met in
 * a third group: what waits meanwhile leaves room for that. */
static void cross(oriel_comm *comm, int rank, void *arg)
{
    oriel_group **groups = arg;
    family_flight flights[2][CROSSED];
    family_call call = {
        .kind = ORIEL_KIND_ALL_REDUCE, .dtype = ORIEL_S32, .op = ORIEL_SUM, .count = 200000};

    (void)comm;
    for (int g = 0; g < 3; g++)
        CHECK_OK(oriel_barrier(groups[g], rank));
    for (int i = 0; i < CROSSED; i++)
        family_start(&flights[0][i], groups[rank], rank, &call);
    family_check(groups[2], rank, &call);
    for (int i = 0; i < CROSSED; i++)
        family_start(&flights[1][i], groups[1 - rank], rank, &call);
    for (int i = 0; i < CROSSED; i++) {
        family_wait(&flights[0][i]);
        family_wait(&flights[1][i]);
    }
}

static void test_crossed_groups(void **state)
{
    static const char *const staging[] = {"64M", "16M"}; /* 3 channels, and 1 */
    static const int ranks[][2] = {{0, 1}, {1, 0}, {0, 1}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        oriel_comm *comm = ranks_comm(2, patience_s, "ORIEL_DIRECT", "0", "ORIEL_SPIN",
                                      i ? "0" : "50", "ORIEL_STAGING", staging[i], NULL);
        oriel_group *groups[3];

        for (int g = 0; g < 3; g++)
            assert_int_equal(oriel_group_create(comm, ranks[g], 2, &groups[g]), ORIEL_OK);
        ranks_run(comm, cross, groups);
        assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
    }
}

/* A call that finds no room until all have begun it names the one that has not. */
static void come_alone(oriel_comm *comm, int rank, void *arg)
{
    enum { BYTES = 1 << 20 };
    test_buffer buffer = buffer_make(BYTES, 0);

    (void)arg;
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    if (rank == 0) {
        CHECK_IS(ORIEL_ERR_TIMEOUT, oriel_all_reduce(oriel_comm_world(comm), rank, buffer.data,
                                                     buffer.data, BYTES, ORIEL_U8, ORIEL_SUM));
        check_says("rank 1 (process 0) did not come within 0.3 s", NULL);
    }
    buffer_free(&buffer);
}

static void test_missing_with_little_room(void **state)
{
    oriel_comm *comm = ranks_comm(2, 0.3, "ORIEL_DIRECT", "0", "ORIEL_STAGING", "16M", NULL);

    (void)state;
    ranks_run(comm, come_alone, NULL);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* Each rank asks in an order of its own until all are done. */
static void poll_shuffled(oriel_comm *comm, int rank, void *arg)
{
    const size_t *max_bytes = arg;
    family_flight flights[FLIGHTS];
    int order[FLIGHTS];

    for (unsigned round = 0; round < 20; round++) {
        int left = FLIGHTS;

        for (unsigned i = 0; i < FLIGHTS; i++) {
            family_call call =
                family_random_of(ORIEL_KIND_ALL_REDUCE, round * FLIGHTS + i, *max_bytes);
            family_start(&flights[i], oriel_comm_world(comm), rank, &call);
        }
        shuffle(order, FLIGHTS, round * 64 + (unsigned)rank);
        while (left > 0) {
            for (int i = 0; i < left; i++) {
                if (family_test(&flights[order[i]]))
                    order[i--] = order[--left];
            }
        }
    }
}

static void test_poll_in_any_order(void **state)
{
    (void)state;
    test_shuffled(ranks_comm(4, patience_s, NULL), poll_shuffled, 100000);
    test_shuffled(ranks_comm(3, patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "1K",
                             "ORIEL_STAGING", "256K", NULL),
                  poll_shuffled, 30000);
}

/* One thread holds all ranks and asks each in turn. */
static void test_one_thread_for_all(void **state)
{
    oriel_comm *comm = ranks_comm(4, patience_s, "ORIEL_DIRECT", "0", "ORIEL_CHUNK", "1K", NULL);
    family_flight flights[4];

    (void)state;
    for (unsigned seed = 0; seed < 60; seed++) {
        family_call call = family_random_of(ORIEL_KIND_ALL_REDUCE, seed, 50000);
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_calls),
        cmocka_unit_test(test_right_after_wrong),
        cmocka_unit_test(test_null_requests),
        cmocka_unit_test(test_one_thread_for_all),
        cmocka_unit_test(test_poll_in_any_order),
        cmocka_unit_test(test_wait_in_any_order),
        cmocka_unit_test(test_wait_with_little_room),
        cmocka_unit_test(test_crossed_groups),
        cmocka_unit_test(test_missing_with_little_room),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
