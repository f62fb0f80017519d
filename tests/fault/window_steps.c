/* One process is killed or stopped in a step of making or freeing a window:
 *
 *     window_steps victim step kill|stop [timeout in ms]
 *
 * The others make and free windows until one fails, and say when and how. With a step of "any" all
 * do, and who ends the victim chooses the moment. One that was stopped and goes on is told, too. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/sys.h"
#include "core/memory/window.h"
#include "support/check.h"
#include "support/process.h"
#include "support/resources.h"

enum { ROUNDS = 5, BYTES = 20000, MANY = 100 * 1000 * 1000 };

/* As oriel_window_create has it. */
static uint64_t next_key(oriel_group *group)
{
    return oriel_mix(group->hash ^ oriel_mix(atomic_fetch_add(&group->windows, 1))) | 1;
}

/* Of the world, then of the process and its neighbour where their number is even. */
static oriel_status make_two(oriel_comm *comm, unsigned i)
{
    int me = oriel_comm_first_rank(comm);
    int pair[2] = {me & ~1, me | 1};
    oriel_window *windows[2] = {NULL};
    oriel_group *group = NULL;
    oriel_status st = oriel_window_create(oriel_comm_world(comm), BYTES + i % 5000, &windows[0]);
    void *part = NULL;

    if (st == ORIEL_OK && oriel_comm_size(comm) % 2 == 0)
        st = oriel_group_create(comm, pair, 2, &group);
    if (st == ORIEL_OK && group != NULL)
        st = oriel_window_create(group, BYTES, &windows[1]);
    for (int w = 0; st == ORIEL_OK && w < 2 && windows[w] != NULL; w++) {
        CHECK_OK(oriel_window_ptr(windows[w], me, &part));
        CHECK(((unsigned char *)part)[BYTES - 1] == 0, "not zeroed");
        memset(part, 1, BYTES);
    }
    oriel_window_free(windows[i % 2]);
    oriel_window_free(windows[1 - i % 2]);
    oriel_group_destroy(group);
    return st;
}

static void be_gone(const char *how)
{
    fflush(stdout);
    raise(strcmp(how, "kill") == 0 ? SIGKILL : SIGSTOP);
}

/* Goes as far as the step, and no further; whoever goes on then is told. */
static void go_to(oriel_comm *comm, const char *step, const char *how)
{
    oriel_group *world = oriel_comm_world(comm);
    uint64_t bit = 1ull << comm->process;
    heap_meeting *meeting = NULL;
    heap_window *window = NULL;

    if (strcmp(step, "lock") == 0)
        CHECK_OK(oriel_table_lock(comm));
    if (strcmp(step, "lock") != 0 && strcmp(step, "before") != 0)
        CHECK_OK(oriel_making_come(world, next_key(world), BYTES + ROUNDS, &meeting));
    if (strcmp(step, "counted") == 0 || strcmp(step, "ready") == 0)
        atomic_fetch_add(&meeting->come, 1);
    if (strcmp(step, "ready") == 0)
        atomic_fetch_or(&meeting->who[0], bit);
    if (strcmp(step, "heard") == 0 || strcmp(step, "let_go") == 0 || strcmp(step, "giving") == 0)
        CHECK_OK(oriel_making_end(world, meeting, ORIEL_OK, &window));
    if (strcmp(step, "let_go") == 0 || strcmp(step, "giving") == 0)
        oriel_table_let_go(comm, window);
    if (strcmp(step, "giving") == 0)
        CHECK_OK(oriel_table_lock(comm));
    be_gone(how);
    if (strcmp(step, "come") == 0)
        CHECK(oriel_making_end(world, meeting, ORIEL_OK, &window) != ORIEL_OK, "a late window");
    if (strcmp(step, "lock") == 0 || strcmp(step, "giving") == 0)
        oriel_table_unlock(comm);
}

int main(int argc, char **argv)
{
    int victim = process_argument(argc, argv, 1, 1);
    const char *step = argc > 2 ? argv[2] : "any";
    test_resources before = resources_now();
    oriel_comm *comm = process_comm(1, process_argument(argc, argv, 4, 60000) * 1e-3, NULL);
    oriel_status st = ORIEL_OK;
    unsigned i = 0;

    for (; i < ROUNDS; i++)
        CHECK_OK(make_two(comm, i));
    printf("ready\n");
    fflush(stdout);
    if (comm->process == victim && strcmp(step, "any") != 0)
        go_to(comm, step, argc > 3 ? argv[3] : "kill");
    while (st == ORIEL_OK && i < MANY)
        st = make_two(comm, i++);
    printf("failed %.6f rank %d %s %s\n", oriel_now(), oriel_comm_first_rank(comm),
           oriel_status_name(st), oriel_last_error());
    CHECK(make_two(comm, i) != ORIEL_OK, "a revoked comm still makes windows");
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "after the failure");
    printf("clean\n");
    return 0;
}
