/* A person's host function on a stream (see kernel_on.c): it enqueues what it likes between
 * the first meeting and the last. Between them members touch each other's arenas alone, which
 * stay mapped, so what it has enqueued harms nobody even if a meeting fails; the results are
 * poisoned then. */
#include <stdio.h>

#include "base/sys.h"
#include "core/device.h"
#include "ops/cuda/launch.h"
#include "ops/host_op.h"

struct run {
    oriel_group *group;
    int rank;
    oriel_kernel_call *call;
    int barriers;
};

static const oriel_device_rank *self_of(const struct run *run)
{
    const oriel_comm *comm = run->group->comm;
    const oriel_devices *devices = comm->devices;

    return &devices->ranks[run->rank - comm->first_rank];
}

static oriel_status meet(const struct run *run, int step, void *stream)
{
    const oriel_op op = {.kind = ORIEL_KIND_KERNEL, .kernel = run->call};
    device_call meeting = {0};

    return oriel_launch_meeting(run->group, run->rank, &op, step, stream, &meeting);
}

static oriel_status call_barrier(oriel_call *call)
{
    struct run *run = call->inner;
    int step = 1 + run->barriers++ % (DEVICE_STEP_END - 1);
    cu_context back;
    oriel_status st;

    oriel_cu->context_push(self_of(run)->gpu->context);
    st = meet(run, step, call->stream);
    oriel_cu->context_pop(&back);
    if (st != ORIEL_OK)
        snprintf(call->error, sizeof call->error, "%s", oriel_last_error());
    return st;
}

static int call_failed(oriel_call *call)
{
    const struct run *run = call->inner;

    return oriel_launch_failed(run->group, run->rank);
}

oriel_status oriel_op_on_run(oriel_group *group, int rank, oriel_kernel_call *call, void *stream)
{
    struct run run = {.group = group, .rank = rank, .call = call};
    cu_context back;
    host_op op;
    oriel_status st;

    call->deadline = oriel_now() + group->comm->timeout;
    oriel_host_op_fill(call, &op);
    op.call.stream = stream;
    op.call.barrier = call_barrier;
    op.call.failed = call_failed;
    op.call.inner = &run;
    op.call.aborted =
        (const uint32_t *)(uintptr_t)(self_of(&run)->report_at + offsetof(device_report, abort));
    /* A context of its own: cudaSetDevice replaces the one on top. */
    oriel_cu->context_push(self_of(&run)->gpu->context);
    oriel_host_op_call(call, &op);
    oriel_cu->context_pop(&back);
    st = oriel_host_op_outcome(call);
    return st == ORIEL_OK ? meet(&run, DEVICE_STEP_END, stream) : st;
}
