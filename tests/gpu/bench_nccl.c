/* all_reduce of f32 beside ncclAllReduce, plain and on symmetric windows, by turns in one
 * run: bench_nccl [RANKS [LIBRARY]]. Threads are ranks, each with a stream; under `oriel run`
 * processes as well. All share one GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/comm.h"
#include "support/check.h"
#include "support/nccl.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/timing.h"

enum { MOST = 256 << 20, WAYS = 3 };

struct way {
    oriel_group *group; /* NULL: NCCL's */
    nccl_comm nccl;
    int rank;
    size_t bytes;
    const void *send;
    void *recv;
};

static void call(const void *arg, cu_stream stream)
{
    const struct way *w = arg;
    size_t count = w->bytes / sizeof(float);

    if (w->group != NULL)
        CHECK_OK(oriel_all_reduce_on(w->group, w->rank, w->send, w->recv, count, ORIEL_F32,
                                     ORIEL_SUM, stream));
    else
        CHECK_NCCL(
            nccl.all_reduce(w->send, w->recv, count, NCCL_FLOAT32, NCCL_SUM, w->nccl, stream));
}

/* Whole numbers: sums are exact in any order. */
static float value_of(int rank, size_t i)
{
    return (float)((i * 5 + (size_t)rank * 77) & 1023);
}

static void fill(float *host, int rank)
{
    for (size_t i = 0; i < MOST / sizeof *host; i++)
        host[i] = value_of(rank, i);
}

static void check(const struct way *w, int size, cu_stream stream, float *host)
{
    cu_ptr recv = (cu_ptr)(uintptr_t)w->recv;

    CHECK_CU(oriel_cu->fill(recv, 0xff, w->bytes, stream));
    call(w, stream);
    CHECK_CU(oriel_cu->stream_sync(stream));
    gpu_get(host, recv, w->bytes);
    for (size_t i = 0; i < w->bytes / sizeof *host; i++) {
        float sum = 0;

        for (int r = 0; r < size; r++)
            sum += value_of(r, i);
        CHECK(host[i] == sum, "%s: element %zu of %zu bytes is %g, not %g",
              w->group != NULL ? "oriel" : "NCCL", i, w->bytes, (double)host[i], (double)sum);
    }
}

static void report(const oriel_comm *comm, const timing_way *ways, int graphs, size_t bytes)
{
    double us[WAYS];

    for (int w = 0; w < WAYS; w++) {
        us[w] = 1e6 * ways[w].seconds[TIMING_SAMPLES / 2];
        timing_print(comm, &ways[w], graphs, bytes);
    }
    printf("bench beside NCCL: %d ranks in %d processes, %s %9zu bytes: %7.2f us; NCCL %7.2f, "
           "on windows %7.2f; %.2f of the better\n",
           comm->size, comm->num_processes, timing_way_text(graphs), bytes, us[0], us[1], us[2],
           us[0] / fmin(us[1], us[2]));
    fflush(stdout);
}

static void measure(oriel_comm *comm, int rank, struct way *args, size_t bytes, cu_stream stream,
                    float *host)
{
    timing_way ways[WAYS] = {
        {.op = "all_reduce", .fields = ", \"beside\": \"nccl\""},
        {.op = "nccl all_reduce", .fields = ", \"memory\": \"plain\""},
        {.op = "nccl all_reduce", .fields = ", \"memory\": \"window\""},
    };

    for (int w = 0; w < WAYS; w++) {
        args[w].bytes = bytes;
        ways[w].call = call;
        ways[w].arg = &args[w];
        check(&args[w], comm->size, stream, host);
        CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    }
    for (int graphs = 0; graphs < 2; graphs++) {
        timing_take(comm, rank, stream, bytes, graphs, ways, WAYS);
        if (rank == 0)
            report(comm, ways, graphs, bytes);
    }
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    float *host = malloc(MOST);
    oriel_cuda_memory plain[2];
    nccl_memory windows[2];
    cu_stream stream;
    nccl_comm peer;

    (void)arg;
    gpu_enter();
    stream = gpu_stream();
    peer = nccl_comm_of(comm, rank);
    fill(host, rank);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(oriel_cuda_memory_create(gpu_device(), MOST, &plain[i]));
        windows[i] = nccl_memory_make(peer, MOST);
    }
    gpu_put(plain[0].base, host, MOST);
    gpu_put((cu_ptr)(uintptr_t)windows[0].at, host, MOST);
    struct way args[WAYS] = {
        {.group = oriel_comm_world(comm), .rank = rank},
        {.nccl = peer},
        {.nccl = peer, .send = windows[0].at, .recv = windows[1].at},
    };
    for (int w = 0; w < 2; w++) {
        args[w].send = gpu_pointer(plain[0].base);
        args[w].recv = gpu_pointer(plain[1].base);
    }
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    for (size_t bytes = 1 << 10; bytes <= MOST; bytes *= 4)
        measure(comm, rank, args, bytes, stream, host);
    for (int i = 0; i < 2; i++)
        nccl_memory_free(peer, &windows[i]);
    CHECK_NCCL(nccl.comm_destroy(peer));
    free(host);
}

int main(int argc, char **argv)
{
    int ranks = process_argument(argc, argv, 1, 2);
    oriel_comm *comm;

    /* A kernel that spins must not wait for one whose code the driver has yet to load. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    gpu_open();
    comm = gpu_comm(ranks, 20.0);
    nccl_open(argc > 2 ? argv[2] : "libnccl.so.2", comm->size);
    ranks_run(comm, body, NULL);
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
