/* What both sides of a comparison share: the data, the check of the results and
 * the clock. A side is one program, which defines the functions below and
 * includes nothing else of the other's. Usage:
 *
 *   program OPERATION BATCHES CALLS BIND SIZE...
 *
 * CALLS is the number of calls in a batch; 0: as many as fill BATCH_US. BIND is
 * "core" (each process keeps to one) or "none". SIZE counts bytes, the larger of
 * a rank's input and output. For each size rank 0 prints one line of JSON:
 *
 *   {"bytes": 8, "calls": 5000, "us": [0.61, ...]}
 *
 * with the microseconds of a call in each batch, on the slowest rank. A wrong
 * result ends the program: nothing gets fast by being wrong. */
#ifndef ORIEL_BENCH_LOOP_H
#define ORIEL_BENCH_LOOP_H

#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_RANKS = 1024, MOST_CALLS = 10000, FEWEST_WARM_UP = 3 };
static const double BATCH_US = 10e3;

enum operation {
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    BROADCAST,
    PERMUTE,
    BARRIER,
    RAGGED_ALL_TO_ALL,
    OPERATIONS
};
static const char *const operation_names[OPERATIONS] = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all",
    "broadcast",  "permute",    "barrier",        "ragged_all_to_all"};

struct call {
    enum operation op;
    int rank;
    int ranks;
    size_t elements; /* floats of the larger of input and output */
    size_t count;    /* what the operation's own argument counts */
    float *send;
    float *recv;
};

/* ---- what a side defines; each ends the program on failure -------------------- */

/* Names the variable that holds this process's number among its machine's. */
static const char *side_rank_variable(void);
static void side_open(int *argc, char ***argv, struct call *call);
/* Once for each size. */
static void side_prepare(const struct call *call);
/* Blocks until the operation is complete. A broadcast's root is index % ranks:
 * it changes, so that no root can run ahead of the others. A broadcast works in
 * place in `recv`; permute sends to the next rank. */
static void side_call(const struct call *call, long index);
static void side_barrier(const struct call *call);
/* Every value becomes the largest of all ranks. */
static void side_max(const struct call *call, double *values, int n);
static void side_close(void);

/* ---- ragged: uneven shares, of the same sum for every sender and receiver ------ */

/* What rank i sends to rank (i + distance) % ranks is in proportion to 1, 3, 1,
 * 3, ...; it lies, in input and output, at share_begin(distance). */
static size_t share_begin(const struct call *call, int distance)
{
    size_t before = (size_t)(distance / 2 * 4 + distance % 2);
    size_t all = (size_t)(call->ranks / 2 * 4 + call->ranks % 2);

    return call->elements * before / all;
}

static __attribute__((unused)) size_t share_size(const struct call *call, int distance)
{
    return share_begin(call, distance + 1) - share_begin(call, distance);
}

/* Steps from rank `from` to rank `to`, around the ring. */
static int distance(const struct call *call, int from, int to)
{
    return (to - from + call->ranks) % call->ranks;
}

/* ---- data ----------------------------------------------------------------------- */

/* Small whole numbers: their sums are exact. The period is prime, so that a
 * block in a wrong place shows. */
static float element(int rank, size_t k)
{
    return (float)(k % 97 + 1 + 128 * (size_t)rank);
}

static float sum_of_elements(const struct call *call, size_t k)
{
    float sum = 0;

    for (int rank = 0; rank < call->ranks; rank++)
        sum += element(rank, k);
    return sum;
}

static float ragged_result(const struct call *call, size_t k)
{
    int d = 0;

    while (share_begin(call, d + 1) <= k)
        d++;
    return element((call->rank - d + call->ranks) % call->ranks, k);
}

/* Element k of the right result; a broadcast's is that of root 0. */
static float result(const struct call *call, size_t k)
{
    size_t mine = (size_t)call->rank * call->count;

    switch (call->op) {
    case ALL_REDUCE:
        return sum_of_elements(call, k);
    case ALL_GATHER:
        return element((int)(k / call->count), k % call->count);
    case REDUCE_SCATTER:
        return sum_of_elements(call, mine + k);
    case ALL_TO_ALL:
        return element((int)(k / call->count), mine + k % call->count);
    case BROADCAST:
        return element(0, k);
    case PERMUTE:
        return element(distance(call, 1, call->rank), k);
    case RAGGED_ALL_TO_ALL:
        return ragged_result(call, k);
    case BARRIER:
    case OPERATIONS:
        break;
    }
    return 0;
}

static size_t result_elements(const struct call *call)
{
    return call->op == REDUCE_SCATTER ? call->count : call->elements;
}

