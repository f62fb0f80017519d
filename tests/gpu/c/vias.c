/* The vias of all_reduce: vias [local ranks] [iterations] [part]
 * Threads are ranks; under `oriel run` processes as well. ORIEL_FABRIC=nccl has the vias that need
 * NCCL (2.30, since the ranks share a GPU), otherwise there are the others. Each part runs every
 * via that is to be had; `part` names one alone. NCCL may be built for some algorithms alone:
 * NCCL_ALGO has to name one that it has for all that a part asks for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "core/device/device.h"
#include "ops/op.h"
#include "oriel/experimental/vias.h"
#include "support/check.h"
#include "support/gpu/gpu.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/values.h"
#include "support/gpu/vias.h"

enum { ROOM = 12 << 20, MOST_RANKS = 16, TURNS = 8, TURN_BYTES = 256 << 10, SEED = 100 };

static int iterations;
static int local_ranks;
static const char *only;

struct place {
    cu_stream stream;
    cu_function delay;
    cu_ptr send, recv, more;
    unsigned char *host, *want;
    unsigned char *input[MOST_RANKS];
};

static struct place place_make(void)
{
    struct place p = {.stream = gpu_stream(), .delay = vias_delay()};

    p.send = gpu_alloc(ROOM);
    p.recv = gpu_alloc(ROOM);
    p.more = gpu_alloc(2 * TURNS * TURN_BYTES);
    p.host = malloc(ROOM);
    p.want = malloc(ROOM);
    for (int i = 0; i < MOST_RANKS; i++)
        p.input[i] = malloc(ROOM);
    return p;
}

/* ---- values ------------------------------------------------------------------------------- */

/* NCCL and the switch reduce in an order of their own. */
static int keeps_order(oriel_via via)
{
    return via != ORIEL_VIA_NCCL && via != ORIEL_VIA_MULTICAST && via != ORIEL_VIA_SYM_MULTIMEM;
}

/* Whether the order cannot show, whatever the bits are. Elsewhere there are small numbers, whose
 * sums and products are exact. Booleans are bytes to NCCL, so they have to be 0 or 1. */
static int takes_all_bits(oriel_via via, oriel_dtype dtype)
{
    return keeps_order(via) || (dtype >= ORIEL_S8 && dtype <= ORIEL_U64);
}

static void expect(oriel_dtype dtype, oriel_redop redop, size_t count, int n,
                   unsigned char *const *input, unsigned char *want)
{
    oriel_op op = {.kind = ORIEL_KIND_ALL_REDUCE,
                   .dtype = dtype,
                   .redop = redop,
                   .recv = want,
                   .count = count};
    const void *from[MOST_RANKS];

    for (int i = 0; i < n; i++)
        from[i] = input[i];
    oriel_op_take(&op, n, 0, from, 0, oriel_op_block(&op));
}

/* ---- parts -------------------------------------------------------------------------------- */

struct draw {
    oriel_dtype dtype;
    oriel_redop redop;
    size_t count;
    size_t shifts[2]; /* elements off the alignment of an allocation: send and recv */
    int in_place;
};

/* Random, but the same on all ranks. */
static struct draw draw(oriel_via via, oriel_dtype dtype, oriel_redop redop, int large)
{
    uint64_t dice = values_mix(values_mix((uint64_t)dtype, (uint64_t)redop),
                               2 * (uint64_t)via + (uint64_t)large);
    size_t most = large ? 8 << 20 : 40000;

    return (struct draw){.dtype = dtype,
                         .redop = redop,
                         .count = (dice >> 8) % (most / oriel_dtype_size(dtype)) + 1,
                         .shifts = {dice & 1, dice >> 1 & 1},
                         .in_place = dice >> 2 & 1};
}

