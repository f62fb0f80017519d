/* Times of the operations on one GPU, against copies of the same run: bench [ranks] [quick]
 * Threads are ranks, each with a stream; under `oriel run` processes as well. Bytes counted for n
 * ranks that each bring B: all_reduce 2nB, reduce_scatter (n+1)B, all_gather (n+n^2)B, all_to_all
 * 2nB, broadcast (n+1)B; a size named is the larger of a rank's input and output. */
#include <stdio.h>

#include "base/sys.h"
#include "core/protocol/group.h"
#include "core/world/comm.h"
#include "core/world/trace.h"
#include "support/check.h"
#include "support/gpu/gpu.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/gpu/timing.h"

enum { MOST = 256 << 20 };

static double copy_rate; /* bytes read plus written, per second */

static int quick;

struct bench {
    enum oriel_kind kind;
    const char *name;
};

static const struct bench benches[] = {
    {ORIEL_KIND_ALL_REDUCE, "all_reduce"}, {ORIEL_KIND_REDUCE_SCATTER, "reduce_scatter"},
    {ORIEL_KIND_ALL_GATHER, "all_gather"}, {ORIEL_KIND_ALL_TO_ALL, "all_to_all"},
    {ORIEL_KIND_BROADCAST, "broadcast"},   {ORIEL_KIND_BARRIER, "barrier"}};

static void call(oriel_group *g, int rank, enum oriel_kind kind, size_t bytes, cu_ptr send,
                 cu_ptr recv, cu_stream stream)
{
    size_t n = (size_t)oriel_group_size(g);
    void *in = gpu_pointer(send);
    void *out = gpu_pointer(recv);
    oriel_status st = ORIEL_OK;

    if (kind == ORIEL_KIND_ALL_REDUCE)
        st = oriel_all_reduce_on(g, rank, in, out, bytes / 4, ORIEL_F32, ORIEL_SUM, stream);
    if (kind == ORIEL_KIND_REDUCE_SCATTER)
        st = oriel_reduce_scatter_on(g, rank, in, out, bytes / 4 / n, ORIEL_F32, ORIEL_SUM, stream);
    if (kind == ORIEL_KIND_ALL_GATHER)
        st = oriel_all_gather_on(g, rank, in, out, bytes / 4 / n, ORIEL_F32, stream);
    if (kind == ORIEL_KIND_ALL_TO_ALL)
        st = oriel_all_to_all_on(g, rank, in, out, bytes / 4 / n, ORIEL_F32, stream);
    if (kind == ORIEL_KIND_BROADCAST)
        st = oriel_broadcast_on(g, rank, in, out, bytes / 4, ORIEL_F32, 0, stream);
    if (kind == ORIEL_KIND_BARRIER)
        st = oriel_barrier_on(g, rank, stream);
    CHECK_OK(st);
}

static double counted_bytes(enum oriel_kind kind, double bytes, double n)
{
    switch (kind) {
    case ORIEL_KIND_ALL_REDUCE:
    case ORIEL_KIND_ALL_TO_ALL:
        return 2 * n * bytes;
    case ORIEL_KIND_REDUCE_SCATTER:
        return (n + 1) * bytes;
    case ORIEL_KIND_ALL_GATHER:
        return (n + n * n) * bytes / n;
    case ORIEL_KIND_BROADCAST:
        return (n + 1) * bytes;
    default:
        return 0;
    }
}

struct way {
    oriel_comm *comm;
    int rank;
    enum oriel_kind kind;
    size_t bytes;
    cu_ptr send, recv;
};

static void call_way(const void *arg, cu_stream stream)
{
    const struct way *w = arg;

    call(oriel_comm_world(w->comm), w->rank, w->kind, w->bytes, w->send, w->recv, stream);
}

static void measure(oriel_comm *comm, int rank, const struct bench *b, size_t bytes, cu_ptr send,
                    cu_ptr recv, cu_stream stream, int graphs)
{
    struct way arg = {comm, rank, b->kind, bytes, send, recv};
    timing_way way = {.op = b->name, .fields = "", .call = call_way, .arg = &arg};
    double counted = counted_bytes(b->kind, (double)bytes, comm->size);
    double m;

    timing_take(comm, rank, stream, bytes, graphs, (timing_range){0, TIMING_SAMPLES}, &way, 1);
    m = timing_median(way.seconds, TIMING_SAMPLES);
    if (rank == 0) {
        printf("bench %s %d ranks in %d processes %s %zu bytes: %.2f us (%.2f to %.2f), %.0f GB/s, "
               "%.1f %% of copy\n",
               b->name, comm->size, comm->num_processes, timing_way_text(graphs), bytes, m * 1e6,
               way.seconds[0] * 1e6, way.seconds[TIMING_SAMPLES - 1] * 1e6, counted / m * 1e-9,
               100 * counted / m / copy_rate);
        timing_print(comm, &way, graphs, bytes);
        fflush(stdout);
    }
}

