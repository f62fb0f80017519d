/* Process 1 dies: killed [busy], under `oriel run -n 2` or more. While the others' kernels
 * wait for it or, busy, while those of all move data. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/gpu/gpu.h"
#include "support/ranks.h"
#include "support/values.h"

enum { COUNT = 1 << 20 };

static void fine(oriel_comm *comm, int rank, void *arg)
{
    cu_stream stream;
    cu_ptr at;

    (void)arg;
    gpu_enter();
    stream = gpu_stream();
    at = gpu_alloc(COUNT * 4);
    CHECK_CU(oriel_cu->fill(at, 0, COUNT * 4, stream));
    CHECK_CU(oriel_cu->stream_sync(stream));
    CHECK_OK(oriel_barrier(oriel_comm_world(comm), rank));
    CHECK_OK(oriel_all_reduce_on(oriel_comm_world(comm), rank, gpu_pointer(at), gpu_pointer(at),
                                 COUNT, ORIEL_F32, ORIEL_SUM, stream));
    CHECK_CU(oriel_cu->stream_sync(stream));
    CHECK_OK(oriel_comm_check(comm));
}

static oriel_status start_call(oriel_comm *comm, cu_stream stream, cu_ptr at)
{
    return oriel_all_reduce_on(oriel_comm_world(comm), oriel_comm_first_rank(comm), gpu_pointer(at),
                               gpu_pointer(at), COUNT, ORIEL_F32, ORIEL_MAX, stream);
}

/* All have calls on the way when one dies; the others may hear of it while they start. */
static void die_busy(oriel_comm *comm, cu_stream stream, cu_ptr at)
{
    int dies = oriel_comm_process(comm) == 1;

    for (int i = 0; i < 500 && start_call(comm, stream, at) == ORIEL_OK; i++) {
    }
    CHECK(!dies || gpu.stream_query(stream) == CU_NOT_READY, "nothing is on the way");
    if (dies)
        kill(getpid(), SIGKILL);
}

/* MPS may take the context down with the dead process's; the error is named all the same. */
static void survive(oriel_comm *comm, cu_stream stream, cu_ptr at, int busy)
{
    float *host = malloc(COUNT * 4);
    double began = oriel_now();
    cu_result ended;

    if (!busy)
        CHECK_OK(start_call(comm, stream, at));
    ended = oriel_cu->stream_sync(stream);
    while (oriel_comm_check(comm) == ORIEL_OK && oriel_now() - began < 10.0)
        oriel_sys_now->poll(NULL, 0, 1);
    CHECK(oriel_now() - began < 10.0, "a death was noticed after %.1f s", oriel_now() - began);
    CHECK_IS(ORIEL_ERR_REVOKED, oriel_comm_check(comm));
    check_says("process 1", "is gone", NULL);
    printf("row death noticed in %.2f s ok\n", oriel_now() - began);
    fflush(stdout);
    if (ended == CU_OK)
        ended = oriel_cu->copy_out(host, at, COUNT * 4, stream);
    if (ended == CU_OK)
        ended = oriel_cu->stream_sync(stream);
    if (ended != CU_OK) {
        printf("row context ok does not survive: CUDA says %d\n", ended);
        exit(0);
    }
    /* Calls of the dead process that were on the way may have ended well. */
    for (int i = 0; i < COUNT && busy; i++)
        CHECK(host[i] == 0 || isnan(host[i]), "element %d is %g", i, (double)host[i]);
    CHECK(busy || values_unpoisoned(host, COUNT, ORIEL_F32) < 0, "the result is not poisoned");
    oriel_comm_abandon(comm);
    free(host);
}

int main(int argc, char **argv)
{
    int busy = argc > 1 && strcmp(argv[1], "busy") == 0;
    oriel_comm *comm;
    cu_stream stream;
    cu_ptr at;

    gpu_open();
    comm = gpu_comm(1, 60.0);
    gpu_enter();
    stream = gpu_stream();
    at = gpu_alloc(COUNT * 4);
    fine(comm, oriel_comm_first_rank(comm), NULL);
    CHECK_OK(oriel_comm_barrier(comm));
    if (busy)
        die_busy(comm, stream, at);
    else if (oriel_comm_process(comm) == 1)
        kill(getpid(), SIGKILL);
    survive(comm, stream, at, busy);
    if (!busy) { /* else MPS may yet end it */
        comm = gpu_comm_alone(2, 20.0);
        ranks_run(comm, fine, NULL);
        CHECK_OK(oriel_comm_destroy(comm));
    }
    printf("row context lives ok\n");
    return 0;
}
