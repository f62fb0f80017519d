/* Process 1 is alive but never comes to a meeting of all processes: lonely where,
 * with where of destroy, barrier, window; or is in an operation meanwhile: call. Prints what the
 * others are told. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/process.h"
#include "support/resources.h"

static const double soon_s = 0.3;

static oriel_status meet(oriel_comm *comm, const char *where)
{
    oriel_window *window = NULL;

    if (strcmp(where, "window") != 0)
        return oriel_comm_barrier(comm);
    return oriel_window_create(oriel_comm_world(comm), 64, &window);
}

/* Waits for the others, who wait for it elsewhere. */
static void call(oriel_comm *comm)
{
    float x = 1;

    CHECK_IS(ORIEL_ERR_TIMEOUT,
             oriel_all_reduce(oriel_comm_world(comm), 1, &x, &x, 1, ORIEL_F32, ORIEL_SUM));
    printf("%s\n", oriel_last_error());
    CHECK_OK(oriel_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    const char *where = argc > 1 ? argv[1] : "destroy";
    test_resources before = resources_now();
    oriel_comm *comm = process_comm(1, soon_s, NULL);
    double begun = oriel_now();
    oriel_status st;

    if (oriel_comm_process(comm) == 1 && strcmp(where, "call") == 0) {
        call(comm);
        resources_check(before, "at the end");
        return 0;
    }
    if (oriel_comm_process(comm) == 1) {
        poll(NULL, 0, 100000); /* until the test ends it */
        return 0;
    }
    if (strcmp(where, "destroy") == 0) {
        st = oriel_comm_destroy(comm);
    } else {
        st = meet(comm, where);
        printf("first %s\n", oriel_last_error());
        printf("then %s\n", oriel_status_name(oriel_comm_check(comm)));
        CHECK_OK(oriel_comm_destroy(comm));
    }
    printf("%s %s\n", oriel_status_name(st), oriel_last_error());
    printf("told after %.3f s\n", oriel_now() - begun);
    resources_check(before, "at the end");
    return 0;
}
