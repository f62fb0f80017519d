/* labels: tsan valgrind */
/* Lanes, step by step and by threads: see docs/protocol.md. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/sys.h"
#include "core/protocol/lane.h"
#include "core/world/trace.h"
#include "support/check.h"
#include "support/ranks.h"

enum { RANKS = 3, CALLS = 2000, DEEP = LANE_SLOTS };

static const oriel_record record = {.bytes = 8, .n = RANKS, .kind = ORIEL_KIND_BARRIER};

static oriel_comm *comm;
static oriel_member members[RANKS];

/* Of a call that needs all members. */
static lane_scan scan_all(const oriel_member *member)
{
    return (lane_scan){.end = (int)member->n, .least = UINT64_MAX};
}

/* Of a call that needs one (-1: none) and succeeds without the others. */
static lane_scan scan_one(int index)
{
    return (lane_scan){.at = index < 0 ? 0 : index, .end = index + 1, .some = 1};
}

static void join(void)
{
    int number;

    for (int i = 0; i < RANKS; i++) /* of the test before */
        oriel_lane_leave(&members[i], &comm->heap);
    number = oriel_lane_take(&comm->heap, 1, RANKS);
    CHECK(number >= 0, "no lane");
    for (int i = 0; i < RANKS; i++) {
        members[i] = (oriel_member){.index = i};
        oriel_lane_join(&members[i], &comm->heap, 1, number, RANKS);
    }
}

static int lanes_taken(void)
{
    return __builtin_popcountll(atomic_load(&comm->heap.pool[1].lanes));
}

static enum lane_view look(int i, uint64_t s)
{
    lane_scan scan = scan_all(&members[i]);

    return oriel_lane_look(&members[i], s, &scan);
}

/* Payloads of calls that may be under way at the same time have places of their own, whatever
 * their sizes. */
static void test_payloads_lie_apart(void **state)
{
    size_t room = oriel_lane_room_for(&comm->heap, RANKS);
    const size_t bytes[] = {
        LANE_SMALL + 1, LANE_TURNS_FROM - 1, LANE_TURNS_FROM, 5000, room, room + 1,
        2 * room,       2 * room + 1,        4 * room};

    (void)state;
    join();
    for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++) {
        char *first = oriel_lane_payload(&members[0], 0, 0, room);

        for (uint64_t s = 0; s < 300; s++) {
            for (int i = 0; i < RANKS; i++) {
                size_t bulks = oriel_lane_bulks(&members[0], bytes[b]);
                char *begin = first + ((size_t)i * LANE_BULKS + s * bulks % LANE_BULKS) * room;
                char *at = oriel_lane_payload(&members[(size_t)(i + 1) % RANKS], s, i, bytes[b]);

                CHECK(at >= begin && at + bytes[b] <= begin + bulks * room, "call %d of %d", (int)s,
                      i);
            }
        }
    }
}

static void test_full_only_when_all_are_there(void **state)
{
    (void)state;
    join();
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(look(0, 1), LANE_WAITING);
        oriel_lane_arrive(&members[i], 1, &record, 8);
    }
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(look(i, 1), LANE_FULL);
    assert_false(oriel_lane_seal(&members[0], 1));
    assert_int_equal(look(2, 1), LANE_FULL);
}

static void test_a_sealed_call_never_fills(void **state)
{
    (void)state;
    join();
    oriel_lane_arrive(&members[0], 1, &record, 8);
    oriel_lane_arrive(&members[2], 1, &record, 8);
    assert_true(oriel_lane_seal(&members[0], 1));
    assert_true(oriel_lane_seal(&members[2], 1));
    oriel_lane_arrive(&members[1], 1, &record, 8);
    assert_int_equal(look(1, 1), LANE_REVOKED);
    assert_int_equal(look(0, 1), LANE_REVOKED);
    assert_int_equal(look(2, 1), LANE_REVOKED);
}

