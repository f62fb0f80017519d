/* labels: valgrind */
/* Styles: what members report, and what is chosen by it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/protocol/style.h"
#include "core/world/trace.h"
#include "support/ranks.h"

enum { RANKS = 3, SMALL = 100 << 10, LARGE = 1 << 20, KIND = ORIEL_KIND_ALL_GATHER };

static oriel_comm *comm;
static oriel_group *world;
static oriel_seat seat;

static int set_up(void **state)
{
    (void)state;
    comm = ranks_comm(RANKS, 30.0, NULL);
    world = oriel_comm_world(comm);
    comm->oversubscribed = 0;
    comm->cache = (size_t)1 << 40;
    seat = (oriel_seat){.n = RANKS, .bulk = 2 * SMALL};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return oriel_comm_destroy(comm) != ORIEL_OK;
}

/* As if its processes could read each other's memory. */
static void allow_reading(int yes)
{
    atomic_store(&comm->heap.procs[0].reads, (uint32_t)yes);
}

static void report(size_t bytes, uint32_t style, double ps)
{
    oriel_style_report(world, KIND, bytes, style, ps * (double)(bytes + 1) / 1e12);
}

static void report_all(size_t bytes, uint32_t style, double ps)
{
    for (int i = 0; i < RANKS; i++)
        report(bytes, style, ps);
}

/* As often as it takes where caches matter, as they do here: so that small ones come round in
 * the staging memory. */
enum { ROW_SMALL = 40, ROW_LARGE = 12, FIRST_LOOK = 4 };

static void report_often(size_t bytes, uint32_t style, double ps)
{
    for (int i = 0; i < ROW_SMALL; i++)
        report_all(bytes, style, ps);
}

static void expect(size_t bytes, uint32_t style, int times, double ps)
{
    for (int i = 0; i < times; i++) {
        assert_int_equal(oriel_style_choose(world, KIND, bytes, 0), style);
        report_all(bytes, style, ps);
    }
}

/* The one cost of this style in the table, where there is one entry at most; 0: none. */
static uint32_t cost(uint32_t style)
{
    uint32_t found = 0;

    for (int i = 0; i < HEAP_STYLES; i++) {
        uint32_t c = atomic_load(&comm->heap.styles[i].cost[style]);

        assert_true(found == 0 || c == 0);
        found += c;
    }
    return found;
}

static void near(uint32_t have, uint32_t want)
{
    assert_in_range(have, want - 2, want + 2);
}

/* No two kinds or sizes share an entry. */
static void each_learns_for_itself(void **state)
{
    int have = 0;

    (void)state;
    for (uint32_t kind = 0; kind < 16; kind++) {
        for (int power = 0; power < 16; power++) {
            for (int i = 0; i < RANKS; i++)
                oriel_style_report(world, kind, (size_t)1024 << power, 0, 1);
        }
    }
    for (int i = 0; i < HEAP_STYLES; i++)
        have += atomic_load(&comm->heap.styles[i].members[0]) == RANKS;
    assert_int_equal(have, 16 * 16);
}

static void known_when_all_have_reported(void **state)
{
    (void)state;
    comm->cache = 0;
    report(SMALL, 0, 900);
    report(SMALL, 0, 4000); /* the slowest counts */
    assert_int_equal(cost(0), 0);
    report(SMALL, 0, 1000);
    near(cost(0), 4000);
    assert_int_equal(cost(STYLE_STREAM_OUT), 0);
    report_all(SMALL, 0, 2000); /* down at once, without those of the operation before */
    near(cost(0), 2000);
    report_all(SMALL, 0, 3000); /* up slowly */
    near(cost(0), 2125);
    report_all(SMALL, 0, 1e6); /* and not far, whatever held it up */
    near(cost(0), 2390);
}

/* One that was held up does not cost the best its place, and the first of a row count only if
 * they are fast: they find the caches as another style has left them. */
static void slow_ones_are_borne_with(void **state)
{
    (void)state;
    report_often(LARGE, 0, 1000);
    report_often(LARGE, 1, 1200);
    report_often(LARGE, 2, 1300);
    report_often(LARGE, 3, 1300);
    report_all(LARGE, 0, 3000);
    near(cost(0), 1000);
    for (int i = 1; i < ROW_LARGE / 2; i++)
        report_all(LARGE, 0, 3000);
    near(cost(0), 1000);
    report_all(LARGE, 0, 3000); /* it has become slower */
    near(cost(0), 1125);
    assert_int_equal(oriel_style_choose(world, KIND, LARGE, 0), 0);
    report_all(LARGE, 0, 3000);
    assert_int_equal(oriel_style_choose(world, KIND, LARGE, 0), 0); /* the first choice ever */
    report_all(LARGE, 0, 3000);
    assert_int_equal(oriel_style_choose(world, KIND, LARGE, 0), 1);
    report_all(LARGE, 1, 500);
    near(cost(1), 500);
}

