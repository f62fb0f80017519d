/* A process that comes until there is a comm, and says how each try ended:
 *
 *     returner id processes store tries [first timeout]
 *
 * The first try may have a timeout of its own for the start, in seconds. */
#include <stdio.h>
#include <stdlib.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/process.h"
#include "support/resources.h"

static oriel_status come(int argc, char **argv, oriel_comm **comm_p)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;

    params.process_id = process_argument(argc, argv, 1, 0);
    params.num_processes = process_argument(argc, argv, 2, 1);
    params.store = argv[3];
    params.timeout_s = 60.0;
    return oriel_comm_create(&params, comm_p);
}

int main(int argc, char **argv)
{
    int tries = process_argument(argc, argv, 4, 1);
    test_resources before = resources_now();
    oriel_comm *comm = NULL;
    oriel_status st = ORIEL_ERR_PEER;
    int sum = 1;

    if (argc > 5)
        setenv("ORIEL_INIT_TIMEOUT", argv[5], 1);
    for (int i = 0; i < tries && st != ORIEL_OK; i++) {
        st = come(argc, argv, &comm);
        unsetenv("ORIEL_INIT_TIMEOUT");
        printf("%.6f %s %s\n", oriel_now(), oriel_status_name(st),
               st == ORIEL_OK ? "" : oriel_last_error());
        fflush(stdout);
        if (st != ORIEL_OK)
            resources_check(before, "after a failure");
    }
    if (st == ORIEL_OK) {
        CHECK_OK(oriel_all_reduce(oriel_comm_world(comm), oriel_comm_first_rank(comm), &sum, &sum,
                                  1, ORIEL_S32, ORIEL_SUM));
        CHECK(sum == oriel_comm_size(comm), "the sum is %d", sum);
    }
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "at the end");
    return 0;
}