/* The first byte that is wrong, or -1. */
static long check_result(const struct draw *d, int n, struct place *p, oriel_via via)
{
    size_t size = oriel_dtype_size(d->dtype);
    int ids[MOST_RANKS];
    long wrong;

    if (takes_all_bits(via, d->dtype)) {
        expect(d->dtype, d->redop, d->count, n, p->input, p->want);
        return values_difference(p->host, p->want, d->count * size);
    }
    for (int i = 0; i < n; i++)
        ids[i] = i;
    wrong = values_wrong(p->host, d->count, d->dtype, d->redop, ids, n, SEED);
    return wrong < 0 ? -1 : wrong * (long)size;
}

static void run_draw(oriel_comm *comm, int rank, struct place *p, oriel_via via,
                     const struct draw *d)
{
    size_t size = oriel_dtype_size(d->dtype);
    cu_ptr send = p->send + d->shifts[0] * size;
    cu_ptr recv = d->in_place ? send : p->recv + d->shifts[1] * size;
    long wrong;

    for (int i = 0; i < comm->size; i++) {
        if (takes_all_bits(via, d->dtype))
            values_random(p->input[i], d->count * size, SEED + d->count, i);
        else
            values_fill(p->input[i], d->count, d->dtype, d->redop, i, SEED);
    }
    gpu_put(send, p->input[rank], d->count * size);
    CHECK_OK(oriel_all_reduce_via_on(oriel_comm_world(comm), rank, gpu_pointer(send),
                                     gpu_pointer(recv), d->count, d->dtype, d->redop, via,
                                     p->stream));
    CHECK_CU(oriel_cu->stream_sync(p->stream));
    CHECK_OK(oriel_comm_check(comm));
    gpu_get(p->host, recv, d->count * size);
    wrong = check_result(d, comm->size, p, via);
    CHECK(wrong < 0,
          "via %s, %s %s, %zu elements, shifts %zu and %zu, in place %d, rank %d: byte %ld",
          oriel_via_name(via), oriel_dtype_name(d->dtype), oriel_redop_name(d->redop), d->count,
          d->shifts[0], d->shifts[1], d->in_place, rank, wrong);
}

/* Refused on all ranks alike, with nothing done. */
static void run_absent(oriel_comm *comm, int rank, struct place *p, oriel_via via,
                       const struct draw *d)
{
    CHECK_IS(ORIEL_ERR_UNSUPPORTED,
             oriel_all_reduce_via_on(oriel_comm_world(comm), rank, gpu_pointer(p->send),
                                     gpu_pointer(p->recv), d->count, d->dtype, d->redop, via,
                                     p->stream));
    check_says("via", oriel_via_name(via), "there is no", oriel_redop_name(d->redop),
               oriel_dtype_name(d->dtype), NULL);
}

/* A small one and a large one, if there are any. */
static void draw_and_run(oriel_comm *comm, int rank, struct place *p, oriel_via via,
                         oriel_dtype dtype, oriel_redop redop)
{
    for (int large = 0; large < 2 && values_op(dtype, redop) == redop; large++) {
        struct draw d = draw(via, dtype, redop, large);

        if (oriel_via_check(oriel_comm_world(comm), via, dtype, redop) == ORIEL_OK)
            run_draw(comm, rank, p, via, &d);
        else
            run_absent(comm, rank, p, via, &d);
    }
}

/* Every dtype and reduction. */
static void random_calls(oriel_comm *comm, int rank, struct place *p, oriel_via via)
{
    for (int dtype = 0; dtype < ORIEL_DTYPE_COUNT; dtype++) {
        for (int redop = 0; redop < ORIEL_REDOP_COUNT; redop++)
            draw_and_run(comm, rank, p, via, (oriel_dtype)dtype, (oriel_redop)redop);
    }
}

/* A part that runs if it is named: NCCL may have more algorithms for sums. Of booleans it has a
 * maximum. */
static void sums(oriel_comm *comm, int rank, struct place *p, oriel_via via)
{
    for (int dtype = ORIEL_S8; dtype < ORIEL_DTYPE_COUNT; dtype++)
        draw_and_run(comm, rank, p, via, (oriel_dtype)dtype, ORIEL_SUM);
}

