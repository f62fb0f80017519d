/* labels: tsan valgrind */
/* Operations asked for wrongly, or differently by different ranks: everybody is told,
 * with the values. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/op.h"
#include "support/check.h"
#include "support/family.h"
#include "support/ranks.h"

static const double patience_s = 60.0;

/* ---- wrong arguments -------------------------------------------------------------------- */

enum { MEMBERS = 3, ROOM = 64 };

static float from[ROOM];
static float into[ROOM];
static const int twice_from[] = {0, 1, 0, 2};
static const int twice_to[] = {0, 1, 2, 1};
static const int outside[] = {0, 1, 1, 3};
static const int below[] = {-1, 1};

/* One argument of each is wrong, as the sentence says. */
static const struct bad {
    const char *says;
    oriel_op op;
} bads[] = {
    {"count is 4611686018427387904",
     {.kind = ORIEL_KIND_ALL_GATHER,
      .dtype = ORIEL_U8,
      .send = from,
      .recv = into,
      .count = (size_t)1 << 62}},
    {"of 3 members",
     {.kind = ORIEL_KIND_ALL_TO_ALL,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = into,
      .count = (size_t)1 << 44}},
    {"of 3 members",
     {.kind = ORIEL_KIND_REDUCE_SCATTER,
      .dtype = ORIEL_C128,
      .send = from,
      .recv = into,
      .count = (size_t)1 << 43}},
    {"dtype is 77",
     {.kind = ORIEL_KIND_ALL_GATHER,
      .dtype = (oriel_dtype)77,
      .send = from,
      .recv = into,
      .count = 1}},
    {"send is NULL",
     {.kind = ORIEL_KIND_ALL_TO_ALL, .dtype = ORIEL_F32, .send = NULL, .recv = into, .count = 1}},
    {"recv is NULL",
     {.kind = ORIEL_KIND_PERMUTE, .dtype = ORIEL_F32, .send = from, .recv = NULL, .count = 1}},
    {"redop is 9",
     {.kind = ORIEL_KIND_REDUCE_SCATTER,
      .dtype = ORIEL_F32,
      .redop = (oriel_redop)9,
      .send = from,
      .recv = into,
      .count = 1}},
    {"overlap",
     {.kind = ORIEL_KIND_ALL_GATHER,
      .dtype = ORIEL_F32,
      .send = from + 2,
      .recv = from,
      .count = 4}},
    {"overlap",
     {.kind = ORIEL_KIND_ALL_GATHER,
      .dtype = ORIEL_F32,
      .send = from + 4,
      .recv = from,
      .count = 4}}, /* member 1's place */
    {"overlap",
     {.kind = ORIEL_KIND_REDUCE_SCATTER,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = from + 4,
      .count = 4}},
    {"overlap",
     {.kind = ORIEL_KIND_REDUCE_SCATTER,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = from + 11,
      .count = 4}},
    {"overlap",
     {.kind = ORIEL_KIND_ALL_TO_ALL,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = from + 11,
      .count = 4}},
    {"overlap",
     {.kind = ORIEL_KIND_BROADCAST,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = from + 1,
      .count = 4}},
    {"root is 3 in a group of 3",
     {.kind = ORIEL_KIND_BROADCAST,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = into,
      .count = 1,
      .root = 3}},
    {"root is -1",
     {.kind = ORIEL_KIND_BROADCAST,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = into,
      .count = 1,
      .root = -1}},
    {"num_pairs is 4",
     {.kind = ORIEL_KIND_PERMUTE,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = into,
      .count = 1,
      .pairs = outside,
      .num_pairs = 4}},
    {"num_pairs is -1",
     {.kind = ORIEL_KIND_PERMUTE,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = into,
      .count = 1,
      .pairs = outside,
      .num_pairs = -1}},
    {"pairs is NULL",
     {.kind = ORIEL_KIND_PERMUTE,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = into,
      .count = 1,
      .pairs = NULL,
      .num_pairs = 1}},
    {"pairs[3] is 3 in a group of 3",
     {.kind = ORIEL_KIND_PERMUTE,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = into,
      .count = 1,
      .pairs = outside,
      .num_pairs = 2}},
    {"pairs[0] is -1",
     {.kind = ORIEL_KIND_PERMUTE,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = into,
      .count = 1,
      .pairs = below,
      .num_pairs = 1}},
    {"pairs[2] makes member 0 a source twice",
     {.kind = ORIEL_KIND_PERMUTE,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = into,
      .count = 1,
      .pairs = twice_from,
      .num_pairs = 2}},
    {"pairs[3] makes member 1 a destination twice",
     {.kind = ORIEL_KIND_PERMUTE,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = into,
      .count = 1,
      .pairs = twice_to,
      .num_pairs = 2}},
    {"root is 3",
     {.kind = ORIEL_KIND_GATHER,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = into,
      .count = 1,
      .root = 3}},
    {"root is -1",
     {.kind = ORIEL_KIND_REDUCE,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = into,
      .count = 1,
      .root = -1}},
    {"send is NULL", {.kind = ORIEL_KIND_SCATTER, .dtype = ORIEL_F32, .recv = into, .count = 1}},
    {"recv is NULL", {.kind = ORIEL_KIND_GATHER, .dtype = ORIEL_F32, .send = from, .count = 1}},
    {"send is NULL",
     {.kind = ORIEL_KIND_GATHER, .dtype = ORIEL_F32, .recv = into, .count = 1, .root = 1}},
    {"overlap",
     {.kind = ORIEL_KIND_SCATTER, .dtype = ORIEL_F32, .send = from, .recv = from + 1, .count = 1}},
    {"redop is 7",
     {.kind = ORIEL_KIND_SCAN,
      .dtype = ORIEL_F32,
      .send = from,
      .recv = into,
      .count = 1,
      .redop = ORIEL_REDOP_COUNT}},
    {"ragged is NULL",
     {.kind = ORIEL_KIND_RAGGED_ALL_TO_ALL, .dtype = ORIEL_F32, .send = from, .recv = into}},
};

