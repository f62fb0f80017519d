/* The ways of all_reduce: variants [local ranks] [iterations] [part]
 * Threads are ranks; under `oriel run` processes as well. ORIEL_FABRIC=nccl has the ways that need
 * NCCL (2.30, since the ranks share a GPU), otherwise there are the others. Each part runs every
 * way that is to be had; `part` names one alone. The parts that revoke a comm have their own. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "core/device.h"
#include "core/nccl_ways.h"
#include "ops/op.h"
#include "support/check.h"
#include "support/gpu.h"
#include "support/nccl.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/values.h"

enum { ROOM = 12 << 20, MOST_RANKS = 16, TURNS = 8, TURN_BYTES = 256 << 10 };

static int iterations;
static int local_ranks;
static const char *only;

struct place {
    cu_stream stream;
    cu_function spin;
    cu_ptr send, recv, more;
    unsigned char *host, *want;
    unsigned char *input[MOST_RANKS];
};

static const char spin_source[] =
    "extern \"C\" __global__ void spin(unsigned long long ns) {\n"
    "    unsigned long long begin, now;\n"
    "    asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(begin));\n"
    "    do { asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(now)); }\n"
    "    while (now - begin < ns);\n"
    "}\n";

static struct place place_make(void)
{
    struct place p = {.stream = gpu_stream(), .spin = gpu_compile(spin_source, "spin")};

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

/* NCCL and the switch sum in an order of their own, which must not show. */
static int keeps_order(oriel_via via)
{
    return via != ORIEL_VIA_NCCL && via != ORIEL_VIA_MULTICAST && via != ORIEL_VIA_SYM_MULTIMEM;
}

