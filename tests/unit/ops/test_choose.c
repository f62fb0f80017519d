/* labels: valgrind */
/* The table of choices: what it must never choose, and where its bounds are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/protocol/lane.h"
#include "ops/choose.h"
#include "support/check.h"

static const oriel_facts two_cores = {
    .n = 2, .reads = 1, .place = HEAP_LANE_ROOM, .eager = 8128, .cache = 32 << 20};

static oriel_choice ask(oriel_facts facts, enum oriel_kind kind, enum oriel_meeting meeting,
                        size_t bytes)
{
    oriel_question question = {.kind = kind, .meeting = meeting, .block = bytes, .payload = bytes};

    return oriel_choose(&facts, &question);
}

static void expect(oriel_facts facts, enum oriel_kind kind, enum oriel_meeting meeting,
                   size_t bytes, enum oriel_mode mode)
{
    oriel_choice choice = ask(facts, kind, meeting, bytes);

    CHECK(choice.mode == mode, "%s of %zu bytes is %s, not %s", oriel_kind_name(kind), bytes,
          oriel_mode_name(choice.mode), oriel_mode_name(mode));
}

static void test_bounds_with_a_core_for_each(void **state)
{
    oriel_facts blind = two_cores;

    (void)state;
    blind.reads = 0;
    expect(two_cores, ORIEL_KIND_ALL_REDUCE, MEET_LANE, 32 << 10, ORIEL_MODE_LANE);
    expect(two_cores, ORIEL_KIND_ALL_REDUCE, MEET_LANE, (32 << 10) + 1, ORIEL_MODE_STAGED);
    expect(two_cores, ORIEL_KIND_PERMUTE, MEET_LANE, (24 << 10) - 1, ORIEL_MODE_LANE);
    expect(two_cores, ORIEL_KIND_PERMUTE, MEET_LANE, 24 << 10, ORIEL_MODE_PULLED);
    expect(blind, ORIEL_KIND_PERMUTE, MEET_LANE, 32 << 10, ORIEL_MODE_LANE);
    expect(blind, ORIEL_KIND_PERMUTE, MEET_LANE, (32 << 10) + 1, ORIEL_MODE_STAGED);
    expect(two_cores, ORIEL_KIND_BROADCAST, MEET_LANE, 1 << 20, ORIEL_MODE_STAGED);
    expect(two_cores, ORIEL_KIND_BARRIER, MEET_LANE, 0, ORIEL_MODE_LANE);
    expect(two_cores, ORIEL_KIND_ALL_TO_ALL, MEET_CELL, 8128, ORIEL_MODE_EAGER);
    expect(two_cores, ORIEL_KIND_ALL_TO_ALL, MEET_CELL, 8129, ORIEL_MODE_PULLED);
    expect(two_cores, ORIEL_KIND_RAGGED_ALL_TO_ALL, MEET_SHOWN, 1 << 20, ORIEL_MODE_PULLED);
    expect(two_cores, ORIEL_KIND_RAGGED_ALL_TO_ALL, MEET_CELL, 64, ORIEL_MODE_STAGED);
}

static void test_bounds_where_ranks_outnumber_cores(void **state)
{
    oriel_facts crowd = two_cores;

    (void)state;
    crowd.n = 8;
    crowd.crowded = 1;
    expect(crowd, ORIEL_KIND_ALL_REDUCE, MEET_LANE, 64 << 10, ORIEL_MODE_LANE);
    expect(crowd, ORIEL_KIND_ALL_REDUCE, MEET_LANE, (64 << 10) + 1, ORIEL_MODE_STAGED);
    expect(crowd, ORIEL_KIND_PERMUTE, MEET_LANE, (256 << 10) - 1, ORIEL_MODE_LANE);
    expect(crowd, ORIEL_KIND_PERMUTE, MEET_LANE, 256 << 10, ORIEL_MODE_PULLED);
    expect(crowd, ORIEL_KIND_ALL_GATHER, MEET_LANE, 1 << 20, ORIEL_MODE_LANE);
    expect(crowd, ORIEL_KIND_ALL_GATHER, MEET_LANE, (1 << 20) + 1, ORIEL_MODE_PULLED);
    crowd.reads = 0;
    expect(crowd, ORIEL_KIND_PERMUTE, MEET_LANE, 1 << 20, ORIEL_MODE_LANE);
    expect(crowd, ORIEL_KIND_PERMUTE, MEET_LANE, (1 << 20) + 1, ORIEL_MODE_STAGED);
    crowd.place = HEAP_LANE_ROOM / 4; /* more members than lanes have all their room for */
    expect(crowd, ORIEL_KIND_PERMUTE, MEET_LANE, crowd.place, ORIEL_MODE_LANE);
    expect(crowd, ORIEL_KIND_PERMUTE, MEET_LANE, crowd.place + 1, ORIEL_MODE_STAGED);
    expect(crowd, ORIEL_KIND_BROADCAST, MEET_LANE, 4 * crowd.place, ORIEL_MODE_LANE);
}

