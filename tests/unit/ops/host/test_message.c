/* labels: tsan valgrind */
/* Messages between two ranks of a process: who waits for whom, in which order they match, and what
 * is said when they do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/protocol/lane.h"
#include "support/check.h"
#include "support/calls/messages.h"
#include "support/ranks.h"
#include "support/values.h"

enum { WORDS = 100, LARGE = 30000, MANY = 33 };
static const double long_s = 60.0, short_s = 0.3;

static void fill(uint64_t *words, int from, int to, unsigned call)
{
    for (unsigned k = 0; k < WORDS; k++)
        words[k] = values_mix(call, (uint64_t)from << 32 | (unsigned)to) + k;
}

static void give(oriel_group *group, int rank, int to, unsigned call)
{
    uint64_t words[WORDS];

    fill(words, oriel_group_index(group, rank), to, call);
    CHECK_OK(oriel_send(group, rank, words, WORDS, ORIEL_U64, to));
    memset(words, 0, sizeof words); /* it is the sender's again */
}

static void receive(oriel_group *group, int rank, int from, unsigned call)
{
    uint64_t got[WORDS], want[WORDS];

    fill(want, from, oriel_group_index(group, rank), call);
    CHECK_OK(oriel_recv(group, rank, got, WORDS, ORIEL_U64, from));
    CHECK(memcmp(got, want, sizeof got) == 0, "not message %u from %d", call, from);
}

/* ---- one thread makes the calls of all ranks: one that waited would never end ----------- */

/* Two that both send first; then many more, as far as a lane goes. */
static void small_ones_are_sent_alone(void **state)
{
    oriel_comm *comm = ranks_comm(3, long_s, NULL);
    oriel_group *world = oriel_comm_world(comm);
    oriel_request *request = NULL;
    uint64_t words[WORDS] = {0};

    (void)state;
    for (unsigned call = 0; call <= LANE_SLOTS; call++) {
        give(world, 0, 1, call);
        give(world, 1, 0, call);
    }
    CHECK_OK(oriel_send_start(world, 0, words, WORDS, ORIEL_U64, 1, &request));
    for (int i = 0; i < 100; i++)
        CHECK_IS(ORIEL_IN_PROGRESS, oriel_request_test(request));
    for (unsigned call = 0; call <= LANE_SLOTS; call++) {
        receive(world, 1, 0, call);
        receive(world, 0, 1, call);
    }
    CHECK_OK(oriel_request_wait(request));
    CHECK_OK(oriel_comm_destroy(comm));
}

