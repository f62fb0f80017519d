#include "support/gpu/timing.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/world/comm.h"
#include "support/check.h"

enum { WARM_UP = 2 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double timing_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return values[n / 2];
}

const char *timing_way_text(int graphs)
{
    return graphs ? "graph" : "calls";
}

static cu_graph_exec capture(const timing_way *way, cu_stream stream, int rounds)
{
    cu_graph graph;
    cu_graph_exec exec;

    CHECK_CU(gpu.capture_begin(stream, 2));
    for (int i = 0; i < rounds; i++)
        way->call(way->arg, stream);
    CHECK_CU(gpu.capture_end(stream, &graph));
    CHECK_CU(gpu.graph_instantiate(&exec, graph, 0));
    CHECK_CU(gpu.graph_destroy(graph));
    return exec;
}

/* Seconds for one call, `rounds` in a row, as the slowest rank sees it; exec: captured. */
static double sample(oriel_comm *comm, int rank, const timing_way *way, cu_stream stream,
                     int rounds, cu_graph_exec exec)
{
    oriel_group *world = oriel_comm_world(comm);
    cu_event from, to;
    float ms = 0;
    double mine;
    double worst = 0;

    CHECK_CU(gpu.event_create(&from, 0));
    CHECK_CU(gpu.event_create(&to, 0));
    CHECK_OK(oriel_barrier(world, rank));
    CHECK_OK(oriel_barrier_on(world, rank, stream));
    CHECK_CU(gpu.event_record(from, stream));
    for (int i = 0; i < rounds && exec == NULL; i++)
        way->call(way->arg, stream);
    if (exec != NULL)
        CHECK_CU(gpu.graph_launch(exec, stream));
    CHECK_CU(gpu.event_record(to, stream));
    CHECK_CU(gpu.event_sync(to));
    CHECK_CU(gpu.event_elapsed(&ms, from, to));
    CHECK_CU(gpu.event_destroy(from));
    CHECK_CU(gpu.event_destroy(to));
    mine = (double)ms * 1e-3 / rounds;
    CHECK_OK(oriel_all_reduce(world, rank, &mine, &worst, 1, ORIEL_F64, ORIEL_MAX));
    return worst;
}

void timing_take(oriel_comm *comm, int rank, cu_stream stream, size_t bytes, int graphs,
                 timing_range range, timing_way *ways, int n)
{
    int rounds = bytes >= 64 << 20 ? 10 : bytes >= 1 << 20 ? 40 : 200;
    cu_graph_exec *execs = calloc((size_t)n, sizeof *execs);

    for (int w = 0; w < n && graphs; w++)
        execs[w] = capture(&ways[w], stream, rounds);
    for (int i = -WARM_UP; i < range.count; i++) {
        for (int w = 0; w < n; w++) {
            double t = sample(comm, rank, &ways[w], stream, rounds, execs[w]);

            if (i >= 0)
                ways[w].seconds[range.first + i] = t;
        }
    }
    for (int w = 0; w < n; w++) {
        if (execs[w] != NULL)
            CHECK_CU(gpu.exec_destroy(execs[w]));
    }
    free(execs);
}

void timing_print(const oriel_comm *comm, const timing_way *way, int graphs, size_t bytes)
{
    printf("sample {\"op\": \"%s\"%s, \"ranks\": %d, \"processes\": %d, \"way\": \"%s\", "
           "\"bytes\": %zu, \"us\": [",
           way->op, way->fields, comm->size, comm->num_processes, timing_way_text(graphs), bytes);
    for (int i = 0; i < TIMING_SAMPLES; i++)
        printf("%s%.2f", i > 0 ? ", " : "", way->seconds[i] * 1e6);
    printf("]}\n");
}
