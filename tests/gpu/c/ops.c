/* Every operation on streams, against the CPU's bits: ops [local ranks] [shared] [quick]
 * Threads are ranks; under `oriel run` processes as well. shared: buffers that other
 * processes can map; quick: 1 graphs and ragged alone, 2 a few calls of every way, for tools
 * that make kernels slow. Processes may count as machines (ORIEL_HOSTID). Prints one row for
 * each part. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "core/protocol/group.h"
#include "core/device/device.h"
#include "core/world/trace.h"
#include "ops/op.h"
#include "ops/reduce/reduce.h"
#include "support/check.h"
#include "support/gpu/gpu.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/values.h"

enum { ROOM = 40 << 20, DEVICE_TEST_RANKS = 16 };

struct arena {
    cu_stream stream;
    oriel_cuda_memory memory[2]; /* where buffers are shared */
    cu_ptr send, recv;
    unsigned char *host, *want;
    unsigned char *input[DEVICE_TEST_RANKS];
};

struct test {
    enum oriel_kind kind;
    oriel_dtype dtype;
    oriel_redop op;
    size_t count;
    size_t shift; /* elements off the alignment of an allocation */
    int in_place;
    int root;
    int pairs[2 * DEVICE_TEST_RANKS];
    int num_pairs;
};

static oriel_status call_on(oriel_group *group, int rank, const struct test *t, void *send,
                            void *recv, cu_stream stream)
{
    switch (t->kind) {
    case ORIEL_KIND_ALL_REDUCE:
        return oriel_all_reduce_on(group, rank, send, recv, t->count, t->dtype, t->op, stream);
    case ORIEL_KIND_ALL_GATHER:
        return oriel_all_gather_on(group, rank, send, recv, t->count, t->dtype, stream);
    case ORIEL_KIND_REDUCE_SCATTER:
        return oriel_reduce_scatter_on(group, rank, send, recv, t->count, t->dtype, t->op, stream);
    case ORIEL_KIND_ALL_TO_ALL:
        return oriel_all_to_all_on(group, rank, send, recv, t->count, t->dtype, stream);
    case ORIEL_KIND_BROADCAST:
        return oriel_broadcast_on(group, rank, send, recv, t->count, t->dtype, t->root, stream);
    case ORIEL_KIND_PERMUTE:
        return oriel_permute_on(group, rank, send, recv, t->count, t->dtype, t->pairs, t->num_pairs,
                                stream);
    default:
        return oriel_barrier_on(group, rank, stream);
    }
}

/* Over machines: each machine's members first, then the machines. */
static void expect_rows(const oriel_op *op, int n, int each, const void *const *from)
{
    size_t bytes = oriel_op_block(op);
    unsigned char *rows = malloc((size_t)(n / each) * bytes + 1);
    const void *part[DEVICE_TEST_RANKS];

    for (int q = 0; q < n / each; q++) {
        part[q] = rows + (size_t)q * bytes;
        oriel_reduce_elements(rows + (size_t)q * bytes, from + q * each, each, op->count, op->dtype,
                              op->redop);
    }
    oriel_reduce_elements(op->recv, part, n / each, op->count, op->dtype, op->redop);
    free(rows);
}

/* The result by the CPU's own functions. */
static void expect(const oriel_group *group, const struct test *t, int index,
                   unsigned char *const *input, unsigned char *want)
{
    int n = group->n;
    oriel_op op = {.kind = t->kind,
                   .dtype = t->dtype,
                   .redop = t->op,
                   .recv = want,
                   .count = t->count,
                   .root = t->root,
                   .pairs = t->pairs,
                   .num_pairs = t->num_pairs};
    const void *from[DEVICE_TEST_RANKS];

    for (int i = 0; i < n; i++)
        from[i] = input[i] + oriel_op_part(&op, index);
    if (group->spans && group->each > 1 && oriel_op_reduces(&op))
        expect_rows(&op, n, group->each, from);
    else
        oriel_op_take(&op, n, index, from, 0, oriel_op_block(&op));
}