static oriel_status call(oriel_group *group, int rank, const oriel_op *op)
{
    switch (op->kind) {
    case ORIEL_KIND_ALL_REDUCE:
        return oriel_all_reduce(group, rank, op->send, op->recv, op->count, op->dtype, op->redop);
    case ORIEL_KIND_ALL_GATHER:
        return oriel_all_gather(group, rank, op->send, op->recv, op->count, op->dtype);
    case ORIEL_KIND_REDUCE_SCATTER:
        return oriel_reduce_scatter(group, rank, op->send, op->recv, op->count, op->dtype,
                                    op->redop);
    case ORIEL_KIND_ALL_TO_ALL:
        return oriel_all_to_all(group, rank, op->send, op->recv, op->count, op->dtype);
    case ORIEL_KIND_BROADCAST:
        return oriel_broadcast(group, rank, op->send, op->recv, op->count, op->dtype, op->root);
    case ORIEL_KIND_PERMUTE:
        return oriel_permute(group, rank, op->send, op->recv, op->count, op->dtype, op->pairs,
                             op->num_pairs);
    case ORIEL_KIND_BARRIER:
        return oriel_barrier(group, rank);
    case ORIEL_KIND_GATHER:
        return oriel_gather(group, rank, op->send, op->recv, op->count, op->dtype, op->root);
    case ORIEL_KIND_SCATTER:
        return oriel_scatter(group, rank, op->send, op->recv, op->count, op->dtype, op->root);
    case ORIEL_KIND_REDUCE:
        return oriel_reduce(group, rank, op->send, op->recv, op->count, op->dtype, op->redop,
                            op->root);
    case ORIEL_KIND_SCAN:
        return oriel_scan(group, rank, op->send, op->recv, op->count, op->dtype, op->redop);
    default:
        return oriel_ragged_all_to_all(group, rank, op->send, op->recv, op->dtype, op->ragged);
    }
}

