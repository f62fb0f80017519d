/* What it saves that an operand lies in a window: each operation with an operand from malloc and
 * with one in a window, by turns, results from malloc, all touched before.
 *
 *   cc -O2 -Iinclude bench/operands_in_windows_bench.c -Lbuild/normal -loriel -o
 * operands_in_windows_bench oriel run -n 2 -- ./operands_in_windows_bench [operation [rounds [bytes
 * ...]]]   default: all_reduce 21 1048576 16777216
 *
 * A figure is the median over the rounds of the slowest rank's time, and the ratio the median of
 * the rounds' ratios, with its quartiles. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "oriel/oriel.h"

enum { MOST_ROUNDS = 1001 };
static const double batch_s = 0.003;

typedef struct setting {
    oriel_group *world;
    int rank, n;
    const char *operation;
    float *plain, *in_window, *recv;
    size_t count; /* elements of a block */
} setting;

static void must(oriel_status status)
{
    if (status == ORIEL_OK)
        return;
    fprintf(stderr, "%s\n", oriel_last_error());
    exit(1);
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void call(const setting *s, const float *send)
{
    oriel_group *w = s->world;
    int pairs[2 * 64];

    if (strcmp(s->operation, "all_reduce") == 0)
        must(oriel_all_reduce(w, s->rank, send, s->recv, s->count, ORIEL_F32, ORIEL_SUM));
    else if (strcmp(s->operation, "all_gather") == 0)
        must(oriel_all_gather(w, s->rank, send, s->recv, s->count, ORIEL_F32));
    else if (strcmp(s->operation, "reduce_scatter") == 0)
        must(oriel_reduce_scatter(w, s->rank, send, s->recv, s->count, ORIEL_F32, ORIEL_SUM));
    else if (strcmp(s->operation, "all_to_all") == 0)
        must(oriel_all_to_all(w, s->rank, send, s->recv, s->count, ORIEL_F32));
    else if (strcmp(s->operation, "broadcast") == 0)
        must(oriel_broadcast(w, s->rank, send, s->recv, s->count, ORIEL_F32, 0));
    else {
        for (int i = 0; i < s->n; i++) {
            pairs[2 * i] = i;
            pairs[2 * i + 1] = (i + 1) % s->n;
        }
        must(oriel_permute(w, s->rank, send, s->recv, s->count, ORIEL_F32, pairs, s->n));
    }
}

/* Seconds of a call, of the slowest rank. */
static double time_of(const setting *s, const float *send, int calls)
{
    double begun, mine, most;

    call(s, send);
    must(oriel_barrier(s->world, s->rank));
    begun = now_s();
    for (int i = 0; i < calls; i++)
        call(s, send);
    mine = (now_s() - begun) / calls;
    must(oriel_all_reduce(s->world, s->rank, &mine, &most, 1, ORIEL_F64, ORIEL_MAX));
    return most;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(double *values, int num, int quarters)
{
    qsort(values, (size_t)num, sizeof *values, compare);
    return values[num * quarters / 4];
}

static void measure(setting *s, size_t bytes, int rounds)
{
    static double plain[MOST_ROUNDS], in_window[MOST_ROUNDS], ratio[MOST_ROUNDS];
    int divides =
        strcmp(s->operation, "reduce_scatter") == 0 || strcmp(s->operation, "all_to_all") == 0;
    int joins = strcmp(s->operation, "all_gather") == 0;
    int calls;

    s->count = bytes / sizeof(float) / (size_t)(divides || joins ? s->n : 1);
    calls = 1 + (int)(batch_s / time_of(s, s->plain, 2));
    must(oriel_broadcast(s->world, s->rank, &calls, &calls, 1, ORIEL_S32, 0));
    for (int i = 0; i < rounds; i++) {
        if (i % 2)
            in_window[i] = time_of(s, s->in_window, calls);
        plain[i] = time_of(s, s->plain, calls);
        if (i % 2 == 0)
            in_window[i] = time_of(s, s->in_window, calls);
        ratio[i] = plain[i] / in_window[i];
    }
    if (s->rank == 0)
        printf("%s n=%d bytes=%zu malloc %.1f us window %.1f us ratio %.2f (%.2f to %.2f)\n",
               s->operation, s->n, bytes, 1e6 * quantile(plain, rounds, 2),
               1e6 * quantile(in_window, rounds, 2), quantile(ratio, rounds, 2),
               quantile(ratio, rounds, 1), quantile(ratio, rounds, 3));
}

static float *touched(void *memory, size_t bytes)
{
    if (memory == NULL)
        exit(1);
    memset(memory, 1, bytes);
    return memory;
}

static void measure_size(oriel_comm *comm, const char *operation, size_t bytes, int rounds)
{
    setting s = {.world = oriel_comm_world(comm),
                 .rank = oriel_comm_first_rank(comm),
                 .n = oriel_comm_size(comm),
                 .operation = operation};
    oriel_window *window = NULL;
    void *part = NULL;

    must(oriel_window_create(s.world, bytes, &window));
    must(oriel_window_ptr(window, s.rank, &part));
    s.in_window = touched(part, bytes);
    s.plain = touched(malloc(bytes), bytes);
    s.recv = touched(malloc(bytes), bytes);
    measure(&s, bytes, rounds);
    free(s.plain);
    free(s.recv);
    oriel_window_free(window);
}

int main(int argc, char **argv)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;
    const char *operation = argc > 1 ? argv[1] : "all_reduce";
    int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 21;
    oriel_comm *comm = NULL;

    if (rounds < 1 || rounds > MOST_ROUNDS)
        return 1;
    must(oriel_comm_create(&params, &comm));
    for (int i = 3; i < argc; i++)
        measure_size(comm, operation, (size_t)strtoull(argv[i], NULL, 10), rounds);
    if (argc <= 3) {
        measure_size(comm, operation, 1 << 20, rounds);
        measure_size(comm, operation, 16 << 20, rounds);
    }
    must(oriel_comm_destroy(comm));
    return 0;
}