/* All ranks meet on the host, which shares memory within a machine alone. */
static void meet(oriel_comm *comm, int rank)
{
    oriel_group *group = oriel_comm_world(comm);
    int here[DEVICE_TEST_RANKS];
    int n = 0;

    for (int r = 0; r < comm->size && group->spans; r++) {
        if (oriel_comm_is_here(comm, comm->heap.ranks[r].process))
            here[n++] = r;
    }
    if (n > 0)
        CHECK_OK(oriel_group_intern(comm, here, n, &group));
    CHECK_OK(oriel_barrier(group, rank));
    if (n > 0 && rank == comm->first_rank)
        CHECK_OK(oriel_comm_barrier(comm));
    if (n > 0)
        CHECK_OK(oriel_barrier(group, rank));
}

static void run_test(oriel_group *group, int rank, const struct test *t, struct arena *a,
                     uint64_t seed)
{
    int n = oriel_group_size(group);
    int index = oriel_group_index(group, rank);
    oriel_op op = {.kind = t->kind, .dtype = t->dtype, .count = t->count};
    size_t size = oriel_dtype_size(t->dtype);
    size_t block = oriel_op_block(&op);
    size_t sent = block * oriel_op_times(oriel_op_forms[t->kind].send, n);
    size_t got = block * oriel_op_times(oriel_op_forms[t->kind].recv, n);
    cu_ptr recv = a->recv + t->shift * size;
    cu_ptr send = a->send + t->shift * size;
    long wrong;

    if (t->in_place)
        send =
            recv + (oriel_op_gathers(&op) && !oriel_op_scatters(&op) ? (size_t)index * block : 0);
    if (t->in_place && t->kind == ORIEL_KIND_REDUCE_SCATTER) {
        send = a->send + t->shift * size;
        recv = send + (size_t)index * block;
    }
    for (int i = 0; i < n; i++)
        values_random(a->input[i], sent, seed, i);
    memset(a->host, 0xee, got + 64);
    if (recv >= a->recv && recv < a->recv + ROOM)
        gpu_put(recv, a->host, got + 64);
    gpu_put(send, a->input[index], sent);
    CHECK_OK(call_on(group, rank, t, gpu_pointer(send), gpu_pointer(recv), a->stream));
    CHECK_CU(oriel_cu->stream_sync(a->stream));
    CHECK_OK(oriel_comm_check(group->comm));
    gpu_get(a->host, recv, got + 64);
    expect(group, t, index, a->input, a->want);
    wrong = values_difference(a->host, a->want, got);
    CHECK(wrong < 0,
          "%s %s %s, %zu elements, shift %zu, in place %d, rank %d of %d: byte %ld of %zu is %02x, "
          "not %02x",
          oriel_kind_name(t->kind), oriel_dtype_name(t->dtype), oriel_redop_name(t->op), t->count,
          t->shift, t->in_place, index, n, wrong, got, a->host[wrong], a->want[wrong]);
    for (int i = 0; i < 64 && !t->in_place; i++)
        CHECK(a->host[got + (size_t)i] == 0xee, "%s wrote past its result",
              oriel_kind_name(t->kind));
}

static int shared;
static int quick;

/* Memory that the other processes can map. */
static void share_buffers(struct arena *a)
{
    for (int i = 0; i < 2; i++)
        CHECK_OK(oriel_cuda_memory_create(gpu_device(), ROOM, &a->memory[i]));
    a->send = a->memory[0].base;
    a->recv = a->memory[1].base;
}

static struct arena arena_make(void)
{
    struct arena a = {.stream = gpu_stream()};

    if (shared) {
        share_buffers(&a);
    } else {
        a.send = gpu_alloc(ROOM);
        a.recv = gpu_alloc(ROOM);
    }
    a.host = malloc(ROOM);
    a.want = malloc(ROOM);
    for (int i = 0; i < DEVICE_TEST_RANKS; i++)
        a.input[i] = malloc(ROOM);
    return a;
}

static void make_pairs(struct test *t, int n, uint64_t seed)
{
    int shift = (int)(seed % (uint64_t)n);

    t->num_pairs = 0;
    for (int i = 0; i < n; i++) {
        if (seed % 3 == 0 && i == (int)(seed % 7))
            continue;
        t->pairs[2 * t->num_pairs] = i;
        t->pairs[2 * t->num_pairs + 1] = (i + shift) % n;
        t->num_pairs++;
    }
}