static void test_bad_arguments(void **state)
{
    oriel_comm *comm = ranks_comm(MEMBERS, patience_s, NULL);
    oriel_group *world = oriel_comm_world(comm);

    (void)state;
    memset(into, 0x11, sizeof into);
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        CHECK_IS(ORIEL_ERR_INVALID, call(world, 0, &bads[i].op));
        check_says(bads[i].says, NULL);
    }
    for (size_t i = 0; i < sizeof into; i++)
        assert_int_equal(((unsigned char *)into)[i], 0x11);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_barrier(NULL, 0));
    check_says("group is NULL", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_barrier(world, 3));
    check_says("rank is 3", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_barrier_start(world, 0, NULL));
    check_says("request_p is NULL", NULL);
    CHECK_OK(oriel_comm_check(comm));
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* ---- wrong sizes that one member can see -------------------------------------------------- */

static const int64_t fine[] = {0, 0, 0};
static const int64_t negative[] = {0, -5, 0};
static const int64_t large[] = {0, 0, 7};
static const int64_t huge[] = {0, INT64_MAX, 0};

static const struct bad_ragged {
    const char *says;
    oriel_ragged ragged;
} bad_raggeds[] = {
    {"struct_size is 8", {8, 1, 6, 6, 1, fine, fine, fine, fine}},
    {"slices is 0", {sizeof(oriel_ragged), 1, 6, 6, 0, fine, fine, fine, fine}},
    {"slices is -1", {sizeof(oriel_ragged), 1, 6, 6, -1, fine, fine, fine, fine}},
    {"row is 4611686018427387904",
     {sizeof(oriel_ragged), (size_t)1 << 62, 6, 6, 1, fine, fine, fine, fine}},
    {"send_rows is 70368744177664",
     {sizeof(oriel_ragged), 1, (size_t)1 << 46, 6, 1, fine, fine, fine, fine}},
    {"recv_rows is 70368744177664",
     {sizeof(oriel_ragged), 1, 6, (size_t)1 << 46, 1, fine, fine, fine, fine}},
    {"input_offsets is NULL", {sizeof(oriel_ragged), 1, 6, 6, 1, NULL, fine, fine, fine}},
    {"send_sizes is NULL", {sizeof(oriel_ragged), 1, 6, 6, 1, fine, NULL, fine, fine}},
    {"output_offsets is NULL", {sizeof(oriel_ragged), 1, 6, 6, 1, fine, fine, NULL, fine}},
    {"recv_sizes is NULL", {sizeof(oriel_ragged), 1, 6, 6, 1, fine, fine, fine, NULL}},
    {"input_offsets[1] is -5", {sizeof(oriel_ragged), 1, 6, 6, 1, negative, fine, fine, fine}},
    {"send_sizes[1] is -5", {sizeof(oriel_ragged), 1, 6, 6, 1, fine, negative, fine, fine}},
    {"output_offsets[1] is -5", {sizeof(oriel_ragged), 1, 6, 6, 1, fine, fine, negative, fine}},
    {"recv_sizes[1] is -5", {sizeof(oriel_ragged), 1, 6, 6, 1, fine, fine, fine, negative}},
    {"input_offsets[2] is 7", {sizeof(oriel_ragged), 1, 6, 6, 1, large, fine, fine, fine}},
    {"send_sizes[2] is 7", {sizeof(oriel_ragged), 1, 6, 6, 1, fine, large, fine, fine}},
    {"send_sizes[1] is 9223372036854775807",
     {sizeof(oriel_ragged), 1, 6, 6, 1, large, huge, fine, fine}},
};