/* Each array of a list that is read out of another's memory costs a system call. */
static void test_bounds_of_lists(void **state)
{
    oriel_question q = {.kind = ORIEL_KIND_ALL_GATHER,
                        .block = 10 * (24 << 10),
                        .payload = 10 * (24 << 10),
                        .arrays = 10};

    (void)state;
    for (int lane = 0; lane <= 1; lane++) {
        q.meeting = lane ? MEET_LANE : MEET_CELL;
        q.arrays = 10;
        assert_int_equal(oriel_choose(&two_cores, &q).mode, ORIEL_MODE_PULLED);
        q.arrays = 11;
        assert_int_equal(oriel_choose(&two_cores, &q).mode, ORIEL_MODE_STAGED);
    }
}

static void test_stores(void **state)
{
    oriel_facts apart = two_cores;

    (void)state;
    apart.apart = 1;
    assert_false(ask(two_cores, ORIEL_KIND_BROADCAST, MEET_LANE, 16 << 10).stream);
    assert_true(ask(apart, ORIEL_KIND_BROADCAST, MEET_LANE, 16 << 10).stream);
    assert_false(ask(apart, ORIEL_KIND_BROADCAST, MEET_LANE, 8191).stream);
    assert_false(ask(apart, ORIEL_KIND_ALL_REDUCE, MEET_LANE, 16 << 10).stream);
    assert_false(ask(two_cores, ORIEL_KIND_ALL_REDUCE, MEET_LANE, 8 << 20).stream);
    assert_true(ask(two_cores, ORIEL_KIND_ALL_REDUCE, MEET_LANE, (8 << 20) + 1).stream);
}

static uint64_t dice = 1;

static uint64_t roll(uint64_t sides)
{
    dice = dice * 6364136223846793005ull + 1442695040888963407ull;
    return (dice >> 33) % sides;
}

static oriel_facts any_facts(void)
{
    return (oriel_facts){
        .n = (int)(2 + roll(100)),
        .one_process = (int)roll(2),
        .reads = (int)roll(2),
        .crowded = (int)roll(2),
        .apart = (int)roll(2),
        .place = roll(2) ? HEAP_LANE_ROOM : roll(HEAP_LANE_ROOM),
        .eager = roll(10000),
        .cache = roll(1 << 26),
    };
}

/* Whatever the facts: no mode without what it stands on. */
static void test_never(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        oriel_facts f = any_facts();
        oriel_question q = {.kind = (enum oriel_kind)(1 + roll(ORIEL_KIND_COUNT - 1)),
                            .meeting = (enum oriel_meeting)roll(3),
                            .block = roll(1ull << (1 + roll(30)))};
        oriel_choice c;

        q.payload = q.block * (roll(2) ? 1 : (size_t)f.n);
        c = oriel_choose(&f, &q);
        CHECK(c.mode != ORIEL_MODE_LANE || q.meeting == MEET_LANE, "a lane without a lane");
        CHECK(c.mode != ORIEL_MODE_LANE || q.payload <= LANE_BULKS * f.place ||
                  q.payload <= LANE_SMALL,
              "%zu bytes in places of %zu", q.payload, f.place);
        CHECK(c.mode != ORIEL_MODE_PULLED || f.reads, "pulled where nobody may read");
        CHECK(c.mode != ORIEL_MODE_DIRECT || f.one_process, "direct between processes");
        CHECK(c.mode != ORIEL_MODE_EAGER || q.payload <= f.eager, "eager, but too long");
        CHECK((c.mode == ORIEL_MODE_KERNEL) == (q.kind == ORIEL_KIND_KERNEL), "kernels alone");
    }
}

/* What is looked up once for small calls is what the table says of each. */
static void test_small_calls(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        oriel_facts f = any_facts();
        size_t small = oriel_choose_small(&f);
        size_t bytes = roll(small + 1);
        enum oriel_kind kind = (enum oriel_kind)(1 + roll(ORIEL_KIND_BARRIER));
        oriel_choice c = ask(f, kind, MEET_LANE, bytes);

        CHECK(small == 0 || (c.mode == ORIEL_MODE_LANE && !c.stream), "%s of %zu of %zu bytes: %s",
              oriel_kind_name(kind), bytes, small, oriel_mode_name(c.mode));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_with_a_core_for_each),
        cmocka_unit_test(test_bounds_where_ranks_outnumber_cores),
        cmocka_unit_test(test_bounds_of_lists),
        cmocka_unit_test(test_stores),
        cmocka_unit_test(test_never),
        cmocka_unit_test(test_small_calls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
