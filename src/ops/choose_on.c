#include "ops/choose_on.h"

#include "base/config.h"
#include "base/math.h"
#include "core/device/share.h"
#include "ops/op.h"

/* Bounds that are no matter of what a thread moves at once were chosen on one H200 that its ranks
 * shared, the only GPU so far: on others they may lie elsewhere. */

/* By how a row's bound falls with the number of the other members. */
enum falls { NO_BOUND, WITH_OTHERS, WITH_THEIR_SQUARE };

/* The first row that has a kernel for the call, and room for it, decides. */
static const struct row {
    enum device_family family; /* what is chosen */
    size_t total;              /* bytes at most, for one other member ... */
    enum falls falls;          /* ... and for more */
    const char *why;           /* for `oriel info --choices` */
} rows[] = {
    /* Of what a member sends to all others together (H200). */
    {DEVICE_SMALL, 512 << 10, WITH_OTHERS, "each sends all it has to each, in one exchange"},
    /* Each of the others costs a thread several lines to wait for (H200). */
    {DEVICE_WIDE, 1 << 20, WITH_THEIR_SQUARE, "the same, several lines a thread: for few members"},
    {DEVICE_LARGE, 0, NO_BOUND, "all meet and divide the work: each byte is read once"},
};

/* Of a tile: a pack of 16 bytes for each thread, since with fewer some would be idle; and four,
 * which a thread has under way together. */
enum { LEAST_TILE = 16 * DEVICE_THREADS, MOST_TILE = 4 * LEAST_TILE };
/* CTAs of a small call behind which the next may begin early: few, as that takes place from what
 * still runs; on several multiprocessors, since these poll faster than one (H200). */
enum { EARLY_CTAS = 16 };
/* Of a CTA of a small call: the fewest whole warps that speak for all members, and as many again
 * (H200). */
enum { LEAST_THREADS = 128 };
_Static_assert((int)LEAST_THREADS >= (int)DEVICE_RANKS, "a thread speaks for each member");
/* Of an item: a pack for each lane of a warp; and eight, which a lane has under way together. */
enum { LEAST_ITEM = 16 * 32, MOST_ITEM = 8 * LEAST_ITEM };
/* From so many on items of all_gather and all_to_all are twice as large (H200). */
enum { MANY_MEMBERS = 4 };
/* For each warp, if all take as many: fast multiprocessors can take more, and an item that is
 * taken costs an atomic (H200). */
enum { ITEMS_OF_A_WARP = 4 };

/* ---- which kernel ------------------------------------------------------------------------ */

static int scatters(const oriel_question_on *q)
{
    return oriel_op_forms[q->kind].send == OP_EACH;
}

/* Of a block, in the slots of a small call. */
static size_t room_for(const oriel_facts_on *facts, enum device_family family)
{
    size_t lines = oriel_least((size_t)facts->ctas, DEVICE_SMALL_CTAS) * DEVICE_SMALL_BYTES;

    return family == DEVICE_WIDE ? lines * facts->slot_lines : lines;
}

static size_t bound_of(const oriel_facts_on *facts, const struct row *row)
{
    size_t others = facts->n > 1 ? (size_t)facts->n - 1 : 1;
    size_t most = row->falls == WITH_OTHERS ? row->total / others : row->total / others / others;

    return row->falls == NO_BOUND ? SIZE_MAX : oriel_least(most, room_for(facts, row->family));
}

static const struct row *row_of(const oriel_facts_on *facts, const oriel_question_on *q)
{
    const struct row *row = rows;

    while (row->family != DEVICE_LARGE &&
           ((q->kernels >> row->family & 1) == 0 || q->block > bound_of(facts, row)))
        row++;
    return row;
}

/* ---- how it divides the work ------------------------------------------------------------- */

static uint32_t most_tile(const oriel_facts_on *facts)
{
    return facts->stage_bytes / (uint32_t)facts->n / 16 * 16;
}

/* No more than 64 bytes for each thread and than the stage holds, and such that all CTAs come to
 * the same number of strips. */
static uint32_t tile_bytes(const oriel_facts_on *facts, const oriel_question_on *q)
{
    size_t share = q->block / (size_t)facts->ctas;
    size_t most = oriel_least(most_tile(facts), MOST_TILE);
    size_t tile;

    if (!scatters(q))
        share /= (size_t)facts->n;
    tile = oriel_round_up(share / (share / most + 1) + 1, 256);
    if (tile < LEAST_TILE)
        tile = LEAST_TILE;
    return (uint32_t)oriel_least(tile, most);
}