/* Every dtype and reduction, at sizes of every way. */
static void reductions(oriel_comm *comm, int rank, struct arena *a)
{
    static const size_t bytes[] = {16, 4096 + 16, 48 * 1024 + 32, 700 * 1024 + 48};
    uint64_t seed = 1;

    for (size_t s = 0; s < sizeof bytes / sizeof *bytes; s++) {
        for (int d = 0; d < ORIEL_DTYPE_COUNT; d++) {
            for (int op = 0; op < ORIEL_REDOP_COUNT; op++, seed++) {
                struct test t = {.kind = seed % 3 == 2 ? ORIEL_KIND_REDUCE_SCATTER
                                                       : ORIEL_KIND_ALL_REDUCE,
                                 .dtype = (oriel_dtype)d,
                                 .op = values_op((oriel_dtype)d, (oriel_redop)op),
                                 .count = bytes[s] / oriel_dtype_size((oriel_dtype)d) + seed % 2,
                                 .shift = seed % 5 == 0,
                                 .in_place = seed % 4 == 1};
                run_test(oriel_comm_world(comm), rank, &t, a, seed);
            }
        }
    }
}

static void kinds(oriel_comm *comm, int rank, struct arena *a)
{
    static const size_t counts[] = {0, 1, 7, 1000, 5000, 40000, 300001, 1 << 20};
    static const oriel_dtype dtypes[] = {ORIEL_U8, ORIEL_F32, ORIEL_BF16, ORIEL_C128};
    uint64_t seed = 1000;

    for (int kind = ORIEL_KIND_ALL_REDUCE; kind <= ORIEL_KIND_BARRIER; kind++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            for (int d = 0; d < 4; d++, seed++) {
                struct test t = {.kind = (enum oriel_kind)kind,
                                 .dtype = dtypes[d],
                                 .count = counts[c],
                                 .shift = seed % 3,
                                 .in_place = seed % 4 == 1,
                                 .root = (int)(seed % (uint64_t)comm->size)};
                make_pairs(&t, comm->size, seed);
                if (counts[c] * oriel_dtype_size(dtypes[d]) * (size_t)comm->size > ROOM - 4096)
                    continue;
                run_test(oriel_comm_world(comm), rank, &t, a, seed);
            }
        }
    }
}

/* Groups in turn with the world: counts between pairs must stay in step. */
static void groups(oriel_comm *comm, int rank, struct arena *a)
{
    int members[DEVICE_TEST_RANKS];
    int half = (comm->size + 1) / 2;
    int low = rank < half;
    int n = low ? half : comm->size - half;
    oriel_group *group;

    for (int i = 0; i < n; i++)
        members[i] = low ? half - 1 - i : half + i;         /* the first in reverse order */
    CHECK_OK(oriel_group_intern(comm, members, n, &group)); /* one for all threads */
    for (uint64_t seed = 5000; seed < 5060; seed++) {
        struct test t = {.kind = seed % 2 ? ORIEL_KIND_ALL_REDUCE : ORIEL_KIND_ALL_GATHER,
                         .dtype = ORIEL_F32,
                         .count = (size_t)(values_mix(seed, 1) % 200000)};
        run_test(seed % 3 == 0 ? oriel_comm_world(comm) : group, rank, &t, a, seed);
    }
}

/* Random calls, launched without waiting in between; the last result is looked at. */
static void random_calls(oriel_comm *comm, int rank, struct arena *a)
{
    for (uint64_t seed = 9000; seed < 9150; seed++) {
        uint64_t r = values_mix(seed, 3);
        struct test t = {.kind = (enum oriel_kind)(1 + r % 6),
                         .dtype = (oriel_dtype)(r / 8 % ORIEL_DTYPE_COUNT),
                         .op = (oriel_redop)(r / 256 % 4),
                         .count = (size_t)(r / 1024 % (r % 5 == 0 ? 100000 : 3000)),
                         .shift = r / 512 % 4,
                         .in_place = r / 128 % 3 == 0,
                         .root = (int)(r % (uint64_t)comm->size)};
        make_pairs(&t, comm->size, seed);
        run_test(oriel_comm_world(comm), rank, &t, a, seed);
    }
}

