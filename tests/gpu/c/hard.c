/* Buffers that come and go while graphs are replayed, every result checked on the device:
 * hard [local ranks] [rounds]. Under `oriel run` memory is such that other processes map it;
 * between rounds an address gets other memory. Prints one row for each part. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "core/device/device.h"
#include "support/check.h"
#include "support/gpu/gpu.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/values.h"

/* What rank r sends in turn t: whole numbers, so that sums are exact in any order. */
static const char source[] =
    "__device__ float value(unsigned turn, unsigned rank, unsigned i)\n"
    "{\n"
    "    unsigned x = turn * 2654435761u + rank * 40503u + i * 2246822519u;\n"
    "    x ^= x >> 15; x *= 2246822519u; x ^= x >> 13;\n"
    "    return (float)(int)(x & 0xffff);\n"
    "}\n"
    "extern \"C\" __global__ void fill(float *send, const unsigned *turn, unsigned rank,\n"
    "                                unsigned count)\n"
    "{\n"
    "    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count;\n"
    "         i += gridDim.x * blockDim.x)\n"
    "        send[i] = value(*turn, rank, i);\n"
    "}\n"
    "extern \"C\" __global__ void check(const float *recv, const unsigned *turn, unsigned n,\n"
    "                                 unsigned count, unsigned long long *wrong)\n"
    "{\n"
    "    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count;\n"
    "         i += gridDim.x * blockDim.x) {\n"
    "        float sum = 0;\n"
    "        for (unsigned r = 0; r < n; r++)\n"
    "            sum += value(*turn, r, i);\n"
    "        if (recv[i] != sum && atomicAdd(wrong, 1ull) == 0) {\n"
    "            wrong[1] = *turn; wrong[2] = count; wrong[3] = i;\n"
    "            wrong[4] = (unsigned long long)recv[i];\n"
    "            wrong[5] = (unsigned long long)sum;\n"
    "        }\n"
    "    }\n"
    "}\n"
    "extern \"C\" __global__ void step(unsigned *turn)\n"
    "{\n"
    "    *turn += 1;\n"
    "}\n";

enum { ROOM = 16 << 20, MEMORIES = 2, SIZES = 3, WORDS = 6 };
static const unsigned counts[SIZES] = {64, 20000, 500000};

/* An address of one's own, and memories that can be mapped there. */
struct place {
    cu_ptr at;
    oriel_cuda_memory memory[MEMORIES];
    int now;
};

struct self {
    cu_stream stream;
    cu_function fill, check, step;
    struct place send, recv;
    cu_ptr turn, wrong;
    unsigned turns;
};

static int rounds;

static void map_at(struct place *p, int which)
{
    cu_access access = {.location = {.type = CU_LOCATION_DEVICE, .id = gpu_device()->device},
                        .flags = CU_ACCESS_READ_WRITE};

    CHECK_CU(oriel_cu->mem_map(p->at, ROOM, 0, p->memory[which].handle, 0));
    CHECK_CU(oriel_cu->mem_access(p->at, ROOM, &access, 1));
    p->now = which;
}

/* The same address, other memory, with other contents. */
static void remap(struct place *p)
{
    CHECK_CU(oriel_cu->mem_unmap(p->at, ROOM));
    map_at(p, (p->now + 1) % MEMORIES);
}

static struct place place_make(void)
{
    struct place p = {0};

    CHECK_CU(oriel_cu->mem_reserve(&p.at, ROOM, 0, 0, 0));
    for (int i = 0; i < MEMORIES; i++)
        CHECK_OK(oriel_cuda_memory_create(gpu_device(), ROOM, &p.memory[i]));
    map_at(&p, 0);
    return p;
}

static struct self self_make(void)
{
    struct self s = {.stream = gpu_stream(),
                     .fill = gpu_compile(source, "fill"),
                     .check = gpu_compile(source, "check"),
                     .step = gpu_compile(source, "step"),
                     .send = place_make(),
                     .recv = place_make(),
                     .turn = gpu_alloc(4),
                     .wrong = gpu_alloc(8 * WORDS)};

    CHECK_CU(oriel_cu->fill(s.turn, 0, 4, s.stream));
    CHECK_CU(oriel_cu->fill(s.wrong, 0, 8 * WORDS, s.stream));
    CHECK_CU(oriel_cu->stream_sync(s.stream));
    return s;
}

