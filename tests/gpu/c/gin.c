/* Kernels of one's own between machines: gin ROOT right | stuck | address | plain | refused WORDS,
 * under `oriel run` with processes that count as machines (as_machines.sh), ORIEL_GIN=1 and
 * NCCL_RMA_PLUGIN naming tests/fake/gin.c as it was built. ROOT is the source tree. What is right
 * there is so within a machine, too. */
#include <math.h>
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
#include "support/values.h"

enum { PART = 1000, MOST_RANKS = 8, BOX = (1 + MOST_RANKS) * PART, WRONG = 8 };
enum { ROWS = 37, COLS = 211, STEPS = 25, CALLS = 12, ROUNDS = 6 };
#define LATE_S 3.0

static const char *const names[] = {"passing", "third_party", "barriers", "gets",
                                    "stuck",   "address",     "heat_put"};
enum { PASSING, THIRD_PARTY, BARRIERS, GETS, STUCK, ADDRESS, HEAT, KERNELS };

/* ---- the kernels ------------------------------------------------------------------------------
 */

static void entry(oriel_team *team)
{
    (void)team; /* for CPUs */
}

/* Plain: as by an author who has included kernel.h alone. */
static size_t write_source(const char *root, int plain, char *text, size_t len)
{
    size_t used = (size_t)snprintf(
        text, len, "%s#include \"%s/tests/kernels/machines.cu\"\n",
        plain ? "#define ORIEL_KERNEL_GIN_H\n#include <oriel/kernel.h>\n" : "", root);

    for (int i = 0; i < HEAT; i++)
        used += (size_t)snprintf(text + used, len - used,
                                 "ORIEL_ENTRY(%s, %s(team, ORIEL_ARG_BUFFER(const int64_t *, 0), "
                                 "ORIEL_ARG_BUFFER(int64_t *, 1), ORIEL_ARG_BUFFER(int64_t *, 2), "
                                 "ORIEL_ARG_INTEGER(int64_t, 0)))\n",
                                 names[i], names[i]);
    return used + (size_t)snprintf(
                      text + used, len - used,
                      "ORIEL_ENTRY(heat_put, heat_put(team, ORIEL_ARG_BUFFER(const float *, 0), "
                      "ORIEL_ARG_BUFFER(float *, 1), ORIEL_ARG_BUFFER(float *, 2), "
                      "ORIEL_ARG_BUFFER(float *, 3), ORIEL_ARG_INTEGER(int64_t, 0), "
                      "ORIEL_ARG_INTEGER(int64_t, 1), ORIEL_ARG_REAL(float, 2)))\n");
}

static void compile(const char *root, int plain)
{
    char text[4096];
    size_t bytes;
    void *out;

    write_source(root, plain, text, sizeof text);
    out = gpu_cubin(text, "machines.cu", root, &bytes);
    for (int i = 0; i < KERNELS; i++) {
        CHECK_OK(oriel_kernel_register((uint64_t)i + 1, names[i], entry));
        CHECK_OK(oriel_kernel_on_register((uint64_t)i + 1, names[i], out, bytes));
    }
    free(out);
}

static oriel_status start(oriel_group *group, int rank, int kernel, const kernel_buffer *buffers,
                          int results, const int64_t *values, int num_values, cu_stream stream)
{
    oriel_kernel_call *call;
    oriel_status st;

    CHECK_OK(oriel_kernel_call_create(oriel_kernel_find((uint64_t)kernel + 1), NULL,
                                      oriel_group_size(group), 1, results, values, num_values,
                                      &call));
    memcpy(call->buffers, buffers, (size_t)(1 + results) * sizeof *buffers);
    oriel_kernel_call_identify(call, &group->comm->heap);
    st = oriel_kernel_on_launch(group, rank, call, stream);
    oriel_kernel_call_destroy(call);
    return st;
}

/* ---- order ------------------------------------------------------------------------------------
 */

struct part {
    oriel_group *group;
    int rank;
    cu_stream stream;
    cu_ptr x, box, wrong;
};

static oriel_status call(const struct part *part, int kernel, int64_t rounds)
{
    kernel_buffer buffers[] = {
        {.data = gpu_pointer(part->x), .count = 1, .dtype = ORIEL_S64},
        {.data = gpu_pointer(part->box), .count = BOX, .dtype = ORIEL_S64},
        {.data = gpu_pointer(part->wrong), .count = WRONG, .dtype = ORIEL_S64}};

    return start(part->group, part->rank, kernel, buffers, 2, &rounds, 1, part->stream);
}

/* Many calls on the stream, then what came of the last of them. */
static void check_order(const struct part *part, int kernel, int calls)
{
    int64_t wrong[WRONG];
    double began = oriel_now();

    for (int i = 0; i < calls; i++) {
        CHECK_OK(call(part, kernel, ROUNDS));
        if (i % 5 == 4 || i == calls - 1) {
            CHECK_CU(oriel_cu->stream_sync(part->stream));
            CHECK_OK(oriel_comm_check(part->group->comm));
            gpu_get(wrong, part->wrong, sizeof wrong);
            CHECK(wrong[0] == 0, "%s, call %d on rank %d: %lld elements are wrong", names[kernel],
                  i, part->rank, (long long)wrong[0]);
        }
    }
    if (part->rank == 0)
        printf("row %s: %d calls in %.3f s ok\n", names[kernel], calls, oriel_now() - began);
    fflush(stdout);
}

/* ---- a halo -----------------------------------------------------------------------------------
 */

static void plate_fill(float *plate, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        plate[i] = (float)(seed >> 8) / (float)(1 << 24);
    }
}

