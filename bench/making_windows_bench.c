/* What making a window costs beyond a meeting of the same processes, and whether it costs more
 * where there are many already:
 *
 *     cc -O2 -Iinclude bench/making_windows_bench.c -Lbuild/normal -loriel -Wl,-rpath,build/normal
 *     oriel run -n 64 -- ./a.out [rounds] [bytes] [windows]     default: 21 67108864 10000
 *
 * The time of a round is that of the slowest process, and reported is the median of the rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "oriel/oriel.h"

enum { MOST = 16384, NEIGHBOURS = 50 };

static void must(oriel_status st)
{
    if (st == ORIEL_OK)
        return;
    fprintf(stderr, "making_windows_bench: %s\n", oriel_last_error());
    exit(1);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static double slowest(oriel_comm *comm, double mine)
{
    must(oriel_all_reduce(oriel_comm_world(comm), oriel_comm_first_rank(comm), &mine, &mine, 1,
                          ORIEL_F64, ORIEL_MAX));
    return mine;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;

    return (left > right) - (left < right);
}

static double median(double *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, compare);
    return times[n / 2];
}

static double time_meeting(oriel_comm *comm)
{
    double begun;

    must(oriel_comm_barrier(comm));
    begun = now_us();
    must(oriel_comm_barrier(comm));
    return slowest(comm, now_us() - begun);
}

static double time_making(oriel_comm *comm, size_t bytes, oriel_window **window_p)
{
    double begun;

    must(oriel_comm_barrier(comm));
    begun = now_us();
    must(oriel_window_create(oriel_comm_world(comm), bytes, window_p));
    return slowest(comm, now_us() - begun);
}

/* By turns, so that both see the same machine. */
static void compare_with_meeting(oriel_comm *comm, int rounds, size_t bytes)
{
    static double meetings[MOST];
    static double makings[MOST];
    oriel_window *window = NULL;
    double first = time_making(comm, bytes, &window);

    for (int i = 0; i < rounds; i++) {
        oriel_window_free(window);
        meetings[i] = time_meeting(comm);
        makings[i] = time_making(comm, bytes, &window);
    }
    oriel_window_free(window);
    if (oriel_comm_process(comm) == 0)
        printf("{\"processes\": %d, \"bytes\": %zu, \"rounds\": %d, \"meeting_us\": %.1f, "
               "\"window_us\": %.1f, \"first_window_us\": %.1f}\n",
               oriel_comm_num_processes(comm), bytes, rounds, median(meetings, rounds),
               median(makings, rounds), first);
}

/* The median of the first and of the last, as process 0 sees them: no meeting but their own. */
static void make_many(oriel_comm *comm, int count)
{
    static oriel_window *windows[MOST];
    static double times[MOST];
    int n = count < NEIGHBOURS ? count : NEIGHBOURS;

    for (int i = 0; i < count; i++) {
        double begun = now_us();

        must(oriel_window_create(oriel_comm_world(comm), 64, &windows[i]));
        times[i] = now_us() - begun;
    }
    if (oriel_comm_process(comm) == 0)
        printf("{\"processes\": %d, \"windows\": %d, \"median_of\": %d, \"first_us\": %.1f, "
               "\"last_us\": %.1f}\n",
               oriel_comm_num_processes(comm), count, n, median(times, n),
               median(times + count - n, n));
    for (int i = 0; i < count; i++)
        oriel_window_free(windows[i]);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 21;
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : (size_t)64 << 20;
    int count = argc > 3 ? atoi(argv[3]) : 10000;
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;
    oriel_comm *comm = NULL;

    if (rounds < 1 || rounds > MOST || count < 0 || count > MOST) {
        fprintf(stderr, "making_windows_bench [rounds] [bytes] [windows], at most %d of each\n",
                MOST);
        return 2;
    }
    must(oriel_comm_create(&params, &comm));
    compare_with_meeting(comm, rounds, bytes);
    if (count > 0)
        make_many(comm, count);
    must(oriel_comm_destroy(comm));
    return 0;
}
