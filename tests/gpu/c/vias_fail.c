/* The vias of all_reduce when something fails, which revokes the comm:
 *   vias_fail differ        ranks that ask for different vias
 *   vias_fail stuck         a call of NCCL's that does not end
 *   vias_fail killed VIA    a process that dies in the middle, under `oriel run -n 2`
 * ORIEL_FABRIC=nccl has the vias that need NCCL, see vias.c. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "core/nccl/comm.h"
#include "support/check.h"
#include "support/gpu/gpu.h"
#include "support/ranks.h"
#include "support/values.h"
#include "support/gpu/vias.h"

/* ---- ranks that differ ---------------------------------------------------------------------- */

/* What rank 0 alone asks for. A rank that asks for NCCL may be in its kernel when the comm is
 * revoked. */
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
    /* A rank that comes late may find the comm revoked. */
    st = vias_sum(comm, rank, at, at, count, rank == 0 ? odd_via : ORIEL_VIA_AUTO, stream);
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
        printf("row vias/differ_%s ok %.2f s: %s\n", oriel_via_name(odd_via), oriel_now() - began,
               oriel_last_error());
    free(host);
}

static void differ(void)
{
    for (int via = ORIEL_VIA_NCCL; via < ORIEL_VIA_COUNT; via++) {
        oriel_comm *comm = gpu_comm_alone(2, 10.0);

        odd_via = (oriel_via)via;
        if (vias_has(comm, odd_via)) {
            ranks_run(comm, differ_body, NULL);
            oriel_comm_abandon(comm);
        } else {
            CHECK_OK(oriel_comm_destroy(comm));
        }
    }
}

/* ---- a call of NCCL's that does not end ------------------------------------------------------ */

/* All ranks have met for it, but the one's kernel is held up on the stream that NCCL has: the
 * deadline of the comm ends it on all. */
static void stuck_body(oriel_comm *comm, int rank, void *arg)
{
    enum { COUNT = 1000 };
    cu_function delay;
    cu_stream stream;
    float host[COUNT] = {0};
    double began;
    cu_ptr at;

    (void)arg;
    gpu_enter();
    stream = gpu_stream();
    at = gpu_alloc(sizeof host);
    delay = vias_delay();
    gpu_put(at, host, sizeof host);
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    began = oriel_now();
    if (rank == 0)
        vias_delay_launch(delay, 3000000000ull, comm->devices->nccl->streams[0].stream);
    CHECK_OK(vias_sum(comm, rank, at, at, COUNT, ORIEL_VIA_NCCL, stream));
    CHECK_CU(oriel_cu->stream_sync(stream));
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    check_says("all_reduce via nccl", "did not end within 1.0 s", NULL);
    gpu_get(host, at, sizeof host);
    CHECK(values_unpoisoned(host, COUNT, ORIEL_F32) < 0, "rank %d: it is not poisoned", rank);
    CHECK(oriel_now() - began < 6.0, "it took %.1f s", oriel_now() - began);
    if (rank == 0)
        printf("row vias/stuck ok %.2f s: %s\n", oriel_now() - began, oriel_last_error());
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
    CHECK(vias_has(comm, via), "%s", oriel_last_error());
    CHECK_OK(vias_sum(comm, rank, at, at + count * 4, count, via, stream));
    CHECK_CU(oriel_cu->stream_sync(stream));
    CHECK_OK(oriel_comm_barrier(comm));
    for (int i = 0;
         i < 200 && vias_sum(comm, rank, at, at + count * 4, count, via, stream) == ORIEL_OK; i++) {
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
    printf("row vias/killed_%s ok %.2f s: %s\n", oriel_via_name(via), oriel_now() - began,
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

static oriel_via via_named(const char *name)
{
    int via = 0;

    while (via < ORIEL_VIA_COUNT && strcmp(name, oriel_via_name((oriel_via)via)) != 0)
        via++;
    CHECK(via < ORIEL_VIA_COUNT, "there is no via %s", name);
    return (oriel_via)via;
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";

    vias_open();
    if (strcmp(part, "differ") == 0)
        differ();
    else if (strcmp(part, "stuck") == 0)
        stuck();
    else if (strcmp(part, "killed") == 0 && argc > 2)
        killed(via_named(argv[2]));
    else
        CHECK(0, "there is no part \"%s\"", part);
    return 0;
}
