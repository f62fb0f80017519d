/* processes: 2 */
/* Children of a process, with exec and without, and another comm come and go: its
 * peers do not take their end for its own. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/family.h"
#include "support/process.h"

/* Longer than the watch needs to see that a process is gone. */
static const double watched_s = 0.5;

static void fork_one(int with_exec)
{
    pid_t child = fork();
    int status = 1;

    CHECK(child >= 0, "no child");
    if (child == 0) {
        if (with_exec)
            execl("/bin/true", "true", (char *)NULL);
        _exit(with_exec);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

/* How many calls are left is agreed on, so that all make the same number. */
static int go_on(oriel_comm *comm, double until)
{
    int more = oriel_now() < until;

    CHECK_OK(oriel_all_reduce(oriel_comm_world(comm), oriel_comm_first_rank(comm), &more, &more, 1,
                              ORIEL_S32, ORIEL_MAX));
    return more;
}

int main(void)
{
    oriel_comm *comm = process_comm(1, 60.0, NULL);
    oriel_comm *other = process_comm(1, 60.0, "other");
    double until;

    for (int i = 0; i < 6; i++) {
        family_call call = family_random_of(ORIEL_KIND_ALL_REDUCE, (unsigned)i, 100000);

        fork_one(i % 2);
        family_check(oriel_comm_world(comm), oriel_comm_first_rank(comm), &call);
        family_check(oriel_comm_world(other), oriel_comm_first_rank(other), &call);
    }
    CHECK_OK(oriel_comm_destroy(other));
    until = oriel_now() + watched_s;
    while (go_on(comm, until)) {
    }
    CHECK_OK(oriel_comm_check(comm));
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
