/* all_reduce of f32 beside ncclAllReduce, plain and on symmetric windows, by turns in one
 * run: bench_nccl [RANKS [LIBRARY]]. Threads are ranks, each with a stream; under `oriel run`
 * processes as well. All share one GPU. With ORIEL_FABRIC=nccl oriel too works on the windows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/device/device.h"
#include "support/check.h"
#include "support/gpu/nccl.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/gpu/timing.h"

/* What limits small calls is how fast threads launch, which changes from one moment to the
 * next: so the sizes are gone through several times. */
enum { MOST = 256 << 20, WAYS = 3, SIZES = 10, PASSES = 3 };
_Static_assert(TIMING_SAMPLES % PASSES == 0, "all samples are taken");

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

static size_t size_of(int s)
{
    return (size_t)1 << (10 + 2 * s);
}

static void check_all(oriel_comm *comm, int rank, struct way *args, cu_stream stream, float *host)
{
    for (int s = 0; s < SIZES; s++) {
        for (int w = 0; w < WAYS; w++) {
            CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
            args[w].bytes = size_of(s);
            check(&args[w], comm->size, stream, host);
        }
    }
}

static void report(const oriel_comm *comm, timing_way *ways, int graphs, size_t bytes)
{
    double us[WAYS];

    for (int w = 0; w < WAYS; w++) {
        us[w] = 1e6 * timing_median(ways[w].seconds, TIMING_SAMPLES);
        timing_print(comm, &ways[w], graphs, bytes);
    }
    printf("bench beside NCCL%s: %d ranks in %d processes, %s %9zu bytes: %7.2f us; NCCL %7.2f, "
           "on windows %7.2f; %.2f of the better\n",
           comm->devices->nccl != NULL ? ", on its windows" : "", comm->size, comm->num_processes,
           timing_way_text(graphs), bytes, us[0], us[1], us[2], us[0] / fmin(us[1], us[2]));
    fflush(stdout);
}

static void take(oriel_comm *comm, int rank, struct way *args, timing_way *ways, int graphs,
                 size_t bytes, int pass, cu_stream stream)
{
    static const char *const ops[WAYS] = {"all_reduce", "nccl all_reduce", "nccl all_reduce"};
    static const char *const fields[2][WAYS] = {
        {", \"beside\": \"nccl\"", ", \"memory\": \"plain\"", ", \"memory\": \"window\""},
        {", \"beside\": \"nccl\", \"fabric\": \"nccl\"",
         ", \"memory\": \"plain\", \"fabric\": \"nccl\"",
         ", \"memory\": \"window\", \"fabric\": \"nccl\""}};
    const int count = TIMING_SAMPLES / PASSES;

    for (int w = 0; w < WAYS && pass == 0; w++)
        ways[w] = (timing_way){
            .op = ops[w], .fields = fields[comm->devices->nccl != NULL][w], .call = call};
    for (int w = 0; w < WAYS; w++) {
        args[w].bytes = bytes;
        ways[w].arg = &args[w];
    }
    timing_take(comm, rank, stream, bytes, graphs, (timing_range){pass * count, count}, ways, WAYS);
}

static void measure(oriel_comm *comm, int rank, struct way *args, cu_stream stream)
{
    timing_way(*table)[2][WAYS] = calloc(SIZES, sizeof *table);

    for (int pass = 0; pass < PASSES; pass++) {
        for (int s = 0; s < SIZES; s++) {
            take(comm, rank, args, table[s][0], 0, size_of(s), pass, stream);
            take(comm, rank, args, table[s][1], 1, size_of(s), pass, stream);
        }
    }
    for (int s = 0; s < SIZES && rank == 0; s++) {
        report(comm, table[s][0], 0, size_of(s));
        report(comm, table[s][1], 1, size_of(s));
    }
    free(table);
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
    if (comm->devices->nccl != NULL) {
        args[0].send = windows[0].at;
        args[0].recv = windows[1].at;
    }
    check_all(comm, rank, args, stream, host);
    measure(comm, rank, args, stream);
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
    nccl_open(argc > 2 ? argv[2] : "libnccl.so.2");
    comm = gpu_comm(ranks, 20.0);
    ranks_run(comm, body, NULL);
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