/* Where the result of so many elements goes. */
static cu_ptr recv_of(const struct self *s, int size)
{
    return s->recv.at + (cu_ptr)size * (ROOM / 4);
}

/* One turn: new contents, calls of all ways, all results looked at. */
static void enqueue(oriel_comm *comm, int rank, struct self *s)
{
    oriel_group *world = oriel_comm_world(comm);
    unsigned me = (unsigned)rank;
    unsigned n = (unsigned)comm->size;
    unsigned most = counts[SIZES - 1];

    gpu_launch(s->fill, 64, 256, (void *[]){&s->send.at, &s->turn, &me, &most}, s->stream);
    for (int k = 0; k < SIZES; k++)
        CHECK_OK(oriel_all_reduce_on(world, rank, gpu_pointer(s->send.at),
                                     gpu_pointer(recv_of(s, k)), counts[k], ORIEL_F32, ORIEL_SUM,
                                     s->stream));
    for (int k = 0; k < SIZES; k++) {
        cu_ptr recv = recv_of(s, k);
        unsigned count = counts[k];

        gpu_launch(s->check, 64, 256, (void *[]){&recv, &s->turn, &n, &count, &s->wrong},
                   s->stream);
    }
    gpu_launch(s->step, 1, 1, (void *[]){&s->turn}, s->stream);
}

static cu_graph_exec capture(oriel_comm *comm, int rank, struct self *s)
{
    cu_graph graph;
    cu_graph_exec exec;

    CHECK_CU(gpu.capture_begin(s->stream, 2));
    enqueue(comm, rank, s);
    CHECK_CU(gpu.capture_end(s->stream, &graph));
    CHECK_CU(gpu.graph_instantiate(&exec, graph, 0));
    CHECK_CU(gpu.graph_destroy(graph));
    return exec;
}

static void replay(struct self *s, cu_graph_exec exec, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        CHECK_CU(gpu.graph_launch(exec, s->stream));
    s->turns += times;
}

/* Waits for all turns; every result of each was right. */
static void check_turns(oriel_comm *comm, int rank, struct self *s)
{
    unsigned long long wrong[WORDS];
    unsigned turns;

    CHECK_CU(oriel_cu->stream_sync(s->stream));
    CHECK_OK(oriel_comm_check(comm));
    gpu_get(&turns, s->turn, 4);
    gpu_get(wrong, s->wrong, sizeof wrong);
    CHECK(turns == s->turns, "%u turns, not %u", turns, s->turns);
    CHECK(wrong[0] == 0,
          "rank %d: %llu elements are wrong, the first in turn %llu of %u: %llu elements, number "
          "%llu is %llu, not %llu",
          rank, wrong[0], wrong[1], turns, wrong[2], wrong[3], wrong[4], wrong[5]);
}

/* One graph, new contents in each of 10,000 replays. */
static void replays(oriel_comm *comm, int rank, struct self *s)
{
    cu_graph_exec exec = capture(comm, rank, s);

    for (int i = 0; i < 10; i++) {
        replay(s, exec, 1000);
        check_turns(comm, rank, s);
    }
    CHECK_CU(gpu.exec_destroy(exec));
}

static void offer(oriel_comm *comm, int rank, const struct self *s)
{
    CHECK_OK(oriel_buffer_offer(comm, rank, gpu_pointer(s->send.at), ROOM));
    CHECK_OK(oriel_buffer_offer(comm, rank, gpu_pointer(s->recv.at), ROOM));
}

/* In each round the ranks give their addresses other memory, not all at the same time. A
 * graph captured before goes on with the new memory at once; one captured then begins
 * through the stages and goes direct while it is being replayed. */
static void new_memory(oriel_comm *comm, int rank, struct self *s)
{
    cu_graph_exec before = capture(comm, rank, s);

    for (int round = 0; round < rounds; round++) {
        cu_graph_exec now;

        replay(s, before, 20);
        CHECK_CU(oriel_cu->stream_sync(s->stream));
        if (round % (comm->size + 1) != rank + 1) {
            if (round % 3 != 1)
                remap(&s->send);
            if (round % 3 != 2)
                remap(&s->recv);
            offer(comm, rank, s);
        }
        replay(s, before, 20);
        CHECK_CU(gpu.exec_destroy(before));
        now = capture(comm, rank, s);
        replay(s, now, 160);
        before = now;
    }
    check_turns(comm, rank, s);
    CHECK_CU(gpu.exec_destroy(before));
}

