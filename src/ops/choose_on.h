/* What choose.h is for host memory, on GPUs: by which kernel a call goes, on how many thread
 * blocks, and how these divide the work. It follows from what all members know alike, and decides
 * on speed alone, but for what may begin early; `oriel info --choices` prints it. */
#ifndef ORIEL_OPS_CHOOSE_ON_H
#define ORIEL_OPS_CHOOSE_ON_H

#include "core/device/layout.h"
#include "core/world/trace.h"

typedef struct oriel_facts_on {
    int n;                /* members of the group */
    int ctas;             /* of a rank's kernel at most */
    uint32_t slot_lines;  /* of a thread in each slot of small calls */
    uint32_t stage_bytes; /* of a CTA, for what it sends */
} oriel_facts_on;

typedef struct oriel_question_on {
    enum oriel_kind kind; /* which operation */
    size_t block;         /* bytes of one block; of ragged_all_to_all of a row */
    unsigned kernels;     /* a bit for each enum device_family that has one for it */
    int from_xla;         /* it is a call of an XLA program */
} oriel_question_on;

typedef struct oriel_choice_on {
    enum device_family family; /* which of the kernels */
    unsigned ctas, threads;    /* the grid; a block */
    uint32_t tile;             /* bytes that a CTA works on at a time, staged: of each block, or of
                                * each of the n tiles of a strip */
    uint32_t item;             /* bytes that a warp works on at a time, direct */
    int early;                 /* the next kernel may begin before this one has met the others */
    const char *why;           /* the reason for the kernel, in words */
} oriel_choice_on;

/* For a call that has a large kernel. */
oriel_choice_on oriel_choose_on(const oriel_facts_on *facts, const oriel_question_on *question);
/* Of n ranks that share a GPU of so many multiprocessors, with the options as they are: the world
 * is their group. */
oriel_facts_on oriel_facts_on_one_gpu(int n, int sms);

#endif
