/* What goes wrong on a GPU: every failure is named, bounded and leaves the context alive.
 * Two threads are ranks. Prints one row for each case. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "core/world/comm.h"
#include "support/check.h"
#include "support/gpu/gpu.h"
#include "support/ranks.h"
#include "support/values.h"

enum { SMALL = 1000, LARGE = 1 << 20 };

struct rank {
    cu_stream stream;
    cu_ptr send, recv;
    float *host;
};

static struct rank rank_make(void)
{
    struct rank r = {.stream = gpu_stream(),
                     .send = gpu_alloc(2 * LARGE * 4),
                     .recv = gpu_alloc(2 * LARGE * 4),
                     .host = malloc(2 * LARGE * 4)};

    CHECK_CU(oriel_cu->fill(r.send, 0x3f, 2 * LARGE * 4, r.stream));
    CHECK_CU(oriel_cu->stream_sync(r.stream));
    return r;
}

static oriel_status reduce(oriel_comm *comm, int rank, struct rank *r, size_t count)
{
    return oriel_all_reduce_on(oriel_comm_world(comm), rank, gpu_pointer(r->send),
                               gpu_pointer(r->recv), count, ORIEL_F32, ORIEL_SUM, r->stream);
}

static void check_poisoned(struct rank *r, size_t count)
{
    long wrong;

    gpu_get(r->host, r->recv, count * 4);
    wrong = values_unpoisoned(r->host, count, ORIEL_F32);
    CHECK(wrong < 0, "element %ld is not poisoned", wrong);
}

static pthread_barrier_t meet;

/* Rank 1 never launches. */
static void late(oriel_comm *comm, int rank, void *arg)
{
    size_t count = *(const size_t *)arg;
    struct rank r;
    double began;

    gpu_enter();
    r = rank_make();
    pthread_barrier_wait(&meet);
    if (rank == 1) {
        pthread_barrier_wait(&meet);
        return;
    }
    began = oriel_now();
    CHECK_OK(reduce(comm, rank, &r, count));
    CHECK(oriel_now() - began < 0.1, "the call itself waited");
    CHECK_CU(oriel_cu->stream_sync(r.stream));
    CHECK(oriel_now() - began < 6.0, "the deadline of 1 s took %.1f s", oriel_now() - began);
    check_poisoned(&r, count);
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    check_says("all_reduce", "rank 1", "did not come within 1.0 s", NULL);
    CHECK_IS(ORIEL_ERR_TIMEOUT, reduce(comm, rank, &r, count));
    pthread_barrier_wait(&meet);
}

struct pair {
    size_t count[2];
    int gather; /* rank 1 gathers */
};

static void differ(oriel_comm *comm, int rank, void *arg)
{
    const struct pair *pair = arg;
    struct rank r;
    size_t count = pair->count[rank];
    oriel_status st;

    gpu_enter();
    r = rank_make();
    pthread_barrier_wait(&meet);
    if (rank == 1 && pair->gather)
        CHECK_OK(oriel_all_gather_on(oriel_comm_world(comm), rank, gpu_pointer(r.send),
                                     gpu_pointer(r.recv), count, ORIEL_F32, r.stream));
    else
        CHECK_OK(reduce(comm, rank, &r, count));
    CHECK_CU(oriel_cu->stream_sync(r.stream));
    check_poisoned(&r, count);
    pthread_barrier_wait(&meet);
    st = oriel_comm_check(comm);
    CHECK(st == ORIEL_ERR_REVOKED, "status %d", (int)st);
    check_says("asked for", "for all_reduce sum", pair->gather ? "all_gather" : "rank 1", NULL);
    pthread_barrier_wait(&meet);
}

static _Atomic int released;

static void hold(void *arg)
{
    (void)arg;
    while (!atomic_load(&released))
        oriel_relax(1);
}

