/* A process of a job, as its launcher started it. */
#ifndef TESTS_SUPPORT_PROCESS_H
#define TESTS_SUPPORT_PROCESS_H

#include "oriel/oriel.h"

/* Argument number `index` as a number; `fallback` where it is not given. */
int process_argument(int argc, char **argv, int index, int fallback);

/* A comm of the job's processes, from the environment. `job` NULL: the default. */
oriel_comm *process_comm(int local_ranks, double timeout_s, const char *job);

#endif
