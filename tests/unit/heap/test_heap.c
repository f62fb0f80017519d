/* labels: valgrind */
/* The layout of the heap: every part inside, none over another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/config.h"
#include "core/protocol/cell.h"
#include "core/start/sections.h"
#include "support/check.h"
#include "support/values.h"

/* The plan for one process with `ranks` ranks, under these options. */
static oriel_status plan(int ranks, const char *staging, const char *chunk, heap_header *plan_p)
{
    setenv("ORIEL_STAGING", staging, 1);
    setenv("ORIEL_CHUNK", chunk, 1);
    CHECK_OK(oriel_config_load());
    return oriel_heap_plan(oriel_heap_rooms, &ranks, 1, plan_p);
}

static oriel_heap format(const heap_header *h)
{
    oriel_segment segment = {.base = aligned_alloc(4096, h->bytes), .bytes = h->bytes, .fd = -1};
    oriel_heap heap;

    CHECK(segment.base != NULL, "%zu bytes", segment.bytes);
    memset(segment.base, 0, h->pools_at);
    oriel_heap_format(segment, h, &heap);
    return heap;
}

static void inside(const oriel_heap *heap, const void *at, size_t bytes)
{
    uintptr_t offset = (uintptr_t)at - (uintptr_t)heap->segment.base;

    CHECK((uintptr_t)at % HEAP_LINE == 0, "offset %zu is not on a line", (size_t)offset);
    CHECK(offset + bytes <= heap->segment.bytes, "offset %zu, %zu bytes, in a heap of %zu",
          (size_t)offset, bytes, heap->segment.bytes);
}

/* Every section has one declaration. */
static uint64_t section_bytes(const heap_header *h, int id)
{
    uint64_t bytes = 0;

    for (int room = 0; oriel_heap_rooms[room] != NULL; room++) {
        for (const heap_section *s = oriel_heap_rooms[room]; s->bytes > 0; s++) {
            uint64_t n = s->share == HEAP_PER_RANK      ? h->num_ranks
                         : s->share == HEAP_PER_PROCESS ? h->num_processes
                                                        : 1;

            assert_true((int)s->id != id || bytes == 0);
            bytes += (int)s->id == id ? n * s->bytes : 0;
        }
    }
    assert_true(bytes > 0);
    return bytes;
}

static void check_order(const heap_header *h)
{
    uint64_t end = sizeof *h;

    for (int id = 0; id < HEAP_SECTIONS; id++) {
        assert_true(h->at[id] >= end);
        end = h->at[id] + section_bytes(h, id);
    }
    assert_true(h->pools_at >= end);
    assert_true(h->pools_at + h->num_ranks * h->pool_bytes <= h->bytes);
    assert_true(h->num_blocks >= 1 && h->num_blocks <= 64 * HEAP_BLOCK_WORDS);
    assert_true(h->num_channels >= 1 && h->num_channels <= HEAP_MAX_CHANNELS);
    assert_true(h->chunk_bytes >= HEAP_LINE && h->chunk_bytes % HEAP_LINE == 0);
}

/* Blocks, then channels, then the next rank's: in this order, without a gap the
 * wrong way. */
static void check_pools(const oriel_heap *heap)
{
    const heap_header *h = heap->header;
    const char *end = heap->pools;

    for (int rank = 0; rank < (int)h->num_ranks; rank++) {
        for (int block = 0; block < (int)h->num_blocks; block++) {
            char *at = oriel_heap_block(heap, rank, block);
            assert_true(at >= end);
            inside(heap, at, h->block_bytes);
            end = at + h->block_bytes;
        }
        for (int channel = 0; channel < (int)h->num_channels; channel++) {
            char *at = oriel_heap_channel(heap, rank, channel);
            assert_true(at >= end);
            inside(heap, at, h->channel_bytes);
            end = at + h->channel_bytes;
        }
    }
}