static void test_differing_records_are_seen_by_all(void **state)
{
    oriel_record other = record;
    lane_scan scan;

    (void)state;
    join();
    scan = scan_all(&members[0]);
    other.bytes = 16;
    oriel_lane_arrive(&members[0], 1, &record, 8);
    oriel_lane_arrive(&members[1], 1, &other, 8);
    assert_int_equal(oriel_lane_look(&members[0], 1, &scan), LANE_MISMATCH);
    assert_int_equal(scan.at, 1);
    assert_int_equal(oriel_lane_record(&members[0], 1, scan.at)->bytes, 16);
    assert_int_equal(oriel_lane_differs(&members[0], 1), 1);
    assert_int_equal(oriel_lane_differs(&members[1], 1), 0);
    oriel_lane_arrive(&members[2], 1, &record, 8);
    assert_int_equal(oriel_lane_differs(&members[2], 1), 1);
    assert_int_equal(look(1, 1), LANE_MISMATCH);
}

/* A member that needs one other does not wait for a third, but fails where the call is revoked. */
static void test_one_is_enough(void **state)
{
    lane_scan scan;

    (void)state;
    join();
    oriel_lane_arrive(&members[0], 1, &record, 8);
    scan = scan_one(1);
    assert_int_equal(oriel_lane_look(&members[0], 1, &scan), LANE_WAITING);
    oriel_lane_arrive(&members[1], 1, &record, 8);
    assert_int_equal(oriel_lane_look(&members[0], 1, &scan), LANE_FULL);
    scan = scan_one(-1);
    assert_int_equal(oriel_lane_look(&members[1], 1, &scan), LANE_FULL);
    assert_true(oriel_lane_seal(&members[1], 1)); /* the third has not come */
    oriel_lane_arrive(&members[2], 1, &record, 8);
    scan = scan_one(1);
    assert_int_equal(oriel_lane_look(&members[2], 1, &scan), LANE_REVOKED);
}

/* A slot is written again only when everybody has completed its last call. */
static void test_nobody_is_lapped(void **state)
{
    (void)state;
    join();
    for (uint64_t s = 1; s <= LANE_SLOTS; s++) {
        for (int i = 0; i < RANKS; i++) {
            assert_true(oriel_lane_free(&members[i], s, 8));
            oriel_lane_arrive(&members[i], s, &record, 8);
        }
    }
    for (int i = 0; i < RANKS - 1; i++) {
        for (uint64_t s = 1; s <= LANE_SLOTS; s++) {
            assert_int_equal(look(i, s), LANE_FULL);
            oriel_lane_complete(&members[i], s);
        }
        assert_false(oriel_lane_free(&members[i], LANE_SLOTS + 1, 8));
    }
    assert_true(oriel_lane_complete(&members[RANKS - 1], 1)); /* somebody may wait for it */
    assert_true(oriel_lane_free(&members[0], LANE_SLOTS + 1, 8));
    assert_false(oriel_lane_free(&members[0], LANE_SLOTS + 2, 8));
}

/* Calls completed in any order count once those before them are. */
static void test_completions_count_in_order(void **state)
{
    static const uint64_t orders[][4] = {{4, 3, 2, 1}, {2, 1, 4, 3}, {3, 1, 2, 4}, {1, 4, 2, 3}};

    (void)state;
    for (int k = 0; k < 4; k++) {
        oriel_member *member = &members[0];
        uint64_t seen = 0;

        join();
        for (int i = 0; i < 4; i++) {
            uint64_t least = 1;
            oriel_lane_complete(member, orders[k][i]);
            seen |= 1ull << orders[k][i];
            while (seen >> least & 1)
                least++;
            assert_int_equal(member->done, least - 1);
        }
    }
}

/* Blocking calls never need the counters: the words tell. */
static void test_words_carry_the_credit(void **state)
{
    (void)state;
    join();
    for (uint64_t s = 1; s <= 20; s++) {
        for (int i = 0; i < RANKS; i++) {
            assert_true(members[i].known + LANE_SLOTS >= s);
            oriel_lane_arrive(&members[i], s, &record, 8);
        }
        for (int i = 0; i < RANKS; i++) {
            assert_int_equal(look(i, s), LANE_FULL);
            oriel_lane_complete(&members[i], s);
        }
    }
}

static void test_the_last_to_stand_gives_the_lane_back(void **state)
{
    int before;

    (void)state;
    join();
    before = lanes_taken() - 1;
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(lanes_taken(), before + 1);
        oriel_lane_leave(&members[i], &comm->heap);
        oriel_lane_leave(&members[i], &comm->heap); /* once is enough */
    }
    assert_int_equal(lanes_taken(), before);
}

