/* System calls of one process fail, one in each attempt, while a comm is made;
 * prints what came of each attempt: failing_start victim first last stride */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/failing_sys.h"
#include "support/process.h"
#include "support/resources.h"

/* All start the attempt together: one that failed early would otherwise use up the
 * time of the next. */
static void meet(long n)
{
    char job[32];

    setenv("ORIEL_INIT_TIMEOUT", "60", 1);
    snprintf(job, sizeof job, "before-%ld", n);
    CHECK_OK(oriel_comm_destroy(process_comm(1, 60.0, job)));
    setenv("ORIEL_INIT_TIMEOUT", "0.3", 1);
}

static void attempt(long n, int victim)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;
    oriel_comm *comm = NULL;
    oriel_status st;
    char job[32];
    const char *failed;

    meet(n);
    snprintf(job, sizeof job, "attempt-%ld", n);
    params.job = job;
    params.timeout_s = 20.0;
    failing_sys_arm(victim ? n : 0, n % 2 ? EMFILE : ENOMEM);
    st = oriel_comm_create(&params, &comm);
    failed = failing_sys_victim();
    failing_sys_arm(0, 0);
    CHECK(st == ORIEL_OK || oriel_last_error()[0] != '\0', "no sentence");
    /* Not collective: the outcome is what is compared. */
    if (comm != NULL)
        oriel_comm_abandon(comm);
    CHECK(failing_sys_held() == 0, "attempt %ld (%s): %ld left", n, failed ? failed : "none",
          failing_sys_held());
    printf("attempt %ld %s\n", n, st == ORIEL_OK ? "good" : "bad");
    if (victim)
        printf("victim %ld %s %s\n", n, failed ? failed : "none",
               st == ORIEL_OK ? "" : oriel_last_error());
}

int main(int argc, char **argv)
{
    int victim = process_argument(argc, argv, 1, 0);
    int first = process_argument(argc, argv, 2, 1);
    int last = process_argument(argc, argv, 3, 10);
    int stride = process_argument(argc, argv, 4, 1);
    test_resources before = resources_now();
    const char *process = getenv("ORIEL_PROCESS_ID");

    failing_sys_install();
    for (int n = first; n <= last; n += stride)
        attempt(n, process != NULL && strtol(process, NULL, 10) == victim);
    failing_sys_remove();
    resources_check(before, "at the end");
    return 0;
}