/* Rank 0 adds what the others have to what came out before: a call that was lost, done twice or
 * too early shows in the end. */
static void many_calls(oriel_comm *comm, int rank, struct place *p, oriel_via via)
{
    static const size_t counts[] = {1, 1000, 5000, 70000, 400000};
    const int each = iterations / 5;
    const int n = comm->size;

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        float *host = (float *)(void *)p->host;
        size_t count = counts[c];
        cu_ptr send = p->send, recv = p->recv;

        for (size_t i = 0; i < count; i++)
            host[i] = (float)(rank + (int)(i % 7));
        gpu_put(send, host, count * 4);
        for (int i = 0; i < each; i++) {
            CHECK_OK(vias_sum(comm, rank, send, recv, count, via, p->stream));
            send = rank == 0 ? recv : send;
            recv = recv == p->recv ? p->recv + ROOM / 2 : p->recv;
        }
        CHECK_CU(oriel_cu->stream_sync(p->stream));
        CHECK_OK(oriel_comm_check(comm));
        gpu_get(host, each % 2 ? p->recv : p->recv + ROOM / 2, count * 4);
        for (size_t i = 0; i < count; i++) {
            int of_0 = (int)(i % 7);
            int of_others = n * (n - 1) / 2 + (n - 1) * (int)(i % 7);
            float want = (float)(of_0 + each * of_others);

            CHECK(host[i] == want, "via %s, element %zu of %zu is %g, not %g", oriel_via_name(via),
                  i, count, (double)host[i], (double)want);
        }
    }
}

/* Work that is still running on one rank's stream before the call ("delayed") and after it, with
 * the host far ahead: new operands for each turn, written over the old ones. Then the host waits
 * ("blocked"), and all results must be those of their turn. */
static void busy_streams(oriel_comm *comm, int rank, struct place *p, oriel_via via, int captured)
{
    const size_t count = captured ? TURN_BYTES / 4 : TURN_BYTES / 4 - 3;
    int ids[MOST_RANKS];
    cu_graph graph;
    cu_graph_exec exec;

    for (int i = 0; i < comm->size; i++)
        ids[i] = i;
    for (unsigned t = 0; t < TURNS; t++) {
        values_fill(p->host, count, ORIEL_F32, ORIEL_SUM, rank, SEED + t);
        gpu_put(p->more + t * TURN_BYTES, p->host, count * 4);
    }
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    if (captured)
        CHECK_CU(gpu.capture_begin(p->stream, 1));
    for (unsigned t = 0; t < TURNS; t++) {
        cu_ptr out = p->more + (TURNS + t) * TURN_BYTES;

        if ((int)t % (2 * comm->size) == rank)
            vias_delay_launch(p->delay, 3000000, p->stream);
        CHECK_CU(gpu.copy(p->send, p->more + t * TURN_BYTES, count * 4, p->stream));
        CHECK_OK(vias_sum(comm, rank, p->send, p->recv, count, via, p->stream));
        if ((int)t % (2 * comm->size) == comm->size + rank)
            vias_delay_launch(p->delay, 3000000, p->stream);
        CHECK_CU(gpu.copy(out, p->recv, count * 4, p->stream));
        CHECK_CU(oriel_cu->fill(p->recv, 0xee, count * 4, p->stream));
    }
    if (captured) {
        CHECK_CU(gpu.capture_end(p->stream, &graph));
        CHECK_CU(gpu.graph_instantiate(&exec, graph, 0));
        for (int i = 0; i < 20; i++)
            CHECK_CU(gpu.graph_launch(exec, p->stream));
    }
    CHECK_CU(oriel_cu->stream_sync(p->stream));
    CHECK_OK(oriel_comm_check(comm));
    for (unsigned t = 0; t < TURNS; t++) {
        gpu_get(p->host, p->more + (TURNS + t) * TURN_BYTES, count * 4);
        CHECK(values_wrong(p->host, count, ORIEL_F32, ORIEL_SUM, ids, comm->size, SEED + t) < 0,
              "via %s: turn %u has the result of another", oriel_via_name(via), t);
    }
    if (captured) { /* NCCL keeps a communicator for as long as a graph has its calls */
        CHECK_CU(gpu.exec_destroy(exec));
        CHECK_CU(gpu.graph_destroy(graph));
    }
}