/* Larger ones pay where a member moves a block for each of many. */
static size_t most_item(const oriel_facts_on *facts, const oriel_question_on *q)
{
    int blocks = q->kind == ORIEL_KIND_ALL_GATHER || q->kind == ORIEL_KIND_ALL_TO_ALL;

    return blocks && facts->n >= MANY_MEMBERS ? 2 * (size_t)MOST_ITEM : MOST_ITEM;
}

/* Several for each warp, so that fast multiprocessors can take more. */
static uint32_t item_bytes(const oriel_facts_on *facts, const oriel_question_on *q)
{
    size_t warps = (size_t)facts->ctas * (DEVICE_THREADS / 32);
    size_t share = q->block / (scatters(q) ? 1 : (size_t)facts->n) / warps;
    size_t item = oriel_round_up(share / ITEMS_OF_A_WARP, LEAST_ITEM);

    return (uint32_t)oriel_least(oriel_most(item, LEAST_ITEM), most_item(facts, q));
}

/* ---- what may begin early ---------------------------------------------------------------- */

/* Two of them take no more CTAs than a rank has, so that they keep no others from being
 * resident. */
static unsigned early_ctas(const oriel_facts_on *facts)
{
    return (unsigned)oriel_least(EARLY_CTAS, (size_t)facts->ctas / 2);
}

/* That is known of oriel's own kernels alone, and what XLA puts behind a call is not: from sm_90 on
 * XLA launches its kernels so that they begin as early as they may, of whatever size they are. One
 * that waits on all multiprocessors keeps the calls of other ranks of the GPU from being
 * resident. */
static int is_early(const oriel_facts_on *facts, const oriel_question_on *q,
                    const oriel_choice_on *choice)
{
    return !q->from_xla && choice->family != DEVICE_LARGE && choice->ctas <= early_ctas(facts);
}

/* ---- the grid ------------------------------------------------------------------------------ */

/* With a line for each: as few in a CTA as that allows, since CTAs on several multiprocessors poll
 * faster than one. */
static unsigned small_threads(const oriel_facts_on *facts, size_t block)
{
    unsigned threads = LEAST_THREADS;

    while (threads < DEVICE_THREADS && block > (size_t)early_ctas(facts) * threads * 8)
        threads *= 2;
    return threads;
}

/* Bytes of a block for each CTA. */
static size_t unit_of(const oriel_facts_on *facts, const oriel_question_on *q,
                      const oriel_choice_on *choice)
{
    switch (choice->family) {
    case DEVICE_SMALL:
        return (size_t)choice->threads * 8;
    case DEVICE_WIDE:
        return DEVICE_SMALL_LINES * DEVICE_SMALL_BYTES;
    default:
        return (scatters(q) ? 1 : (size_t)facts->n) * choice->tile;
    }
}

/* Of ragged_all_to_all only the devices know how much there is to do. */
static unsigned count_ctas(const oriel_facts_on *facts, const oriel_question_on *q,
                           const oriel_choice_on *choice)
{
    size_t unit = unit_of(facts, q, choice);

    if (q->kind == ORIEL_KIND_RAGGED_ALL_TO_ALL)
        return (unsigned)facts->ctas;
    return (unsigned)oriel_least(q->block > unit ? oriel_divide_up(q->block, unit) : 1,
                                 (size_t)facts->ctas);
}

oriel_choice_on oriel_choose_on(const oriel_facts_on *facts, const oriel_question_on *q)
{
    int ragged = q->kind == ORIEL_KIND_RAGGED_ALL_TO_ALL;
    const struct row *row = row_of(facts, q);
    oriel_choice_on choice = {
        .family = row->family,
        .threads = row->family == DEVICE_SMALL ? small_threads(facts, q->block) : DEVICE_THREADS,
        .tile = ragged ? most_tile(facts) : tile_bytes(facts, q),
        .item = item_bytes(facts, q),
        .why = row->why,
    };

    choice.ctas = count_ctas(facts, q, &choice);
    choice.early = is_early(facts, q, &choice);
    return choice;
}

oriel_facts_on oriel_facts_on_one_gpu(int n, int sms)
{
    int ctas = oriel_share_ctas(sms, n, (int)oriel_config_number(ORIEL_OPT_GPU_CTAS), 2);

    return (oriel_facts_on){
        .n = n,
        .ctas = ctas,
        .slot_lines = oriel_share_lines(n),
        .stage_bytes = oriel_share_stage((size_t)oriel_config_number(ORIEL_OPT_GPU_STAGE), ctas),
    };
}
