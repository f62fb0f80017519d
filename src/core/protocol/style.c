#include "core/protocol/style.h"

#include "base/sys.h"
#include "base/hash.h"
#include "core/world/trace.h"

enum { NEAR = 8, SELDOM = 8, SLOWNESS = 8, AVERAGE = 4, FAVOUR = 8, STAY = 32 };
enum { STREAM_IN_FROM = 256 << 10, PULL_FROM = 1 << 10, LONG_FROM = 512 << 10 };
enum { FIRST_LOOK = 4, LEAST_ROW = 12, MOST_ROW = 96, ROUND_TWICE = 4 << 20, OFTEN = 64 };

/* In lanes: a row of calls is stored alike, and of some rows the last ones are timed. */
enum { LANE_ROW = 16, LANE_TIMED = 4, LANE_LOOKS = 8, LANE_EVERY = 64, LANE_KNOWN = 8 };
enum { LANE_KIND = 0x80 }; /* with the kind: of those in lanes */

/* How often another style than the best is tried, if that was not much slower (else one in
 * SELDOM times as often), and for how many turns in a row. */
struct pace {
    uint32_t every;
    uint32_t row;
    uint32_t known; /* after so many times; before that it is a guess, ... */
    uint32_t look;  /* ... and worth another if it is not much slower than the best, after these */
    int shared;     /* cores are */
    int settles;    /* the first of a row find the caches as another style has left them */
    uint32_t heads; /* choose for each operation */
    int pairs;      /* members wait for one other alone */
};

/* The entry of operations `smaller` powers of two below this one: the first to ask takes a free
 * one. Where all near are taken it is shared, which blurs what is learnt and nothing else. */
static heap_style *style_of(const oriel_group *group, uint32_t kind, size_t bytes, int smaller)
{
    uint64_t size = (uint64_t)(63 - __builtin_clzll(bytes >> smaller | 1));
    uint64_t what = oriel_mix(group->hash ^ (size << 8 | kind)) | 1;
    heap_style *styles = group->comm->heap.styles;

    for (uint64_t i = 0; i < NEAR; i++) {
        heap_style *entry = &styles[(what / 2 + i) % HEAP_STYLES];
        uint64_t key = atomic_load_explicit(&entry->key, memory_order_relaxed);

        if (key == 0) /* else it becomes the key of who was faster */
            atomic_compare_exchange_strong(&entry->key, &key, what);
        if (key == 0 || key == what)
            return entry;
    }
    return &styles[what / 2 % HEAP_STYLES];
}

static uint32_t cost_of(const heap_style *style, uint32_t which)
{
    return atomic_load_explicit(&style->cost[which], memory_order_relaxed);
}

/* Blocks that all members together read or write, at most. */
static size_t blocks(uint32_t kind, size_t n)
{
    switch (kind) {
    case ORIEL_KIND_ALL_GATHER:
    case ORIEL_KIND_ALL_TO_ALL:
    case ORIEL_KIND_RAGGED_ALL_TO_ALL:
    case ORIEL_KIND_REDUCE_SCATTER:
        return 2 * n * n;
    case ORIEL_KIND_ALL_REDUCE:
    case ORIEL_KIND_BROADCAST:
    case ORIEL_KIND_PERMUTE:
        return 2 * n;
    default:
        return 0;
    }
}

static int only_copies(uint32_t kind)
{
    return kind != ORIEL_KIND_ALL_REDUCE && kind != ORIEL_KIND_REDUCE_SCATTER;
}

static size_t touched(const oriel_group *group, uint32_t kind, size_t bytes)
{
    return bytes * blocks(kind, (size_t)group->n);
}

int oriel_style_overflows(const oriel_group *group, uint32_t kind, size_t bytes)
{
    return touched(group, kind, bytes) > group->comm->cache;
}

static int can_pull(const oriel_group *group, uint32_t kind, size_t bytes)
{
    return only_copies(kind) && touched(group, kind, PULL_FROM) > 0 && bytes >= PULL_FROM &&
           oriel_group_reads(group);
}

static int in_cache(const oriel_group *group, uint32_t kind, size_t bytes)
{
    size_t all = touched(group, kind, bytes);

    return all > 0 && all <= group->comm->cache;
}

/* Where caches matter, a row is long enough for staged ones to come round in the staging
 * memory, and to be seen after that. */
static struct pace pace_of(const oriel_group *group, uint32_t kind, size_t bytes)
{
    struct pace pace = {
        .every = 256, .row = 4, .known = 4, .look = 1, .shared = group->comm->oversubscribed};
    size_t round = ROUND_TWICE / (bytes + 1);