static void test_bad_sizes(void **state)
{
    oriel_comm *comm = ranks_comm(MEMBERS, patience_s, NULL);
    oriel_group *world = oriel_comm_world(comm);
    oriel_ragged good = {sizeof good, 1, 6, 6, 1, fine, fine, fine, fine};

    (void)state;
    for (size_t i = 0; i < sizeof bad_raggeds / sizeof *bad_raggeds; i++) {
        CHECK_IS(ORIEL_ERR_INVALID,
                 oriel_ragged_all_to_all(world, 0, from, into, ORIEL_F32, &bad_raggeds[i].ragged));
        check_says(bad_raggeds[i].says, NULL);
    }
    CHECK_IS(ORIEL_ERR_INVALID,
             oriel_ragged_all_to_all(world, 0, from, from + 1, ORIEL_F32, &good));
    check_says("overlap", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_ragged_all_to_all(world, 0, NULL, into, ORIEL_F32, &good));
    check_says("send is NULL", NULL);
    CHECK_OK(oriel_comm_check(comm));
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* ---- different calls ------------------------------------------------------------------------ */

enum { LONG = 20000 };

/* Two thirds of a circle each; the same ones in another order; another. */
static const int circle[] = {0, 1, 1, 2, 2, 0};
static const int circle_again[] = {2, 0, 0, 1, 1, 2};
static const int back[] = {1, 0, 2, 1, 0, 2};

struct different {
    oriel_op usual, odd; /* without buffers */
    const char *says[2];
};

static const struct different differents[] = {
    {{.kind = ORIEL_KIND_ALL_GATHER, .count = 100},
     {.kind = ORIEL_KIND_ALL_TO_ALL, .count = 100},
     {"all_gather of 100 bytes", "all_to_all of 100 bytes"}},
    {{.kind = ORIEL_KIND_BROADCAST, .count = 100, .root = 1},
     {.kind = ORIEL_KIND_BROADCAST, .count = 100, .root = 2},
     {"from root 1", "from root 2"}},
    {{.kind = ORIEL_KIND_BROADCAST, .count = LONG, .root = 1},
     {.kind = ORIEL_KIND_BROADCAST, .count = LONG, .root = 2},
     {"from root 1", "from root 2"}},
    {{.kind = ORIEL_KIND_PERMUTE, .count = 100, .pairs = circle, .num_pairs = 3},
     {.kind = ORIEL_KIND_PERMUTE, .count = 100, .pairs = back, .num_pairs = 3},
     {"permute of 100 bytes", "by permutation"}},
    {{.kind = ORIEL_KIND_PERMUTE, .count = LONG, .pairs = circle, .num_pairs = 3},
     {.kind = ORIEL_KIND_PERMUTE, .count = LONG, .pairs = circle, .num_pairs = 2},
     {"permute of 20000 bytes", "by permutation"}},
    {{.kind = ORIEL_KIND_REDUCE_SCATTER, .count = 10},
     {.kind = ORIEL_KIND_REDUCE_SCATTER, .count = LONG},
     {"reduce_scatter sum of 10 bytes", "reduce_scatter sum of 20000 bytes"}},
    {{.kind = ORIEL_KIND_GATHER, .count = 100, .root = 1},
     {.kind = ORIEL_KIND_GATHER, .count = 100, .root = 0},
     {"gather of 100 bytes of u8 to root 1", "to root 0"}},
    {{.kind = ORIEL_KIND_SCATTER, .count = LONG, .root = 1},
     {.kind = ORIEL_KIND_SCATTER, .count = LONG, .root = 2},
     {"scatter of 20000 bytes of u8 from root 1", "from root 2"}},
    {{.kind = ORIEL_KIND_REDUCE, .count = 100, .root = 1},
     {.kind = ORIEL_KIND_REDUCE, .count = 100, .redop = ORIEL_MAX, .root = 1},
     {"reduce sum of 100 bytes of u8 to root 1", "reduce max of 100 bytes"}},
    {{.kind = ORIEL_KIND_SCAN, .count = LONG},
     {.kind = ORIEL_KIND_ALL_REDUCE, .count = LONG},
     {"scan sum of 20000 bytes", "all_reduce sum of 20000 bytes"}},
    {{.kind = ORIEL_KIND_BARRIER},
     {.kind = ORIEL_KIND_ALL_REDUCE, .count = 5},
     {"barrier", "all_reduce sum of 5 bytes"}},
};

static void ask(oriel_comm *comm, int rank, void *arg)
{
    const struct different *d = arg;
    oriel_op op = rank == 1 ? d->odd : d->usual;
    test_buffer send = buffer_make(MEMBERS * LONG, 0);
    test_buffer recv = buffer_make(MEMBERS * LONG, 0);

    op.dtype = ORIEL_U8;
    op.send = send.data;
    op.recv = recv.data;
    CHECK_IS(ORIEL_ERR_MISMATCH, call(oriel_comm_world(comm), rank, &op));
    check_says(d->says[0], d->says[1], "rank 1", NULL);
    CHECK(values_unpoisoned(recv.data, oriel_op_recv_count(&op, MEMBERS, rank), ORIEL_U8) < 0,
          "recv is not poisoned");
    buffer_free(&send);
    buffer_free(&recv);
}

static void test_different(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof differents / sizeof *differents; i++) {
        for (int direct = 0; direct <= 1; direct++) {
            oriel_comm *comm =
                ranks_comm(MEMBERS, patience_s, "ORIEL_DIRECT", direct ? "1" : "0", NULL);

            ranks_run(comm, ask, (void *)(uintptr_t)&differents[i]);
            CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
            CHECK_OK(oriel_comm_destroy(comm));
        }
    }
}

