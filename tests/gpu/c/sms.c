/* Times of an all_reduce of f32 against the thread blocks a rank may use, and staged against
 * the bytes of its stage: sms [ranks]. Threads are ranks, all on one GPU. Lines for
 * tests/gpu/report.py. */
#include <stdio.h>
#include <stdlib.h>

#include "core/world/comm.h"
#include "core/device/device.h"
#include "support/check.h"
#include "support/gpu/gpu.h"
#include "support/process.h"
#include "support/ranks.h"

enum { SAMPLES = 9, MOST = 256 << 20 };

/* One setting of the options, measured at all sizes. Streams are made once: more than a few
 * share a queue of the GPU, where ranks that wait for each other must not be. */
struct setting {
    const char *way; /* "ctas" or "stage" */
    long long value;
    cu_context context;
    cu_stream streams[DEVICE_RANKS];
    cu_ptr send[DEVICE_RANKS], recv[DEVICE_RANKS];
};

static double median(double *values)
{
    for (int i = 1; i < SAMPLES; i++) {
        for (int k = i; k > 0 && values[k] < values[k - 1]; k--) {
            double larger = values[k - 1];

            values[k - 1] = values[k];
            values[k] = larger;
        }
    }
    return values[SAMPLES / 2];
}

static void reduce(oriel_comm *comm, int rank, const struct setting *s, size_t bytes,
                   cu_stream stream)
{
    CHECK_OK(oriel_all_reduce_on(oriel_comm_world(comm), rank, gpu_pointer(s->send[rank]),
                                 gpu_pointer(s->recv[rank]), bytes / 4, ORIEL_F32, ORIEL_SUM,
                                 stream));
}

/* Microseconds of a call, as the slowest rank sees it. */
static double sample(oriel_comm *comm, int rank, const struct setting *s, size_t bytes, int rounds,
                     cu_stream stream)
{
    cu_event from, to;
    float ms = 0;
    double mine, worst;

    CHECK_CU(gpu.event_create(&from, 0));
    CHECK_CU(gpu.event_create(&to, 0));
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    CHECK_OK(oriel_barrier_on(oriel_comm_world(comm), rank, stream));
    CHECK_CU(gpu.event_record(from, stream));
    for (int i = 0; i < rounds; i++)
        reduce(comm, rank, s, bytes, stream);
    CHECK_CU(gpu.event_record(to, stream));
    CHECK_CU(gpu.event_sync(to));
    CHECK_CU(gpu.event_elapsed(&ms, from, to));
    CHECK_CU(gpu.event_destroy(from));
    CHECK_CU(gpu.event_destroy(to));
    mine = (double)ms * 1e3 / rounds;
    CHECK_OK(
        oriel_all_reduce(oriel_comm_world(comm), rank, &mine, &worst, 1, ORIEL_F64, ORIEL_MAX));
    return worst;
}

static void print(const oriel_comm *comm, const struct setting *s, size_t bytes, double *values)
{
    printf("sample {\"op\": \"all_reduce\", \"ranks\": %d, \"processes\": 1, \"way\": \"%s\", "
           "\"%s\": %lld, \"bytes\": %zu, \"us\": [",
           comm->size, s->way, s->way, s->value, bytes);
    for (int i = 0; i < SAMPLES; i++)
        printf("%s%.2f", i > 0 ? ", " : "", values[i]);
    printf("]}\nbench %s %lld, %d ranks, %zu bytes: %.2f us\n", s->way, s->value, comm->size, bytes,
           median(values));
    fflush(stdout);
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    static const size_t sizes[] = {64 << 10, 1 << 20, 16 << 20, 64 << 20, MOST};
    const struct setting *s = arg;
    cu_stream stream = s->streams[rank];

    CHECK_CU(oriel_cu->context_push(s->context));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int rounds = sizes[i] >= 64 << 20 ? 5 : sizes[i] >= 1 << 20 ? 20 : 100;
        double values[SAMPLES];

        sample(comm, rank, s, sizes[i], rounds, stream);
        for (int k = 0; k < SAMPLES; k++)
            values[k] = sample(comm, rank, s, sizes[i], rounds, stream);
        if (rank == 0)
            print(comm, s, sizes[i], values);
    }
}

/* Options are read when a comm is made. */
static void measure(struct setting *s, const char *variable, long long value, long long shown,
                    int ranks)
{
    oriel_comm *comm;
    char text[32];

    snprintf(text, sizeof text, "%lld", value);
    setenv(variable, text, 1);
    s->value = shown;
    comm = gpu_comm_alone(ranks, 20.0);
    ranks_run(comm, body, s);
    CHECK_OK(oriel_comm_destroy(comm));
    unsetenv(variable);
}

int main(int argc, char **argv)
{
    static const int ctas[] = {8, 16, 24, 32, 48, 64, 66, 96, 132};
    int ranks = process_argument(argc, argv, 1, 2);
    struct setting s = {.way = "ctas"};
    oriel_cuda_memory memory[2 * DEVICE_RANKS];

    gpu_open();
    gpu_enter();
    for (int i = 0; i < 2 * ranks; i++)
        CHECK_OK(oriel_cuda_memory_create(gpu_device(), MOST, &memory[i]));
    s.context = gpu_device()->context;
    for (int r = 0; r < ranks; r++) {
        s.streams[r] = gpu_stream();
        s.send[r] = memory[2 * r].base;
        s.recv[r] = memory[2 * r + 1].base;
        /* The first work of a stream may wait for the kernels of others: so not in a call. */
        CHECK_CU(oriel_cu->fill(s.send[r], 0, MOST, s.streams[r]));
        CHECK_CU(oriel_cu->stream_sync(s.streams[r]));
    }
    for (size_t i = 0; i < sizeof ctas / sizeof *ctas; i++)
        measure(&s, "ORIEL_GPU_CTAS", (long long)ctas[i] * ranks, ctas[i], ranks);
    s.way = "stage";
    setenv("ORIEL_DIRECT", "0", 1);
    for (long long mib = 1; mib <= 66; mib = mib == 64 ? 66 : 2 * mib)
        measure(&s, "ORIEL_GPU_STAGE", mib << 20, mib << 20, ranks);
    return 0;
}