    /* Members of a ragged one choose for themselves: all the same, if they send alike. */
    pace.heads = kind == ORIEL_KIND_RAGGED_ALL_TO_ALL ? (uint32_t)group->n : 1;
    pace.pairs = kind == ORIEL_KIND_PERMUTE;
    if (!in_cache(group, kind, bytes))
        pace.known = 2;
    if (pace.shared || !in_cache(group, kind, bytes))
        return pace;
    pace.every = bytes < LONG_FROM ? 4096 : 1024;
    if (round > 0) /* else one comes round by itself */
        pace.row = (uint32_t)(round < LEAST_ROW ? LEAST_ROW : round > MOST_ROW ? MOST_ROW : round);
    pace.known = pace.row;
    pace.look = FIRST_LOOK;
    pace.settles = 1;
    return pace;
}

/* The style that should be best, 0 if that is not known. Where what is copied does not fit the
 * cache, results that are stored past it cost a fetch of each line less, on every machine. */
static uint32_t favourite(const oriel_group *group, uint32_t kind, size_t bytes)
{
    return only_copies(kind) && bytes >= STREAM_IN_FROM && oriel_style_overflows(group, kind, bytes)
               ? STYLE_STREAM_IN
               : 0;
}

/* The styles to choose from, the favourite first; returns how many. */
static uint32_t candidates(const oriel_group *group, uint32_t kind, size_t bytes, int pull,
                           uint32_t style[HEAP_STYLE_COUNT])
{
    uint32_t count = bytes >= STREAM_IN_FROM ? 4 : 2;

    for (uint32_t i = 0; i < count; i++)
        style[i] = i ^ favourite(group, kind, bytes);
    if (pull && can_pull(group, kind, bytes))
        style[count++] = STYLE_PULL;
    return count;
}

/* What is known of smaller operations is a better start than nothing. */
static void inherit(const oriel_group *group, uint32_t kind, size_t bytes, heap_style *entry)
{
    for (int smaller = 1; smaller <= 2; smaller++) {
        const heap_style *from = style_of(group, kind, bytes, smaller);

        for (uint32_t i = 0; i < HEAP_STYLE_COUNT; i++) {
            if (cost_of(entry, i) != 0 || cost_of(from, i) == 0)
                continue;
            atomic_store_explicit(&entry->cost[i], cost_of(from, i), memory_order_relaxed);
            atomic_fetch_or_explicit(&entry->guessed, 1u << i, memory_order_relaxed);
        }
    }
}

/* The least cost of any style, as far as known. */
static uint32_t least_cost(const heap_style *entry)
{
    uint32_t least = UINT32_MAX;

    for (uint32_t i = 0; i < HEAP_STYLE_COUNT; i++) {
        if (cost_of(entry, i) != 0 && cost_of(entry, i) < least)
            least = cost_of(entry, i);
    }
    return least;
}

/* What is unlike the style that should be best, and no reading, waits until many operations have
 * come: few large ones are all that some programs do. */
static int waits(const heap_style *entry, struct pace pace, uint32_t style, uint32_t favourite)
{
    uint32_t seen = atomic_load_explicit(&entry->turns, memory_order_relaxed) / pace.heads +
                    atomic_load_explicit(&entry->pull_turns, memory_order_relaxed);

    return (style & (favourite | STYLE_PULL)) == 0 && favourite != 0 && seen < OFTEN;
}

/* Whether the style is still to be tried: nothing is known of it, or only that it was no
 * more than twice as slow for smaller operations, or a few times of these. */
static int is_new(const oriel_group *group, const heap_style *entry, struct pace pace,
                  uint32_t style, uint32_t favourite)
{
    int guessed = (atomic_load_explicit(&entry->guessed, memory_order_relaxed) >> style & 1) != 0;
    uint32_t samples = atomic_load_explicit(&entry->members[style], memory_order_relaxed);
    uint32_t cost = cost_of(entry, style);

    if (waits(entry, pace, style, favourite))
        return 0;
    if (samples > 0 && samples < pace.look * (uint32_t)group->n)
        return guessed;
    return cost == 0 || (guessed && cost / 2 < least_cost(entry));
}

/* What the costs are compared by: with few samples and much noise others must be clearly
 * better than what should be best, and a little than what is in use. Where cores are shared, and
 * nothing else should be best, that is reading: nobody waits for all others in the middle. */
static uint32_t weight_of(const heap_style *entry, struct pace pace, uint32_t style,
                          uint32_t favourite)
{
    uint32_t cost = cost_of(entry, style);
    int in_use = style == atomic_load_explicit(&entry->last, memory_order_relaxed);

    if (cost == 0)
        return UINT32_MAX;
    if (favourite == 0 && pace.shared && !pace.pairs)
        favourite = STYLE_PULL;
    if (style == favourite && favourite != 0)
        return cost - cost / FAVOUR;
    return pace.settles && in_use ? cost - cost / STAY : cost;
}