static void plate_step(const float *u, float *to, int rows, float k)
{
    for (int i = 0; i < rows * COLS; i++) {
        float north = i >= COLS ? u[i - COLS] : 0;
        float south = i < (rows - 1) * COLS ? u[i + COLS] : 0;
        float west = i % COLS > 0 ? u[i - 1] : 0;
        float east = i % COLS < COLS - 1 ? u[i + 1] : 0;

        to[i] = u[i] + k * (north + south + west + east - 4 * u[i]);
    }
}

static void check_heat(const struct part *part, unsigned seed)
{
    int ranks = oriel_group_size(part->group);
    size_t own = (size_t)ROWS * COLS;
    float *plate[2] = {malloc((size_t)ranks * own * 4), malloc((size_t)ranks * own * 4)};
    float *got = malloc(own * 4);
    double k = 0.1f;
    int64_t values[3] = {COLS, STEPS, 0};
    kernel_buffer buffers[4];

    memcpy(&values[2], &k, sizeof k);
    for (int i = 0; i < 4; i++)
        buffers[i] = (kernel_buffer){.data = gpu_pointer(gpu_alloc(own * 4)),
                                     .count = i < 3 ? own : 4 * COLS,
                                     .dtype = ORIEL_F32};
    plate_fill(plate[0], (size_t)ranks * own, seed);
    gpu_put((cu_ptr)(uintptr_t)buffers[0].data, plate[0] + (size_t)part->rank * own, own * 4);
    CHECK_OK(start(part->group, part->rank, HEAT, buffers, 3, values, 3, part->stream));
    for (int s = 0; s < STEPS; s++)
        plate_step(plate[s % 2], plate[1 - s % 2], ranks * ROWS, (float)k);
    CHECK_CU(oriel_cu->stream_sync(part->stream));
    CHECK_OK(oriel_comm_check(part->group->comm));
    gpu_get(got, (cu_ptr)(uintptr_t)buffers[1].data, own * 4);
    for (size_t i = 0; i < own; i++) {
        float want = plate[STEPS % 2][(size_t)part->rank * own + i];

        CHECK(fabsf(got[i] - want) < 1e-6f, "seed %u, rank %d: element %zu is %g, not %g", seed,
              part->rank, i, (double)got[i], (double)want);
    }
    free(plate[0]);
    free(plate[1]);
    free(got);
}

/* ---- all of it --------------------------------------------------------------------------------
 */

static void check_right(const struct part *part)
{
    check_order(part, PASSING, CALLS);
    if (oriel_group_size(part->group) > 2)
        check_order(part, THIRD_PARTY, CALLS);
    check_order(part, BARRIERS, CALLS);
    check_order(part, GETS, CALLS / 3);
    for (unsigned seed = 1; seed <= 5; seed++)
        check_heat(part, seed);
    if (part->rank == 0)
        printf("row heat_put ok\n");
}

static void check_failure(const struct part *part, int kernel)
{
    double began = oriel_now();
    int64_t *box = malloc(BOX * sizeof *box);

    CHECK_OK(call(part, kernel, 1));
    while (oriel_comm_check(part->group->comm) == ORIEL_OK && oriel_now() - began < 15.0)
        oriel_sys_now->poll(NULL, 0, 1);
    CHECK_CU(oriel_cu->stream_sync(part->stream));
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(part->group->comm));
    if (kernel == STUCK)
        check_says("stuck", "did not end within 3.0 s", NULL);
    else if (kernel == PASSING)
        check_says("passing", "is on a group that spans machines", "kernel_gin.h", NULL);
    else
        check_says("address", "on rank 0 addressed memory of rank", "on another machine", NULL);
    gpu_get(box, part->box, BOX * sizeof *box);
    CHECK(values_unpoisoned(box, BOX, ORIEL_S64) < 0, "the result is not poisoned");
    free(box);
    printf("row %s after %.2f s ok: %s\n", names[kernel], oriel_now() - began, oriel_last_error());
}

static const char *how, *words;

static void body(oriel_comm *comm, int rank, void *arg)
{
    struct part part = {.group = oriel_comm_world(comm), .rank = rank};
    int64_t first = 1;

    (void)arg;
    gpu_enter();
    part.stream = gpu_stream();
    part.x = gpu_alloc(8);
    part.box = gpu_alloc(BOX * 8);
    part.wrong = gpu_alloc(WRONG * 8);
    gpu_put(part.x, &first, 8);
    if (strcmp(how, "right") == 0) {
        check_right(&part);
    } else if (strcmp(how, "refused") == 0) {
        CHECK_IS(ORIEL_ERR_UNSUPPORTED, call(&part, PASSING, 1));
        check_says("passing on a group", "spans machines", words, NULL);
        printf("row refused ok: %s\n", oriel_last_error());
    } else {
        check_failure(&part, strcmp(how, "stuck") == 0   ? STUCK
                             : strcmp(how, "plain") == 0 ? PASSING
                                                         : ADDRESS);
    }
}

int main(int argc, char **argv)
{
    oriel_comm *comm;
    int plain, fails;

    CHECK(argc > 2, "gin ROOT right | stuck | address | plain | refused WORDS");
    how = argv[2];
    words = argc > 3 ? argv[3] : "";
    plain = strcmp(how, "plain") == 0;
    fails = strcmp(how, "stuck") == 0 || strcmp(how, "address") == 0 || plain;
    gpu_open();
    compile(argv[1], plain);
    comm = gpu_comm(1, fails ? LATE_S : 20.0);
    ranks_run(comm, body, NULL);
    if (fails)
        oriel_comm_abandon(comm);
    else
        CHECK_OK(oriel_comm_destroy(comm));
    printf("row end ok\n");
    return 0;
}
