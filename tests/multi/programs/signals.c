/* processes: 2 */
/* Signals that interrupt every wait, all the time: nothing fails, nothing hangs. */
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "support/check.h"
#include "support/family.h"
#include "support/process.h"
#include "support/resources.h"

static volatile sig_atomic_t seen;

static void count(int number)
{
    (void)number;
    seen = 1;
}

/* Without SA_RESTART, so that system calls come back with EINTR. */
static void start_signals(int microseconds)
{
    struct sigaction action;
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};

    memset(&action, 0, sizeof action);
    action.sa_handler = count;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0, "no handler");
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0, "no timer");
}

int main(int argc, char **argv)
{
    int comms = process_argument(argc, argv, 1, 4);
    test_resources before = resources_now();

    start_signals(process_argument(argc, argv, 2, 500));
    for (int i = 0; i < comms; i++) {
        oriel_comm *comm = process_comm(1, 60.0, NULL);
        oriel_window *window = NULL;

        for (unsigned k = 0; k < 100; k++) {
            family_call call = family_random_of(ORIEL_KIND_ALL_REDUCE, k, 200000);
            family_check(oriel_comm_world(comm), oriel_comm_first_rank(comm), &call);
        }
        CHECK_OK(oriel_window_create(oriel_comm_world(comm), 10000, &window));
        CHECK_OK(oriel_comm_barrier(comm));
        oriel_window_free(window);
        CHECK_OK(oriel_comm_destroy(comm));
    }
    CHECK(seen, "no signal came");
    resources_check(before, "at the end");
    return 0;
}
