/* labels: valgrind */
/* processes: 3 */
/* Windows between processes: windows [local ranks] */
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/process.h"
#include "support/resources.h"

enum { WINDOWS = 20 };
static const double patience_s = 60.0;

static unsigned char *part_of(oriel_window *window, int rank)
{
    void *ptr = NULL;

    CHECK_OK(oriel_window_ptr(window, rank, &ptr));
    return ptr;
}

/* Every process writes to its own parts and then reads everybody's. */
static void share(oriel_comm *comm, size_t bytes)
{
    oriel_window *window = NULL;
    int first = oriel_comm_first_rank(comm);

    CHECK_OK(oriel_window_create(oriel_comm_world(comm), bytes, &window));
    for (int r = 0; r < oriel_comm_size(comm); r++)
        CHECK(part_of(window, r)[0] == 0 && part_of(window, r)[bytes - 1] == 0, "not zeroed");
    CHECK_OK(oriel_comm_barrier(comm));
    for (int r = first; r < first + oriel_comm_local_size(comm); r++)
        memset(part_of(window, r), r + 1, bytes);
    CHECK_OK(oriel_comm_barrier(comm));
    for (int r = 0; r < oriel_comm_size(comm); r++) {
        for (size_t i = 0; i < bytes; i++)
            CHECK(part_of(window, r)[i] == r + 1, "byte %zu of rank %d is %d", i, r,
                  part_of(window, r)[i]);
    }
    oriel_window_free(window);
}

/* A counter that goes round the processes: stores are seen without any call. */
static void pass_round(oriel_comm *comm)
{
    oriel_window *window = NULL;
    _Atomic uint32_t *turn;
    uint32_t n = (uint32_t)oriel_comm_num_processes(comm);
    double limit = oriel_now() + patience_s;

    CHECK_OK(oriel_window_create(oriel_comm_world(comm), sizeof *turn, &window));
    turn = (_Atomic uint32_t *)(void *)part_of(window, oriel_comm_size(comm) - 1);
    for (uint32_t i = (uint32_t)oriel_comm_process(comm); i < 50 * n; i += n) {
        while (atomic_load(turn) != i) {
            CHECK(oriel_now() < limit, "the turn is %u, waiting for %u", atomic_load(turn), i);
            oriel_relax(1);
        }
        atomic_store(turn, i + 1);
    }
    oriel_window_free(window);
}

static void find_all(oriel_comm *comm)
{
    oriel_window *windows[WINDOWS];

    for (size_t w = 0; w < WINDOWS; w++)
        CHECK_OK(oriel_window_create(oriel_comm_world(comm), 100 + w, &windows[w]));
    for (size_t w = 0; w < WINDOWS; w++) {
        for (int r = 0; r < oriel_comm_size(comm); r++) {
            oriel_window *found = NULL;
            size_t offset = 0;
            int rank = -1;

            CHECK_OK(oriel_window_find(comm, part_of(windows[w], r) + w, &found, &rank, &offset));
            CHECK(found == windows[w] && rank == r && offset == w, "rank %d, offset %zu", rank,
                  offset);
        }
    }
    for (size_t w = 0; w < WINDOWS; w += 2)
        oriel_window_free(windows[w]);
    /* the others are freed with the comm */
}

/* Sizes that differ: nobody gets the window, everybody is told, and the next one
 * is fine. */
static void disagree(oriel_comm *comm)
{
    size_t bytes = oriel_comm_process(comm) == 1 ? 4096 : 8192;
    oriel_window *window = NULL;

    if (oriel_comm_num_processes(comm) == 1)
        return;
    for (int i = 0; i < 20; i++) {
        CHECK_IS(ORIEL_ERR_MISMATCH, oriel_window_create(oriel_comm_world(comm), bytes, &window));
        CHECK(window == NULL, "a window of unequal sizes");
        CHECK_OK(oriel_window_create(oriel_comm_world(comm), 4096, &window));
        oriel_window_free(window);
        window = NULL;
    }
    bytes = oriel_comm_process(comm) == 0 ? 0 : 4096; /* wrong on one alone: all are told */
    for (int i = 0; i < 20; i++) {
        oriel_status st = oriel_window_create(oriel_comm_world(comm), bytes, &window);

        CHECK(st == ORIEL_ERR_INVALID || st == ORIEL_ERR_MISMATCH, "%s: %s", oriel_status_name(st),
              oriel_last_error());
        CHECK(strstr(oriel_last_error(), st == ORIEL_ERR_INVALID ? "bytes is 0" : "of 0 bytes") ||
                  strstr(oriel_last_error(), "of 0 on process 0"),
              "%s", oriel_last_error());
        CHECK(window == NULL, "a window of no bytes");
    }
    CHECK_IS(ORIEL_ERR_NO_RESOURCE,
             oriel_window_create(oriel_comm_world(comm), (size_t)1 << 46, &window));
    CHECK(window == NULL, "a window of 64 TiB");
    CHECK_OK(oriel_comm_check(comm));
}

/* Each pair of neighbours makes windows of its own; one frees while the other reads. */
static void neighbours(oriel_comm *comm)
{
    int n = oriel_comm_size(comm);
    int me = oriel_comm_first_rank(comm);

    if (n != oriel_comm_num_processes(comm))
        return;
    for (int i = 0; i < 2 * n; i++) {
        int pair[2] = {i % n, (i + 1) % n};
        int other = me == pair[0] ? pair[1] : pair[0];
        oriel_group *group = NULL;
        oriel_window *window = NULL;

        if (n == 1 || (me != pair[0] && me != pair[1]))
            continue;
        CHECK_OK(oriel_group_create(comm, pair, 2, &group));
        CHECK_OK(oriel_window_create(group, 20000, &window));
        CHECK(part_of(window, me)[19999] == 0, "not zeroed");
        memset(part_of(window, me), me + 1, 20000);
        CHECK_OK(oriel_barrier(group, me));
        if (me == pair[0])
            oriel_window_free(window);
        CHECK_OK(oriel_barrier(group, me));
        if (me == pair[1]) {
            for (int k = 0; k < 20000; k++)
                CHECK(part_of(window, other)[k] == other + 1, "byte %d of a window in use", k);
            oriel_window_free(window);
        }
        oriel_group_destroy(group);
    }
    CHECK_OK(oriel_comm_barrier(comm));
}

int main(int argc, char **argv)
{
    test_resources before = resources_now();
    test_resources middle;
    /* a deadline that no counter of milliseconds holds */
    oriel_comm *comm = process_comm(process_argument(argc, argv, 1, 1), 1e12, NULL);

    share(comm, 1);
    middle = resources_now();
    for (size_t bytes = 1; bytes < 100000; bytes = bytes * 7 + 1)
        share(comm, bytes);
    pass_round(comm);
    disagree(comm);
    neighbours(comm);
    resources_check(middle, "after windows");
    find_all(comm);
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "after destroy");
    return 0;
}
