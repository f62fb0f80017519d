/* The 1st, 2nd, 3rd ... call of the system fails on one process, until none is left
 * to fail: nothing is left behind, nobody waits, every process has the same status.
 *
 *     sweep phase victim [local ranks] [lenient]
 *
 * with phase of create (the comm is made), use (windows, groups, started requests), windows (many,
 * of all and of some), sleep (as use: waits that do not sleep), read (operations that read the
 * others' memory) and destroy (window and comm are given up). Lenient: the victim holds the store,
 * so that the others may learn no more than that it did not work. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/world/comm.h"
#include "support/check.h"
#include "support/failing_sys.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/resources.h"
#include "support/values.h"

enum { MOST = 2000 };
static const double soon_s = 10.0; /* less than any deadline here */
static const double deadline_s = 60.0;

struct sweep {
    const char *phase;
    int victim;
    int local_ranks;
    int lenient;
    oriel_comm *control; /* where the processes compare; its calls never fail */
};

static void arm(const struct sweep *sweep, long n)
{
    static const int errors[] = {ENOMEM, EMFILE, EIO};

    failing_sys_arm(oriel_comm_process(sweep->control) == sweep->victim ? n : 0, errors[n % 3]);
}

static void make_comm(const struct sweep *sweep, oriel_comm **comm_p, oriel_status *status_p)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;

    params.local_ranks = sweep->local_ranks;
    params.timeout_s = deadline_s;
    params.job = "sweep";
    *status_p = oriel_comm_create(&params, comm_p);
    CHECK((*status_p == ORIEL_OK) == (*comm_p != NULL), "%s", oriel_status_name(*status_p));
}

static oriel_status sweep_create(const struct sweep *sweep, long n)
{
    oriel_comm *comm = NULL;
    oriel_status st;

    arm(sweep, n);
    make_comm(sweep, &comm, &st);
    failing_sys_disarm();
    oriel_comm_abandon(comm); /* not collective: the outcomes are compared afterwards */
    return st;
}

/* Local calls of one rank: one that fails has sent nothing, and works the next time. */
static void start_all_reduce(oriel_group *group, int rank)
{
    enum { COUNT = 50, SEED = 7 };
    test_buffer buffer = buffer_make(COUNT * sizeof(float), 0);
    oriel_request *request = NULL;
    oriel_status st = ORIEL_ERR_SYSTEM;

    values_fill(buffer.data, COUNT, ORIEL_F32, ORIEL_SUM, rank, SEED);
    for (int i = 0; i < 2 && st == ORIEL_ERR_SYSTEM; i++)
        st = oriel_all_reduce_start(group, rank, buffer.data, buffer.data, COUNT, ORIEL_F32,
                                    ORIEL_SUM, &request);
    CHECK_OK(st);
    CHECK_OK(oriel_request_wait(request));
    CHECK(values_wrong(buffer.data, COUNT, ORIEL_F32, ORIEL_SUM, group->ranks, group->n, SEED) < 0,
          "rank %d", rank);
    buffer_free(&buffer);
}

/* Needs memory of its own while it runs: all rows go to the next member. */
static void start_ragged(oriel_group *group, int rank)
{
    enum { ROWS = 100000 };
    int n = group->n;
    int index = oriel_group_index(group, rank);
    int64_t sizes[2 * HEAP_MAX_RANKS] = {0};
    int64_t zeros[HEAP_MAX_RANKS] = {0};
    test_buffer send = buffer_make(ROWS, 0);
    test_buffer recv = buffer_make(ROWS, 0);
    oriel_ragged ragged = ORIEL_RAGGED_INIT;
    oriel_request *request = NULL;
    oriel_status st = ORIEL_ERR_SYSTEM;

    sizes[(index + 1) % n] = ROWS;
    sizes[n + (index + n - 1) % n] = ROWS;
    ragged.send_rows = ragged.recv_rows = ROWS;
    ragged.input_offsets = ragged.output_offsets = zeros;
    ragged.send_sizes = sizes;
    ragged.recv_sizes = sizes + n;
    memset(send.data, 1 + index, ROWS);
    for (int i = 0; i < 2 && st == ORIEL_ERR_SYSTEM; i++)
        st = oriel_ragged_all_to_all_start(group, rank, send.data, recv.data, ORIEL_U8, &ragged,
                                           &request);
    CHECK_OK(st);
    CHECK_OK(oriel_request_wait(request));
    for (size_t i = 0; i < ROWS; i++)
        CHECK(recv.data[i] == 1 + (index + n - 1) % n, "rank %d, row %zu", rank, i);
    buffer_free(&send);
    buffer_free(&recv);
}