/* A captured chain of calls of all ways, replayed with new contents each time. */
static void graphs(oriel_comm *comm, int rank, struct arena *a)
{
    static const size_t counts[] = {64, 20000, 500000};
    oriel_group *world = oriel_comm_world(comm);
    const uint64_t replays = quick || world->spans ? 100 : 10000;
    cu_graph graph;
    cu_graph_exec exec;

    CHECK_CU(gpu.capture_begin(a->stream, 2));
    for (int k = 0; k < 3; k++)
        CHECK_OK(oriel_all_reduce_on(world, rank, gpu_pointer(a->send), gpu_pointer(a->recv),
                                     counts[k], ORIEL_F32, ORIEL_MAX, a->stream));
    CHECK_CU(gpu.capture_end(a->stream, &graph));
    CHECK_CU(gpu.graph_instantiate(&exec, graph, 0));
    for (uint64_t replay = 0; replay < replays; replay++) {
        struct test t = {
            .kind = ORIEL_KIND_ALL_REDUCE, .dtype = ORIEL_F32, .op = ORIEL_MAX, .count = counts[2]};
        int look = replay % (replays / 4) == replays / 4 - 1;

        for (int i = 0; look && i < comm->size; i++)
            values_random(a->input[i], counts[2] * 4, 77 + replay, i);
        if (look)
            gpu_put(a->send, a->input[rank], counts[2] * 4);
        CHECK_CU(gpu.graph_launch(exec, a->stream));
        CHECK_CU(oriel_cu->stream_sync(a->stream));
        if (!look)
            continue;
        CHECK_OK(oriel_comm_check(comm));
        gpu_get(a->host, a->recv, counts[2] * 4);
        expect(world, &t, rank, a->input, a->want);
        CHECK(memcmp(a->host, a->want, counts[2] * 4) == 0, "replay %d is wrong: byte %ld",
              (int)replay, values_difference(a->host, a->want, counts[2] * 4));
    }
    CHECK_OK(oriel_comm_check(comm));
    CHECK_CU(gpu.exec_destroy(exec));
    CHECK_CU(gpu.graph_destroy(graph));
}

/* ---- ragged_all_to_all -------------------------------------------------------------- */

enum { SLICES = 3, ROW = 12 };

static int64_t rows_of(uint64_t seed, int from, int to, int slice)
{
    uint64_t r = values_mix(seed, (uint64_t)(1000000 + from * 10000 + to * 100 + slice));

    return (int64_t)(r % 4 == 0 ? 0 : r / 4 % (seed % 3 == 0 ? 20000 : 50));
}

/* The four arrays of one member, as the device gets them; returns where they are. */
static cu_ptr make_arrays(const int64_t *values, size_t count, int wide)
{
    cu_ptr at = gpu_alloc(8 * count);
    int32_t *narrow = malloc(4 * count);

    for (size_t i = 0; i < count; i++)
        narrow[i] = (int32_t)values[i];
    gpu_put(at, wide ? (const void *)values : narrow, (wide ? 8 : 4) * count);
    free(narrow);
    return at;
}

/* Slices lie one after the other, with a row between them on both sides. */
static int64_t input_offset(uint64_t seed, int n, int from, int to, int slice)
{
    int64_t at = 0;

    for (int j = 0; j < n; j++) {
        for (int k = 0; k < SLICES; k++) {
            if (j == to && k == slice)
                return at;
            at += rows_of(seed, from, j, k) + 1;
        }
    }
    return at;
}

static int64_t output_offset(uint64_t seed, int n, int from, int to, int slice)
{
    int64_t at = 0;

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < SLICES; k++) {
            if (i == from && k == slice)
                return at;
            at += rows_of(seed, i, to, k) + 1;
        }
    }
    return at;
}

/* Over machines all have as many. */
static size_t send_rows_of(const oriel_comm *comm, uint64_t seed, int rank)
{
    int64_t most = input_offset(seed, comm->size, rank, comm->size, 0);

    for (int r = 0; r < comm->size && comm->world->spans; r++) {
        int64_t rows = input_offset(seed, comm->size, r, comm->size, 0);

        most = rows > most ? rows : most;
    }
    return (size_t)most;
}