/* The member table and all payloads of a group lie in one block. */
static void check_eager(const oriel_heap *heap)
{
    const heap_header *h = heap->header;
    int last = (int)h->num_blocks - 1;
    heap_cell cell = {.owner = (int)h->num_ranks - 1, .block = last};
    char *block = oriel_heap_block(heap, cell.owner, last);

    for (int n = 1; n <= (int)h->num_ranks; n++) {
        size_t bytes = oriel_heap_eager_bytes(heap, n);
        char *end = block + (size_t)n * sizeof(heap_member);

        assert_true((char *)oriel_heap_members(heap, &cell) == block);
        for (int i = 0; i < n; i++) {
            char *at = oriel_heap_eager(heap, &cell, n, i);
            assert_true(at >= end);
            end = at + bytes;
        }
        assert_true(end <= block + h->block_bytes);
        assert_true(bytes >= HEAP_LINE);
    }
}

static void test_layouts(void **state)
{
    static const char *const stagings[] = {"256K", "300001", "1M", "5M", "40M"};
    static const char *const chunks[] = {"1K", "3333", "128K", "4M"};
    static const int ranks[] = {1, 2, 7, 64, 200};

    (void)state;
    for (size_t s = 0; s < 5; s++) {
        for (size_t r = 0; r < 5; r++) {
            heap_header h;
            oriel_heap heap;

            CHECK_OK(plan(ranks[r], stagings[s], chunks[(s + r) % 4], &h));
            check_order(&h);
            /* The promise: not more per rank than was asked for. */
            assert_true(h.pool_bytes <= oriel_config_number(ORIEL_OPT_STAGING));
            if (h.bytes > (size_t)1 << 30)
                continue;
            heap = format(&h);
            check_pools(&heap);
            check_eager(&heap);
            free(heap.segment.base);
        }
    }
}

static void test_numbers(void **state)
{
    static const int local_ranks[] = {2, 1, 3};
    static const int machines[] = {0, 1, 1};
    heap_header h;
    oriel_heap heap;

    (void)state;
    setenv("ORIEL_STAGING", "256K", 1);
    setenv("ORIEL_CHUNK", "1K", 1);
    CHECK_OK(oriel_config_load());
    CHECK_OK(oriel_heap_plan(oriel_heap_rooms, local_ranks, 3, &h));
    assert_int_equal(h.num_ranks, 6);
    heap.segment = (oriel_segment){aligned_alloc(4096, h.bytes), h.bytes, -1};
    memset(heap.segment.base, 0, h.pools_at);
    oriel_heap_format(heap.segment, &h, &heap);
    oriel_world_place(&heap, local_ranks, machines, 1, 2);
    assert_int_equal(heap.procs[1].first_rank, 2);
    assert_int_equal(heap.procs[2].first_rank, 3);
    assert_int_equal(heap.procs[2].local_ranks, 3);
    assert_int_equal(heap.ranks[1].process, 0);
    assert_int_equal(heap.ranks[2].process, 1);
    assert_int_equal(heap.ranks[5].process, 2);
    assert_int_equal(heap.procs[2].machine, 1);
    assert_int_equal(heap.header->num_machines, 2);
    assert_int_equal(heap.header->lead, 2);
    assert_int_equal(heap.header->parties, 3); /* two processes and the bridge */
    free(heap.segment.base);
}

static void test_too_many(void **state)
{
    static const int local_ranks[] = {1000, 25};
    heap_header h;

    (void)state;
    CHECK_IS(ORIEL_ERR_INVALID, plan(1025, "256K", "1K", &h));
    check_says("1025", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_heap_plan(oriel_heap_rooms, local_ranks, 2, &h));
    CHECK_IS(ORIEL_ERR_INVALID, plan(1024, "256K", "1K", &h));
    check_says("ORIEL_STAGING", "1024", NULL);
    CHECK_OK(plan(1024, "1M", "1K", &h));
    check_order(&h);
    CHECK_OK(plan(1024, "900G", "1K", &h)); /* sizes that need more than 32 bits */
    check_order(&h);
}