/* The same with calls that are launched one by one: nobody has to offer anything. */
static void new_memory_calls(oriel_comm *comm, int rank, struct self *s)
{
    for (int round = 0; round < rounds; round++) {
        if (round % (comm->size + 1) != rank + 1) {
            CHECK_CU(oriel_cu->stream_sync(s->stream));
            remap(round % 2 ? &s->send : &s->recv);
        }
        for (int i = 0; i < 30; i++)
            enqueue(comm, rank, s);
        s->turns += 30;
    }
    check_turns(comm, rank, s);
}

/* ---- memory that is freed ------------------------------------------------------------------ */

enum { EXPORT_FREE = 0, EXPORT_READY = 3 }; /* see core/device/register.c */

static int count_exports(const oriel_comm *comm, int rank, uint32_t state)
{
    const oriel_devices *devices = comm->devices;
    const oriel_device_rank *r = &devices->ranks[rank - comm->first_rank];
    int n = 0;

    for (int i = 0; r->exports != NULL && i < r->num_exports; i++)
        n += atomic_load(&r->exports[i].state) == state;
    return n;
}

static int used_exports(const oriel_comm *comm, int rank)
{
    const oriel_devices *devices = comm->devices;
    const oriel_device_rank *r = &devices->ranks[rank - comm->first_rank];

    return r->num_exports - count_exports(comm, rank, EXPORT_FREE);
}

/* Calls until all have mapped this rank's buffers, on all ranks. */
static void get_ready(oriel_comm *comm, int rank, struct self *s)
{
    double until = oriel_now() + 10.0;

    for (int32_t ready = 0; !ready;) {
        int32_t mine;

        enqueue(comm, rank, s);
        s->turns++;
        CHECK_CU(oriel_cu->stream_sync(s->stream));
        mine = count_exports(comm, rank, EXPORT_READY) >= 2 || !comm->heap.header->direct;
        CHECK_OK(
            oriel_all_reduce(oriel_comm_world(comm), rank, &mine, &ready, 1, ORIEL_S32, ORIEL_MIN));
        CHECK(oriel_now() < until, "the buffers were not mapped");
    }
}

/* What is in use stays mapped; what is freed is let go by all, so that it is free indeed. */
static void freed(oriel_comm *comm, int rank, struct self *s)
{
    double until;
    int used;

    get_ready(comm, rank, s);
    used = used_exports(comm, rank);
    until = oriel_now() + 2.2; /* longer than two looks of the registrar */
    for (int32_t on = 1; on;) {
        int32_t mine = oriel_now() < until;

        enqueue(comm, rank, s);
        s->turns++;
        CHECK_CU(oriel_cu->stream_sync(s->stream));
        CHECK(used_exports(comm, rank) <= used, "a mapping in use was taken for gone");
        CHECK_OK(
            oriel_all_reduce(oriel_comm_world(comm), rank, &mine, &on, 1, ORIEL_S32, ORIEL_MAX));
    }
    CHECK_CU(oriel_cu->mem_unmap(s->send.at, ROOM));
    CHECK_CU(oriel_cu->mem_unmap(s->recv.at, ROOM));
    until = oriel_now() + 10.0;
    while (used_exports(comm, rank) > 0) {
        CHECK(oriel_now() < until, "%d windows of memory that is gone are still mapped",
              used_exports(comm, rank));
        oriel_sys_now->poll(NULL, 0, 1);
    }
    map_at(&s->send, 0);
    map_at(&s->recv, 1);
    get_ready(comm, rank, s);
    check_turns(comm, rank, s);
}

/* ---- two comms ------------------------------------------------------------------------------- */

static oriel_comm *second;

/* Both in flight, on a stream each; ranks enter them in opposite orders, so kernels of all
 * ranks and of both must be on the GPU together. */
static void two_comms(oriel_comm *comm, int rank, struct self *s)
{
    struct self other = self_make();
    oriel_comm *comms[2] = {comm, second};
    struct self *selves[2] = {s, &other};

    /* While NCCL registers buffers it may wait for all kernels of its process. */
    if (comm->devices->nccl != NULL)
        get_ready(second, rank, &other);
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    for (int i = 0; i < 300; i++) {
        for (int k = 0; k < 2; k++) {
            int which = (k + rank) % 2;

            enqueue(comms[which], rank, selves[which]);
            selves[which]->turns++;
        }
    }
    for (int k = 0; k < 2; k++)
        check_turns(comms[k], rank, selves[k]);
}

