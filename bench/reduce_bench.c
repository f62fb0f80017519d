/* How fast oriel_reduce is: GB/s of memory traffic (bytes read and written) for
 * each dtype and op with two sources, next to memcpy over the same destination.
 *
 *   reduce_bench [sources [bytes ...]]     default: 2 131072 67108864 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ops/reduce/kernels.h"

#define MAX_SOURCES 16
#define TRIALS      9
#define TRIAL_NS    2e6 /* short calls are repeated to fill this time */

typedef struct setting {
    void *dst;
    void *src[MAX_SOURCES];
    int n;
    size_t bytes;
} setting;

typedef struct job {
    const oriel_reduce_kernels *kernels; /* NULL: memcpy */
    oriel_dtype dtype;
    oriel_redop op;
} job;

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static void job_run(const job *j, const setting *s)
{
    if (j->kernels == NULL)
        memcpy(s->dst, s->src[0], s->bytes);
    else
        oriel_reduce_with(j->kernels, s->dst, (const void *const *)s->src, s->n,
                          s->bytes / oriel_dtype_size(j->dtype), j->dtype, j->op);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median of the trials, in GB/s. */
static double job_measure(const job *j, const setting *s)
{
    double rate[TRIALS];
    int streams = j->kernels == NULL ? 2 : s->n + 1;

    job_run(j, s);
    for (int t = 0; t < TRIALS; t++) {
        double start = now_ns(), end;
        long calls = 0;

        do {
            job_run(j, s);
            calls++;
            end = now_ns();
        } while (end - start < TRIAL_NS);
        rate[t] = (double)calls * streams * (double)s->bytes / (end - start);
    }
    qsort(rate, TRIALS, sizeof(rate[0]), compare_doubles);
    return rate[TRIALS / 2];
}

static void bench_size(const setting *s)
{
    job copy = {.kernels = NULL};

    printf("\n%zu bytes, %d sources, GB/s read and written\n", s->bytes, s->n);
    printf("%-6s %-10s %8.1f\n", "libc", "memcpy", job_measure(&copy, s));
    for (int k = 0; oriel_reduce_kernels_get(k) != NULL; k++) {
        job j = {.kernels = oriel_reduce_kernels_get(k)};

        printf("%-6s %-10s", j.kernels->name, "");
        for (int op = 0; op < ORIEL_REDOP_COUNT; op++)
            printf(" %8s", oriel_redop_name((oriel_redop)op));
        printf("\n");
        for (int d = 0; d < ORIEL_DTYPE_COUNT; d++) {
            j.dtype = (oriel_dtype)d;
            printf("%-6s %-10s", j.kernels->name, oriel_dtype_name(j.dtype));
            for (int op = 0; op < ORIEL_REDOP_COUNT; op++) {
                j.op = (oriel_redop)op;
                if (!oriel_reduce_supported(j.dtype, j.op))
                    continue;
                printf(" %8.1f", job_measure(&j, s));
            }
            printf("\n");
        }
    }
}

/* Small numbers of every dtype: no NaN, infinity or subnormal slows an op. */
static void *buffer_create(size_t bytes, int seed)
{
    unsigned char *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

    if (p == NULL) {
        fprintf(stderr, "reduce_bench: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(p, 0x3c + seed % 2, bytes);
    return p;
}

int main(int argc, char **argv)
{
    static const size_t default_bytes[] = {128 << 10, 64 << 20};
    int n = argc > 1 ? atoi(argv[1]) : 2;
    int sizes = argc > 2 ? argc - 2 : 2;

    if (n < 2 || n > MAX_SOURCES) {
        fprintf(stderr, "reduce_bench: 2 to %d sources\n", MAX_SOURCES);
        return 2;
    }
    for (int i = 0; i < sizes; i++) {
        setting s = {.n = n};

        s.bytes = argc > 2 ? strtoull(argv[2 + i], NULL, 0) : default_bytes[i];
        s.dst = buffer_create(s.bytes, 0);
        for (int k = 0; k < n; k++)
            s.src[k] = buffer_create(s.bytes, k);
        bench_size(&s);
        for (int k = 0; k < n; k++)
            free(s.src[k]);
        free(s.dst);
    }
    return 0;
}