/* The list is copied. */
static void start_list(oriel_group *group, int rank)
{
    enum { COUNT = 50, NUM = 3, SEED = 9 };
    test_buffer buffer = buffer_make(COUNT * NUM * sizeof(float), 0);
    oriel_request *request = NULL;
    oriel_status st = ORIEL_ERR_SYSTEM;
    oriel_array arrays[NUM];

    values_fill(buffer.data, COUNT * NUM, ORIEL_F32, ORIEL_SUM, rank, SEED);
    for (int i = 0; i < NUM; i++) {
        float *at = (float *)(void *)buffer.data + i * COUNT;

        arrays[i] = (oriel_array){at, at, COUNT};
    }
    for (int i = 0; i < 3 && st == ORIEL_ERR_SYSTEM; i++)
        st = oriel_all_reduce_many_start(group, rank, arrays, NUM, ORIEL_F32, ORIEL_SUM, &request);
    CHECK_OK(st);
    CHECK_OK(oriel_request_wait(request));
    CHECK(values_wrong(buffer.data, COUNT * NUM, ORIEL_F32, ORIEL_SUM, group->ranks, group->n,
                       SEED) < 0,
          "rank %d", rank);
    buffer_free(&buffer);
}

static void use_rank(oriel_comm *comm, int rank, void *arg)
{
    (void)comm;
    start_all_reduce(arg, rank);
    start_ragged(arg, rank);
    start_list(arg, rank);
}

static void use_group(oriel_comm *comm)
{
    int ranks[HEAP_MAX_RANKS];
    oriel_group *group = NULL;
    oriel_status st = ORIEL_ERR_SYSTEM;

    for (int r = 0; r < oriel_comm_size(comm); r++)
        ranks[r] = oriel_comm_size(comm) - 1 - r;
    for (int i = 0; i < 2 && st == ORIEL_ERR_SYSTEM; i++)
        st = oriel_group_create(comm, ranks, oriel_comm_size(comm), &group);
    CHECK_OK(st);
    ranks_run(comm, use_rank, group);
    oriel_group_destroy(group);
}

/* The victim must wait for the others, and sleep: as long as it may take to come that far. */
static void pause_for_others(void)
{
    FILE *file = fopen("/proc/loadavg", "r");
    int load = 0;

    if (file != NULL && fscanf(file, "%d", &load) != 1)
        load = 0;
    if (file != NULL)
        fclose(file);
    poll(NULL, 0, 20 + 40 * load);
}

static oriel_status sweep_use(const struct sweep *sweep, long n)
{
    oriel_window *first = NULL;
    oriel_window *second = NULL;
    oriel_comm *comm = NULL;
    oriel_status made;
    oriel_status st;

    make_comm(sweep, &comm, &made);
    CHECK_OK(made);
    arm(sweep, n);
    if (strcmp(sweep->phase, "sleep") == 0 && oriel_comm_process(comm) != sweep->victim)
        pause_for_others();
    use_group(comm);
    st = oriel_window_create(oriel_comm_world(comm), 5000, &first);
    if (st != ORIEL_OK) {
        CHECK(strlen(oriel_last_error()) > 0, "no sentence");
        CHECK(oriel_comm_process(comm) == sweep->victim ||
                  strstr(oriel_last_error(), "process") != NULL,
              "%s", oriel_last_error());
        CHECK_OK(oriel_comm_check(comm)); /* a failure that all know revokes nothing */
        CHECK_OK(oriel_window_create(oriel_comm_world(comm), 5000, &second));
    }
    failing_sys_disarm();
    oriel_window_free(first);
    oriel_window_free(second);
    CHECK_OK(oriel_comm_destroy(comm));
    return st;
}

/* A thread that wakes up too early looks again. */
static oriel_status sweep_sleep(const struct sweep *sweep, long n)
{
    failing_sys_only("futex_wait");
    CHECK_OK(sweep_use(sweep, n));
    failing_sys_only(NULL);
    return ORIEL_OK;
}