static void test_open(void **state)
{
    heap_header h;
    heap_header kept;
    oriel_heap heap;
    oriel_heap other;

    (void)state;
    CHECK_OK(plan(2, "256K", "1K", &h));
    heap = format(&h);
    CHECK_OK(oriel_heap_open(oriel_heap_rooms, heap.segment, &other));
    assert_ptr_equal(other.pools, heap.pools);
    assert_ptr_equal(other.buckets, heap.buckets);
    memcpy(&kept, heap.header, sizeof kept);

    heap.header->magic++;
    CHECK_IS(ORIEL_ERR_INVALID, oriel_heap_open(oriel_heap_rooms, heap.segment, &other));
    memcpy(heap.header, &kept, sizeof kept);
    heap.header->bytes--;
    CHECK_IS(ORIEL_ERR_INVALID, oriel_heap_open(oriel_heap_rooms, heap.segment, &other));
    memcpy(heap.header, &kept, sizeof kept);
    heap.header->num_ranks = 3;
    CHECK_IS(ORIEL_ERR_INVALID, oriel_heap_open(oriel_heap_rooms, heap.segment, &other));
    memcpy(heap.header, &kept, sizeof kept);
    heap.header->at[SECTION_BUCKETS] += HEAP_LINE;
    CHECK_IS(ORIEL_ERR_INVALID, oriel_heap_open(oriel_heap_rooms, heap.segment, &other));
    memcpy(heap.header, &kept, sizeof kept);
    heap.header->pool_bytes -= heap.header->num_channels * heap.header->channel_bytes;
    heap.header->bytes = heap.header->pools_at + 2 * heap.header->pool_bytes;
    heap.header->channel_bytes = 0;
    heap.segment.bytes = heap.header->bytes;
    CHECK_IS(ORIEL_ERR_INVALID, oriel_heap_open(oriel_heap_rooms, heap.segment, &other));
    memcpy(heap.header, &kept, sizeof kept);
    heap.segment.bytes = heap.header->bytes;
    heap.header->num_blocks++;
    CHECK_IS(ORIEL_ERR_INVALID, oriel_heap_open(oriel_heap_rooms, heap.segment, &other));
    memcpy(heap.header, &kept, sizeof kept);
    heap.header->channel_bytes = 1ull << 62;
    heap.header->num_channels = 4; /* the sum wraps */
    CHECK_IS(ORIEL_ERR_INVALID, oriel_heap_open(oriel_heap_rooms, heap.segment, &other));
    memcpy(heap.header, &kept, sizeof kept);
    heap.segment.bytes = 64;
    CHECK_IS(ORIEL_ERR_INVALID, oriel_heap_open(oriel_heap_rooms, heap.segment, &other));
    free(heap.segment.base);
}

/* A version whose processes have one word more. */
static void test_other_sections(void **state)
{
    heap_section processes[] = {
        {"processes", SECTION_PROCS, HEAP_PER_PROCESS, sizeof(heap_proc) + HEAP_LINE},
        {.bytes = 0}};
    const heap_section *rooms[] = {processes, NULL};
    heap_section same[] = {{"processes", SECTION_PROCS, HEAP_PER_PROCESS, sizeof(heap_proc)},
                           {.bytes = 0}};
    const heap_section *other_rooms[] = {same, NULL};
    int ranks = 1;
    heap_header h;
    oriel_heap heap;
    oriel_heap other;

    (void)state;
    CHECK_OK(plan(ranks, "256K", "1K", &h));
    CHECK_OK(oriel_heap_plan(rooms, &ranks, 1, &h));
    heap = format(&h);
    CHECK_OK(oriel_heap_open(rooms, heap.segment, &other));
    CHECK_IS(ORIEL_ERR_INVALID, oriel_heap_open(other_rooms, heap.segment, &other));
    free(heap.segment.base);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_too_many),       cmocka_unit_test(test_open),
        cmocka_unit_test(test_other_sections),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
