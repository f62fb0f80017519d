#include "ops/cuda/launch.h"

#include "core/device/device.h"
#include "base/hash.h"
#include "base/math.h"
#include "core/protocol/lane.h"
#include "experimental/via.h"
#include "fabric/cuda/nvtx.h"
#include "ops/choose_on.h"
#include "ops/cuda/via.h"
#include "ops/reduce/reduce.h"

/* ---- choosing: from what all members know alike ---------------------------------------- */

/* NULL: the family has none for it. */
static cu_function kernel_of(const oriel_device_code *code, enum device_family family,
                             const oriel_op *op, int n)
{
    if (op->ragged != NULL)
        return family == DEVICE_LARGE ? code->ragged : NULL;
    /* The reduction of one is a copy. */
    return oriel_op_reduces(op) && n > 1 ? code->reduce[family][op->dtype][op->redop]
                                         : code->copy[family];
}

static oriel_choice_on choose(const oriel_devices *devices, const oriel_device_code *code,
                              const oriel_op *op, int n)
{
    const oriel_facts_on facts = {.n = n,
                                  .ctas = devices->ctas,
                                  .slot_lines = devices->slot_lines,
                                  .stage_bytes = devices->stage_bytes};
    oriel_question_on q = {
        .kind = op->kind, .block = oriel_op_block(op), .from_xla = op->call != 0};

    for (unsigned family = DEVICE_SMALL; family <= DEVICE_LARGE; family++) {
        int staged = oriel_experimental_staged(op->via) && family != DEVICE_LARGE;

        if (!staged && kernel_of(code, (enum device_family)family, op, n) != NULL)
            q.kernels |= 1u << family;
    }
    return oriel_choose_on(&facts, &q);
}

/* ---- describing -------------------------------------------------------------------------- */

/* A member that still reads what this one writes must find it unchanged: pulled in place,
 * data passes through the stages. */
static int may_be_direct(const oriel_comm *comm, const oriel_op *op)
{
    int pulls = op->kind == ORIEL_KIND_ALL_TO_ALL || op->kind == ORIEL_KIND_PERMUTE;

    return comm->heap.header->direct && !(pulls && op->send == op->recv);
}

static void describe_members(const oriel_group *group, int own, device_call *call)
{
    const oriel_comm *comm = group->comm;

    for (int i = 0; i < group->n; i++) {
        int rank = group->ranks[i];

        call->ranks[i] = (uint16_t)rank;
        call->heap[i] = oriel_heap_seen(comm, own, rank);
        if (call->heap[i] == 0) /* on another machine: see oriel_launch_fill */
            call->heap[i] = call->table;
        if (comm->heap.ranks[rank].process == comm->process)
            call->plain |= 1ull << i;
    }
}

/* What the others touch: see large.cuh. */
static void describe_windows(const oriel_group *group, int rank, const oriel_op *op, void *stream,
                             device_call *call)
{
    oriel_comm *comm = group->comm;
    int shows_send = op->kind != ORIEL_KIND_ALL_GATHER && op->kind != ORIEL_KIND_BARRIER &&
                     (op->kind != ORIEL_KIND_BROADCAST || call->root == (int)call->index);
    int shows_recv = op->kind == ORIEL_KIND_ALL_REDUCE || op->kind == ORIEL_KIND_ALL_GATHER ||
                     op->kind == ORIEL_KIND_BROADCAST;
    size_t sent = op->ragged != NULL
                      ? op->ragged->send_rows * call->block
                      : call->block * oriel_op_times(oriel_op_forms[op->kind].send, group->n);

    if (shows_send) {
        oriel_place place = oriel_register(comm, rank, op->send, sent, stream);
        call->flags |= DEVICE_SHOWS_SEND;
        call->send_window = place.window;
        call->send_generation = place.generation;
    }
    if (shows_recv) {
        oriel_place place = oriel_register(comm, rank, op->recv, call->recv_bytes, stream);
        call->flags |= DEVICE_SHOWS_RECV;
        call->recv_window = place.window;
        call->recv_generation = place.generation;
    }
}

