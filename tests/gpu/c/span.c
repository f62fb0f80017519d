/* What goes wrong between machines: span mismatch | late | killed, under `oriel run`
 * with processes that count as machines (ORIEL_HOSTID). All but the killed one hear of it, by
 * name, within 5 s, and their results are poisoned. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "core/world/comm.h"
#include "support/check.h"
#include "support/gpu/gpu.h"
#include "support/values.h"

enum { COUNT = 1 << 18 };
#define LATE_S 3.0

static oriel_status start_call(oriel_comm *comm, cu_stream stream, cu_ptr at, size_t count)
{
    return oriel_all_reduce_on(oriel_comm_world(comm), oriel_comm_first_rank(comm), gpu_pointer(at),
                               gpu_pointer(at), count, ORIEL_F32, ORIEL_MAX, stream);
}

static double wait_for_end(oriel_comm *comm, cu_stream stream)
{
    double began = oriel_now();

    while (oriel_comm_check(comm) == ORIEL_OK && oriel_now() - began < 20.0)
        oriel_sys_now->poll(NULL, 0, 1);
    began = oriel_now() - began;
    oriel_cu->stream_sync(stream);
    return began;
}

/* The stream's result after a failure. */
static void check_poison(cu_stream stream, cu_ptr at)
{
    float *host = malloc(COUNT * 4);
    cu_result result = oriel_cu->copy_out(host, at, COUNT * 4, stream);

    if (result == CU_OK)
        result = oriel_cu->stream_sync(stream);
    if (result == CU_OK)
        CHECK(values_unpoisoned(host, COUNT, ORIEL_F32) < 0, "the result is not poisoned");
    else
        printf("row context ok does not survive: CUDA says %d\n", result);
    free(host);
}

static void differ(oriel_comm *comm, cu_stream stream, cu_ptr at)
{
    int last = oriel_comm_process(comm) == oriel_comm_num_processes(comm) - 1;

    CHECK_OK(start_call(comm, stream, at, last ? COUNT / 2 : COUNT));
    printf("row mismatch noticed in %.2f s ok\n", wait_for_end(comm, stream));
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    check_says("asked for all_reduce max of", "1048576 bytes", "524288 bytes", NULL);
    if (!last)
        check_poison(stream, at);
}

static void come_late(oriel_comm *comm, cu_stream stream, cu_ptr at)
{
    double took;

    if (oriel_comm_process(comm) != 1)
        CHECK_OK(start_call(comm, stream, at, COUNT));
    took = wait_for_end(comm, stream);
    CHECK(took > LATE_S - 0.5 && took < LATE_S + 5.0, "it took %.2f s", took);
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    check_says("spans machines", "within 3.0 s", NULL);
    printf("row late noticed in %.2f s ok\n", took);
    if (oriel_comm_process(comm) != 1)
        check_poison(stream, at);
}

static void lose_one(oriel_comm *comm, cu_stream stream, cu_ptr at)
{
    double took;
    int started;

    if (oriel_comm_process(comm) == 1)
        kill(getpid(), SIGKILL);
    started = start_call(comm, stream, at, COUNT) == ORIEL_OK; /* it may be known by then */
    if (!started)
        check_says("process 1", "is gone", NULL);
    took = wait_for_end(comm, stream);
    CHECK(took < 5.0, "a death was noticed after %.2f s", took);
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    check_says("process 1", "is gone", NULL);
    printf("row death noticed in %.2f s ok\n", took);
    if (started)
        check_poison(stream, at);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    oriel_comm *comm;
    cu_stream stream;
    cu_ptr at;

    gpu_open();
    comm = gpu_comm(1, strcmp(how, "late") == 0 ? LATE_S : 60.0);
    CHECK(comm->heap.header->num_machines > 1, "set ORIEL_HOSTID differently");
    gpu_enter();
    stream = gpu_stream();
    at = gpu_alloc(COUNT * 4);
    CHECK_CU(oriel_cu->fill(at, 0, COUNT * 4, stream));
    CHECK_OK(start_call(comm, stream, at, COUNT));
    CHECK_CU(oriel_cu->stream_sync(stream));
    CHECK_OK(oriel_comm_check(comm));
    CHECK_OK(oriel_comm_barrier(comm));
    if (strcmp(how, "mismatch") == 0)
        differ(comm, stream, at);
    else if (strcmp(how, "late") == 0)
        come_late(comm, stream, at);
    else
        lose_one(comm, stream, at);
    oriel_comm_abandon(comm);
    printf("row end ok\n");
    return 0;
}