static void run_ragged(oriel_comm *comm, int rank, struct arena *a, uint64_t seed)
{
    int n = comm->size;
    int wide = (int)(seed % 2);
    size_t each = (size_t)(n * SLICES);
    int64_t *values = malloc(4 * each * sizeof *values);
    size_t send_rows = send_rows_of(comm, seed, rank);
    size_t recv_rows = (size_t)output_offset(seed, n, n, rank, 0);
    oriel_ragged_on ragged = ORIEL_RAGGED_ON_INIT;
    size_t width = wide ? 8 : 4;
    cu_ptr arrays;

    for (int p = 0; p < n; p++) {
        for (int k = 0; k < SLICES; k++) {
            size_t i = (size_t)(p * SLICES + k);

            values[i] = input_offset(seed, n, rank, p, k);
            values[each + i] = rows_of(seed, rank, p, k);
            values[2 * each + i] = output_offset(seed, n, rank, p, k);
            values[3 * each + i] = rows_of(seed, p, rank, k);
        }
    }
    arrays = make_arrays(values, 4 * each, wide);
    ragged.row = ROW;
    ragged.send_rows = send_rows;
    ragged.recv_rows = recv_rows;
    ragged.slices = SLICES;
    ragged.index = wide ? ORIEL_S64 : ORIEL_S32;
    ragged.input_offsets = gpu_pointer(arrays);
    ragged.send_sizes = gpu_pointer(arrays + width * each);
    ragged.output_offsets = gpu_pointer(arrays + 2 * width * each);
    ragged.recv_sizes = gpu_pointer(arrays + 3 * width * each);
    CHECK((send_rows + recv_rows) * ROW * 4 < ROOM, "the test's rows are too many");
    values_random(a->input[0], send_rows * ROW * 4, seed, rank);
    gpu_put(a->send, a->input[0], send_rows * ROW * 4);
    memset(a->host, 0xee, recv_rows * ROW * 4 + 64);
    memcpy(a->want, a->host, recv_rows * ROW * 4 + 64);
    gpu_put(a->recv, a->host, recv_rows * ROW * 4 + 64);
    /* Nobody's kernel may spin while another rank allocates. */
    meet(comm, rank);
    CHECK_OK(oriel_ragged_all_to_all_on(oriel_comm_world(comm), rank, gpu_pointer(a->send),
                                        gpu_pointer(a->recv), ORIEL_F32, &ragged, a->stream));
    CHECK_CU(oriel_cu->stream_sync(a->stream));
    CHECK_OK(oriel_comm_check(comm));
    for (int p = 0; p < n; p++) {
        values_random(a->input[1], send_rows_of(comm, seed, p) * ROW * 4, seed, p);
        for (int k = 0; k < SLICES; k++)
            memcpy(a->want + output_offset(seed, n, p, rank, k) * ROW * 4,
                   a->input[1] + input_offset(seed, n, p, rank, k) * ROW * 4,
                   (size_t)rows_of(seed, p, rank, k) * ROW * 4);
    }
    gpu_get(a->host, a->recv, recv_rows * ROW * 4 + 64);
    CHECK(values_difference(a->host, a->want, recv_rows * ROW * 4 + 64) < 0,
          "ragged_all_to_all, seed %d, rank %d: byte %ld is wrong", (int)seed, rank,
          values_difference(a->host, a->want, recv_rows * ROW * 4 + 64));
    meet(comm, rank);
    CHECK_CU(gpu.mem_free(arrays));
    free(values);
}

static void ragged(oriel_comm *comm, int rank, struct arena *a)
{
    for (uint64_t seed = 1; seed <= 12; seed++)
        run_ragged(comm, rank, a, comm->size > 4 && seed % 3 == 0 ? seed + 1 : seed);
}

/* ---- buffers that come and go --------------------------------------------------------- */

enum { EXPORT_READY = 3 }; /* see core/device/register.c */

static int count_ready(const oriel_comm *comm, int rank)
{
    const oriel_devices *devices = comm->devices;
    const oriel_device_rank *r = &devices->ranks[rank - comm->first_rank];
    int ready = 0;

    for (int i = 0; r->exports != NULL && i < r->num_exports; i++)
        ready += atomic_load(&r->exports[i].state) == EXPORT_READY;
    return ready;
}