static int explores(struct pace pace, uint32_t turn)
{
    return turn % pace.every >= pace.every - pace.row;
}

/* Whether the `round`th turn to try a style that costs so much is taken. */
static int is_tried(uint32_t cost, uint32_t best, uint32_t round)
{
    return cost / 3 < best / 2 || round % SELDOM == SELDOM - 1;
}

uint32_t oriel_style_choose(const oriel_group *group, uint32_t kind, size_t bytes, int pull)
{
    heap_style *entry = style_of(group, kind, bytes, 0);
    uint32_t choice = atomic_fetch_add_explicit(&entry->turns, 1, memory_order_relaxed);
    uint32_t style[HEAP_STYLE_COUNT];
    uint32_t count = candidates(group, kind, bytes, pull, style);
    struct pace pace = pace_of(group, kind, bytes);
    uint32_t turn = choice / pace.heads;
    uint32_t best = 0;

    if (choice == 0)
        inherit(group, kind, bytes, entry);
    if (turn == 1) /* the first time its memory may have been cold */
        return style[0];
    for (uint32_t i = 0; i < count; i++) {
        if (is_new(group, entry, pace, style[i], style[0]))
            return style[i];
        if (weight_of(entry, pace, style[i], style[0]) <
            weight_of(entry, pace, style[best], style[0]))
            best = i;
    }
    if (explores(pace, turn)) {
        uint32_t round = turn / pace.every;
        uint32_t one = style[round % count]; /* for a whole row, even if it becomes the best */

        if (is_tried(cost_of(entry, one), cost_of(entry, style[best]), round / count))
            return one;
    }
    return style[best];
}

int oriel_style_pulls(const oriel_group *group, uint32_t kind, size_t bytes)
{
    heap_style *entry = style_of(group, kind, bytes, 0);
    uint32_t turn = atomic_fetch_add_explicit(&entry->pull_turns, 1, memory_order_relaxed);
    uint32_t style[HEAP_STYLE_COUNT];
    uint32_t count = candidates(group, kind, bytes, 0, style);
    struct pace pace = pace_of(group, kind, bytes);
    uint32_t pulled = weight_of(entry, pace, STYLE_PULL, style[0]);
    uint32_t staged = UINT32_MAX;
    int pull;

    if (!can_pull(group, kind, bytes))
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t weight = weight_of(entry, pace, style[i], style[0]);

        if (is_new(group, entry, pace, style[i], style[0]) && turn <= 2 * pace.row * count)
            return 0; /* not for ever: a cell may never be made */
        if (weight < staged)
            staged = weight;
    }
    pull = pulled < staged || is_new(group, entry, pace, STYLE_PULL, style[0]);
    if (explores(pace, turn)) {
        uint32_t round = turn / pace.every;
        int one = round % 2 == 0; /* for a whole row */

        if (is_tried(one ? pulled : staged, pull ? pulled : staged, round / 2))
            return one;
    }
    return pull;
}

/* Where all have a core, down at once and up slowly: an operation that was slow because
 * somebody was not scheduled says little, however slow, a fast one that it can be so fast.
 * Where cores are shared, who runs when decides about single ones, and the average counts, but
 * for those that were slow because their memory was cold. */
static double next_cost(double old, double sample, int shared)
{
    if (old == 0 || 3 * sample < 2 * old)
        return sample;
    if (sample > 2 * old)
        sample = 2 * old;
    if (shared)
        return old + (sample - old) / AVERAGE;
    return sample < old ? sample : old + (sample - old) / SLOWNESS;
}

/* Counts how often in a row this style was the last. Returns that. */
static uint32_t count_row(heap_style *entry, uint32_t style)
{
    int same = atomic_load_explicit(&entry->last, memory_order_relaxed) == style;
    uint32_t row = 1 + (same ? atomic_load_explicit(&entry->row, memory_order_relaxed) : 0);

    atomic_store_explicit(&entry->last, style, memory_order_relaxed);
    atomic_store_explicit(&entry->row, row, memory_order_relaxed);
    return row;
}

/* The `count`th sample. The first ones remain guesses; where the caches matter, of the first
 * half of each row those that are slow count for nothing, since another style has left the
 * caches. */
static void learn(heap_style *entry, uint32_t style, double sample, uint32_t count,
                  struct pace pace)
{
    uint32_t bit = 1u << style;
    double old = count == 1 ? 0 : (double)cost_of(entry, style);
    uint32_t row = count_row(entry, style);
    double cost;