static void fill_random(unsigned char *out, size_t bytes, uint64_t seed)
{
    uint64_t state = values_mix(seed, 77);

    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = state = state * 6364136223846793005ull + 1442695040888963407ull;

        word ^= word >> 29;
        memcpy(out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

/* Small whole numbers, whose sums are exact. */
static void fill_whole(float *out, size_t count, uint64_t seed)
{
    uint64_t state = values_mix(seed, 78);

    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        out[i] = (float)((int)(state >> 40 & 2047) - 1000);
    }
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
    oriel_op_take(&op, n, 0, from, 0, oriel_op_block(&op), 0);
}

static long first_difference(const unsigned char *a, const unsigned char *b, size_t bytes)
{
    size_t i = 0;

    while (i < bytes && a[i] == b[i])
        i++;
    return i < bytes ? (long)i : -1;
}

/* ---- parts -------------------------------------------------------------------------------- */

static oriel_status call(oriel_comm *comm, int rank, cu_ptr send, cu_ptr recv, size_t count,
                         oriel_via via, cu_stream stream)
{
    return oriel_all_reduce_via_on(oriel_comm_world(comm), rank, gpu_pointer(send),
                                   gpu_pointer(recv), count, ORIEL_F32, ORIEL_SUM, via, stream);
}

/* One call, random but the same on all ranks. NCCL may be built for f32 sums alone. */
static void run_random(oriel_comm *comm, int rank, struct place *p, oriel_via via, uint64_t seed)
{
    uint64_t dice = values_mix(seed, (uint64_t)via);
    oriel_dtype dtype = keeps_order(via) ? (oriel_dtype)(dice % ORIEL_DTYPE_COUNT) : ORIEL_F32;
    oriel_redop redop = keeps_order(via) ? (oriel_redop)(dice >> 8 & 3) : ORIEL_SUM;
    size_t size = oriel_dtype_size(dtype);
    size_t most = dice >> 16 & 1 ? 8 << 20 : 40000;
    size_t count = (dice >> 20) % (most / size) + 1;
    size_t shift = dice >> 17 & 1 ? 1 : 0;
    int in_place = dice >> 18 & 1;
    cu_ptr send = p->send + shift * size;
    cu_ptr recv = in_place ? send : p->recv;
    long wrong;

    for (int i = 0; i < comm->size; i++) {
        if (keeps_order(via))
            fill_random(p->input[i], count * size, 100 * seed + (uint64_t)i);
        else
            fill_whole((float *)(void *)p->input[i], count, 100 * seed + (uint64_t)i);
    }
    gpu_put(send, p->input[rank], count * size);
    CHECK_OK(oriel_all_reduce_via_on(oriel_comm_world(comm), rank, gpu_pointer(send),
                                     gpu_pointer(recv), count, dtype, redop, via, p->stream));
    CHECK_CU(oriel_cu->stream_sync(p->stream));
    CHECK_OK(oriel_comm_check(comm));
    gpu_get(p->host, recv, count * size);
    expect(dtype, redop, count, comm->size, p->input, p->want);
    wrong = first_difference(p->host, p->want, count * size);
    CHECK(wrong < 0, "via %s, %s %s, %zu elements, shift %zu, in place %d, rank %d: byte %ld",
          oriel_via_name(via), oriel_dtype_name(dtype), oriel_redop_name(redop), count, shift,
          in_place, rank, wrong);
}

static void random_calls(oriel_comm *comm, int rank, struct place *p, oriel_via via)
{
    for (uint64_t seed = 1; seed <= 40; seed++)
        run_random(comm, rank, p, via, seed);
}

/* Each rank adds what it has to what all had before: a call that was lost, done twice or too
 * early shows in the end. */
static void many_calls(oriel_comm *comm, int rank, struct place *p, oriel_via via)
{
    static const size_t counts[] = {1, 1000, 5000, 70000, 400000};
    const int each = iterations / 5;

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        float *host = (float *)(void *)p->host;
        size_t count = counts[c];

        for (size_t i = 0; i < count; i++)
            host[i] = (float)(rank + (int)(i % 7));
        gpu_put(p->send, host, count * 4);
        for (int i = 0; i < each; i++)
            CHECK_OK(
                call(comm, rank, p->send, p->recv + 4096 * (cu_ptr)(i % 2), count, via, p->stream));
        CHECK_CU(oriel_cu->stream_sync(p->stream));
        CHECK_OK(oriel_comm_check(comm));
        gpu_get(host, p->recv + 4096 * (cu_ptr)((each - 1) % 2), count * 4);
        for (size_t i = 0; i < count; i++) {
            float want = (float)(comm->size * (comm->size - 1) / 2 + comm->size * (int)(i % 7));

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
    cu_graph graph;
    cu_graph_exec exec;

    for (uint64_t t = 0; t < TURNS; t++) {
        fill_whole((float *)(void *)p->host, count, 1000 * (t + 1) + (uint64_t)rank);
        gpu_put(p->more + t * TURN_BYTES, p->host, count * 4);
    }
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    if (captured)
        CHECK_CU(gpu.capture_begin(p->stream, 1));
    for (uint64_t t = 0; t < TURNS; t++) {
        unsigned long long ns = 3000000;
        void *params[] = {&ns};
        cu_ptr out = p->more + (TURNS + t) * TURN_BYTES;

        if ((int)t % (2 * comm->size) == rank)
            gpu_launch(p->spin, 1, 1, params, p->stream);
        CHECK_CU(gpu.copy(p->send, p->more + t * TURN_BYTES, count * 4, p->stream));
        CHECK_OK(call(comm, rank, p->send, p->recv, count, via, p->stream));
        if ((int)t % (2 * comm->size) == comm->size + rank)
            gpu_launch(p->spin, 1, 1, params, p->stream);
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
    for (uint64_t t = 0; t < TURNS; t++) {
        for (int i = 0; i < comm->size; i++)
            fill_whole((float *)(void *)p->input[i], count, 1000 * (t + 1) + (uint64_t)i);
        expect(ORIEL_F32, ORIEL_SUM, count, comm->size, p->input, p->want);
        gpu_get(p->host, p->more + (TURNS + t) * TURN_BYTES, count * 4);
        CHECK(first_difference(p->host, p->want, count * 4) < 0,
              "via %s: turn %d has the result of another", oriel_via_name(via), (int)t);
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
    CHECK_IS(ORIEL_ERR_UNSUPPORTED, call(comm, rank, p->send, p->recv, 100, via, p->stream));
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

/* The time of a call among many; a part for who asks. */
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
                CHECK_OK(call(comm, rank, p->send, p->recv, bytes[i] / 4, via, p->stream));
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
} parts[] = {{"random", random_calls},
             {"delayed", delayed},
             {"many", many_calls},
             {"graphs", graphs},
             {"times", times}};

static int has(oriel_comm *comm, oriel_via via)
{
    return oriel_via_check(oriel_comm_world(comm), via, ORIEL_F32, ORIEL_SUM) == ORIEL_OK;
}

static int runs(const char *part)
{
    return only != NULL ? strcmp(only, part) == 0 : strcmp(part, "times") != 0;
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    struct place p;

    (void)arg;
    gpu_enter();
    p = place_make();
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank)); /* an allocation may wait for kernels */
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        for (int via = 0; via < ORIEL_VIA_COUNT; via++) {
            double began = oriel_now();

            if (!has(comm, (oriel_via)via) || !runs(parts[i].name))
                continue;
            parts[i].run(comm, rank, &p, (oriel_via)via);
            CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
            if (rank == 0)
                printf("row variants/%s_%s ok %.2f s\n", parts[i].name,
                       oriel_via_name((oriel_via)via), oriel_now() - began);
            fflush(stdout);
        }
    }
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
                 call(comm, oriel_comm_first_rank(comm), 4096, 4096, 1, (oriel_via)via, NULL));
        check_says("via", oriel_via_name((oriel_via)via), NULL);
    }
    CHECK_IS(ORIEL_ERR_INVALID, oriel_via_check(world, (oriel_via)99, ORIEL_F32, ORIEL_SUM));
    CHECK_OK(oriel_comm_check(comm));
}