static void delayed(oriel_comm *comm, int rank, struct place *p, oriel_via via)
{
    busy_streams(comm, rank, p, via, 0);
}

/* NCCL cannot, where ranks are threads: refused, with nothing done and nobody waiting. */
static void refused(oriel_comm *comm, int rank, struct place *p, oriel_via via)
{
    cu_graph graph;

    CHECK_CU(gpu.capture_begin(p->stream, 1));
    CHECK_IS(ORIEL_ERR_UNSUPPORTED, vias_sum(comm, rank, p->send, p->recv, 100, via, p->stream));
    check_says("via nccl", "captured", NULL);
    CHECK_CU(gpu.capture_end(p->stream, &graph));
    CHECK_CU(gpu.graph_destroy(graph));
    CHECK_OK(oriel_comm_check(comm));
}

static void graphs(oriel_comm *comm, int rank, struct place *p, oriel_via via)
{
    if (via == ORIEL_VIA_NCCL && comm->local_ranks > 1)
        refused(comm, rank, p, via);
    else
        busy_streams(comm, rank, p, via, 1);
}

/* The time of a call among many; a part that runs if it is named. */
static void times(oriel_comm *comm, int rank, struct place *p, oriel_via via)
{
    static const size_t bytes[] = {4096, 65536, 1 << 20, 8 << 20};
    enum { CALLS = 300 };

    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        double best = 1e9;

        for (int round = 0; round < 5; round++) {
            double began;

            CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
            began = oriel_now();
            for (int k = 0; k < CALLS; k++)
                CHECK_OK(vias_sum(comm, rank, p->send, p->recv, bytes[i] / 4, via, p->stream));
            CHECK_CU(oriel_cu->stream_sync(p->stream));
            best = oriel_now() - began < best ? oriel_now() - began : best;
        }
        if (rank == 0)
            printf("bench via %s: %d ranks, %zu bytes: %.2f us\n", oriel_via_name(via), comm->size,
                   bytes[i], 1e6 * best / CALLS);
    }
}

static const struct {
    const char *name;
    void (*run)(oriel_comm *comm, int rank, struct place *p, oriel_via via);
    int asked; /* not run unless named */
} parts[] = {{"random", random_calls, 0}, {"delayed", delayed, 0}, {"many", many_calls, 0},
             {"graphs", graphs, 0},       {"sums", sums, 1},       {"times", times, 1}};

static int runs(size_t i)
{
    return only != NULL ? strcmp(only, parts[i].name) == 0 : !parts[i].asked;
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    struct place p;
    int ran = 0;

    (void)arg;
    gpu_enter();
    p = place_make();
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank)); /* an allocation may wait for kernels */
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        for (int via = 0; via < ORIEL_VIA_COUNT; via++) {
            double began = oriel_now();

            if (!vias_has(comm, (oriel_via)via) || !runs(i))
                continue;
            ran++;
            parts[i].run(comm, rank, &p, (oriel_via)via);
            CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
            if (rank == 0)
                printf("row vias/%s_%s ok %.2f s\n", parts[i].name, oriel_via_name((oriel_via)via),
                       oriel_now() - began);
            fflush(stdout);
        }
    }
    CHECK(ran > 0, "there is no part %s", only);
}

/* ---- what is not to be had ----------------------------------------------------------------- */