/* Large calls until some have read the others' memory, which is all that an operation
 * cannot do without: it fails everywhere. */
static oriel_status read_others(oriel_comm *comm)
{
    enum { CALLS = 40, LARGE = 1200 * 1000 };
    size_t n = (size_t)oriel_comm_size(comm);
    int rank = oriel_comm_first_rank(comm);
    test_buffer send = buffer_make(LARGE, 0);
    test_buffer recv = buffer_make(n * LARGE, 0);
    oriel_status st = ORIEL_OK;

    for (int i = 0; i < CALLS && st == ORIEL_OK; i++) {
        memset(send.data, rank + i, LARGE);
        st = oriel_all_gather(oriel_comm_world(comm), rank, send.data, recv.data, LARGE, ORIEL_U8);
        for (size_t k = 0; k < n && st == ORIEL_OK; k++)
            CHECK(recv.data[k * LARGE] == (int)k + i &&
                      recv.data[(k + 1) * LARGE - 1] == (int)k + i,
                  "call %d: what rank %zu has sent", i, k);
    }
    buffer_free(&send);
    buffer_free(&recv);
    return st;
}

static oriel_status sweep_read(const struct sweep *sweep, long n)
{
    oriel_comm *comm = NULL;
    oriel_status st;

    make_comm(sweep, &comm, &st);
    CHECK_OK(st);
    comm->cache = 0; /* as if no cache held anything: then reading is tried soon */
    failing_sys_only("read_memory");
    arm(sweep, n);
    st = read_others(comm);
    failing_sys_disarm();
    failing_sys_only(NULL);
    if (st != ORIEL_OK) {
        check_says("all_gather", "could not read what others send", NULL);
        CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    }
    CHECK_OK(oriel_comm_destroy(comm));
    return st;
}

/* Teardown asks for nothing that it cannot do without. */
static oriel_status sweep_destroy(const struct sweep *sweep, long n)
{
    oriel_window *window = NULL;
    oriel_comm *comm = NULL;
    oriel_status st;

    make_comm(sweep, &comm, &st);
    CHECK_OK(st);
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), 5000, &window));
    arm(sweep, n);
    oriel_window_free(window);
    CHECK_OK(oriel_comm_destroy(comm));
    failing_sys_disarm();
    return ORIEL_OK;
}

/* A failure that all know: the next one is made. */
static oriel_status make_window(oriel_group *group, size_t bytes, oriel_window **window_p)
{
    oriel_status st = oriel_window_create(group, bytes, window_p);

    if (st == ORIEL_OK)
        return st;
    CHECK(*window_p == NULL, "a window in spite of %s", oriel_last_error());
    check_says("process ", NULL);
    CHECK_OK(oriel_comm_check(group->comm));
    CHECK_OK(oriel_window_create(group, bytes, window_p));
    return st;
}

/* Of the arena: what all windows together take. */
static long long taken(const oriel_comm *comm)
{
    struct stat file;

    CHECK(fstat(comm->arena.fd, &file) == 0, "no arena");
    return (long long)file.st_blocks;
}

/* Windows of all and of the first two processes, more than there is room for at first, which are
 * freed in another order. */
static oriel_status sweep_windows(const struct sweep *sweep, long n)
{
    enum { WINDOWS = 20 };
    oriel_window *windows[WINDOWS] = {NULL};
    int firsts[2] = {0, sweep->local_ranks};
    oriel_group *groups[2] = {NULL};
    oriel_status worst = ORIEL_OK;
    oriel_comm *comm = NULL;
    oriel_status st;
    int status;

    make_comm(sweep, &comm, &st);
    CHECK_OK(st);
    groups[0] = oriel_comm_world(comm);
    CHECK_OK(
        oriel_group_create(comm, firsts, oriel_comm_num_processes(comm) > 1 ? 2 : 1, &groups[1]));
    arm(sweep, n);
    for (int i = 0; i < WINDOWS; i++) {
        void *part = NULL;

        if (i % 2 == 1 && oriel_comm_process(comm) > 1)
            continue;
        st = make_window(groups[i % 2], 1000 * (size_t)(i + 1), &windows[i]);
        worst = st > worst ? st : worst;
        CHECK_OK(oriel_window_ptr(windows[i], 0, &part));
        *(char *)part = 1;
    }
    for (int i = 0; i < WINDOWS; i++)
        oriel_window_free(windows[i * 7 % WINDOWS]);
    failing_sys_disarm();
    CHECK_OK(oriel_comm_barrier(comm));
    CHECK(taken(comm) == 0, "%lld blocks of windows are left", taken(comm));
    oriel_group_destroy(groups[1]);
    CHECK_OK(oriel_comm_destroy(comm));
    status = (int)worst; /* what the first two alone have seen, too */
    CHECK_OK(oriel_all_reduce(oriel_comm_world(sweep->control),
                              oriel_comm_first_rank(sweep->control), &status, &status, 1, ORIEL_S32,
                              ORIEL_MAX));
    return (oriel_status)status;
}

