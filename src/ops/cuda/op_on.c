/* A person's host function on a stream. It is given addresses before anything runs, so its
 * operands and results lie in the ranks' arenas, which all members have mapped for good; they
 * are the same in every call. On the stream, in this order:
 *   operands into the arena
 *   a meeting: all operands are there, all ask for the same
 *   what the function enqueues, which may be further meetings
 *   a meeting: all ranks' work is done
 *   results out of the arena; poisoned, if anything failed
 * What it has enqueued runs even if a meeting fails, but touches nothing beside the arenas. A
 * rank's calls are in order, so one arena serves all: nobody touches it between the last
 * meeting of a call and the first of the next. */
#include <stdio.h>

#include "base/sys.h"
#include "core/device/device.h"
#include "ops/cuda/launch.h"
#include "ops/kernel/host_op.h"

struct run {
    oriel_group *group;      /* whose members meet */
    int rank;                /* in the world */
    oriel_kernel_call *call; /* what the function is, and its buffers */
    void *stream;            /* the caller's */
    int barriers;            /* meetings that the function has asked for */
};

/* ---- the arena ---------------------------------------------------------------------------- */

oriel_status oriel_op_on_prepare(oriel_group *group, int rank, oriel_kernel_call *call)
{
    const oriel_devices *devices = group->comm->devices;
    size_t at = oriel_kernel_on_lay_out(call);

    (void)rank;
    if (at <= devices->arena_bytes)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_NO_RESOURCE,
                      "op %s needs %zu bytes for its operands and results; ORIEL_GPU_ARENA is %zu",
                      call->kernel->name, at, devices->arena_bytes);
}

/* Where every member has everything, and when this one must be done. */
static void connect_all(const struct run *run)
{
    const oriel_group *group = run->group;
    oriel_kernel_call *call = run->call;
    int n = group->n;

    for (int i = 0; i < call->num_buffers; i++) {
        for (int r = 0; r < n; r++)
            call->peers[i * n + r] =
                (void *)(uintptr_t)(oriel_heap_seen(group->comm, run->rank, group->ranks[r]) +
                                    group->comm->devices->arena_at + call->buffers[i].at);
        call->reach[i] = (oriel_buffer){.bytes = oriel_kernel_bytes(&call->buffers[i]),
                                        .peers = call->peers + i * n};
    }
    call->frame.rank = oriel_group_index(group, run->rank);
    call->frame.size = n;
    call->deadline = oriel_now() + group->comm->timeout;
}

/* Buffers `from` to `to`, into the arena or out of it. */
static oriel_status copy(const struct run *run, int from, int to, int in)
{
    cu_result result = CU_OK;

    for (int i = from; i < to && result == CU_OK; i++) {
        const oriel_kernel_call *call = run->call;
        cu_ptr here = (cu_ptr)(uintptr_t)call->reach[i].peers[call->frame.rank];
        cu_ptr callers = (cu_ptr)(uintptr_t)call->buffers[i].data;

        if (call->buffers[i].count > 0)
            result = oriel_cu->copy(in ? here : callers, in ? callers : here,
                                    oriel_kernel_bytes(&call->buffers[i]), run->stream);
    }
    return oriel_cuda_check(result, in ? "copying operands of an op" : "copying results of an op");
}

/* ---- what the function calls ---------------------------------------------------------------- */

static oriel_status call_barrier(oriel_call *call)
{
    struct run *run = call->inner;
    int step = 1 + run->barriers++ % (DEVICE_STEP_END - 1);
    oriel_status st;

    oriel_cuda_enter(oriel_device_of(run->group->comm, run->rank)->gpu);
    st = oriel_launch_step(run->group, run->rank, run->call, step, run->stream);
    oriel_cuda_leave();
    if (st != ORIEL_OK)
        snprintf(call->error, sizeof call->error, "%s", oriel_last_error());
    return st;
}

static int call_failed(oriel_call *call)
{
    const struct run *run = call->inner;

    return oriel_launch_failed(run->group, run->rank);
}

/* ---- the call ------------------------------------------------------------------------------- */

/* In a context that it may replace by another, as cudaSetDevice does. */
static oriel_status call_function(struct run *run)
{
    const oriel_device_rank *self = oriel_device_of(run->group->comm, run->rank);
    host_op op;

    oriel_host_op_fill(run->call, &op);
    op.call.stream = run->stream;
    op.call.barrier = call_barrier;
    op.call.failed = call_failed;
    op.call.inner = run;
    op.call.aborted =
        (const uint32_t *)(uintptr_t)(self->report_at + offsetof(device_report, abort));
    oriel_cuda_enter(self->gpu);
    oriel_host_op_call(run->call, &op);
    oriel_cuda_leave();
    return oriel_host_op_outcome(run->call);
}

static oriel_status put_on(struct run *run)
{
    oriel_kernel_call *call = run->call;
    oriel_status st;

    connect_all(run);
    st = copy(run, 0, call->num_operands, 1);
    if (st == ORIEL_OK)
        st = oriel_launch_step(run->group, run->rank, call, DEVICE_STEP_BEGIN, run->stream);
    if (st == ORIEL_OK)
        st = call_function(run);
    if (st == ORIEL_OK)
        st = oriel_launch_step(run->group, run->rank, call, DEVICE_STEP_END, run->stream);
    if (st == ORIEL_OK)
        st = copy(run, call->num_operands, call->num_buffers, 0);
    for (int i = call->num_operands; i < call->num_buffers && st == ORIEL_OK; i++)
        st = oriel_launch_verdict(run->group, run->rank, call, &call->buffers[i], run->stream);
    return st;
}

oriel_status oriel_op_on_launch(oriel_group *group, int rank, oriel_kernel_call *call, void *stream)
{
    struct run run = {.group = group, .rank = rank, .call = call, .stream = stream};
    oriel_comm *comm = group->comm;
    oriel_status st = oriel_op_on_prepare(group, rank, call);

    if (st != ORIEL_OK)
        return st;
    oriel_cuda_enter(oriel_device_of(comm, rank)->gpu);
    st = put_on(&run);
    oriel_cuda_leave();
    /* The others would wait for the rest of it. */
    if (st != ORIEL_OK && !oriel_comm_aborted(comm))
        oriel_comm_abort(comm, st, rank, comm->process, "rank %d: %s", rank, oriel_last_error());
    return st;
}
