/* Calls on groups that span machines. On the stream, in this order:
 *   each member's record to its neighbour: all ask for the same
 *   the data, in exchanges of NCCL's and calls of the machine's own members (span_ops.c)
 *   a verdict: the result is poisoned if anything failed
 * NCCL has no deadline: the watch thread has (core/nccl/comm.c). The host waits for nobody, but
 * for NCCL to put its work on the stream. */
#include "ops/cuda/span.h"

#include "core/protocol/group.h"
#include "experimental/gin.h"
#include "base/hash.h"
#include "fabric/cuda/nvtx.h"

/* In the arena, behind what kernels keep there: see kernel_on.c. Calls of a rank are in order,
 * so one arena serves all. */
enum { ROOM_AT = 4 << 20, THEIR_RECORD_AT = SPAN_LINE };

/* ---- exchanges ------------------------------------------------------------------------------ */

oriel_status oriel_span_begin(oriel_span *span)
{
    oriel_status st = oriel_nccl_enter(span->group->comm, span->rank, &span->link);

    if (st != ORIEL_OK)
        return st;
    span->result = span->nccl->group_start();
    return ORIEL_OK;
}

static void note(oriel_span *span, nccl_result result)
{
    span->result = result == NCCL_IN_PROGRESS ? NCCL_SUCCESS : result;
}

void oriel_span_give(oriel_span *span, const void *from, size_t bytes, int member)
{
    if (bytes > 0 && span->result == NCCL_SUCCESS)
        note(span, span->nccl->send(from, bytes, NCCL_INT8, span->group->ranks[member], span->link,
                                    span->stream));
}

void oriel_span_take(oriel_span *span, void *to, size_t bytes, int member)
{
    if (bytes > 0 && span->result == NCCL_SUCCESS)
        note(span, span->nccl->recv(to, bytes, NCCL_INT8, span->group->ranks[member], span->link,
                                    span->stream));
}

oriel_status oriel_span_end(oriel_span *span)
{
    nccl_result ended = span->nccl->group_end();

    return oriel_nccl_leave(span->group->comm, span->rank,
                            span->result != NCCL_SUCCESS ? span->result : ended,
                            oriel_kind_name(span->op->kind));
}

/* ---- the meeting and the verdict ------------------------------------------------------------ */

static oriel_status launch(const oriel_span *span, cu_function function, void **params)
{
    return oriel_launch_start(span->self, function, 1, DEVICE_THREADS, 0, params, span->stream);
}

static oriel_status meet(oriel_span *span)
{
    const oriel_device_code *code = span->self->code;
    uint32_t before = (uint32_t)(span->index + span->n - 1) % (uint32_t)span->n;
    cu_ptr mine = (cu_ptr)(uintptr_t)span->head;
    cu_ptr theirs = mine + THEIR_RECORD_AT;
    void *says[] = {&span->call, &mine};
    void *hears[] = {&span->call, &theirs, &before};
    oriel_status st = launch(span, code->span_begin, says);

    if (st == ORIEL_OK)
        st = oriel_span_begin(span);
    if (st != ORIEL_OK)
        return st;
    oriel_span_give(span, span->head, sizeof(device_record), (span->index + 1) % span->n);
    oriel_span_take(span, span->head + THEIR_RECORD_AT, sizeof(device_record), (int)before);
    st = oriel_span_end(span);
    return st == ORIEL_OK ? launch(span, code->span_compare, hears) : st;
}

static oriel_status judge(oriel_span *span)
{
    void *params[] = {&span->call};

    return launch(span, span->self->code->judge, params);
}

/* ---- the call ------------------------------------------------------------------------------- */

/* Found once for a group, by the member that comes first. */
static oriel_status find_line(oriel_span *span)
{
    oriel_group *group = span->group;
    oriel_status st = ORIEL_OK;

    span->line = group->here;
    if (span->columns == 1 || span->line != NULL)
        return ORIEL_OK;
    st = oriel_group_intern(group->comm, group->ranks + span->row * span->columns, span->columns,
                            &span->line);
    if (st == ORIEL_OK)
        group->here = span->line;
    return st;
}

/* As via.c says of NCCL's calls. And a kernel of one's own that a graph replayed was seen to
 * wait for the network in vain, where that moved data by copies of the driver. */
