#include "support/process.h"

#include <stdlib.h>

#include "support/check.h"

int process_argument(int argc, char **argv, int index, int fallback)
{
    return index < argc ? (int)strtol(argv[index], NULL, 10) : fallback;
}

oriel_comm *process_comm(int local_ranks, double timeout_s, const char *job)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;
    oriel_comm *comm = NULL;

    params.local_ranks = local_ranks;
    params.timeout_s = timeout_s;
    params.job = job;
    CHECK_OK(oriel_comm_create(&params, &comm));
    return comm;
}
