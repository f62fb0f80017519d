/* The nccl fabric: nccl [LOCAL RANKS [leave]]. Threads are ranks; under `oriel run` processes as
 * well. leave: process 1 goes without a word, and the others come to their end all the same.
 * That all operations are right on it show ops, kernel and hard with ORIEL_FABRIC=nccl. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/sys.h"
#include "core/nccl/comm.h"
#include "core/device/register.h"
#include "support/check.h"
#include "support/gpu/gpu.h"
#include "support/process.h"
#include "support/ranks.h"

enum { COUNT = 1 << 20, BYTES = COUNT * 4, ITERATIONS = 10000, TURNS = 16 };

static void say(const oriel_comm *comm, int rank, const char *what, double began)
{
    if (rank == 0)
        printf("row %s ok %.2f s, %d ranks in %d processes\n", what, oriel_now() - began,
               comm->size, comm->num_processes);
    fflush(stdout);
}

static oriel_comm *make_comm(int local_ranks)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;
    int devices[DEVICE_RANKS] = {0};
    oriel_comm *comm = NULL;
    oriel_status st;

    params.local_ranks = local_ranks;
    params.timeout_s = 20.0;
    params.devices = devices;
    st = oriel_comm_create(&params, &comm);
    if (st == ORIEL_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", oriel_last_error());
        exit(77);
    }
    CHECK_OK(st);
    return comm;
}

/* ---- heaps -------------------------------------------------------------------------------- */

/* Every rank sees at the addresses that NCCL gives what each has written into its own heap. */
static void heaps(oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;
    double began = oriel_now();
    int first = oriel_comm_first_rank(comm);
    uint64_t at = devices->arena_at + devices->arena_bytes - sizeof(uint64_t);

    for (int i = 0; i < oriel_comm_local_size(comm); i++) {
        uint64_t word = 1000 + (uint64_t)(first + i);

        gpu_put(devices->ranks[i].heap.base + at, &word, sizeof word);
    }
    CHECK_OK(oriel_comm_barrier(comm));
    for (int i = 0; i < oriel_comm_local_size(comm); i++) {
        for (int r = 0; r < comm->size; r++) {
            cu_ptr seen = oriel_heap_seen(comm, first + i, r);
            uint64_t word = 0;

            gpu_get(&word, seen + at, sizeof word);
            CHECK(word == 1000 + (uint64_t)r, "rank %d finds %llu with rank %d", first + i,
                  (unsigned long long)word, r);
            CHECK((r == first + i) == (seen == devices->ranks[i].heap.base),
                  "rank %d sees rank %d at %llx", first + i, r, (unsigned long long)seen);
        }
    }
    CHECK_OK(oriel_comm_barrier(comm));
    say(comm, first, "heaps", began);
}

/* ---- calls -------------------------------------------------------------------------------- */

struct buffers {
    cu_stream stream;
    oriel_cuda_memory memory[2];
    float *host;
};

/* Whole numbers: sums are exact in any order. */
static float value_of(int rank, int turn, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 31 + (size_t)turn) & 255);
}

static void fill(struct buffers *b, int rank, int turn, size_t count)
{
    for (size_t i = 0; i < count; i++)
        b->host[i] = value_of(rank, turn, i);
    gpu_put(b->memory[0].base, b->host, count * 4);
}

static void check_sums(struct buffers *b, int size, int turn, size_t count, const char *who)
{
    gpu_get(b->host, b->memory[1].base, count * 4);
    for (size_t i = 0; i < count; i++) {
        float sum = 0;

        for (int r = 0; r < size; r++)
            sum += value_of(r, turn, i);
        CHECK(b->host[i] == sum, "%s, turn %d: element %zu of %zu is %g, not %g", who, turn, i,
              count, (double)b->host[i], (double)sum);
    }
}

static void renew(struct buffers *b)
{
    for (int i = 0; i < 2; i++) {
        oriel_cuda_memory_close(&b->memory[i]);
        CHECK_OK(oriel_cuda_memory_create(gpu_device(), BYTES, &b->memory[i]));
    }
}

static void by_oriel(oriel_comm *comm, int rank, struct buffers *b, size_t count)
{
    CHECK_OK(oriel_all_reduce_on(oriel_comm_world(comm), rank, gpu_pointer(b->memory[0].base),
                                 gpu_pointer(b->memory[1].base), count, ORIEL_F32, ORIEL_SUM,
                                 b->stream));
}

static void by_nccl(oriel_comm *comm, int rank, struct buffers *b, size_t count)
{
    const nccl_library *nccl = oriel_nccl_calls(comm);
    nccl_comm own;

    CHECK_OK(oriel_nccl_enter(comm, rank, &own));
    CHECK_OK(oriel_nccl_leave(comm, rank,
                              nccl->all_reduce(gpu_pointer(b->memory[0].base),
                                               gpu_pointer(b->memory[1].base), count, NCCL_FLOAT32,
                                               NCCL_SUM, own, b->stream),
                              "all_reduce"));
}

