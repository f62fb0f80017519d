/* What NCCL offers on this machine: for `oriel doctor`. */
#ifndef ORIEL_FABRIC_NCCL_FACTS_H
#define ORIEL_FABRIC_NCCL_FACTS_H

#include "fabric/cuda/facts.h"

/* The library, and what depends on its version. */
typedef struct oriel_nccl_facts {
    oriel_library_facts library;
    char problem[FACTS_TEXT]; /* why it cannot be used, if there is one; "" */
    int cuda;                 /* that it was built for: 1300; 0: it does not say */
    int config;               /* version of the structure that oriel passes: 22800 */
    int shares_gpu, sizes_differ, host_pointers, bounded_barrier;
} oriel_nccl_facts;

/* Opens the library. */
void oriel_nccl_find(oriel_nccl_facts *facts_p);

#endif