/* What a call costs its thread, when nobody waits: a group of one rank. */
static void measure_host(oriel_comm *comm, int rank, cu_ptr send, cu_ptr recv, cu_stream stream)
{
    enum { CALLS = 500 };
    double values[TIMING_SAMPLES];
    oriel_group *alone;

    CHECK_OK(oriel_group_intern(comm, &rank, 1, &alone));
    for (int i = 0; i < TIMING_SAMPLES; i++) {
        double began = oriel_now();

        for (int k = 0; k < CALLS; k++)
            call(alone, rank, ORIEL_KIND_ALL_REDUCE, 4096, send, recv, stream);
        values[i] = (oriel_now() - began) / CALLS;
        CHECK_CU(oriel_cu->stream_sync(stream));
    }
    printf("host cost of a call: %.2f us\n", 1e6 * timing_median(values, TIMING_SAMPLES));
}

static double measure_copy(const oriel_comm *comm, size_t bytes, cu_ptr send, cu_ptr recv,
                           cu_stream stream)
{
    timing_way way = {.op = "copy", .fields = ""};
    cu_event from, to;
    double m;

    CHECK_CU(gpu.event_create(&from, 0));
    CHECK_CU(gpu.event_create(&to, 0));
    for (int i = -2; i < TIMING_SAMPLES; i++) {
        float ms;

        CHECK_CU(gpu.event_record(from, stream));
        for (int k = 0; k < 10; k++)
            CHECK_CU(gpu.copy(recv, send, bytes, stream));
        CHECK_CU(gpu.event_record(to, stream));
        CHECK_CU(gpu.event_sync(to));
        CHECK_CU(gpu.event_elapsed(&ms, from, to));
        if (i >= 0)
            way.seconds[i] = (double)ms * 1e-4;
    }
    CHECK_CU(gpu.event_destroy(from));
    CHECK_CU(gpu.event_destroy(to));
    m = timing_median(way.seconds, TIMING_SAMPLES);
    printf("copy of %zu MiB: %.1f us, %.0f GB/s\n", bytes >> 20, 1e6 * m, 2e-9 * (double)bytes / m);
    timing_print(comm, &way, 0, bytes);
    return 2.0 * (double)bytes / m;
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    static const size_t sizes[] = {4 << 10,  64 << 10, 256 << 10, 1 << 20,
                                   16 << 20, 64 << 20, 256 << 20};
    oriel_cuda_memory memory[2];
    cu_ptr send, recv;
    cu_stream stream;

    (void)arg;
    gpu_enter();
    stream = gpu_stream();
    CHECK_OK(oriel_cuda_memory_create(gpu_device(), MOST, &memory[0]));
    CHECK_OK(oriel_cuda_memory_create(gpu_device(), MOST, &memory[1]));
    send = memory[0].base;
    recv = memory[1].base;
    CHECK_CU(oriel_cu->fill(send, (unsigned char)(60 + rank), MOST, stream));
    CHECK_CU(oriel_cu->stream_sync(stream));
    if (rank == 0) {
        measure_copy(comm, 16 << 20, send, recv, stream);
        measure_copy(comm, 64 << 20, send, recv, stream);
        copy_rate = measure_copy(comm, MOST, send, recv, stream);
        measure_host(comm, rank, send, recv, stream);
    }
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    measure(comm, rank, &benches[5], 0, send, recv, stream, 0);
    measure(comm, rank, &benches[5], 0, send, recv, stream, 1);
    for (size_t k = 0; k < (quick ? 1 : 5); k++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            measure(comm, rank, &benches[k], sizes[s], send, recv, stream, 0);
            if (k == 0 && sizes[s] <= 1 << 20)
                measure(comm, rank, &benches[k], sizes[s], send, recv, stream, 1);
        }
    }
}

int main(int argc, char **argv)
{
    int ranks = process_argument(argc, argv, 1, 2);
    oriel_comm *comm;

    gpu_open();
    quick = process_argument(argc, argv, 2, 0);
    comm = gpu_comm(ranks, 20.0);
    ranks_run(comm, body, NULL);
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
