/* The all-reduce of example 07 on streams, against the built-in one: kernel ROOT [local ranks]
 * [bench]. ROOT is the source tree. Threads are ranks; under `oriel run` processes as well. Each
 * row has buffers that all can map, or that other processes cannot, one by one and in a graph. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "core/world/comm.h"
#include "ops/cuda/launch.h"
#include "support/check.h"
#include "support/gpu/gpu.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/gpu/timing.h"

enum { TURNS = 40, HASH = 7, MOST = 256 << 20, ROOM = 64 << 20 };

static int bench;

/* ---- the kernel --------------------------------------------------------------------------- */

static void entry(oriel_team *team)
{
    (void)team; /* for CPUs */
}

static void compile(const char *root)
{
    static const char format[] =
        "#include <oriel/kernel.h>\n"
        "#include \"%s/examples/07_my_all_reduce/my_all_reduce.cu\"\n"
        "ORIEL_ENTRY(two_shot, two_shot(team, ORIEL_ARG_BUFFER(const float *, 0), "
        "ORIEL_ARG_BUFFER(float *, 1)))\n";
    char text[1024];
    size_t bytes;
    void *out;

    snprintf(text, sizeof text, format, root);
    out = gpu_cubin(text, "two_shot.cu", root, &bytes);
    CHECK_OK(oriel_kernel_register(HASH, "two_shot", entry));
    CHECK_OK(oriel_kernel_on_register(HASH, "two_shot", out, bytes));
    free(out);
}

static void two_shot(oriel_group *group, int rank, cu_ptr from, cu_ptr to, size_t count,
                     cu_stream stream)
{
    static const int64_t none;
    oriel_kernel_call *call;

    CHECK_OK(oriel_kernel_call_create(oriel_kernel_find(HASH), NULL, oriel_group_size(group), 1, 1,
                                      &none, 0, &call));
    call->buffers[0] =
        (kernel_buffer){.data = gpu_pointer(from), .count = count, .dtype = ORIEL_F32};
    call->buffers[1] = (kernel_buffer){.data = gpu_pointer(to), .count = count, .dtype = ORIEL_F32};
    oriel_kernel_call_identify(call, &group->comm->heap);
    CHECK_OK(oriel_kernel_on_launch(group, rank, call, stream));
    oriel_kernel_call_destroy(call);
}

/* ---- its sums ------------------------------------------------------------------------------ */

struct part {
    cu_stream stream;
    cu_ptr from, to, want;
    float *host[2];
};

static void fill(const struct part *part, int rank, size_t count, int turn)
{
    for (size_t i = 0; i < count; i++)
        part->host[0][i] = (float)((i * 7919 + (size_t)turn * 31 + (size_t)rank * 101) % 1000) / 7;
    gpu_put(part->from, part->host[0], 4 * count);
}

static void compare(const struct part *part, size_t count, int turn)
{
    CHECK_CU(oriel_cu->stream_sync(part->stream));
    gpu_get(part->host[0], part->to, 4 * count);
    gpu_get(part->host[1], part->want, 4 * count);
    for (size_t i = 0; i < count; i++)
        CHECK(memcmp(&part->host[0][i], &part->host[1][i], 4) == 0,
              "turn %d: element %zu of %zu is %g, all_reduce gives %g", turn, i, count,
              (double)part->host[0][i], (double)part->host[1][i]);
}

static void check_sums(oriel_comm *comm, int rank, const struct part *part, size_t count)
{
    oriel_group *world = oriel_comm_world(comm);

    for (int turn = 0; turn < TURNS; turn++) {
        fill(part, rank, count, turn);
        two_shot(world, rank, part->from, part->to, count, part->stream);
        CHECK_OK(oriel_all_reduce_on(world, rank, gpu_pointer(part->from), gpu_pointer(part->want),
                                     count, ORIEL_F32, ORIEL_SUM, part->stream));
        compare(part, count, turn);
    }
}

static void check_graph(oriel_comm *comm, int rank, const struct part *part, size_t count)
{
    oriel_group *world = oriel_comm_world(comm);
    cu_graph_exec exec;
    cu_graph graph;

    CHECK_CU(gpu.capture_begin(part->stream, 2));
    for (int i = 0; i < 3; i++)
        two_shot(world, rank, part->from, part->to, count, part->stream);
    CHECK_CU(gpu.capture_end(part->stream, &graph));
    CHECK_CU(gpu.graph_instantiate(&exec, graph, 0));
    CHECK_CU(gpu.graph_destroy(graph));
    for (int turn = 0; turn < 50; turn++) {
        fill(part, rank, count, turn);
        CHECK_CU(gpu.graph_launch(exec, part->stream));
        CHECK_OK(oriel_all_reduce_on(world, rank, gpu_pointer(part->from), gpu_pointer(part->want),
                                     count, ORIEL_F32, ORIEL_SUM, part->stream));
        compare(part, count, turn);
    }
    CHECK_CU(gpu.exec_destroy(exec));
}

