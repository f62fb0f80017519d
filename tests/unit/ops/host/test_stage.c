/* labels: valgrind */
/* Where chunks lie in a channel: inside it, and not over those that are still to be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/world/trace.h"
#include "ops/host/transfer.h"
#include "support/check.h"
#include "support/ranks.h"

static const enum oriel_kind kinds[] = {ORIEL_KIND_ALL_REDUCE, ORIEL_KIND_ALL_GATHER,
                                        ORIEL_KIND_ALL_TO_ALL, ORIEL_KIND_PERMUTE,
                                        ORIEL_KIND_REDUCE_SCATTER};
static const size_t bytes[] = {1, 64, 4096, 65000, 128 << 10, 300000, 1 << 20, 50000000};
static const uint32_t chunks[] = {0, 1, 2, 8, 9, 500};

static void look_at(const oriel_request *request)
{
    struct stage s = oriel_stage_of(request);
    const char *end = s.base + request->comm->heap.header->channel_bytes;
    uint32_t n = request->record.n;
    uint32_t stride = s.slots / 16 + 1; /* not all of thousands */

    assert_true(s.slots >= 1 && s.slot >= HEAP_LINE && s.unit * s.per_chunk <= s.slot);
    for (uint32_t k = 0; k < 2 * s.slots + 1; k += stride) {
        for (uint32_t i = 0; i < n; i++) {
            char *at = oriel_stage_slot(&s, (int)i, k);

            CHECK(at >= s.base && at + s.slot <= end, "chunk %u of %u ends outside", k, i);
            CHECK((uintptr_t)at % HEAP_LINE == 0, "chunk %u begins in a line", k);
            CHECK(at >= s.base + i * s.area && at + s.slot <= s.base + (i + 1) * s.area,
                  "chunk %u of %u lies with another member's", k, i);
        }
        for (uint32_t later = k + 1; later < k + s.slots;
             later = later + stride < k + s.slots ? later + stride : later + 1) {
            ptrdiff_t apart = oriel_stage_slot(&s, 0, later) - oriel_stage_slot(&s, 0, k);

            CHECK(apart >= (ptrdiff_t)s.slot || apart <= -(ptrdiff_t)s.slot,
                  "chunks %u and %u overlap, %td bytes apart", k, later, apart);
        }
    }
}

static void all_sizes(oriel_comm *comm)
{
    oriel_group *world = oriel_comm_world(comm);
    heap_cell cell = {.owner = 0, .channel = 0};
    oriel_request request = {.comm = comm, .group = world, .cell = &cell};

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++) {
            for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
                request.op = (oriel_op){.kind = kinds[k], .dtype = ORIEL_U8, .count = bytes[b]};
                request.record = (oriel_record){
                    .kind = kinds[k], .bytes = bytes[b], .n = (uint32_t)oriel_comm_size(comm)};
                request.chunks = chunks[c];
                cell.at = (uint64_t)(bytes[b] * 7919 + c) * HEAP_LINE;
                look_at(&request);
            }
        }
    }
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

static void test_inside_and_apart(void **state)
{
    (void)state;
    for (int n = 2; n <= 9; n += n < 3 ? 1 : 3) {
        all_sizes(ranks_comm(n, 30.0, NULL));
        all_sizes(ranks_comm(n, 30.0, "ORIEL_CHUNK", "1K", NULL));
        all_sizes(ranks_comm(n, 30.0, "ORIEL_CHUNK", "4M", "ORIEL_STAGING", "1M", NULL));
        all_sizes(ranks_comm(n, 30.0, "ORIEL_STAGING", "256K", NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_inside_and_apart)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
