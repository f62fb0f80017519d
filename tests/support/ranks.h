/* Threads as ranks: a world of one process, one thread for each of its ranks. */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include "oriel/oriel.h"

/* A comm of this process alone, with `n` ranks. Options (name, value, ..., NULL) are set
 * for it and the remaining ones have their defaults. */
oriel_comm *ranks_comm(int n, double timeout_s, ...) __attribute__((sentinel));

/* Calls `body` in one thread for each rank this process holds; returns after all. */
void ranks_run(oriel_comm *comm, void (*body)(oriel_comm *comm, int rank, void *arg), void *arg);

#endif