static void test_large_payloads_have_fewer_places(void **state)
{
    const size_t large = LANE_SMALL + 1;

    (void)state;
    join();
    for (uint64_t s = 1; s <= LANE_BULKS + 1; s++) {
        for (int i = 0; i < RANKS; i++)
            oriel_lane_arrive(&members[i], s, &record, 8);
        for (int i = 1; i < RANKS; i++)
            oriel_lane_complete(&members[i], s);
    }
    assert_true(oriel_lane_free(&members[0], LANE_BULKS, large));
    assert_false(oriel_lane_free(&members[0], LANE_BULKS + 1, large));
    assert_int_equal(oriel_lane_behind(&members[0], LANE_BULKS + 1, large), 0);
    assert_true(oriel_lane_free(&members[0], LANE_BULKS + 1, LANE_SMALL));
    assert_ptr_not_equal(oriel_lane_payload(&members[0], 1, 2, large),
                         oriel_lane_payload(&members[0], 2, 2, large));
    assert_ptr_equal(oriel_lane_payload(&members[0], 1, 2, large),
                     oriel_lane_payload(&members[0], 1 + LANE_BULKS, 2, large));
    assert_true(oriel_lane_payload(&members[0], LANE_SLOTS - 1, RANKS - 1, 8) + LANE_SMALL <=
                oriel_lane_payload(&members[0], 0, 0, large));
    assert_true(oriel_lane_payload(&members[0], LANE_BULKS - 1, RANKS - 1, large) +
                    members[0].bulk <=
                (char *)members[0].lane + comm->heap.header->lane_bytes);
}

/* All others have completed everything, members[0] nothing. */
static void arrive_with(uint64_t s, size_t bytes)
{
    for (int i = 0; i < RANKS; i++)
        oriel_lane_arrive(&members[i], s, &record, bytes);
    for (int i = 1; i < RANKS; i++)
        oriel_lane_complete(&members[i], s);
}

/* Where a payload lies another number of bulks was taken before: it waits for all of them. */
static void test_payloads_of_other_sizes_wait(void **state)
{
    size_t bulk;

    (void)state;
    join();
    bulk = members[0].bulk;
    arrive_with(1, bulk);
    arrive_with(2, 8);
    assert_true(oriel_lane_free(&members[1], 3, bulk));
    assert_true(oriel_lane_free(&members[1], 3, 8));
    assert_false(oriel_lane_free(&members[1], 3, 2 * bulk));
    assert_false(oriel_lane_free(&members[1], 3, 4 * bulk));
    assert_int_equal(oriel_lane_behind(&members[1], 3, 4 * bulk), 0);
    oriel_lane_complete(&members[0], 1);
    assert_false(oriel_lane_free(&members[1], 3, 4 * bulk)); /* it follows call 2 */
    assert_true(oriel_lane_free(&members[1], 3, 2 * bulk));
    arrive_with(3, 2 * bulk);
    assert_false(oriel_lane_free(&members[1], 4, bulk));
    oriel_lane_complete(&members[0], 2);
    assert_true(oriel_lane_free(&members[1], 4, 2 * bulk));
    arrive_with(4, 2 * bulk);
    assert_false(oriel_lane_free(&members[1], 5, 2 * bulk));
    assert_false(oriel_lane_free(&members[1], 5, bulk));
    oriel_lane_complete(&members[0], 3);
    assert_true(oriel_lane_free(&members[1], 5, 2 * bulk));
    assert_false(oriel_lane_free(&members[1], 5, bulk));
    assert_true(oriel_lane_free(&members[1], 5, 8));
}

static void test_no_lane_where_there_is_no_room(void **state)
{
    (void)state;
    assert_int_equal(oriel_lane_room_for(&comm->heap, 100000), 0);
    assert_int_equal(oriel_lane_room_for(&comm->heap, 2), HEAP_LANE_ROOM);
    assert_int_equal(oriel_lane_room_for(&comm->heap, RANKS), HEAP_LANE_ROOM);
    while (oriel_lane_take(&comm->heap, 2, RANKS) >= 0) {
    }
    assert_int_equal(__builtin_popcountll(atomic_load(&comm->heap.pool[2].lanes)),
                     comm->heap.header->num_lanes);
}

/* ---- threads ---------------------------------------------------------------------- */

static uint64_t value_of(uint64_t s, int member)
{
    return s * 1000003 + (uint64_t)member;
}