/* New memory, most likely where the old one was, for some ranks or for all: direct as soon
 * as all have mapped it. */
static void reuse(oriel_comm *comm, int rank, struct arena *a)
{
    if (!shared || comm->num_processes == 1 || comm->world->spans)
        return;
    for (uint64_t round = 0; round < 9; round++) {
        double until = oriel_now() + 10.0;
        uint64_t calls = 0;

        meet(comm, rank);
        if (((int)round + rank) % 3 != 1) {
            for (int i = 0; i < 2; i++)
                oriel_cuda_memory_close(&a->memory[i]);
            share_buffers(a);
        }
        meet(comm, rank);
        for (int32_t ready = 0; !ready; calls++) {
            struct test t = {.kind = calls % 3 ? ORIEL_KIND_ALL_REDUCE : ORIEL_KIND_ALL_TO_ALL,
                             .dtype = ORIEL_BF16,
                             .count = 300000,
                             .in_place = calls % 3 == 2};
            int32_t mine = count_ready(comm, rank) >= 2;

            if (calls % 5 == 4)
                run_ragged(comm, rank, a, 1 + calls % 2);
            else
                run_test(oriel_comm_world(comm), rank, &t, a, 100 * round + calls);
            CHECK(oriel_now() < until, "the buffers of round %d were not mapped", (int)round);
            CHECK_OK(oriel_all_reduce(oriel_comm_world(comm), rank, &mine, &ready, 1, ORIEL_S32,
                                      ORIEL_MIN));
        }
        for (uint64_t k = 0; k < 4; k++) {
            struct test t = {.kind = k % 2 ? ORIEL_KIND_ALL_REDUCE : ORIEL_KIND_ALL_GATHER,
                             .dtype = ORIEL_F32,
                             .count = 400000};

            run_test(oriel_comm_world(comm), rank, &t, a, 7000 + 100 * round + k);
        }
    }
}

/* Small, staged and direct: the first calls on buffers are not direct between processes. */
static void few(oriel_comm *comm, int rank, struct arena *a)
{
    static const size_t counts[] = {1000, 150001};
    uint64_t seed = 20000;

    for (int i = 0; i < 3 * ORIEL_KIND_BARRIER; i++) {
        for (int k = 0; k < 4; k++, seed++) {
            struct test t = {.kind = (enum oriel_kind)(1 + i % ORIEL_KIND_BARRIER),
                             .dtype = k < 2 ? ORIEL_F32 : ORIEL_BF16,
                             .count = counts[k % 2],
                             .in_place = k == 3};

            make_pairs(&t, comm->size, seed);
            run_test(oriel_comm_world(comm), rank, &t, a, seed);
        }
    }
    run_ragged(comm, rank, a, 1);
}

/* Each with the ways to be quick that include it. */
static const struct {
    const char *name;
    void (*run)(oriel_comm *comm, int rank, struct arena *a);
    int quick;
} parts[] = {{"kinds", kinds, 0},   {"reductions", reductions, 0},
             {"groups", groups, 0}, {"random", random_calls, 0},
             {"graphs", graphs, 1}, {"ragged", ragged, 1},
             {"reuse", reuse, 0},   {"few", few, 2}};

static void body(oriel_comm *comm, int rank, void *arg)
{
    struct arena a;

    (void)arg;
    gpu_enter();
    a = arena_make();
    meet(comm, rank); /* an allocation may wait for kernels */
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double began = oriel_now();

        if (quick ? parts[i].quick != quick : parts[i].quick == 2)
            continue;
        parts[i].run(comm, rank, &a);
        meet(comm, rank);
        if (rank == 0) {
            printf("row ops/%s ok %.2f s\n", parts[i].name, oriel_now() - began);
            fflush(stdout);
        }
    }
}

int main(int argc, char **argv)
{
    int local_ranks = process_argument(argc, argv, 1, 2);
    double began = oriel_now();
    oriel_comm *comm;

    shared = process_argument(argc, argv, 2, 0);
    quick = process_argument(argc, argv, 3, 0);
    gpu_open();
    comm = gpu_comm(local_ranks, 20.0);
    printf("set up in %.2f s\n", oriel_now() - began);
    ranks_run(comm, body, NULL);
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
