/* Meetings of all processes, one after the other, until one fails; says which, when
 * and why: meetings. */
#include <stdio.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/process.h"
#include "support/resources.h"

/* Meeting number `i`: a barrier, or a window made. */
static oriel_status meet(oriel_comm *comm, unsigned i, oriel_window **window_p)
{
    if (i % 3 == 0)
        return oriel_comm_barrier(comm);
    if (i % 3 == 1)
        return oriel_window_create(oriel_comm_world(comm), 100 * i, window_p);
    oriel_window_free(*window_p);
    *window_p = NULL;
    return oriel_comm_barrier(comm);
}

int main(void)
{
    test_resources before = resources_now();
    oriel_comm *comm = process_comm(1, 60.0, NULL);
    oriel_window *window = NULL;
    oriel_status st = ORIEL_OK;
    unsigned i = 0;
    double begun;

    printf("ready\n");
    fflush(stdout);
    while (st == ORIEL_OK)
        st = meet(comm, i++, &window);
    printf("failed %.6f meeting %u %s %s\n", oriel_now(), i, oriel_status_name(st),
           oriel_last_error());
    /* A fetch from a dead process may fail before its death is known. */
    begun = oriel_now();
    while (oriel_comm_check(comm) == ORIEL_OK)
        CHECK(oriel_now() < begun + 60.0, "the comm is not revoked");
    printf("told after %.3f s\n", oriel_now() - begun);
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "at the end");
    printf("clean\n");
    return 0;
}