/* Two that both take themselves for the root have their data at once; the next call that
 * needs all finds them out, or a third that waits for its root does. Each has its root's data
 * and is told in the barrier, or was told before it had them. */
static void two_roots(oriel_comm *comm, int rank, void *arg)
{
    oriel_group *world = oriel_comm_world(comm);
    int value = rank;
    oriel_status st;

    (void)arg;
    CHECK_OK(oriel_barrier(world, rank)); /* the first call goes by a cell */
    st = oriel_broadcast(world, rank, &value, &value, 1, ORIEL_S32, rank < 2 ? rank : 0);
    if (st == ORIEL_OK) {
        CHECK(value == (rank == 1 ? 1 : 0), "rank %d has %d", rank, value);
        st = oriel_barrier(world, rank);
    } else {
        CHECK(value == INT32_MIN, "rank %d has %d, no poison", rank, value);
    }
    CHECK_IS(ORIEL_ERR_MISMATCH, st);
    if (strstr(oriel_last_error(), "before it differed") != NULL)
        check_says("both ask for barrier", NULL);
    else
        check_says("from root 0", "from root 1", "rank 1", NULL);
}

static void test_two_roots(void **state)
{
    oriel_comm *comm = ranks_comm(MEMBERS, patience_s, NULL);

    (void)state;
    ranks_run(comm, two_roots, NULL);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* The same pairs in another order are the same permutation. */
static void turned_pairs(oriel_comm *comm, int rank, void *arg)
{
    int send = rank;
    int recv = -1;

    (void)arg;
    CHECK_OK(oriel_permute(oriel_comm_world(comm), rank, &send, &recv, 1, ORIEL_S32,
                           rank == 0 ? circle_again : circle, 3));
    CHECK(recv == (rank + 2) % 3, "rank %d got %d", rank, recv);
}

static void test_turned_pairs(void **state)
{
    (void)state;
    for (int direct = 0; direct <= 1; direct++) {
        oriel_comm *comm =
            ranks_comm(MEMBERS, patience_s, "ORIEL_DIRECT", direct ? "1" : "0", NULL);

        ranks_run(comm, turned_pairs, NULL);
        CHECK_OK(oriel_comm_destroy(comm));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_arguments), cmocka_unit_test(test_bad_sizes),
        cmocka_unit_test(test_different),     cmocka_unit_test(test_turned_pairs),
        cmocka_unit_test(test_two_roots),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
