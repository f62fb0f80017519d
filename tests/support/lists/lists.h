/* An operation on a list of arrays, compared with the same operation on each array by itself:
 * random bits, NaNs among them, in buffers between guard bytes. */
#ifndef TESTS_SUPPORT_LISTS_H
#define TESTS_SUPPORT_LISTS_H

#include "core/world/record.h"
#include "support/values.h"

typedef struct list_call {
    enum oriel_kind kind; /* all_reduce, all_gather, reduce_scatter or broadcast */
    oriel_dtype dtype;
    oriel_redop op;
    int num;       /* arrays */
    size_t most;   /* elements of an array, at most: how many follows from `seed` */
    int in_place;  /* 1: yes, 2: every second array */
    int started;   /* 1: not blocking */
    unsigned seed; /* the root, too */
} list_call;

/* Every property follows from `seed`; all arrays together have about `max_bytes` at most. */
list_call list_random(unsigned seed, size_t max_bytes);
/* Collective. */
void list_check(oriel_group *group, int rank, const list_call *call);
/* The operation alone. */
oriel_status list_run(oriel_group *group, int rank, const list_call *call,
                      const oriel_array *arrays);

#endif