/* How many of these buffers all others have mapped. */
static int count_ready(const oriel_comm *comm, int rank, const struct buffers *b)
{
    const oriel_devices *devices = comm->devices;
    const oriel_device_rank *r = &devices->ranks[rank - comm->first_rank];
    int ready = 0;

    for (int k = 0; k < 2; k++) {
        uint64_t id = 0;

        CHECK_CU(oriel_cu->pointer_attribute(&id, CU_POINTER_BUFFER_ID, b->memory[k].base));
        for (int i = 0; r->exports != NULL && i < r->num_exports; i++)
            ready += atomic_load(&r->exports[i].state) == READY && r->exports[i].id == id;
    }
    return ready;
}

/* Rank 0 keeps its buffers, the others have new ones in each turn: one hits what the others
 * miss. All are direct in the end, and NCCL's own calls go on beside the rounds. */
static void hit_and_miss(oriel_comm *comm, int rank, struct buffers *b)
{
    double began = oriel_now();
    uint64_t direct = 0;

    for (int turn = 0; turn < TURNS; turn++) {
        double until = oriel_now() + 10.0;
        int calls = 0;

        CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
        if (rank > 0)
            renew(b);
        fill(b, rank, turn, COUNT);
        for (int32_t ready = 0; !ready; calls++) {
            int32_t mine = comm->num_processes == 1 || count_ready(comm, rank, b) == 2;

            CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
            (calls % 3 == 2 ? by_nccl : by_oriel)(comm, rank, b, COUNT);
            CHECK_CU(oriel_cu->stream_sync(b->stream));
            CHECK_OK(oriel_comm_check(comm));
            check_sums(b, comm->size, turn, COUNT, calls % 3 == 2 ? "NCCL" : "oriel");
            CHECK(oriel_now() < until, "the buffers of turn %d were not mapped", turn);
            CHECK_OK(oriel_all_reduce(oriel_comm_world(comm), rank, &mine, &ready, 1, ORIEL_S32,
                                      ORIEL_MIN));
        }
        direct += (uint64_t)calls;
    }
    say(comm, rank, "one hits what others miss", began);
    if (rank == 0)
        printf("%d turns, %.1f calls in each until all buffers were mapped\n", TURNS,
               (double)direct / TURNS);
}

static void many(oriel_comm *comm, int rank, struct buffers *b)
{
    static const size_t counts[] = {256, 16 << 10, 256 << 10};
    double began = oriel_now();

    fill(b, rank, 1, COUNT);
    for (int i = 0; i < ITERATIONS; i++) {
        by_oriel(comm, rank, b, counts[i % 3]);
        if (i % 500 < 3) {
            CHECK_CU(oriel_cu->stream_sync(b->stream));
            CHECK_OK(oriel_comm_check(comm));
            check_sums(b, comm->size, 1, counts[i % 3], "oriel");
        }
    }
    CHECK_CU(oriel_cu->stream_sync(b->stream));
    CHECK_OK(oriel_comm_check(comm));
    say(comm, rank, "10,000 iterations", began);
}

static void many_of_nccl(oriel_comm *comm, int rank, struct buffers *b)
{
    double began = oriel_now();

    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    for (int i = 0; i < 1000; i++)
        by_nccl(comm, rank, b, 1024);
    CHECK_CU(oriel_cu->stream_sync(b->stream));
    if (rank == 0)
        printf("a call of NCCL's own takes %.1f us\n", 1e3 * (oriel_now() - began));
    say(comm, rank, "1,000 calls of NCCL", began);
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    struct buffers b = {.memory = {{.fd = -1}, {.fd = -1}}};

    (void)arg;
    gpu_enter();
    b.stream = gpu_stream();
    b.host = malloc(BYTES);
    renew(&b);
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    hit_and_miss(comm, rank, &b);
    many(comm, rank, &b);
    many_of_nccl(comm, rank, &b);
    free(b.host);
}

/* ---- leaving ------------------------------------------------------------------------------- */

static void leave(oriel_comm *comm)
{
    double began = oriel_now();
    struct buffers b = {.memory = {{.fd = -1}, {.fd = -1}}, .stream = gpu_stream()};
    int rank = oriel_comm_first_rank(comm);

    renew(&b);
    by_oriel(comm, rank, &b, COUNT);
    CHECK_CU(oriel_cu->stream_sync(b.stream));
    CHECK_OK(oriel_comm_barrier(comm));
    if (oriel_comm_process(comm) != 1) {
        CHECK(oriel_comm_barrier(comm) != ORIEL_OK, "nobody has left");
        check_says("process 1", "has left", NULL);
    }
    oriel_comm_abandon(comm);
    CHECK(oriel_now() - began < 10.0, "the end took %.1f s", oriel_now() - began);
    printf("row the end after one has left ok %.2f s\n", oriel_now() - began);
}

int main(int argc, char **argv)
{
    int ranks = process_argument(argc, argv, 1, 2);
    double began = oriel_now();
    oriel_comm *comm;

    setenv("ORIEL_FABRIC", "nccl", 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    gpu_open();
    gpu_enter();
    comm = make_comm(ranks);
    say(comm, oriel_comm_first_rank(comm), "set up", began);
    if (argc > 2 && strcmp(argv[2], "leave") == 0) {
        leave(comm);
        return 0;
    }
    heaps(comm);
    ranks_run(comm, body, NULL);
    began = oriel_now();
    CHECK_OK(oriel_comm_destroy(comm));
    printf("row the end ok %.2f s\n", oriel_now() - began);
    return 0;
}