static oriel_status check_capture(const oriel_span *span)
{
    int ranks = span->group->comm->local_ranks;
    int captured = 0;
    int kernel = span->op->kind == ORIEL_KIND_KERNEL;
    oriel_status st = ranks > 1 || kernel
                          ? oriel_cuda_check(oriel_cu->stream_captured(span->stream, &captured),
                                             "asking a stream")
                          : ORIEL_OK;

    if (st != ORIEL_OK || !captured)
        return st;
    if (kernel)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "a kernel on a group that spans machines cannot be captured in a graph");
    return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                      "%s on a group that spans machines, captured in a graph, needs processes of "
                      "one rank, and this one has %d: start one for each GPU, or switch graphs "
                      "off",
                      oriel_kind_name(span->op->kind), ranks);
}

/* Where this member stands, and what it has for the call. */
static oriel_status place(oriel_span *span)
{
    const oriel_comm *comm = span->group->comm;
    const oriel_devices *devices = comm->devices;

    span->self = oriel_device_of(comm, span->rank);
    span->nccl = oriel_nccl_calls(comm);
    span->n = span->group->n;
    span->columns = span->group->each;
    span->rows = span->n / span->columns;
    span->index = span->group->members[span->rank - comm->first_rank].index;
    span->row = span->index / span->columns;
    span->column = span->index % span->columns;
    span->head = (char *)(uintptr_t)(span->self->heap.base + devices->arena_at + ROOM_AT);
    span->room = span->head + SPAN_HEAD;
    span->room_bytes = devices->arena_bytes - ROOM_AT - SPAN_HEAD;
    if (span->nccl == NULL)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "the comm has no NCCL communicator");
    return check_capture(span);
}

static oriel_status plan(oriel_span *span, const oriel_record *record)
{
    oriel_status st = place(span);

    if (st != ORIEL_OK)
        return st;
    oriel_launch_fill(span->group, span->rank, span->op, record, span->ragged, &span->call);
    /* Chunks are counted by this member's rows: all must have as many. */
    if (span->ragged != NULL)
        span->call.hash ^= (uint32_t)oriel_mix(span->ragged->send_rows + 1);
    return find_line(span);
}

static oriel_status put_on(oriel_span *span)
{
    oriel_status st = meet(span);

    if (st == ORIEL_OK)
        st = oriel_span_move(span);
    return st == ORIEL_OK ? judge(span) : st;
}

oriel_status oriel_span_launch(oriel_group *group, int rank, const oriel_op *op,
                               const oriel_ragged_on *ragged, const oriel_record *record,
                               void *stream)
{
    oriel_span span = {.group = group, .rank = rank, .op = op, .ragged = ragged, .stream = stream};
    oriel_comm *comm = group->comm;
    oriel_status st = plan(&span, record);

    if (st != ORIEL_OK)
        return st;
    oriel_nvtx_push(oriel_kind_name(op->kind), record->bytes, group->n);
    oriel_cuda_enter(span.self->gpu);
    st = put_on(&span);
    oriel_cuda_leave();
    oriel_nvtx_pop();
    if (st == ORIEL_OK)
        return ORIEL_OK;
    if (oriel_comm_aborted(comm))
        return oriel_comm_failure(comm);
    oriel_comm_abort(comm, st, rank, comm->process, "rank %d: %s", rank, oriel_last_error());
    return st;
}

/* The verdict comes at once: what follows has deadlines of its own. */
oriel_status oriel_span_meet(oriel_group *group, int rank, const device_call *call, void *stream)
{
    static const oriel_op op = {.kind = ORIEL_KIND_KERNEL};
    oriel_span span = {.group = group, .rank = rank, .op = &op, .stream = stream, .call = *call};
    oriel_status st = place(&span);

    if (st == ORIEL_OK)
        st = meet(&span);
    return st == ORIEL_OK ? judge(&span) : st;
}

oriel_status oriel_span_check(const oriel_group *group, const oriel_kernel_call *call)
{
    const char *missing = call->kernel->op != NULL
                              ? "host functions need members that reach each other's memory"
                              : oriel_gin_missing(group->comm);

    if (!group->spans || missing == NULL)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_UNSUPPORTED, "%s on a group of %d ranks that spans machines: %s",
                      call->kernel->name, group->n, missing);
}