static void averaged_where_cores_are_shared(void **state)
{
    (void)state;
    comm->oversubscribed = 1;
    report_all(SMALL, 0, 3000);
    report_all(SMALL, 0, 4000); /* of the first two the faster counts: the other was cold */
    near(cost(0), 3000);
    report_all(SMALL, 0, 4000);
    near(cost(0), 3250);
    report_all(SMALL, 0, 2450);
    near(cost(0), 3050);
    report_all(SMALL, 0, 100000); /* somebody was not scheduled */
    near(cost(0), 3812);
    report_all(SMALL, 0, 1000); /* it was cold before */
    near(cost(0), 1000);
}

static void extremes_are_known_too(void **state)
{
    (void)state;
    report_all(SMALL, 0, 0.0);
    assert_int_equal(cost(0), 1);
    report_all(SMALL, STYLE_STREAM_OUT, 1e15);
    assert_int_equal(cost(STYLE_STREAM_OUT), 1000000000);
}

/* Each is tried until it is known, or known to be no good; then the best is taken, but not
 * always. */
static void best_is_chosen(void **state)
{
    int tried[HEAP_STYLE_COUNT] = {0};

    (void)state;
    expect(LARGE, 0, ROW_LARGE, 4000);
    expect(LARGE, 1, ROW_LARGE, 3000);
    expect(LARGE, 2, FIRST_LOOK, 7000);
    expect(LARGE, 3, FIRST_LOOK, 9000);
    for (int turn = 32; turn < 30 * 1024; turn++)
        tried[oriel_style_choose(world, KIND, LARGE, 1)]++;
    assert_in_range(tried[0], 84, 96); /* nearly as good: a row, every fourth of 30 times */
    assert_in_range(tried[2], 0, 12);  /* much slower: seldom */
    assert_in_range(tried[3], 0, 12);
    assert_int_equal(tried[STYLE_PULL], 0); /* reading is not allowed */
    /* Others know nothing of it, and small ones are not streamed in. */
    assert_int_equal(oriel_style_choose(world, ORIEL_KIND_ALL_TO_ALL, LARGE, 1), 0);
    for (int turn = 0; turn < 200; turn++) {
        uint32_t style = oriel_style_choose(world, KIND, SMALL, 1);

        assert_true(style <= STYLE_STREAM_OUT);
        report_all(SMALL, style, 1000);
    }
}

/* Where the caches matter the first sample counts for little: another style has left them. */
static void tried_in_a_row_in_cache(void **state)
{
    (void)state;
    expect(SMALL, 0, FIRST_LOOK + 1, 9000);
    expect(SMALL, 0, ROW_SMALL - FIRST_LOOK - 1, 2000);
    expect(SMALL, 1, FIRST_LOOK, 5000); /* more than twice as slow: not again */
    expect(SMALL, 0, 1, 2000);
    near(cost(0), 2000);
    near(cost(STYLE_STREAM_OUT), 5000);
}

/* What does not fit the cache is stored past it, unless something else is clearly better: which
 * is found out once many have come. */
static void favourite_needs_no_lead(void **state)
{
    static const uint32_t first[] = {2, 2, 3, 3}, later[] = {0, 0, 1, 1};
    enum { FIRST = 4, OFTEN = 64 };

    (void)state;
    comm->cache = 1 << 20;
    for (uint32_t k = 0; k < OFTEN - 1; k++)
        expect(LARGE, k < FIRST ? first[k] : STYLE_STREAM_IN, 1, 1000);
    for (uint32_t k = 0; k < 4; k++)
        expect(LARGE, later[k], 1, later[k] == 0 ? 900 : 1000);
    assert_int_equal(oriel_style_choose(world, KIND, LARGE, 0), STYLE_STREAM_IN);
    report_all(LARGE, 0, 800);
    assert_int_equal(oriel_style_choose(world, KIND, LARGE, 0), 0);
    /* Nothing of the kind is known of what is reduced. */
    assert_int_equal(oriel_style_choose(world, ORIEL_KIND_ALL_REDUCE, LARGE, 0), 0);
}

/* Members of a ragged one choose for themselves, one after the other. */
static void ragged_members_choose_alike(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4 * ROW_LARGE; k++) {
        for (int i = 0; i < RANKS; i++)
            assert_int_equal(oriel_style_choose(world, ORIEL_KIND_RAGGED_ALL_TO_ALL, LARGE, 0),
                             k / ROW_LARGE);
        for (int i = 0; i < RANKS; i++)
            oriel_style_report(world, ORIEL_KIND_RAGGED_ALL_TO_ALL, LARGE, k / ROW_LARGE, 1e-3);
    }
}

