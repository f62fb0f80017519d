/* labels: valgrind */
/* The table of choices on GPUs: where its bounds are on the GPU they were chosen on, and what it
 * must never choose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/config.h"
#include "core/device/share.h"
#include "ops/choose_on.h"
#include "ops/op.h"
#include "support/check.h"

enum { H200_SMS = 132 };
enum {
    LARGE_ALONE = 1u << DEVICE_LARGE,
    NO_WIDE = LARGE_ALONE | 1u << DEVICE_SMALL,
    ALL = NO_WIDE | 1u << DEVICE_WIDE,
};

static const char *const names[] = {"small", "wide", "large"};

static oriel_choice_on ask(int n, enum oriel_kind kind, unsigned kernels, size_t block)
{
    oriel_facts_on facts = oriel_facts_on_one_gpu(n, H200_SMS);
    oriel_question_on q = {.kind = kind, .block = block, .kernels = kernels};

    return oriel_choose_on(&facts, &q);
}

static void expect_family(int n, unsigned kernels, size_t block, enum device_family family)
{
    oriel_choice_on choice = ask(n, ORIEL_KIND_ALL_REDUCE, kernels, block);

    CHECK(choice.family == family, "%zu bytes of %d ranks are %s, not %s", block, n,
          names[choice.family], names[family]);
}

static void test_ranks_share_the_multiprocessors(void **state)
{
    static const struct {
        int ranks, ctas;
    } shares[] = {{1, 100}, {2, 66}, {3, 44}, {4, 33}, {8, 16}, {64, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        assert_int_equal(oriel_share_ctas(H200_SMS, shares[i].ranks, 0, 2), shares[i].ctas);
    assert_int_equal(oriel_share_ctas(H200_SMS, 1, 1024, 2), DEVICE_CTAS);
    assert_int_equal(oriel_share_ctas(H200_SMS, 2, 64, 2), 32);
    assert_int_equal(oriel_share_ctas(1, 64, 0, 2), 1);
    assert_int_equal(oriel_share_lines(8), DEVICE_SMALL_LINES);
    assert_int_equal(oriel_share_lines(9), 1);
    assert_int_equal(oriel_share_stage(66 << 20, 66), 512 << 10);
}

/* The last size of each kernel; 0: it has none. */
static void test_kernels(void **state)
{
    static const struct {
        int n;
        size_t small, wide;
    } bounds[] = {
        {2, 256 << 10, 1 << 20}, {3, 44 << 12, 256 << 10}, {4, 33 << 12, 0},
        {8, 16 << 12, 0},        {16, 8 << 12, 0},         {64, 2 << 12, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        int n = bounds[i].n;
        size_t last = bounds[i].wide > 0 ? bounds[i].wide : bounds[i].small;

        expect_family(n, ALL, 0, DEVICE_SMALL);
        expect_family(n, ALL, bounds[i].small, DEVICE_SMALL);
        expect_family(n, ALL, bounds[i].small + 1, bounds[i].wide > 0 ? DEVICE_WIDE : DEVICE_LARGE);
        expect_family(n, ALL, last, bounds[i].wide > 0 ? DEVICE_WIDE : DEVICE_SMALL);
        expect_family(n, ALL, last + 1, DEVICE_LARGE);
        expect_family(n, NO_WIDE, bounds[i].small + 1, DEVICE_LARGE);
        expect_family(n, LARGE_ALONE, 1, DEVICE_LARGE);
    }
}

static void test_grids(void **state)
{
    static const struct {
        int n;
        enum oriel_kind kind;
        size_t block;
        unsigned ctas, threads;
        uint32_t tile, item;
        int early;
    } grids[] = {
        {2, ORIEL_KIND_ALL_REDUCE, 8, 1, 128, 8192, 512, 1},
        {2, ORIEL_KIND_ALL_REDUCE, 16385, 9, 256, 8192, 512, 1},
        {2, ORIEL_KIND_ALL_REDUCE, 65536, 16, 512, 8192, 512, 1},
        {2, ORIEL_KIND_ALL_REDUCE, 65537, 17, 512, 8192, 512, 0},
        {2, ORIEL_KIND_ALL_REDUCE, 262144, 64, 512, 8192, 512, 0},
        {2, ORIEL_KIND_ALL_REDUCE, 1048576, 64, 512, 8192, 512, 0},
        {2, ORIEL_KIND_ALL_REDUCE, 16777216, 66, 512, 32000, 2048, 0},
        {2, ORIEL_KIND_ALL_REDUCE, 268435456, 66, 512, 32512, 4096, 0},
        {2, ORIEL_KIND_REDUCE_SCATTER, 16777216, 66, 512, 32000, 4096, 0},
        {3, ORIEL_KIND_ALL_GATHER, 200004, 13, 512, 8192, 512, 1},
        {3, ORIEL_KIND_REDUCE_SCATTER, 200004, 13, 512, 8192, 512, 1},
        {3, ORIEL_KIND_BROADCAST, 600012, 25, 512, 8192, 512, 0},
        {4, ORIEL_KIND_ALL_GATHER, 1048576, 32, 512, 8192, 512, 0},
        {4, ORIEL_KIND_ALL_GATHER, 268435456, 33, 512, 32512, 8192, 0},
        {4, ORIEL_KIND_ALL_REDUCE, 268435456, 33, 512, 32512, 4096, 0},
        {4, ORIEL_KIND_ALL_TO_ALL, 268435456, 33, 512, 32768, 8192, 0},
        {8, ORIEL_KIND_PERMUTE, 65536, 16, 512, 8192, 512, 0},
        {8, ORIEL_KIND_PERMUTE, 4194304, 16, 512, 16640, 512, 0},
        {64, ORIEL_KIND_ALL_REDUCE, 1048576, 2, 512, 8448, 512, 0},
        {4, ORIEL_KIND_RAGGED_ALL_TO_ALL, 4096, 33, 512, 262144, 512, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        unsigned kernels = grids[i].kind == ORIEL_KIND_RAGGED_ALL_TO_ALL ? LARGE_ALONE : ALL;
        oriel_choice_on c = ask(grids[i].n, grids[i].kind, kernels, grids[i].block);

        CHECK(c.ctas == grids[i].ctas && c.threads == grids[i].threads && c.tile == grids[i].tile &&
                  c.item == grids[i].item && c.early == grids[i].early,
              "%s of %zu bytes, %d ranks: %u blocks of %u, tile %u, item %u, early %d",
              oriel_kind_name(grids[i].kind), grids[i].block, grids[i].n, c.ctas, c.threads, c.tile,
              c.item, c.early);
    }
}

/* Behind a call from C the next kernel is oriel's, or one of a person who knows; behind one from
 * XLA it may be of any size, and wait on all multiprocessors. */
static void test_nothing_begins_early_behind_calls_from_xla(void **state)
{
    static const int ranks[] = {2, 3, 4, 8, 64};

    (void)state;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        oriel_facts_on facts = oriel_facts_on_one_gpu(ranks[i], H200_SMS);
        oriel_question_on q = {.kind = ORIEL_KIND_ALL_REDUCE, .kernels = ALL, .from_xla = 1};

        for (q.block = 0; q.block < 4 << 20; q.block = 2 * q.block + 4)
            assert_false(oriel_choose_on(&facts, &q).early);
    }
    assert_true(ask(2, ORIEL_KIND_ALL_REDUCE, ALL, 8).early);
}

static uint64_t dice = 1;

static uint64_t roll(uint64_t sides)
{
    dice = dice * 6364136223846793005ull + 1442695040888963407ull;
    return (dice >> 33) % sides;
}

static void check_any(const oriel_facts_on *f, const oriel_question_on *q, const oriel_choice_on *c)
{
    size_t in_slots = c->family == DEVICE_SMALL ? (size_t)c->threads * 8
                                                : DEVICE_SMALL_LINES * DEVICE_SMALL_BYTES;

    CHECK((q->kernels >> c->family & 1) != 0, "a kernel that there is not");
    CHECK(c->ctas >= 1 && c->ctas <= (unsigned)f->ctas, "%u blocks of %d", c->ctas, f->ctas);
    CHECK(c->threads <= DEVICE_THREADS, "%u threads", c->threads);
    CHECK(c->family == DEVICE_LARGE ||
              (c->ctas <= DEVICE_SMALL_CTAS && c->ctas * in_slots >= q->block),
          "%u blocks for %zu bytes", c->ctas, q->block);
    CHECK(c->family != DEVICE_WIDE || f->slot_lines == DEVICE_SMALL_LINES, "lines that slots lack");
    CHECK((size_t)c->tile * (size_t)f->n <= f->stage_bytes, "a tile that the stage does not hold");
    CHECK(c->tile % 16 == 0 && c->tile > 0 && c->item % 512 == 0 && c->item > 0, "tile %u, item %u",
          c->tile, c->item);
    CHECK(!c->early || 2 * c->ctas <= (unsigned)f->ctas, "two do not fit where one was to be");
}

static void test_never(void **state)
{
    static const unsigned sets[] = {LARGE_ALONE, NO_WIDE, ALL};

    (void)state;
    for (int i = 0; i < 200000; i++) {
        oriel_facts_on f =
            oriel_facts_on_one_gpu((int)(1 + roll(DEVICE_RANKS)), (int)(1 + roll(200)));
        oriel_question_on q = {.kind = (enum oriel_kind)(1 + roll(ORIEL_KIND_BARRIER)),
                               .block = roll(1ull << (1 + roll(30))),
                               .kernels = sets[roll(3)],
                               .from_xla = (int)roll(2)};
        oriel_choice_on c = oriel_choose_on(&f, &q);

        check_any(&f, &q, &c);
    }
}

static int load(void **state)
{
    (void)state;
    return oriel_config_load() == ORIEL_OK ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_share_the_multiprocessors),
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_nothing_begins_early_behind_calls_from_xla),
        cmocka_unit_test(test_never),
    };

    return cmocka_run_group_tests(tests, load, NULL);
}