/* Rank 1's kernel comes after rank 0 has given up and refilled its buffers. */
static void comes_late(oriel_comm *comm, int rank, void *arg)
{
    size_t count = *(const size_t *)arg;
    struct rank r;

    gpu_enter();
    r = rank_make();
    if (rank == 1)
        CHECK_CU(gpu.host_call(r.stream, hold, NULL));
    pthread_barrier_wait(&meet);
    CHECK_OK(reduce(comm, rank, &r, count));
    if (rank == 0) {
        CHECK_CU(oriel_cu->stream_sync(r.stream));
        check_poisoned(&r, count);
        CHECK_CU(oriel_cu->fill(r.recv, 0x11, count * 4, r.stream));
        CHECK_CU(oriel_cu->stream_sync(r.stream));
        atomic_store(&released, 1);
    }
    CHECK_CU(oriel_cu->stream_sync(r.stream));
    pthread_barrier_wait(&meet);
    if (rank == 1)
        check_poisoned(&r, count);
    gpu_get(r.host, r.recv, count * 4);
    for (size_t i = 0; rank == 0 && i < 4 * count; i++)
        CHECK(((unsigned char *)r.host)[i] == 0x11, "byte %zu of rank 0 was written late", i);
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    pthread_barrier_wait(&meet);
}

/* Two comms at once, which the ranks enter in opposite orders: all their kernels must be
 * resident together, or they would wait for each other for ever. */
static void two_comms(oriel_comm *comm, int rank, void *arg)
{
    oriel_comm *both[2] = {comm, arg};
    struct rank r[2];

    gpu_enter();
    r[0] = rank_make();
    r[1] = rank_make();
    pthread_barrier_wait(&meet);
    for (int i = 0; i < 300; i++) {
        CHECK_OK(reduce(both[rank], rank, &r[rank], LARGE));
        CHECK_OK(reduce(both[!rank], rank, &r[!rank], LARGE));
    }
    for (int k = 0; k < 2; k++) {
        CHECK_CU(oriel_cu->stream_sync(r[k].stream));
        CHECK_OK(oriel_comm_check(both[k]));
    }
    pthread_barrier_wait(&meet);
}

static void fine(oriel_comm *comm, int rank, void *arg)
{
    struct rank r;

    (void)arg;
    gpu_enter();
    r = rank_make();
    CHECK_OK(reduce(comm, rank, &r, LARGE));
    CHECK_CU(oriel_cu->stream_sync(r.stream));
    CHECK_OK(oriel_comm_check(comm));
    gpu_get(r.host, r.recv, 4);
    CHECK(r.host[0] > 1.49f && r.host[0] < 1.51f, "the sum is %g", (double)r.host[0]);
}

static void run(const char *name, void (*body)(oriel_comm *, int, void *), void *arg)
{
    double began = oriel_now();
    oriel_comm *comm = gpu_comm_alone(2, 1.0);

    atomic_store(&released, 0);
    ranks_run(comm, body, arg);
    oriel_comm_abandon(comm);
    printf("row fail/%s ok %.2f s\n", name, oriel_now() - began);
    fflush(stdout);
}

int main(void)
{
    static size_t small = SMALL;
    static size_t large = LARGE;
    static struct pair pairs[] = {{{SMALL, SMALL + 8}, 0},
                                  {{LARGE, LARGE + 8}, 0},
                                  {{SMALL, LARGE}, 0},
                                  {{LARGE, LARGE}, 1},
                                  {{SMALL, SMALL}, 1}};
    oriel_comm *second;

    gpu_open();
    pthread_barrier_init(&meet, NULL, 2);
    run("fine", fine, NULL);
    run("late_small", late, &small);
    run("late_large", late, &large);
    run("differ_small", differ, &pairs[0]);
    run("differ_large", differ, &pairs[1]);
    run("differ_ways", differ, &pairs[2]);
    run("differ_kinds_large", differ, &pairs[3]);
    run("differ_kinds_small", differ, &pairs[4]);
    run("comes_late_small", comes_late, &small);
    run("comes_late_large", comes_late, &large);
    second = gpu_comm_alone(2, 1.0);
    run("two_comms", two_comms, second);
    oriel_comm_abandon(second);
    run("fine_after", fine, NULL);
    return 0;
}
