/* A process of a job that is struck by what ORIEL_FAULT says: recovery [timeout in ms]
 * [operations]. Makes a comm, a window and calls; says how far it came and why not
 * further, then starts anew, which must work. */
#include <stdio.h>
#include <stdlib.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/process.h"
#include "support/resources.h"

static const char *step;

static oriel_status run(oriel_comm **comm_p, double timeout_s, int operations)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;
    oriel_window *window = NULL;
    oriel_status st;
    float x = 1;

    params.timeout_s = timeout_s;
    step = "create";
    st = oriel_comm_create(&params, comm_p);
    if (st != ORIEL_OK)
        return st;
    step = "window";
    st = oriel_window_create(oriel_comm_world(*comm_p), 1000, &window);
    step = st == ORIEL_OK ? "operation" : step;
    for (int i = 0; i < operations && st == ORIEL_OK; i++)
        st = oriel_all_reduce(oriel_comm_world(*comm_p), oriel_comm_first_rank(*comm_p), &x, &x, 1,
                              ORIEL_F32, ORIEL_MAX);
    if (st != ORIEL_OK)
        return st;
    step = "destroy";
    st = oriel_comm_destroy(*comm_p);
    *comm_p = NULL;
    return st;
}

int main(int argc, char **argv)
{
    double timeout_s = process_argument(argc, argv, 1, 60000) * 1e-3;
    int operations = process_argument(argc, argv, 2, 20);
    test_resources before = resources_now();
    double begun = oriel_now();
    oriel_comm *comm = NULL;
    oriel_status st = run(&comm, timeout_s, operations);

    printf("%s %s after %.3f s: %s\n", step, oriel_status_name(st), oriel_now() - begun,
           st == ORIEL_OK ? "" : oriel_last_error());
    oriel_comm_abandon(comm);
    resources_check(before, "after the fault");
    if (st != ORIEL_OK && st != ORIEL_ERR_INVALID) {
        comm = NULL;
        setenv("ORIEL_INIT_TIMEOUT", "60", 1); /* they failed one after the other */
        CHECK_OK(run(&comm, 60.0, 20));
        printf("recovered\n");
    }
    resources_check(before, "at the end");
    return 0;
}