/* What is known of smaller ones is where a size begins; one report of its own and that is
 * forgotten, also where it is worse. */
static void inherited_until_known(void **state)
{
    (void)state;
    expect(SMALL, 0, ROW_SMALL, 2000);
    expect(SMALL, 1, ROW_SMALL, 1000);
    expect(2 * SMALL, 1, 1, 5000);
    expect(2 * SMALL, 0, ROW_SMALL / 2, 5500); /* what was said of it is better than that */
    expect(2 * SMALL, 1, ROW_SMALL, 5000);
    /* The smaller one is as it was. */
    assert_int_equal(oriel_style_choose(world, KIND, SMALL, 0), STYLE_STREAM_OUT);
    /* What was much slower is not tried, what was a little slower is. */
    report_often(LARGE, 0, 1000);
    report_often(LARGE, 1, 1900);
    report_often(LARGE, 2, 2100);
    report_often(LARGE, 3, 2100);
    expect(2 * LARGE, 0, ROW_LARGE, 1000);
    expect(2 * LARGE, 1, ROW_LARGE, 1900);
    expect(2 * LARGE, 0, 4, 1000);
}

static int pulls(size_t bytes)
{
    return oriel_style_pulls(world, KIND, bytes);
}

static void pulled_once_the_others_are_known(void **state)
{
    (void)state;
    allow_reading(1);
    assert_false(pulls(SMALL));
    report_often(SMALL, 0, 2000);
    assert_false(pulls(SMALL));
    report_often(SMALL, STYLE_STREAM_OUT, 3000);
    assert_true(pulls(SMALL)); /* to find out */
    report_all(SMALL, STYLE_PULL, 2500);
    assert_true(pulls(SMALL));
    report_often(SMALL, STYLE_PULL, 2500);
    assert_false(pulls(SMALL));
    report_all(SMALL, STYLE_PULL, 1500);
    assert_true(pulls(SMALL));
    assert_int_equal(oriel_style_choose(world, KIND, SMALL, 1), STYLE_PULL);
    assert_int_equal(oriel_style_choose(world, KIND, SMALL, 0), 0);
}

static void pulled_first_where_cores_are_shared(void **state)
{
    (void)state;
    allow_reading(1);
    comm->oversubscribed = 1;
    report_often(SMALL, 0, 2000);
    report_often(SMALL, STYLE_STREAM_OUT, 3000);
    report_often(SMALL, STYLE_PULL, 2200);
    assert_true(pulls(SMALL));
    report_often(SMALL, STYLE_PULL, 2400);
    assert_false(pulls(SMALL));
}

static void pulled_where_cells_are_never_made(void **state)
{
    int turns = 0;

    (void)state;
    allow_reading(1);
    while (!pulls(SMALL) && turns < 1000)
        turns++;
    assert_in_range(turns, 2, 4 * ROW_SMALL + 1);
}

/* ---- in lanes ------------------------------------------------------------------------- */

enum { LANE_KIND = KIND | 0x80, LANE_ROW = 16, LANE_UNTIMED = 12, LANE_KNOWN = 8, LANE_EVERY = 64 };
enum { SHORT = 16 << 10 };

static uint32_t store(uint64_t call, size_t bytes)
{
    return oriel_style_store(world, &seat, call, KIND, bytes);
}

static void report_in_lane(size_t bytes, uint32_t style, int times, double ps)
{
    for (int i = 0; i < times * RANKS; i++)
        oriel_style_report(world, LANE_KIND, bytes, style, ps * (double)(bytes + 1) / 1e12);
}

static void report_lane(uint32_t style, double ps)
{
    report_in_lane(SHORT, style, LANE_KNOWN, ps);
}

static void rows_by_turns_in_lanes(void **state)
{
    (void)state;
    for (uint64_t call = 0; call < 4 * LANE_ROW; call++)
        assert_int_equal(store(call, SHORT), call / LANE_ROW % 2 ? STYLE_STREAM_OUT : 0);
    report_lane(STYLE_STREAM_OUT, 900);
    assert_int_equal(store(0, SHORT), 0);
    report_lane(0, 1000); /* the others must be clearly better */
    assert_int_equal(store(LANE_ROW, SHORT), 0);
    report_lane(STYLE_STREAM_OUT, 500);
    assert_int_equal(store(0, SHORT), STYLE_STREAM_OUT);
    assert_int_equal(store(0, 100), 0); /* too small to ask */
}