static oriel_status attempt(const struct sweep *sweep, long n)
{
    long held = failing_sys_held();
    double begun = oriel_now();
    const char *failed;
    oriel_status st;

    if (strcmp(sweep->phase, "create") == 0)
        st = sweep_create(sweep, n);
    else if (strcmp(sweep->phase, "use") == 0)
        st = sweep_use(sweep, n);
    else if (strcmp(sweep->phase, "windows") == 0)
        st = sweep_windows(sweep, n);
    else if (strcmp(sweep->phase, "read") == 0)
        st = sweep_read(sweep, n);
    else if (strcmp(sweep->phase, "sleep") == 0)
        st = sweep_sleep(sweep, n);
    else
        st = sweep_destroy(sweep, n);
    failed = failing_sys_victim();
    /* Less: the control comm had not yet closed the connection of its last peer. */
    CHECK(failing_sys_held() <= held, "call %ld (%s): %ld more are held", n,
          failed ? failed : "none", failing_sys_held() - held);
    CHECK(st == ORIEL_OK || strcmp(sweep->phase, "windows") == 0 || strlen(oriel_last_error()) > 0,
          "no sentence");
    CHECK(sweep->lenient || oriel_now() - begun < soon_s, "call %ld: %s after %.1f s", n,
          oriel_status_name(st), oriel_now() - begun);
    if (failed != NULL)
        printf("call %ld %s: %s %s\n", n, failed, oriel_status_name(st),
               st == ORIEL_OK ? "" : oriel_last_error());
    return st;
}

/* Whether a call failed somewhere; all processes must have the same outcome. */
static int compare(const struct sweep *sweep, long n, oriel_status st)
{
    int mine[2] = {(int)st, failing_sys_victim() != NULL};
    int least[2];
    int most[2];
    oriel_group *world = oriel_comm_world(sweep->control);
    int rank = oriel_comm_first_rank(sweep->control);

    CHECK_OK(oriel_all_reduce(world, rank, mine, least, 2, ORIEL_S32, ORIEL_MIN));
    CHECK_OK(oriel_all_reduce(world, rank, mine, most, 2, ORIEL_S32, ORIEL_MAX));
    CHECK(least[0] == most[0] || (sweep->lenient && least[0] != ORIEL_OK),
          "call %ld: %s here, %s and %s elsewhere: %s", n, oriel_status_name(st),
          oriel_status_name((oriel_status)least[0]), oriel_status_name((oriel_status)most[0]),
          oriel_last_error());
    CHECK(most[1] || st == ORIEL_OK, "call %ld: nothing was made to fail: %s", n,
          oriel_last_error());
    return most[1];
}

int main(int argc, char **argv)
{
    struct sweep sweep = {.phase = argc > 1 ? argv[1] : "create",
                          .victim = process_argument(argc, argv, 2, 0),
                          .local_ranks = process_argument(argc, argv, 3, 1),
                          .lenient = process_argument(argc, argv, 4, 0)};
    test_resources before = resources_now();
    long n = 1;

    failing_sys_install();
    failing_sys_spare(1);
    sweep.control = process_comm(1, 60.0, "control");
    failing_sys_spare(0);
    while (n < MOST && compare(&sweep, n, attempt(&sweep, n)))
        n++;
    CHECK(n < MOST, "there is always one more call");
    printf("swept %ld\n", n - 1);
    CHECK_OK(oriel_comm_destroy(sweep.control));
    failing_sys_remove();
    resources_check(before, "at the end");
    return 0;
}