static void absent(oriel_comm *comm)
{
    oriel_group *world = oriel_comm_world(comm);

    for (int via = 0; via < ORIEL_VIA_COUNT; via++) {
        oriel_status st = oriel_via_check(world, (oriel_via)via, ORIEL_F32, ORIEL_SUM);

        if (oriel_comm_process(comm) == 0)
            printf("%s: %s\n", oriel_via_name((oriel_via)via),
                   st == ORIEL_OK ? "to be had" : oriel_last_error());
        CHECK(st == ORIEL_OK || st == ORIEL_ERR_UNSUPPORTED, "it says %d", (int)st);
        if (st == ORIEL_OK)
            continue;
        CHECK_IS(ORIEL_ERR_UNSUPPORTED,
                 vias_sum(comm, oriel_comm_first_rank(comm), 4096, 4096, 1, (oriel_via)via, NULL));
        check_says("via", oriel_via_name((oriel_via)via), NULL);
    }
    CHECK_IS(ORIEL_ERR_INVALID, oriel_via_check(world, (oriel_via)99, ORIEL_F32, ORIEL_SUM));
    CHECK_OK(oriel_comm_check(comm));
}

/* ---- grids ---------------------------------------------------------------------------------- */

/* Why a barrier in a kernel needs all its CTAs to be resident: those that are spin, and those that
 * are not wait for their places. With a limit of time, it tells how many had come. */
static const char barrier_source[] =
    "extern \"C\" __global__ void __launch_bounds__(512) meet(unsigned *come, unsigned *failed) {\n"
    "    unsigned long long begin, now;\n"
    "    asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(begin));\n"
    "    if (threadIdx.x == 0) {\n"
    "        atomicAdd(come, 1);\n"
    "        do {\n"
    "            asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(now));\n"
    "        } while (*(volatile unsigned *)come < gridDim.x && now - begin < 20000000);\n"
    "        if (*(volatile unsigned *)come < gridDim.x)\n"
    "            atomicAdd(failed, 1);\n"
    "    }\n"
    "    __syncthreads();\n"
    "}\n";

static unsigned meet(unsigned ctas)
{
    cu_function function = gpu_compile(barrier_source, "meet");
    cu_stream stream = gpu_stream();
    cu_ptr words = gpu_alloc(8);
    cu_ptr failed_at = words + 4;
    unsigned found[2] = {0, 0};
    void *params[] = {&words, &failed_at};

    gpu_put(words, found, sizeof found);
    gpu_launch(function, ctas, 512, params, stream);
    CHECK_CU(oriel_cu->stream_sync(stream));
    gpu_get(found, words, sizeof found);
    return found[1];
}

/* Started with ORIEL_GPU_CTAS far beyond what the GPU holds: oriel takes what fits. */
static void grids(void)
{
    oriel_comm *comm = gpu_comm_alone(2, 20.0);
    const oriel_devices *devices = comm->devices;
    unsigned sms = (unsigned)devices->gpus[0].sms;

    gpu_enter();
    CHECK(meet(sms) == 0, "CTAs that fit did not meet");
    CHECK(meet(40 * sms) > 0, "more CTAs than fit met: the limit is not what was thought");
    CHECK(2 * devices->ctas <= 2 * (int)sms, "%d CTAs for each of two ranks", devices->ctas);
    printf("row vias/grid ok %u multiprocessors, %d CTAs of each rank\n", sms, devices->ctas);
    CHECK_OK(oriel_comm_destroy(comm));
}

static void all_parts(void)
{
    double began = oriel_now();
    oriel_comm *comm = gpu_comm(local_ranks, 20.0);

    printf("set up in %.2f s\n", oriel_now() - began);
    absent(comm);
    ranks_run(comm, body, NULL);
    CHECK_OK(oriel_comm_destroy(comm));
    printf("destroyed after %.2f s\n", oriel_now() - began);
}

int main(int argc, char **argv)
{
    local_ranks = process_argument(argc, argv, 1, 2);
    iterations = process_argument(argc, argv, 2, 1000);
    only = argc > 3 ? argv[3] : NULL;
    vias_open();
    if (only != NULL && strcmp(only, "grid") == 0) {
        grids();
        only = "random";
    }
    all_parts();
    return 0;
}