/* ---- a rank that comes late -------------------------------------------------------------------
 */

static void hold(void *arg)
{
    while (!atomic_load((_Atomic int *)arg))
        oriel_relax(1);
}

/* Rank 1's kernel comes after the others have given up and refilled their buffers, which
 * it has mapped. The second comm, whose turn is not to fail, brings them together. */
static void comes_late(oriel_comm *comm, int rank, struct self *s)
{
    static const unsigned char mark = 0x11;
    size_t bytes = (size_t)counts[SIZES - 1] * 4;
    unsigned char *host = malloc(bytes);
    _Atomic int released = 0;

    get_ready(comm, rank, s);
    if (rank == 1)
        CHECK_CU(gpu.host_call(s->stream, hold, &released));
    CHECK_OK(oriel_all_reduce_on(oriel_comm_world(comm), rank, gpu_pointer(s->send.at),
                                 gpu_pointer(s->recv.at), counts[SIZES - 1], ORIEL_F32, ORIEL_SUM,
                                 s->stream));
    if (rank != 1) {
        CHECK_CU(oriel_cu->stream_sync(s->stream));
        CHECK_CU(oriel_cu->fill(s->recv.at, mark, bytes, s->stream));
        CHECK_CU(oriel_cu->stream_sync(s->stream));
    }
    CHECK_OK(oriel_barrier(oriel_comm_world(second), rank));
    atomic_store(&released, 1);
    CHECK_CU(oriel_cu->stream_sync(s->stream));
    CHECK_OK(oriel_barrier(oriel_comm_world(second), rank));
    gpu_get(host, s->recv.at, bytes);
    if (rank == 1)
        CHECK(values_unpoisoned(host, counts[SIZES - 1], ORIEL_F32) < 0, "rank 1 is not poisoned");
    for (size_t i = 0; rank != 1 && i < bytes; i++)
        CHECK(host[i] == mark, "byte %zu of rank %d was written late", i, rank);
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    check_says("all_reduce", "rank 1", NULL);
    free(host);
}

static const struct {
    const char *name;
    int processes; /* it needs other processes */
    void (*run)(oriel_comm *comm, int rank, struct self *s);
} parts[] = {{"10,000 replays", 0, replays},
             {"new memory under a graph", 1, new_memory},
             {"new memory under calls", 1, new_memory_calls},
             {"memory that is freed", 1, freed},
             {"two comms in flight", 0, two_comms},
             {"a rank comes late", 1, comes_late}}; /* and ends the comm */

static void body(oriel_comm *comm, int rank, void *arg)
{
    struct self s;

    (void)arg;
    gpu_enter();
    s = self_make();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double began = oriel_now();

        if (parts[i].processes && comm->num_processes == 1)
            continue;
        CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
        parts[i].run(comm, rank, &s);
        CHECK_OK(oriel_barrier(oriel_comm_world(second), rank));
        if (rank == 0) {
            printf("row hard/%s ok %.2f s\n", parts[i].name, oriel_now() - began);
            fflush(stdout);
        }
    }
}

/* What two comms leave of the GPU has no room for a third. */
static void check_room(void)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;
    const int device = 0;
    oriel_comm *third;

    params.process_id = 0;
    params.num_processes = 1;
    params.devices = &device;
    CHECK_IS(ORIEL_ERR_NO_RESOURCE, oriel_comm_create(&params, &third));
    check_says("device 0", "ORIEL_GPU_CTAS", NULL);
    printf("row hard/a third comm is refused ok\n");
}

int main(int argc, char **argv)
{
    int local_ranks = process_argument(argc, argv, 1, 1);
    oriel_comm *comm;

    rounds = process_argument(argc, argv, 2, 50);
    gpu_open();
    comm = gpu_comm(local_ranks, 5.0);
    second = gpu_comm(local_ranks, 20.0);
    check_room();
    ranks_run(comm, body, NULL);
    oriel_comm_abandon(comm);
    CHECK_OK(oriel_comm_destroy(second));
    return 0;
}
