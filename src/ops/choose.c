#include "ops/choose.h"

#include "core/protocol/lane.h"

/* Kinds, as bits. */
#define KIND(name) (1u << ORIEL_KIND_##name)
enum {
    REDUCTIONS = KIND(ALL_REDUCE) | KIND(REDUCE_SCATTER) | KIND(REDUCE) | KIND(SCAN),
    TO_ONE = KIND(PERMUTE) | KIND(MESSAGE), /* each member has at most one that it gives to */
    COPIES = KIND(ALL_GATHER) | KIND(ALL_TO_ALL) | TO_ONE | KIND(GATHER) | KIND(SCATTER),
    FIXED = REDUCTIONS | COPIES | KIND(BROADCAST) | KIND(BARRIER), /* sizes that all know */
};

/* Facts, as bits: of the group, of the machine, of the call. */
enum {
    ONE_PROCESS = 1,   /* all members live in one process, and may work on each other's buffers */
    READS = 2,         /* each process may read the memory of the others */
    CROWDED = 4,       /* ranks outnumber the cores */
    LARGE = 8,         /* more members than lanes have all their room for */
    LANE = 16,         /* the call meets in the lane */
    SHOWN = 32,        /* it has met there, and goes on in a cell */
    SMALL_ARRAYS = 64, /* of a list: each costs a system call to read */
};

/* What a row's bounds are bytes of. */
enum measure { BLOCK, PAYLOAD, PAYLOADS /* of all members together */ };

/* Bounds that depend on the group. */
enum { NO_BOUND, ONE_PLACE, ALL_PLACES, IN_BLOCK };

/* Without a core for each rank every meeting may cost a switch, so the lane takes all that it
 * holds. With one, a payload of this size is better moved by another mode. */
enum { LANE_MOST = 32 << 10 };
/* Every member of an all_reduce reads the payloads of all; of a scan half of them do. */
enum { LANE_READ_MOST = 512 << 10 };
/* One system call that reads another's memory costs as much as two copies of so much. */
enum { PULL_FROM = 24 << 10 };
/* Where it may also cost a switch, of so much. */
enum { PULL_CROWDED_FROM = 256 << 10 };
/* In one process the buffers are at hand: from here on copying once pays for a cell. */
enum { DIRECT_FROM = 4096 };
/* Cores that share no cache fetch what another has stored line by line out of its cache, unless
 * it was stored past the caches. A shorter payload is on its way before that pays, and reductions
 * have work to do between two lines. */
enum { STREAM_FROM = 8192 };

/* The first row that fits decides. */
static const struct row {
    uint32_t kinds;       /* bits of those it is for; ~0: all */
    uint32_t with;        /* facts that must hold ... */
    uint32_t without;     /* ... and that must not */
    enum measure measure; /* what the bounds are of */
    size_t from, most;    /* bytes; most = 0: none */
    int bound;            /* of the group, besides */
    enum oriel_mode mode; /* what is chosen */
    const char *why;      /* for `oriel info --choices` */
} rows[] = {
    {KIND(KERNEL), 0, 0, BLOCK, 0, 0, NO_BOUND, ORIEL_MODE_KERNEL, "a person's kernel runs"},
    {KIND(RAGGED_ALL_TO_ALL), ONE_PROCESS, 0, BLOCK, 0, 0, NO_BOUND, ORIEL_MODE_DIRECT,
     "the members' buffers are in one process"},
    {~KIND(MESSAGE), ONE_PROCESS, LANE, PAYLOAD, 1, 0, NO_BOUND, ORIEL_MODE_DIRECT,
     "the members' buffers are in one process"},
    {~0u, ONE_PROCESS, 0, PAYLOAD, DIRECT_FROM, 0, NO_BOUND, ORIEL_MODE_DIRECT,
     "the members' buffers are in one process"},
    {KIND(ALL_GATHER) | TO_ONE, LANE | READS, CROWDED | SMALL_ARRAYS, BLOCK, PULL_FROM, 0, NO_BOUND,
     ORIEL_MODE_PULLED, "one copy out of the other's memory beats two"},
    {KIND(ALL_TO_ALL) | TO_ONE, LANE | READS | CROWDED, 0, PAYLOAD, PULL_CROWDED_FROM, 0, NO_BOUND,
     ORIEL_MODE_PULLED, "one copy out of the other's memory beats two"},
    {KIND(ALL_REDUCE) | KIND(SCAN), LANE, 0, PAYLOADS, LANE_READ_MOST + 1, 0, NO_BOUND,
     ORIEL_MODE_STAGED, "chunk by chunk: members work on one while the next is on its way"},
    {TO_ONE, LANE | CROWDED | LARGE, 0, PAYLOAD, 0, 0, ONE_PLACE, ORIEL_MODE_LANE,
     "one meeting; more than one place would be two copies where one does"},
    {FIXED & ~TO_ONE, LANE | CROWDED, 0, PAYLOAD, 0, 0, ALL_PLACES, ORIEL_MODE_LANE,
     "one meeting: each may cost a switch"},
    {TO_ONE, LANE | CROWDED, LARGE, PAYLOAD, 0, 0, ALL_PLACES, ORIEL_MODE_LANE,
     "one meeting: each may cost a switch"},
    {FIXED, LANE, CROWDED, PAYLOAD, 0, LANE_MOST, ONE_PLACE, ORIEL_MODE_LANE,
     "one store and a look at the others"},
    {KIND(RAGGED_ALL_TO_ALL), LANE, 0, PAYLOAD, 0, 0, ONE_PLACE, ORIEL_MODE_LANE,
     "the members tell each other how many rows there are"},
    {FIXED, 0, LANE | SHOWN, PAYLOAD, 0, 0, IN_BLOCK, ORIEL_MODE_EAGER,
     "the payloads lie beside the cell"},
    {COPIES, READS, SMALL_ARRAYS, BLOCK, 0, 0, NO_BOUND, ORIEL_MODE_PULLED,
     "one copy out of the other's memory beats two"},
    {KIND(RAGGED_ALL_TO_ALL), READS | SHOWN, 0, BLOCK, 0, 0, NO_BOUND, ORIEL_MODE_PULLED,
     "one copy out of the other's memory beats two"},
    {~0u, 0, 0, BLOCK, 0, 0, NO_BOUND, ORIEL_MODE_STAGED,
     "chunk by chunk: members work on one while the next is on its way"},
};