static void describe_call(const oriel_group *group, int rank, const oriel_op *op,
                          const oriel_record *record, device_call *call)
{
    const oriel_comm *comm = group->comm;
    const oriel_devices *devices = comm->devices;
    int index = group->members[rank - comm->first_rank].index;
    int alone = group->n == 1 && oriel_op_reduces(op);
    size_t size = oriel_dtype_size(op->dtype);

    call->table = oriel_heap_seen(comm, rank, rank);
    call->slots_at = devices->slots_at;
    call->slot_lines = devices->slot_lines;
    call->ragged_at = devices->ragged_at;
    call->stage_at = devices->stage_at;
    call->stage = devices->stage_bytes;
    call->send = (uint64_t)(uintptr_t)op->send;
    call->recv = (uint64_t)(uintptr_t)op->recv;
    call->block = record->bytes;
    call->recv_bytes = oriel_op_recv_count(op, group->n, (int)call->index) * size;
    oriel_poison(call->poison, sizeof call->poison / size, op->dtype);
    call->shape = record->shape;
    call->hash = (uint32_t)oriel_hash(record, sizeof *record, group->hash);
    call->what = (uint32_t)record->kind << 16 | (uint32_t)record->dtype << 8 | record->redop;
    call->kind = alone ? ORIEL_KIND_ALL_GATHER : (uint32_t)op->kind;
    call->n = (uint32_t)group->n;
    call->index = (uint32_t)index;
    call->world = (uint32_t)comm->size;
    call->root = op->kind == ORIEL_KIND_BROADCAST ? op->root : -1;
    call->source = call->destination = -1;
    if (op->kind == ORIEL_KIND_PERMUTE) {
        call->source = oriel_op_source(op, index);
        call->destination = oriel_op_destination(op, index);
    }
    call->flags = may_be_direct(comm, op) ? DEVICE_DIRECT : 0;
    if (devices->one_gpu)
        call->flags |= DEVICE_ONE_GPU;
    describe_members(group, rank, call);
}

static void describe_ragged(const oriel_ragged_on *ragged, device_call *call)
{
    call->flags |= ragged->index == ORIEL_S64 ? DEVICE_WIDE_INDEX : 0;
    call->slices = (uint32_t)ragged->slices;
    call->send_rows = ragged->send_rows;
    call->recv_rows = ragged->recv_rows;
    call->input_offsets = (uint64_t)(uintptr_t)ragged->input_offsets;
    call->send_sizes = (uint64_t)(uintptr_t)ragged->send_sizes;
    call->output_offsets = (uint64_t)(uintptr_t)ragged->output_offsets;
    call->recv_sizes = (uint64_t)(uintptr_t)ragged->recv_sizes;
}

void oriel_launch_fill(const oriel_group *group, int rank, const oriel_op *op,
                       const oriel_record *record, const oriel_ragged_on *ragged, device_call *call)
{
    describe_call(group, rank, op, record, call);
    if (ragged != NULL)
        describe_ragged(ragged, call);
}

/* ---- checking ------------------------------------------------------------------------------ */

static oriel_status check_alignment(const oriel_op *op)
{
    size_t size = oriel_dtype_size(op->dtype);

    if ((((uintptr_t)op->send | (uintptr_t)op->recv) & (size - 1)) == 0)
        return ORIEL_OK;
    return oriel_fail(
        ORIEL_ERR_INVALID,
        "send is %p and recv %p; on a GPU both must be aligned to the %zu bytes of an "
        "element of %s",
        op->send, op->recv, size, oriel_dtype_name(op->dtype));
}

static oriel_status check_devices(const oriel_group *group, const oriel_op *op)
{
    if (group->comm->devices == NULL)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "%s_on: the ranks of this comm are CPUs; make it with params.devices",
                          oriel_kind_name(op->kind));
    return op->kind == ORIEL_KIND_BARRIER || op->count == 0 ? ORIEL_OK : check_alignment(op);
}

static oriel_status check_ragged(const oriel_ragged_on *r, const oriel_op *op)
{
    const size_t most = (size_t)1 << 47;
    size_t row = oriel_op_block(op);

    if (r->slices < 1 || r->slices > DEVICE_SLICES)
        return oriel_fail(ORIEL_ERR_INVALID, "slices is %d; on a GPU 1 to %d are possible",
                          r->slices, DEVICE_SLICES);
    if (r->index != ORIEL_S32 && r->index != ORIEL_S64)
        return oriel_fail(ORIEL_ERR_INVALID, "index is %d; it must be ORIEL_S32 or ORIEL_S64",
                          (int)r->index);
    if (r->input_offsets == NULL || r->send_sizes == NULL || r->output_offsets == NULL ||
        r->recv_sizes == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "an array of sizes or offsets is NULL");
    if (r->row > most || r->send_rows > most / (row + 1) || r->recv_rows > most / (row + 1))
        return oriel_fail(ORIEL_ERR_INVALID, "%zu or %zu rows of %zu bytes: too large",
                          r->send_rows, r->recv_rows, row);
    if ((op->send == NULL && r->send_rows * row > 0) ||
        (op->recv == NULL && r->recv_rows * row > 0))
        return oriel_fail(ORIEL_ERR_INVALID, "%s is NULL", op->send == NULL ? "send" : "recv");
    return ORIEL_OK;
}