/* Messages of groups, and of their instances, do not mix; nor with the group's other calls. */
static void groups_have_orders_of_their_own(void **state)
{
    oriel_comm *comm = ranks_comm(3, long_s, NULL);
    oriel_group *groups[4] = {oriel_comm_world(comm)};

    (void)state;
    for (int i = 1; i < 4; i++)
        CHECK_OK(oriel_group_create(comm, i == 3 ? (int[]){2, 0} : (int[]){0, 2}, 2, &groups[i]));
    for (unsigned call = 0; call < 4; call++) {
        give(groups[0], 0, 2, call);
        give(groups[1], 0, 1, 10 + call);
        give(groups[2], 0, 1, 20 + call);
        give(groups[3], 0, 0, 30 + call);
    }
    for (unsigned call = 0; call < 4; call++) {
        receive(groups[3], 2, 1, 30 + call);
        receive(groups[2], 2, 0, 20 + call);
        receive(groups[1], 2, 0, 10 + call);
        receive(groups[0], 2, 0, call);
    }
    for (int i = 1; i < 4; i++)
        oriel_group_destroy(groups[i]);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* More pairs than there are lanes; and messages that nobody has received leave room for all else.
 */
static void a_thousand_pairs(void **state)
{
    oriel_comm *comm = ranks_comm(MANY, long_s, "ORIEL_STAGING", "32M", NULL);
    oriel_group *world = oriel_comm_world(comm);
    oriel_request *requests[MANY];

    (void)state;
    for (int pair = 0; pair < MANY * MANY; pair++) {
        if (pair / MANY != pair % MANY)
            give(world, pair / MANY, pair % MANY, 0);
    }
    for (int r = 0; r < MANY; r++)
        CHECK_OK(oriel_barrier_start(world, r, &requests[r]));
    for (int r = 0; r < MANY; r++)
        CHECK_OK(oriel_request_wait(requests[r]));
    for (int pair = 0; pair < MANY * MANY; pair++) {
        if (pair / MANY != pair % MANY)
            receive(world, pair % MANY, pair / MANY, 0);
    }
    for (unsigned call = 1; call < 4; call++) {
        give(world, MANY - 1, 1, call);
        receive(world, 1, MANY - 1, call);
    }
    CHECK_OK(oriel_comm_destroy(comm));
}

/* ---- wrong calls -------------------------------------------------------------------- */

static void wrong_arguments_are_refused(void **state)
{
    oriel_comm *comm = ranks_comm(3, long_s, NULL);
    oriel_group *group;
    char x[2] = "x";
    oriel_request *request = NULL;

    (void)state;
    CHECK_OK(oriel_group_create(comm, (int[]){2, 0}, 2, &group));
    CHECK_IS(ORIEL_ERR_INVALID, oriel_send(NULL, 0, x, 1, ORIEL_U8, 1));
    check_says("group is NULL", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_send(group, 1, x, 1, ORIEL_U8, 1));
    check_says("rank 1 is no member", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_send(group, 0, x, 1, ORIEL_U8, 2));
    check_says("dest is 2 in a group of 2", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_recv(group, 0, x, 1, ORIEL_U8, -1));
    check_says("source is -1", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_recv(group, 0, x, 1, ORIEL_U8, 1));
    check_says("source is 1, which is rank 0 itself", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_send(group, 0, NULL, 1, ORIEL_U8, 0));
    check_says("send is NULL", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_recv_start(group, 0, NULL, 1, ORIEL_U8, 0, &request));
    check_says("recv is NULL", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_send_start(group, 0, x, 1, ORIEL_DTYPE_COUNT, 0, &request));
    check_says("dtype is 17", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_send_start(group, 0, x, 1, ORIEL_U8, 0, NULL));
    check_says("request_p is NULL", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_sendrecv(group, 0, x, 1, 0, NULL, 1, 0, ORIEL_U8));
    check_says("recv is NULL", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_sendrecv(group, 0, x, 1, 1, x + 1, 1, 0, ORIEL_U8));
    check_says("dest is 1", NULL);
    assert_null(request);
    /* None of them counts. */
    CHECK_OK(oriel_send(group, 0, x, 1, ORIEL_U8, 0));
    CHECK_OK(oriel_recv(group, 2, x + 1, 1, ORIEL_U8, 1));
    assert_int_equal(x[1], 'x');
    oriel_group_destroy(group);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* The sender of a small one has gone on; both are named. `calls` before it were right. */
static void differ(unsigned calls, size_t sent, size_t wanted, oriel_dtype dtype, const char *first,
                   const char *second)
{
    oriel_comm *comm = ranks_comm(2, long_s, NULL);
    oriel_group *world = oriel_comm_world(comm);
    uint64_t send_words[WORDS] = {1}, recv_words[WORDS];
    oriel_request *request;

    for (unsigned call = 0; call < calls; call++) {
        give(world, 0, 1, call);
        receive(world, 1, 0, call);
    }
    CHECK_OK(oriel_send_start(world, 0, send_words, sent, ORIEL_U32, 1, &request));
    CHECK_IS(ORIEL_ERR_MISMATCH, oriel_recv(world, 1, recv_words, wanted, dtype, 0));
    check_says("message", first, second, "rank 0", "rank 1", NULL);
    CHECK(values_unpoisoned(recv_words, wanted, dtype) < 0, "recv is not poisoned");
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    oriel_comm_destroy(comm);
}

static void differences_are_told(void **state)
{
    (void)state;
    for (unsigned calls = 0; calls < 3; calls++) {
        differ(calls, 3, 4, ORIEL_U32, "12 bytes of u32", "16 bytes of u32");
        differ(calls, 3, 3, ORIEL_F32, "12 bytes of u32", "12 bytes of f32");
    }
}

static void who_does_not_come_is_named(void **state)
{
    static float large[LARGE];
    oriel_comm *comm = ranks_comm(3, short_s, NULL);

    (void)state;
    CHECK_IS(ORIEL_ERR_TIMEOUT, oriel_send(oriel_comm_world(comm), 0, large, LARGE, ORIEL_F32, 2));
    check_says("message of 120000 bytes of f32 on rank 0", "rank 2", "did not come to receive",
               NULL);
    oriel_comm_destroy(comm);
    comm = ranks_comm(3, short_s, NULL);
    CHECK_IS(ORIEL_ERR_TIMEOUT, oriel_recv(oriel_comm_world(comm), 0, large, 1, ORIEL_F32, 1));
    check_says("message of 4 bytes of f32 on rank 0", "rank 1", "did not come to send", NULL);
    oriel_comm_destroy(comm);
}

/* ---- a thread for each rank ------------------------------------------------------------ */

static void in_any_order(oriel_comm *comm, int rank, void *arg)
{
    const size_t most = *(const size_t *)arg;
    oriel_group *world = oriel_comm_world(comm);

    for (unsigned seed = 0; seed < 4; seed++) {
        messages_started(world, rank, seed, most);
        messages_blocking(world, rank, seed, most);
        messages_exchanged(world, rank, seed, most);
        CHECK_OK(oriel_barrier(world, rank)); /* beside other calls of the group */
    }
}

static void threads_exchange_messages(void **state)
{
    static const struct {
        int ranks;
        size_t most;
        const char *staging;
    } cases[] = {{2, 20 << 10, "64M"}, {4, 400 << 10, "64M"}, {5, 30 << 10, "1M"}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        oriel_comm *comm = ranks_comm(cases[i].ranks, long_s, "ORIEL_STAGING", cases[i].staging,
                                      "ORIEL_DIRECT", i == 1 ? "0" : "1", NULL);
        size_t most = cases[i].most;

        ranks_run(comm, in_any_order, &most);
        CHECK_OK(oriel_comm_destroy(comm));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ones_are_sent_alone),
        cmocka_unit_test(groups_have_orders_of_their_own),
        cmocka_unit_test(a_thousand_pairs),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(differences_are_told),
        cmocka_unit_test(who_does_not_come_is_named),
        cmocka_unit_test(threads_exchange_messages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