static void check_result(const struct call *call, const char *program)
{
    for (size_t k = 0; k < call->elements; k++)
        call->recv[k] = call->op == BROADCAST ? element(call->rank, k) : -1;
    side_call(call, 0);
    for (size_t k = 0; k < result_elements(call); k++) {
        if (call->recv[k] == result(call, k))
            continue;
        fprintf(stderr, "%s: %s of %zu bytes is wrong: rank %d, element %zu is %g, not %g\n",
                program, operation_names[call->op], call->elements * sizeof(float), call->rank, k,
                (double)call->recv[k], (double)result(call, k));
        exit(1);
    }
}

static void make_buffers(struct call *call, size_t bytes)
{
    int split = call->op == ALL_GATHER || call->op == REDUCE_SCATTER || call->op == ALL_TO_ALL;

    call->elements = bytes / sizeof(float);
    call->count = split ? call->elements / (size_t)call->ranks : call->elements;
    call->send = malloc(bytes + 1);
    call->recv = malloc(bytes + 1);
    if (call->send == NULL || call->recv == NULL) {
        fprintf(stderr, "no memory for two buffers of %zu bytes\n", bytes);
        exit(1);
    }
    for (size_t k = 0; k < call->elements; k++) { /* and so every page is there */
        call->send[k] = element(call->rank, k);
        call->recv[k] = 0;
    }
    side_prepare(call);
}

/* ---- time ------------------------------------------------------------------------ */

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Microseconds of a call, on this rank. */
static double time_batch(const struct call *call, long calls)
{
    double begun;

    side_barrier(call);
    begun = now_us();
    for (long i = 0; i < calls; i++)
        side_call(call, i);
    return (now_us() - begun) / (double)calls;
}

/* Warms up, and returns how many calls fill a batch: the same on every rank,
 * because each decision is made on a time that all of them know. */
static long count_calls(const struct call *call, long wanted)
{
    long calls = wanted > 0 ? wanted : FEWEST_WARM_UP;
    double us[2], least; /* one of two, so that a pause of the machine does not count */

    for (;;) {
        for (int i = 0; i < 2; i++)
            us[i] = time_batch(call, calls);
        side_max(call, us, 2);
        least = us[0] < us[1] ? us[0] : us[1];
        if (wanted > 0)
            return wanted;
        if (least * (double)calls >= BATCH_US / 4 || calls >= MOST_CALLS)
            break;
        calls *= 4;
    }
    calls = (long)(BATCH_US / least);
    return calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : calls;
}

static void measure(struct call *call, size_t bytes, int batches, long wanted, const char *program)
{
    double us[64];
    long calls;

    make_buffers(call, bytes);
    if (call->op != BARRIER)
        check_result(call, program);
    calls = count_calls(call, wanted);
    for (int b = 0; b < batches; b++)
        us[b] = time_batch(call, calls);
    side_max(call, us, batches);
    if (call->rank == 0) {
        printf("{\"bytes\": %zu, \"calls\": %ld, \"us\": [", bytes, calls);
        for (int b = 0; b < batches; b++)
            printf("%s%.3f", b > 0 ? ", " : "", us[b]);
        printf("]}\n");
        fflush(stdout);
    }
    free(call->send);
    free(call->recv);
}

/* ---- the program ------------------------------------------------------------------ */

/* Before anything is opened, so that helping threads inherit it. The n-th
 * process takes the n-th core that this machine lets us have. */
static void keep_to_one_core(void)
{
    const char *number = getenv(side_rank_variable());
    cpu_set_t all, one;
    int nth;

    if (number == NULL || sched_getaffinity(0, sizeof(all), &all) != 0)
        return;
    nth = atoi(number) % CPU_COUNT(&all);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all) && nth-- == 0)
            CPU_SET(cpu, &one);
    }
    sched_setaffinity(0, sizeof(one), &one);
}

static enum operation find_operation(const char *name)
{
    int op = 0;

    while (op < OPERATIONS && strcmp(operation_names[op], name) != 0)
        op++;
    return (enum operation)op;
}

int main(int argc, char **argv)
{
    struct call call = {.op = argc > 5 ? find_operation(argv[1]) : OPERATIONS};
    int batches = argc > 5 ? atoi(argv[2]) : 0;

    if (call.op == OPERATIONS || batches < 1 || batches > 64) {
        fprintf(stderr, "usage: %s OPERATION BATCHES CALLS BIND SIZE...\n", argv[0]);
        return 2;
    }
    if (strcmp(argv[4], "core") == 0)
        keep_to_one_core();
    side_open(&argc, &argv, &call);
    for (int i = 5; i < argc; i++)
        measure(&call, strtoull(argv[i], NULL, 10), batches, atol(argv[3]), argv[0]);
    side_close();
    return 0;
}

#endif