/* ---- launching ----------------------------------------------------------------------------- */

static int has_failed(oriel_comm *comm, const oriel_device_rank *self)
{
    if (__atomic_load_n(&self->report->error, __ATOMIC_ACQUIRE) != DEVICE_FINE)
        oriel_devices_look(comm);
    return oriel_comm_aborted(comm) ||
           __atomic_load_n(&self->report->revoked, __ATOMIC_ACQUIRE) != 0;
}

oriel_status oriel_launch_start(const oriel_device_rank *self, cu_function function, unsigned ctas,
                                unsigned threads, int early, void **params, void *stream)
{
    cu_launch_attribute attribute = {.id = CU_LAUNCH_EARLY, .value = {.allowed = 1}};
    cu_launch launch = {.grid_x = ctas,
                        .grid_y = 1,
                        .grid_z = 1,
                        .block_x = threads,
                        .block_y = 1,
                        .block_z = 1,
                        .stream = stream,
                        .attributes = &attribute,
                        .num_attributes = early && self->gpu->arch >= 90};

    return oriel_cuda_check(oriel_cu->launch(&launch, function, params, NULL),
                            "launching a kernel");
}

/* Every kernel waits for the one before it on the stream, and may begin earlier: a small one
 * as soon as that says so, others when it is about to end. Such that do not fit beside one
 * that has yet to meet the others would keep those from being resident, so after a small
 * call, or on another stream than the last, they are launched as usual. */
static oriel_status start(oriel_device_rank *self, cu_function function,
                          const oriel_choice_on *choice, void **params, void *stream)
{
    int early = choice->early || (self->last_stream == stream && !self->last_early);

    self->last_stream = stream;
    self->last_early = choice->early;
    return oriel_launch_start(self, function, choice->ctas, choice->threads, early, params, stream);
}

/* All of the call; it goes on with the rank's context current. */
static oriel_choice_on plan(const oriel_group *group, int rank, const oriel_op *op,
                            const oriel_record *record, void *stream, device_call *call)
{
    const oriel_comm *comm = group->comm;
    const oriel_device_rank *self = oriel_device_of(comm, rank);
    oriel_choice_on choice = choose(comm->devices, self->code, op, group->n);

    describe_call(group, rank, op, record, call);
    if (oriel_experimental_staged(op->via))
        oriel_experimental_describe(comm, rank, op->via, op->dtype, op->redop, call);
    call->tile = choice.tile;
    call->item = choice.item;
    if (choice.early)
        call->flags |= DEVICE_EARLY;
    oriel_cuda_enter(self->gpu);
    if (choice.family == DEVICE_LARGE && !group->one_process && (call->flags & DEVICE_DIRECT))
        describe_windows(group, rank, op, stream, call);
    return choice;
}

static oriel_status launch(oriel_group *group, int rank, const oriel_op *op,
                           const oriel_ragged_on *ragged, void *stream)
{
    oriel_comm *comm = group->comm;
    device_call call = {0};
    void *params[] = {&call};
    oriel_device_rank *self = oriel_device_of(comm, rank);
    oriel_choice_on choice;
    oriel_record record;
    oriel_status st;

    oriel_comm_operation(comm);
    if (has_failed(comm, self))
        return oriel_comm_failure(comm);
    oriel_op_describe(group, op, &record);
    oriel_trace_add(comm, rank, group->hash, &record, TRACE_DONE);
    if (group->spans)
        return oriel_span_launch(group, rank, op, ragged, &record, stream);
    oriel_nvtx_push(oriel_kind_name(op->kind), record.bytes, group->n);
    choice = plan(group, rank, op, &record, stream, &call);
    if (ragged != NULL)
        describe_ragged(ragged, &call);
    st = op->via == ORIEL_VIA_NCCL ? oriel_via_nccl(group, rank, op, &call, stream)
                                   : start(self, kernel_of(self->code, choice.family, op, group->n),
                                           &choice, params, stream);
    oriel_cuda_leave();
    oriel_nvtx_pop();
    if (st != ORIEL_OK)
        oriel_comm_abort(comm, st, rank, comm->process, "rank %d: %s", rank, oriel_last_error());
    return st;
}

oriel_status oriel_launch(oriel_group *group, int rank, const oriel_op *op, void *stream)
{
    oriel_status st = oriel_op_check_on(group, rank, op);
    oriel_op call = *op;

    if (st == ORIEL_OK)
        st = check_devices(group, op);
    if (st == ORIEL_OK)
        st = oriel_via_resolve(group, rank, &call, stream);
    return st == ORIEL_OK ? launch(group, rank, &call, NULL, stream) : st;
}