static size_t size_of(const oriel_member *member, uint64_t s)
{
    const size_t sizes[] = {8,
                            LANE_SMALL,
                            LANE_SMALL + 1,
                            member->bulk / 3,
                            member->bulk,
                            member->bulk + 8,
                            LANE_BULKS / 2 * member->bulk,
                            LANE_BULKS * member->bulk};

    return sizes[value_of(s / 7, 0) % 8];
}

/* At both ends of a payload, and where others may begin. */
static void stamp(const oriel_member *member, uint64_t s)
{
    size_t bytes = size_of(member, s);
    char *at = oriel_lane_payload(member, s, member->index, bytes);
    uint64_t value = value_of(s, member->index);

    for (size_t i = 0; i < bytes; i += member->bulk)
        memcpy(at + i, &value, 8);
    memcpy(at + bytes - 8, &value, 8);
}

static void check_stamps(const oriel_member *member, uint64_t s, int index)
{
    size_t bytes = size_of(member, s);
    const char *at = oriel_lane_payload(member, s, index, bytes);
    uint64_t value = value_of(s, index);

    for (size_t i = 0; i < bytes; i += member->bulk)
        CHECK(memcmp(at + i, &value, 8) == 0, "call %d of member %d", (int)s, index);
    CHECK(memcmp(at + bytes - 8, &value, 8) == 0, "call %d of member %d", (int)s, index);
}

/* Keeps up to `deep` calls in flight and checks every payload. */
static void *member_run(void *arg)
{
    oriel_member *member = arg;
    uint64_t begun = 0;
    uint64_t ended = 0;
    uint64_t deep = member->index == 0 ? 1 : DEEP;

    while (ended < CALLS) {
        if (begun < CALLS && begun - ended < deep &&
            oriel_lane_free(member, begun + 1, size_of(member, begun + 1))) {
            stamp(member, ++begun);
            oriel_lane_arrive(member, begun, &record, size_of(member, begun));
        }
        if (begun == ended || look(member->index, ended + 1) != LANE_FULL) {
            oriel_relax(1);
            continue;
        }
        ended++;
        for (int i = 0; i < RANKS; i++)
            check_stamps(member, ended, i);
        oriel_lane_complete(member, ended);
    }
    return NULL;
}

static void test_threads_see_every_payload(void **state)
{
    pthread_t threads[RANKS];

    (void)state;
    join();
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, member_run, &members[i]), 0);
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
}

/* One member seals while the last one arrives: both find the same. */
static void *late_run(void *arg)
{
    enum lane_view *view = arg;

    oriel_lane_arrive(&members[1], 1, &record, 8);
    *view = look(1, 1);
    return NULL;
}

static void test_seal_against_arrival(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        enum lane_view late = LANE_WAITING;
        pthread_t thread;
        int sealed;

        join();
        oriel_lane_arrive(&members[0], 1, &record, 8);
        oriel_lane_arrive(&members[2], 1, &record, 8);
        assert_int_equal(pthread_create(&thread, NULL, late_run, &late), 0);
        sealed = oriel_lane_seal(&members[0], 1);
        pthread_join(thread, NULL);
        assert_int_equal(late, sealed ? LANE_REVOKED : LANE_FULL);
        assert_int_equal(look(0, 1), late);
        for (int i = 0; i < RANKS; i++)
            oriel_lane_leave(&members[i], &comm->heap);
    }
}

static int set_up(void **state)
{
    (void)state;
    comm = ranks_comm(RANKS, 30.0, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return oriel_comm_destroy(comm) != ORIEL_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_payloads_lie_apart),
        cmocka_unit_test(test_full_only_when_all_are_there),
        cmocka_unit_test(test_a_sealed_call_never_fills),
        cmocka_unit_test(test_differing_records_are_seen_by_all),
        cmocka_unit_test(test_one_is_enough),
        cmocka_unit_test(test_nobody_is_lapped),
        cmocka_unit_test(test_completions_count_in_order),
        cmocka_unit_test(test_words_carry_the_credit),
        cmocka_unit_test(test_the_last_to_stand_gives_the_lane_back),
        cmocka_unit_test(test_threads_see_every_payload),
        cmocka_unit_test(test_seal_against_arrival),
        cmocka_unit_test(test_large_payloads_have_fewer_places),
        cmocka_unit_test(test_payloads_of_other_sizes_wait),
        cmocka_unit_test(test_no_lane_where_there_is_no_room),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
