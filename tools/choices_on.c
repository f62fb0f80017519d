/* The part of `oriel info --choices` about GPUs: no GPU is asked, so it prints the same anywhere.
 */
#include <stdio.h>

#include "base/math.h"
#include "choices.h"
#include "ops/choose_on.h"
#include "ops/op.h"

#define MOST ((size_t)1 << 34)

enum { LARGE_ALONE = 1u << DEVICE_LARGE, NO_WIDE = LARGE_ALONE | 1u << DEVICE_SMALL };
enum { EVERY = NO_WIDE | 1u << DEVICE_WIDE };

static const char *const names[] = {
    [DEVICE_SMALL] = "small", [DEVICE_WIDE] = "wide", [DEVICE_LARGE] = "large"};

static oriel_choice_on choice_of(const oriel_facts_on *facts, unsigned kernels, size_t block)
{
    oriel_question_on question = {
        .kind = ORIEL_KIND_ALL_REDUCE, .block = block, .kernels = kernels};

    return oriel_choose_on(facts, &question);
}

static int same(oriel_choice_on a, oriel_choice_on b)
{
    return a.family == b.family && a.threads == b.threads && a.early == b.early;
}

/* The largest block from `block` on for which the choice is the same but for the thread blocks, of
 * which there are more and more; MOST: all. */
static size_t end_of(const oriel_facts_on *facts, unsigned kernels, size_t block)
{
    oriel_choice_on here = choice_of(facts, kernels, block);
    size_t low = block;
    size_t high = 2 * block;

    while (high < MOST && same(here, choice_of(facts, kernels, high))) {
        low = high;
        high *= 2;
    }
    while (high < MOST && high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (same(here, choice_of(facts, kernels, middle)))
            low = middle;
        else
            high = middle;
    }
    return high < MOST ? low : MOST;
}

static void print_kernels(const oriel_facts_on *facts, unsigned kernels, const char *name)
{
    size_t end = 0;

    for (size_t block = 1; end < MOST; block = end + 1, name = "") {
        oriel_choice_on choice = choice_of(facts, kernels, block);
        char bytes[32] = "more";
        char grid[32];

        end = end_of(facts, kernels, block);
        if (end < MOST)
            snprintf(bytes, sizeof bytes, "up to %zu", end);
        snprintf(grid, sizeof grid, "%u of %u", choice_of(facts, kernels, end).ctas,
                 choice.threads);
        printf("  %-16s %-14s %-6s %-14s %-13s %s\n", name, bytes, names[choice.family], grid,
               choice.early ? "early, from C" : "at its end", choice.why);
    }
}

void oriel_choices_on_gpus(int n, int multiprocessors)
{
    oriel_facts_on facts;

    if (n > DEVICE_RANKS)
        return;
    facts = oriel_facts_on_one_gpu(n, multiprocessors);
    printf(
        "\ncalls on a GPU of %d multiprocessors that the %d processes share: kernels of up to %d "
        "thread blocks\n  %-16s %-14s %-6s %-14s %-13s %s\n",
        multiprocessors, n, facts.ctas, "operation", "bytes a block", "kernel", "blocks of",
        "the next one", "why");
    print_kernels(&facts, EVERY, "copies and sums");
    print_kernels(&facts, NO_WIDE, "other reductions");
    printf(
        "\nThe sums are of f16, bf16, f32 and f64; complex numbers are large but in sums. "
        "ragged_all_to_all has all\nthread blocks. The next kernel of the stream may begin early, "
        "while the call still waits for others, from\nC alone: behind calls from XLA comes what "
        "XLA puts there.\n");
}