static uint32_t facts_of(const oriel_facts *facts, const oriel_question *q)
{
    enum oriel_meeting meeting = q->meeting;

    return (facts->one_process ? ONE_PROCESS : 0) | (facts->reads ? READS : 0) |
           (facts->crowded ? CROWDED : 0) | (facts->place < HEAP_LANE_ROOM ? LARGE : 0) |
           (meeting == MEET_LANE ? LANE : 0) | (meeting == MEET_SHOWN ? SHOWN : 0) |
           (q->arrays > 1 && q->block / (size_t)q->arrays < PULL_FROM ? SMALL_ARRAYS : 0);
}

static size_t bound_of(const oriel_facts *facts, int bound)
{
    switch (bound) {
    case ONE_PLACE:
        return facts->place;
    case ALL_PLACES:
        return facts->place > LANE_SMALL ? LANE_BULKS * facts->place : facts->place;
    case IN_BLOCK:
        return facts->eager;
    default:
        return SIZE_MAX;
    }
}

static size_t measured(const oriel_facts *facts, const oriel_question *q, enum measure measure)
{
    return measure == BLOCK     ? q->block
           : measure == PAYLOAD ? q->payload
                                : q->payload * (size_t)facts->n;
}

/* Bytes that all members together read or write, about. */
static size_t touched(const oriel_facts *facts, const oriel_question *q)
{
    size_t n = (size_t)facts->n;
    uint32_t each =
        KIND(ALL_GATHER) | KIND(ALL_TO_ALL) | KIND(RAGGED_ALL_TO_ALL) | KIND(REDUCE_SCATTER);

    return 2 * n * q->block * (1u << q->kind & each ? n : 1);
}

size_t oriel_choose_rows(const oriel_facts *facts)
{
    if (facts->crowded)
        return bound_of(facts, ALL_PLACES);
    return facts->place < LANE_MOST ? facts->place : LANE_MOST;
}

int oriel_choose_stream(const oriel_facts *facts, enum oriel_kind kind, size_t bytes)
{
    return facts->apart && bytes >= STREAM_FROM && (REDUCTIONS >> kind & 1) == 0;
}

static int fits(const struct row *row, const oriel_facts *facts, uint32_t known,
                const oriel_question *q)
{
    size_t bytes;

    if ((row->kinds >> q->kind & 1) == 0 || (row->with & ~known) != 0 ||
        (row->without & known) != 0)
        return 0;
    bytes = measured(facts, q, row->measure);
    return bytes >= row->from && (row->most == 0 || bytes <= row->most) &&
           bytes <= bound_of(facts, row->bound);
}

oriel_choice oriel_choose(const oriel_facts *facts, const oriel_question *q)
{
    uint32_t known = facts_of(facts, q);
    const struct row *row = rows;

    while (!fits(row, facts, known, q)) /* the last one does always */
        row++;
    return (oriel_choice){
        .mode = row->mode,
        .stream = (row->mode == ORIEL_MODE_STAGED && touched(facts, q) > facts->cache) ||
                  ((row->mode == ORIEL_MODE_STAGED || row->mode == ORIEL_MODE_LANE) &&
                   oriel_choose_stream(facts, q->kind, q->payload)),
        .why = row->why,
    };
}

static int is_small(const oriel_facts *facts, size_t payload)
{
    oriel_question q = {.meeting = MEET_LANE, .block = payload, .payload = payload};

    for (q.kind = 1; q.kind < ORIEL_KIND_COUNT; q.kind++) {
        oriel_choice choice = oriel_choose(facts, &q);

        if ((FIXED >> q.kind & 1) != 0 && (choice.mode != ORIEL_MODE_LANE || choice.stream))
            return 0;
    }
    return 1;
}

size_t oriel_choose_small(const oriel_facts *facts)
{
    size_t small = LANE_MOST;

    while (small > 0 && !is_small(facts, small))
        small /= 2;
    return small;
}

const char *oriel_mode_name(enum oriel_mode mode)
{
    static const char *const names[] = {
        [ORIEL_MODE_EAGER] = "eager",   [ORIEL_MODE_STAGED] = "staged",
        [ORIEL_MODE_PULLED] = "pulled", [ORIEL_MODE_DIRECT] = "direct",
        [ORIEL_MODE_LANE] = "lane",     [ORIEL_MODE_KERNEL] = "kernel",
    };

    return names[mode];
}