/* ---- ranks that differ: the one who asked for NCCL is in its kernel when the comm is revoked --
 */

static oriel_via odd_via;

static void differ_body(oriel_comm *comm, int rank, void *arg)
{
    const size_t count = 100000;
    cu_stream stream;
    float *host = malloc(count * 4);
    double began;
    oriel_status st;
    cu_ptr at;

    (void)arg;
    gpu_enter();
    stream = gpu_stream();
    at = gpu_alloc(count * 4);
    memset(host, 0, count * 4);
    gpu_put(at, host, count * 4);
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    began = oriel_now();
    /* Who comes late may find the comm revoked. */
    st = call(comm, rank, at, at, count, rank == 0 ? odd_via : ORIEL_VIA_AUTO, stream);
    CHECK_CU(oriel_cu->stream_sync(stream));
    while (oriel_comm_check(comm) == ORIEL_OK && oriel_now() - began < 8.0)
        oriel_sys_now->poll(NULL, 0, 1);
    CHECK(oriel_comm_check(comm) != ORIEL_OK, "ranks that differ were not found out");
    check_says("via", oriel_via_name(odd_via), "all_reduce", NULL);
    CHECK(oriel_now() - began < 8.0, "it took %.1f s", oriel_now() - began);
    gpu_get(host, at, count * 4);
    CHECK(st != ORIEL_OK || values_unpoisoned(host, count, ORIEL_F32) < 0,
          "rank %d: the result is not poisoned", rank);
    if (rank == 0)
        printf("row variants/differ_%s ok %.2f s: %s\n", oriel_via_name(odd_via),
               oriel_now() - began, oriel_last_error());
    free(host);
}

static void differ(void)
{
    for (int via = ORIEL_VIA_NCCL; via < ORIEL_VIA_COUNT; via++) {
        oriel_comm *comm = gpu_comm_alone(2, 10.0);

        odd_via = (oriel_via)via;
        if (has(comm, odd_via)) {
            ranks_run(comm, differ_body, NULL);
            oriel_comm_abandon(comm);
        } else {
            CHECK_OK(oriel_comm_destroy(comm));
        }
    }
}

/* ---- a call of NCCL's that does not end -------------------------------------------------------
 */

/* All ranks have met for it, but the one's kernel is held up on the stream that NCCL has: the
 * deadline of the comm ends it on all. */
static void stuck_body(oriel_comm *comm, int rank, void *arg)
{
    enum { COUNT = 1000 };
    unsigned long long ns = 3000000000ull;
    void *params[] = {&ns};
    cu_function spin;
    cu_stream stream;
    float host[COUNT] = {0};
    double began;
    cu_ptr at;

    (void)arg;
    gpu_enter();
    stream = gpu_stream();
    at = gpu_alloc(sizeof host);
    spin = gpu_compile(spin_source, "spin");
    gpu_put(at, host, sizeof host);
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    began = oriel_now();
    if (rank == 0)
        gpu_launch(spin, 1, 1, params, oriel_nccl_ways_of(comm)->of[0].stream);
    CHECK_OK(call(comm, rank, at, at, COUNT, ORIEL_VIA_NCCL, stream));
    CHECK_CU(oriel_cu->stream_sync(stream));
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    check_says("all_reduce via nccl", "did not end within 1.0 s", NULL);
    gpu_get(host, at, sizeof host);
    CHECK(values_unpoisoned(host, COUNT, ORIEL_F32) < 0, "rank %d: it is not poisoned", rank);
    CHECK(oriel_now() - began < 6.0, "it took %.1f s", oriel_now() - began);
    if (rank == 0)
        printf("row variants/stuck ok %.2f s: %s\n", oriel_now() - began, oriel_last_error());
}