/* ---- times ---------------------------------------------------------------------------------- */

struct timed {
    oriel_group *group;
    int rank;
    const struct part *part;
    size_t count;
};

static void call_two_shot(const void *arg, cu_stream stream)
{
    const struct timed *t = arg;

    two_shot(t->group, t->rank, t->part->from, t->part->to, t->count, stream);
}

static void call_all_reduce(const void *arg, cu_stream stream)
{
    const struct timed *t = arg;

    CHECK_OK(oriel_all_reduce_on(t->group, t->rank, gpu_pointer(t->part->from),
                                 gpu_pointer(t->part->to), t->count, ORIEL_F32, ORIEL_SUM, stream));
}

static void measure(oriel_comm *comm, int rank, const struct part *part, size_t bytes, int graphs)
{
    const struct timed arg = {oriel_comm_world(comm), rank, part, bytes / 4};
    timing_way ways[] = {
        {.op = "two_shot", .fields = "", .call = call_two_shot, .arg = &arg},
        {.op = "two_shot beside", .fields = "", .call = call_all_reduce, .arg = &arg}};
    double own, built_in;

    timing_take(comm, rank, part->stream, bytes, graphs, (timing_range){0, TIMING_SAMPLES}, ways,
                2);
    if (rank != 0)
        return;
    own = timing_median(ways[0].seconds, TIMING_SAMPLES) * 1e6;
    built_in = timing_median(ways[1].seconds, TIMING_SAMPLES) * 1e6;
    printf("bench two_shot %d ranks in %d processes %s %zu bytes: %.2f us, all_reduce %.2f us, "
           "%.3f times\n",
           comm->size, comm->num_processes, timing_way_text(graphs), bytes, own, built_in,
           own / built_in);
    timing_print(comm, &ways[0], graphs, bytes);
    timing_print(comm, &ways[1], graphs, bytes);
    fflush(stdout);
}

/* ---- all of it --------------------------------------------------------------------------------
 */

static void check_all(oriel_comm *comm, int rank, const struct part *part, const char *buffers)
{
    static const size_t counts[] = {1, 1003, 50000, 1 << 20, 5000001};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        check_sums(comm, rank, part, counts[i]);
    check_graph(comm, rank, part, 300000);
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    if (rank == 0)
        printf("row sums on %s ok\n", buffers);
    fflush(stdout);
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    static const size_t sizes[] = {1 << 20, 16 << 20, 64 << 20, 256 << 20};
    size_t room = bench ? MOST : ROOM;
    struct part part = {.host = {malloc(ROOM), malloc(ROOM)}};
    oriel_cuda_memory memory[3];

    (void)arg;
    gpu_enter();
    part.stream = gpu_stream();
    for (int i = 0; i < 3; i++)
        CHECK_OK(oriel_cuda_memory_create(gpu_device(), room, &memory[i]));
    part.from = memory[0].base;
    part.to = memory[1].base;
    part.want = memory[2].base;
    CHECK_CU(oriel_cu->fill(part.from, 60, room, part.stream));
    CHECK_CU(oriel_cu->stream_sync(part.stream));
    for (size_t i = 0; bench && i < sizeof sizes / sizeof *sizes; i++)
        measure(comm, rank, &part, sizes[i], sizes[i] == 1 << 20);
    if (!bench) {
        check_all(comm, rank, &part, "buffers that can be shared");
        part.from = gpu_alloc(ROOM);
        part.to = gpu_alloc(ROOM);
        check_all(comm, rank, &part, "buffers that cannot");
    }
    free(part.host[0]);
    free(part.host[1]);
}

int main(int argc, char **argv)
{
    int ranks = process_argument(argc, argv, 2, 2);
    oriel_comm *comm;

    CHECK(argc > 1, "kernel ROOT [local ranks] [bench]");
    gpu_open();
    bench = process_argument(argc, argv, 3, 0);
    compile(argv[1]);
    comm = gpu_comm(ranks, 20.0);
    ranks_run(comm, body, NULL);
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