    if (count < pace.known)
        atomic_fetch_or_explicit(&entry->guessed, bit, memory_order_relaxed);
    else if (atomic_load_explicit(&entry->guessed, memory_order_relaxed) & bit)
        atomic_fetch_and_explicit(&entry->guessed, ~bit, memory_order_relaxed);
    if (pace.settles && row <= pace.row / 2 && old != 0 && sample > old)
        return;
    if (count == 2)
        cost = old < sample ? old : sample; /* the slower one was cold */
    else
        cost = next_cost(old, sample, pace.shared);
    atomic_store_explicit(&entry->cost[style], (uint32_t)cost, memory_order_relaxed);
}

/* Who was not scheduled while the others worked has seen a short operation, so the
 * member that has seen the longest counts. Operations in flight at the same time may
 * mix, which blurs what is learnt and nothing else. */
void oriel_style_report(const oriel_group *group, uint32_t kind, size_t bytes, uint32_t style,
                        double seconds)
{
    heap_style *entry = style_of(group, kind, bytes, 0);
    double cost = seconds * 1e12 / (double)(bytes + 1); /* ps a byte */
    uint32_t sample = cost < 1 ? 1 : cost > 1e9 ? 1000000000 : (uint32_t)cost;
    uint32_t slowest = atomic_load_explicit(&entry->slowest[style], memory_order_relaxed);
    uint32_t members;

    while (slowest < sample &&
           !atomic_compare_exchange_weak(&entry->slowest[style], &slowest, sample)) {
    }
    members = atomic_fetch_add(&entry->members[style], 1) + 1;
    if (members % (uint32_t)group->n == 0)
        learn(entry, style, atomic_exchange(&entry->slowest[style], 0),
              members / (uint32_t)group->n, pace_of(group, kind, bytes));
}

int oriel_style_streams(const oriel_group *group, uint32_t style, int to)
{
    const oriel_comm *comm = group->comm;

    return (style & STYLE_STREAM_OUT) != 0 &&
           !oriel_spread_together(comm, comm->heap.ranks[group->ranks[to]].process);
}

/* ---- in lanes --------------------------------------------------------------------------- */

static int is_known_in_lane(const heap_style *entry, int n, uint32_t is_long)
{
    uint32_t enough = ((uint32_t)LANE_KNOWN >> is_long) * (uint32_t)n;

    return atomic_load_explicit(&entry->members[0], memory_order_relaxed) >= enough &&
           atomic_load_explicit(&entry->members[STYLE_STREAM_OUT], memory_order_relaxed) >= enough;
}

static uint32_t choose_in_lane(const heap_style *entry, uint32_t row, int known)
{
    uint32_t plain = cost_of(entry, 0);
    uint32_t past = cost_of(entry, STYLE_STREAM_OUT);
    int better = past < plain - plain / FAVOUR;

    if (!known)
        better = row % 2 != 0;
    else if (row % LANE_EVERY == LANE_EVERY - 1 &&
             is_tried(better ? plain : past, better ? past : plain, row / LANE_EVERY))
        better = !better;
    return better ? STYLE_STREAM_OUT : 0;
}

/* Of long ones one row is enough: its first half has used every place, so that none is cold. And
 * there are fewer of them, and the wrong style costs more. */
uint32_t oriel_style_in_lane(const oriel_group *group, oriel_seat *seat, uint64_t call,
                             uint32_t kind, size_t bytes)
{
    const heap_style *entry = style_of(group, kind | LANE_KIND, bytes, 0);
    uint32_t row = (uint32_t)(call / LANE_ROW);
    uint32_t is_long = 2 * bytes >= seat->bulk;
    int known = is_known_in_lane(entry, group->n, is_long);
    uint32_t style = choose_in_lane(entry, row, known);

    if (call % LANE_ROW >= LANE_ROW - ((uint32_t)LANE_TIMED << is_long) &&
        (!known || row % LANE_LOOKS == LANE_LOOKS - 1))
        seat->timed = (lane_timed){.call = call,
                                   .bytes = bytes,
                                   .kind = kind | LANE_KIND,
                                   .style = style,
                                   .seconds = -oriel_now()};
    return style;
}

void oriel_style_time(oriel_seat *seat, int goes)
{
    seat->timed.seconds += goes ? -oriel_now() : oriel_now();
}

void oriel_style_timed(const oriel_group *group, oriel_seat *seat)
{
    const lane_timed *timed = &seat->timed;

    oriel_style_report(group, timed->kind, timed->bytes, timed->style,
                       timed->seconds + oriel_now());
}