static void the_other_now_and_then_in_lanes(void **state)
{
    uint64_t rows = 8 * LANE_EVERY;
    int others = 0;

    (void)state;
    report_lane(0, 1000);
    report_lane(STYLE_STREAM_OUT, 1200);
    for (uint64_t row = 0; row < rows; row++)
        others += store(row * LANE_ROW, SHORT) != 0;
    assert_int_equal(others, 8);
    report_lane(0, 100); /* the more seldom the slower it was */
    others = 0;
    for (uint64_t row = 0; row < rows; row++)
        others += store(row * LANE_ROW, SHORT) != 0;
    assert_int_equal(others, 1);
}

static void last_of_a_row_are_timed(void **state)
{
    (void)state;
    for (uint64_t call = LANE_ROW; call < 2 * LANE_ROW; call++) {
        int timed = call % LANE_ROW >= LANE_UNTIMED;

        store(call, SHORT);
        assert_int_equal(seat.timed.call == call, timed);
        oriel_style_stored(&seat, call);
        oriel_style_take(&seat, call);
        for (int i = 0; i < RANKS; i++)
            oriel_style_taken(world, &seat, call);
        assert_int_equal(cost(STYLE_STREAM_OUT) != 0, timed);
    }
    oriel_style_stored(&seat, 1); /* another call's */
    assert_int_equal(seat.timed.call, 2 * LANE_ROW - 1);
}

static void long_ones_are_known_sooner(void **state)
{
    static const size_t sizes[] = {SHORT, SMALL};

    (void)state;
    for (int is_long = 0; is_long <= 1; is_long++) {
        report_in_lane(sizes[is_long], 0, LANE_KNOWN / 2, 1000);
        report_in_lane(sizes[is_long], STYLE_STREAM_OUT, LANE_KNOWN / 2, 500);
        assert_int_equal(store(0, sizes[is_long]), is_long ? STYLE_STREAM_OUT : 0);
    }
    store(7 * LANE_ROW + LANE_ROW / 2 - 1, SMALL);
    assert_int_equal(seat.timed.call, 0);
    store(7 * LANE_ROW + LANE_ROW / 2, SMALL);
    assert_int_equal(seat.timed.call, 7 * LANE_ROW + LANE_ROW / 2);
}

static void seldom_timed_once_known(void **state)
{
    (void)state;
    report_lane(0, 1000);
    report_lane(STYLE_STREAM_OUT, 1200);
    for (uint64_t row = 0; row < 2 * LANE_EVERY; row++) {
        uint64_t last = row * LANE_ROW + LANE_ROW - 1;

        store(last, SHORT);
        assert_int_equal(seat.timed.call == last, row % 8 == 7);
    }
}

static void not_past_a_shared_core(void **state)
{
    (void)state;
    assert_true(oriel_style_streams(world, STYLE_STREAM_OUT | STYLE_STREAM_IN, 1));
    assert_false(oriel_style_streams(world, STYLE_STREAM_IN, 1));
    atomic_store(&comm->heap.procs[0].core, 1); /* all ranks are of this process */
    assert_false(oriel_style_streams(world, STYLE_STREAM_OUT, 1));
}

static void not_pulled(void **state)
{
    (void)state;
    for (int allowed = 0; allowed <= 1; allowed++) {
        size_t bytes = allowed ? 1000 : LARGE; /* not worth it, or not possible */

        allow_reading(allowed);
        for (int turn = 0; turn < 200; turn++) {
            assert_false(pulls(bytes));
            assert_false(oriel_style_pulls(world, ORIEL_KIND_ALL_REDUCE, LARGE));
            assert_int_not_equal(oriel_style_choose(world, KIND, bytes, 1), STYLE_PULL);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_learns_for_itself, set_up, tear_down),
        cmocka_unit_test_setup_teardown(known_when_all_have_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slow_ones_are_borne_with, set_up, tear_down),
        cmocka_unit_test_setup_teardown(averaged_where_cores_are_shared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(extremes_are_known_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(best_is_chosen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tried_in_a_row_in_cache, set_up, tear_down),
        cmocka_unit_test_setup_teardown(favourite_needs_no_lead, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ragged_members_choose_alike, set_up, tear_down),
        cmocka_unit_test_setup_teardown(inherited_until_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pulled_once_the_others_are_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pulled_first_where_cores_are_shared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pulled_where_cells_are_never_made, set_up, tear_down),
        cmocka_unit_test_setup_teardown(not_pulled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rows_by_turns_in_lanes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_other_now_and_then_in_lanes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(long_ones_are_known_sooner, set_up, tear_down),
        cmocka_unit_test_setup_teardown(last_of_a_row_are_timed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(seldom_timed_once_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(not_past_a_shared_core, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