static void stuck(void)
{
    oriel_comm *comm = gpu_comm_alone(2, 1.0);

    ranks_run(comm, stuck_body, NULL);
    oriel_comm_abandon(comm);
}

/* ---- a process that is killed ---------------------------------------------------------------- */

/* In the middle of calls: the others get the named error in time, and results that are right or
 * poisoned. */
static void killed(oriel_via via)
{
    const size_t count = 200000;
    float *host = malloc(count * 4);
    oriel_comm *comm = gpu_comm(1, 60.0);
    int rank = oriel_comm_first_rank(comm);
    cu_stream stream;
    double began;
    cu_result ended;
    cu_ptr at;

    gpu_enter();
    stream = gpu_stream();
    at = gpu_alloc(2 * count * 4);
    memset(host, 0, count * 4);
    gpu_put(at, host, count * 4);
    CHECK(has(comm, via), "%s", oriel_last_error());
    CHECK_OK(call(comm, rank, at, at + count * 4, count, via, stream));
    CHECK_CU(oriel_cu->stream_sync(stream));
    CHECK_OK(oriel_comm_barrier(comm));
    for (int i = 0; i < 200 && call(comm, rank, at, at + count * 4, count, via, stream) == ORIEL_OK;
         i++) {
        if (i == 100 && oriel_comm_process(comm) == 1)
            kill(getpid(), SIGKILL);
    }
    began = oriel_now();
    ended = oriel_cu->stream_sync(stream);
    while (oriel_comm_check(comm) == ORIEL_OK && oriel_now() - began < 10.0)
        oriel_sys_now->poll(NULL, 0, 1);
    CHECK(oriel_now() - began < 5.0, "via %s: it took %.1f s", oriel_via_name(via),
          oriel_now() - began);
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    check_says("process 1", NULL);
    printf("row variants/killed_%s ok %.2f s: %s\n", oriel_via_name(via), oriel_now() - began,
           oriel_last_error());
    fflush(stdout);
    if (ended == CU_OK)
        ended = oriel_cu->copy_out(host, at + count * 4, count * 4, stream);
    if (ended == CU_OK)
        ended = oriel_cu->stream_sync(stream);
    for (size_t i = 0; i < count && ended == CU_OK; i++)
        CHECK(host[i] == 0 || isnan(host[i]), "element %zu is %g", i, (double)host[i]);
    printf("row context ok %s\n", ended == CU_OK ? "lives" : "does not survive MPS");
    fflush(stdout);
    oriel_comm_abandon(comm);
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
    printf("row variants/grid ok %u multiprocessors, %d CTAs of each rank\n", sms, devices->ctas);
    CHECK_OK(oriel_comm_destroy(comm));
}

/* Loading a kernel late may wait for those of another rank, which is a thread here. */
static void open_all(void)
{
    const char *fabric = getenv("ORIEL_FABRIC");
    const char *library = getenv("ORIEL_NCCL");

    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    gpu_open();
    if (fabric != NULL && strcmp(fabric, "nccl") == 0)
        nccl_open(library != NULL ? library : "libnccl.so.2");
}

static int is(const char *part)
{
    return only != NULL && strncmp(only, part, strlen(part)) == 0;
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
    open_all();
    for (int via = 0; is("killed_") && via < ORIEL_VIA_COUNT; via++) {
        if (strcmp(only + strlen("killed_"), oriel_via_name((oriel_via)via)) == 0)
            killed((oriel_via)via);
    }
    if (is("differ"))
        differ();
    if (is("stuck"))
        stuck();
    if (is("grid")) {
        grids();
        only = "random";
    }
    if (!is("killed_") && !is("differ") && !is("stuck"))
        all_parts();
    return 0;
}
