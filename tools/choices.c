/* `oriel info --choices`: how each operation goes on this machine, by size. */
#include "choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "core/protocol/lane.h"
#include "core/start/sections.h"
#include "ops/choose.h"
#include "ops/op.h"
#include "tool.h"

#define MOST ((size_t)1 << 40)
enum { H200_SMS = 132, MOST_SMS = 10000 };

/* The facts of a group of `n` processes of one rank each, all on this machine, of which each may
 * read the memory of the others. */
static oriel_status facts_of(int n, oriel_facts *facts_p)
{
    int local_ranks[HEAP_MAX_RANKS];
    heap_header header;
    oriel_heap heap = {.header = &header};
    oriel_status st;

    for (int p = 0; p < n; p++)
        local_ranks[p] = 1;
    st = oriel_heap_plan(oriel_heap_rooms, local_ranks, n, &header);
    if (st != ORIEL_OK)
        return st;
    *facts_p = (oriel_facts){
        .n = n,
        .reads = (int)header.direct,
        .crowded = n > oriel_cpu_count(),
        .apart = oriel_cores_apart(),
        .place = oriel_lane_room_for(&heap, n),
        .eager = oriel_heap_eager_bytes(&heap, n),
        .cache = oriel_cache_bytes(),
    };
    return ORIEL_OK;
}

static oriel_choice choice_of(const oriel_facts *facts, enum oriel_kind kind,
                              enum oriel_meeting meeting, size_t block)
{
    oriel_question question = {
        .kind = kind,
        .meeting = meeting,
        .block = block,
        .payload = block * oriel_op_times(oriel_op_forms[kind].send, facts->n),
    };

    return oriel_choose(facts, &question);
}

static int same(oriel_choice a, oriel_choice b)
{
    return a.mode == b.mode && a.stream == b.stream && strcmp(a.why, b.why) == 0;
}

/* The largest block from `block` on for which the choice is the same; MOST: all. */
static size_t end_of(const oriel_facts *facts, enum oriel_kind kind, enum oriel_meeting meeting,
                     size_t block)
{
    oriel_choice here = choice_of(facts, kind, meeting, block);
    size_t low = block;
    size_t high = block > 0 ? 2 * block : 1;

    while (high < MOST && same(here, choice_of(facts, kind, meeting, high))) {
        low = high;
        high *= 2;
    }
    if (high >= MOST)
        return MOST;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (same(here, choice_of(facts, kind, meeting, middle)))
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void print_kind(const oriel_facts *facts, enum oriel_kind kind, enum oriel_meeting meeting)
{
    const char *name = oriel_kind_name(kind);
    size_t end = 0;

    for (size_t block = 1; end < MOST; block = end + 1, name = "") {
        oriel_choice choice = choice_of(facts, kind, meeting, block);
        char bytes[32] = "more";

        end = end_of(facts, kind, meeting, block);
        if (end < MOST)
            snprintf(bytes, sizeof bytes, "up to %zu", end);
        printf("  %-15s %-14s %-7s %-16s %s\n", name, bytes, oriel_mode_name(choice.mode),
               choice.stream ? "past the caches" : "as usual", choice.why);
    }
}

static void print_table(const oriel_facts *facts, enum oriel_meeting meeting, const char *title)
{
    printf("\n%s\n  %-15s %-14s %-7s %-16s %s\n", title, "operation", "bytes a block", "mode",
           "stored", "why");
    for (enum oriel_kind kind = 1; kind < ORIEL_KIND_COUNT; kind++) {
        if (kind != ORIEL_KIND_BARRIER && kind != ORIEL_KIND_RAGGED_ALL_TO_ALL &&
            kind != ORIEL_KIND_KERNEL)
            print_kind(facts, kind, meeting);
    }
}

int oriel_choices_main(const char *processes, const char *multiprocessors)
{
    int cores = oriel_cpu_count();
    int most = cores < HEAP_MAX_RANKS ? cores : HEAP_MAX_RANKS;
    int n = processes != NULL ? atoi(processes) : cores < 2 ? 2 : most;
    int sms = multiprocessors != NULL ? atoi(multiprocessors) : H200_SMS;
    oriel_facts facts;

    if (n < 2 || n > HEAP_MAX_RANKS)
        return oriel_usage_error("info", "--choices is for 2 to %d processes, not \"%s\"",
                                 (int)HEAP_MAX_RANKS, processes);
    if (sms < 1 || sms > MOST_SMS)
        return oriel_usage_error("info",
                                 "--choices is for GPUs of 1 to %d multiprocessors, not \"%s\"",
                                 (int)MOST_SMS, multiprocessors);
    if (oriel_config_load() != ORIEL_OK || facts_of(n, &facts) != ORIEL_OK) {
        fprintf(stderr, "oriel info: %s\n", oriel_last_error());
        return ORIEL_EXIT_FAILED;
    }
    printf("%d processes of one rank each on %d cores: %s\n", n, cores,
           facts.crowded ? "ranks outnumber the cores" : "each rank has a core");
    printf("the cores share a cache of %zu bytes%s\n", facts.cache,
           facts.apart ? ", or none: they may be far apart, or moved about under the machine" : "");
    printf("processes %s each other's memory, as far as the system lets them\n",
           facts.reads ? "read" : "do not read");
    print_table(&facts, MEET_LANE, "calls from C, in the order of the group");
    print_table(&facts, MEET_CELL, "calls from XLA");
    printf("\nragged_all_to_all tells the numbers of rows in the lane, and up to %zu bytes of rows "
           "with them; more are %s.\nMembers within one process work on each other's buffers "
           "(direct).\n",
           oriel_choose_rows(&facts), facts.reads ? "pulled" : "staged");
    oriel_choices_on_gpus(n, sms);
    return ORIEL_EXIT_OK;
}
