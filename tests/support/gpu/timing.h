/* Times of calls on GPU streams: several ways to do one thing, taken by turns, and printed
 * for tests/gpu/report.py. */
#ifndef TESTS_SUPPORT_TIMING_H
#define TESTS_SUPPORT_TIMING_H

#include "support/gpu/gpu.h"

enum { TIMING_SAMPLES = 21 };

typedef struct timing_way {
    const char *op;
    const char *fields; /* more of its line of JSON: ", \"name\": \"value\"", or "" */
    void (*call)(const void *arg, cu_stream stream); /* puts one call on the stream */
    const void *arg;
    double seconds[TIMING_SAMPLES]; /* of a call, as the slowest rank saw it */
} timing_way;

/* Which of the samples. */
typedef struct timing_range {
    int first, count;
} timing_range;

/* Collective over the ranks of `comm`: fills some of the seconds of `n` ways, each with its
 * calls one by one or, with `graphs`, in a captured graph. All ranks meet before each
 * sample. */
void timing_take(oriel_comm *comm, int rank, cu_stream stream, size_t bytes, int graphs,
                 timing_range range, timing_way *ways, int n);
double timing_median(double *values, int n); /* sorts them */
/* "calls" or "graph" */
const char *timing_way_text(int graphs);
/* A line of JSON with all samples. */
void timing_print(const oriel_comm *comm, const timing_way *way, int graphs, size_t bytes);

#endif
