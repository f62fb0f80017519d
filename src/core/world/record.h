/* What an operation is: compared between ranks, and told in sentences. */
#ifndef ORIEL_CORE_WORLD_RECORD_H
#define ORIEL_CORE_WORLD_RECORD_H

#include <stddef.h>
#include <stdint.h>

enum oriel_kind {
    ORIEL_KIND_ALL_REDUCE = 1,
    ORIEL_KIND_ALL_GATHER,
    ORIEL_KIND_REDUCE_SCATTER,
    ORIEL_KIND_ALL_TO_ALL,
    ORIEL_KIND_BROADCAST,
    ORIEL_KIND_PERMUTE,
    ORIEL_KIND_BARRIER,
    ORIEL_KIND_RAGGED_ALL_TO_ALL,
    ORIEL_KIND_GATHER, /* from here to the kernel: of host memory alone */
    ORIEL_KIND_SCATTER,
    ORIEL_KIND_REDUCE,
    ORIEL_KIND_SCAN,
    ORIEL_KIND_KERNEL,
    ORIEL_KIND_MESSAGE, /* of host memory alone, in a group of two: its first member sends */
    ORIEL_KIND_COUNT
};

/* Beside which one it is. */
typedef struct oriel_record {
    uint64_t bytes;     /* of one block; of a row in ragged_all_to_all */
    uint64_t shape;     /* what else a kind needs, and of lists of arrays: see op.h */
    uint64_t call;      /* the call of a program, and all that is compared of it; 0: from C */
    uint16_t n;         /* members of the group */
    uint16_t execution; /* of its program, counted as in ffi/site.h; 0: from C, or over the world */
    uint8_t kind;       /* enum oriel_kind */
    uint8_t dtype;      /* oriel_dtype */
    uint8_t redop;      /* oriel_redop */
    uint8_t mode;       /* enum oriel_mode; follows from the rest */
} oriel_record;         /* without a gap: records are compared whole */
_Static_assert(sizeof(oriel_record) == 32, "lanes have room for that");

const char *oriel_kind_name(uint32_t kind);
/* "all_reduce sum of 64 bytes of f32"; of a list "... in 3 arrays (counts 5ca1ab1e)": what is in
 * parentheses differs where the arrays do. */
void oriel_record_describe(const oriel_record *record, char *out, size_t len);

#endif