oriel_status oriel_launch_ragged(oriel_group *group, int rank, const oriel_op *op,
                                 const oriel_ragged_on *ragged, void *stream)
{
    static const oriel_op member = {.kind = ORIEL_KIND_BARRIER};
    oriel_status st = oriel_op_check_on(group, rank, &member); /* no more than the rank */

    if (st == ORIEL_OK && !oriel_dtype_known(op->dtype))
        st = oriel_fail(ORIEL_ERR_INVALID, "dtype is %d, which is none", (int)op->dtype);
    if (st == ORIEL_OK)
        st = check_devices(group, op);
    if (st == ORIEL_OK)
        st = check_ragged(ragged, op);
    return st == ORIEL_OK ? launch(group, rank, op, ragged, stream) : st;
}

oriel_status oriel_launch_prepare(oriel_group *group, int rank, const oriel_op *op, void *stream)
{
    oriel_comm *comm = group->comm;
    oriel_op resolved = *op;
    device_call call = {0};
    oriel_record record;
    oriel_status st;

    if (has_failed(comm, oriel_device_of(comm, rank)))
        return oriel_comm_failure(comm);
    if (op->kind == ORIEL_KIND_KERNEL)
        return oriel_kernel_on_prepare(group, rank, op->kernel, stream);
    if (group->spans)
        return ORIEL_OK; /* its parts look for themselves */
    st = oriel_via_resolve(group, rank, &resolved, stream);
    if (st != ORIEL_OK)
        return st;
    oriel_op_describe(group, &resolved, &record);
    plan(group, rank, &resolved, &record, stream, &call);
    oriel_cuda_leave();
    return ORIEL_OK;
}

/* ---- kernels of one's own and host functions ----------------------------------------------- */

int oriel_launch_failed(const oriel_group *group, int rank)
{
    oriel_comm *comm = group->comm;

    return has_failed(comm, oriel_device_of(comm, rank));
}

static void describe_step(const oriel_group *group, int rank, oriel_kernel_call *kernel, int step,
                          device_call *call)
{
    static const oriel_op barrier = {.kind = ORIEL_KIND_BARRIER};
    const oriel_op op = {.kind = ORIEL_KIND_KERNEL, .kernel = kernel, .call = kernel->custom.call};
    oriel_record record;

    oriel_op_describe(group, &op, &record);
    if (step == DEVICE_STEP_BEGIN)
        oriel_trace_add(group->comm, rank, group->hash, &record, TRACE_DONE);
    record.redop = (uint8_t)step;
    describe_call(group, rank, &barrier, &record, call);
}

oriel_status oriel_launch_describe(oriel_group *group, int rank, oriel_kernel_call *kernel,
                                   device_call *call)
{
    oriel_comm_operation(group->comm);
    if (oriel_launch_failed(group, rank))
        return oriel_comm_failure(group->comm);
    describe_step(group, rank, kernel, DEVICE_STEP_BEGIN, call);
    return ORIEL_OK;
}

static oriel_status launch_one(const oriel_comm *comm, int rank, device_call *call, void *stream)
{
    const oriel_device_rank *self = oriel_device_of(comm, rank);
    void *params[] = {call};

    call->block = 0;
    return oriel_launch_start(self, self->code->copy[DEVICE_SMALL], 1, DEVICE_THREADS, 0, params,
                              stream);
}

oriel_status oriel_launch_step(oriel_group *group, int rank, oriel_kernel_call *call, int step,
                               void *stream)
{
    device_call meeting = {0};

    if (step == DEVICE_STEP_BEGIN)
        oriel_comm_operation(group->comm);
    if (oriel_launch_failed(group, rank))
        return oriel_comm_failure(group->comm);
    describe_step(group, rank, call, step, &meeting);
    return launch_one(group->comm, rank, &meeting, stream);
}

/* A meeting of one: it waits for nobody, and fails if the rank has. */
oriel_status oriel_launch_verdict(oriel_group *group, int rank, oriel_kernel_call *call,
                                  const kernel_buffer *result, void *stream)
{
    size_t size = oriel_dtype_size(result->dtype);
    device_call one = {0};

    describe_step(group, rank, call, DEVICE_STEP_END, &one);
    one.n = 1;
    one.index = 0;
    one.ranks[0] = (uint16_t)rank;
    one.heap[0] = one.table;
    one.recv = (uint64_t)(uintptr_t)result->data;
    one.recv_bytes = result->count * size;
    oriel_poison(one.poison, sizeof one.poison / size, result->dtype);
    return launch_one(group->comm, rank, &one, stream);
}
