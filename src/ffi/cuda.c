/* The XLA handlers of GPUs: they put the calls of src/ops/cuda on XLA's stream. XLA calls
 * initialize and execute in every execution or, where it has captured the calls in a graph,
 * initialize alone: so initialize looks for failures and at buffers, and execute passes
 * nothing on that can change while addresses do not. Each of the two holds the world for as long
 * as it runs, by one read lock. Calls that may borrow have a prepare stage before, which asks XLA
 * for its communicator and does nothing else. No stage waits for a peer, but with
 * ORIEL_SYNC=1 each execution for its own outcome, and initialize where ranks have agreed
 * before to register buffers with NCCL: see core/nccl/appoint.h. */
#include <stdio.h>

#include "base/config.h"
#include "base/sys.h"
#include "core/nccl/borrow.h"
#include "fabric/cuda/nvtx.h"
#include "ffi/attached.h"
#include "ffi/ffi.h"
#include "ffi/lend.h"
#include "ops/cuda/launch.h"

int64_t oriel_ffi_cuda_site_type_id;

/* Whether executions wait for their outcome. What is captured cannot wait: so it is decided when
 * XLA asks what it may do with the handlers. */
static _Atomic int waits;

static int is_question(xla_frame *frame, uint32_t traits)
{
    if (frame->ctx != NULL)
        return 0;
    waits = oriel_config_number(ORIEL_OPT_SYNC) == 1;
    return oriel_xla_answer_metadata(frame, oriel_ffi_cuda_site_type_id, waits ? 0 : traits);
}

/* One execution of a call by one rank. */
typedef struct cuda_call {
    xla_frame data;      /* what XLA gave, without what only orders the call */
    oriel_site *site;    /* the instruction */
    site_member *member; /* the rank in it */
    attached_gpu *gpu;   /* of the rank */
    void *stream;        /* XLA's */
    oriel_op op;         /* with this execution's buffers */
    oriel_ragged ragged; /* what op.ragged points to */
} cuda_call;

static oriel_status read_member(const xla_frame *frame, oriel_site *site, site_member **member_p)
{
    oriel_status st = oriel_attached_check(site, 1);

    return st == ORIEL_OK ? oriel_attached_member(frame, site, member_p) : st;
}

static oriel_status read_call(const xla_frame *frame, cuda_call *call)
{
    oriel_status st = oriel_xla_site(frame, &oriel_ffi_cuda_site_type_id, &call->site);

    if (st == ORIEL_OK)
        st = read_member(frame, call->site, &call->member);
    if (st == ORIEL_OK)
        st = oriel_xla_stream(frame, &call->stream);
    if (st != ORIEL_OK)
        return st;
    call->gpu = &oriel_attached.gpus[call->member->rank - oriel_attached.comm->first_rank];
    call->op = call->site->op;
    call->data = oriel_xla_data(frame, call->site);
    if (call->op.kind == ORIEL_KIND_KERNEL)
        return oriel_xla_kernel(&call->data, call->site, call->member->group, NULL,
                                &call->op.kernel);
    return oriel_xla_buffers(&call->data, oriel_group_size(call->member->group),
                             call->member->index, &call->op, &call->ragged);
}

static oriel_status copy_on(void *to, const void *from, size_t bytes, void *arg)
{
    const cuda_call *call = arg;

    return oriel_stream_copy(oriel_attached.comm, call->member->rank, to, from, bytes,
                             call->stream);
}

static oriel_status launch_ragged(const cuda_call *call)
{
    const oriel_ragged *rows = &call->ragged;
    oriel_ragged_on on = ORIEL_RAGGED_ON_INIT;

    on.row = rows->row;
    on.send_rows = rows->send_rows;
    on.recv_rows = rows->recv_rows;
    on.slices = rows->slices;
    on.input_offsets = rows->input_offsets;
    on.send_sizes = rows->send_sizes;
    on.output_offsets = rows->output_offsets;
    on.recv_sizes = rows->recv_sizes;
    return oriel_launch_ragged(call->member->group, call->member->rank, &call->op, &on,
                               call->stream);
}

static oriel_status launch_kernel(const cuda_call *call)
{
    oriel_kernel_call *kernel = call->op.kernel;
    oriel_status st;

    oriel_nvtx_push(kernel->kernel->name, kernel->custom.bytes, call->member->group->n);
    st = oriel_kernel_on_launch(call->member->group, call->member->rank, kernel, call->stream);
    oriel_nvtx_pop();
    return st;
}

static oriel_status enqueue(const cuda_call *call)
{
    switch (call->op.kind) {
    case ORIEL_KIND_KERNEL:
        return launch_kernel(call);
    case ORIEL_KIND_RAGGED_ALL_TO_ALL:
        return launch_ragged(call);
    default:
        return oriel_launch(call->member->group, call->member->rank, &call->op, call->stream);
    }
}

/* A person's kernel has a frame in the rank's heap, which another world does not make at the same
 * place; what XLA's communicator lends is gone. */
static void note_captured(oriel_site *site)
{
    int lasts = site->op.kind != ORIEL_KIND_KERNEL && site->op.via == ORIEL_VIA_AUTO &&
                site->loan.num_groups == 0;

    atomic_store(&site->captured, oriel_attached.world);
    atomic_store(&site->layout, lasts ? oriel_attached.layout : 0);
    if (lasts)
        atomic_store(&oriel_attached.captured, oriel_attached.layout);
    else
        atomic_store(&oriel_attached.stale, 1);
}

int oriel_ffi_cuda_stale(void)
{
    uint64_t layout = atomic_load(&oriel_attached.captured);
    int stale = atomic_exchange(&oriel_attached.stale, 0) ||
                (layout != 0 && layout != oriel_attached.layout);

    if (stale)
        atomic_store(&oriel_attached.captured, 0);
    return stale;
}

static oriel_status launch(cuda_call *call)
{
    int captured = 0;
    oriel_status st =
        oriel_cuda_check(oriel_cu->stream_captured(call->stream, &captured), "asking a stream");

    if (st == ORIEL_OK)
        st = oriel_xla_aliases(&call->data, call->op.kind, copy_on, call);
    if (st == ORIEL_OK)
        st = enqueue(call);
    if (st == ORIEL_OK && captured)
        note_captured(call->site);
    if (st == ORIEL_OK && waits)
        st = oriel_stream_settle(oriel_attached.comm, call->member->rank, call->stream);
    return st;
}

static oriel_status initialize(const cuda_call *call)
{
    return oriel_launch_prepare(call->member->group, call->member->rank, &call->op, call->stream);
}

/* The members meet once in an execution, however often XLA initializes it. */
static oriel_status meet(const xla_frame *frame, const cuda_call *call)
{
    site_member *member = call->member;
    int64_t run;
    oriel_status st = oriel_xla_run_id(frame, &run);

    if (st != ORIEL_OK || member->met == run + 1)
        return st;
    member->met = run + 1;
    return oriel_borrow_meet(member->group, member->rank, call->site->name);
}

/* An error that revoked the comm says itself where that was; that of a wrong call does not. */
static oriel_status say_where(const cuda_call *call, oriel_status st)
{
    char text[256];

    if (oriel_comm_aborted(oriel_attached.comm)) {
        oriel_attached.told = 1;
        return st;
    }
    snprintf(text, sizeof text, "%s", oriel_last_error());
    return oriel_fail(st, "%s on rank %d: %s", oriel_kind_name(call->op.kind), call->member->rank,
                      text);
}

/* ---- stages ------------------------------------------------------------------------------ */

enum stage { INITIALIZE, EXECUTE, PREPARE };

static void count(oriel_ffi_cost *cost, double seconds)
{
    cost->calls++;
    cost->seconds += seconds;
    if (seconds > cost->longest)
        cost->longest = seconds;
}

/* The buffers of the call are windows of XLA's communicator meanwhile, if XLA lends one. */
static oriel_status run_borrowing(const xla_frame *frame, enum stage stage, cuda_call *call)
{
    nccl_comm lent = NULL;
    oriel_status st = ORIEL_OK;

    if (stage == INITIALIZE || call->site->loan.needs)
        st = oriel_lend_take(frame, call->site, call->member, &lent);
    if (st == ORIEL_OK) {
        oriel_borrow_begin(call->member->group, call->member->rank, lent, call->stream);
        st = stage == INITIALIZE ? initialize(call) : launch(call);
        if (st == ORIEL_OK && stage == INITIALIZE)
            st = meet(frame, call);
        oriel_borrow_end(oriel_attached.comm, call->member->rank);
    }
    if (st != ORIEL_OK)
        oriel_borrow_give_up(call->member->group, call->member->rank);
    return st;
}

static oriel_status run_stage(const xla_frame *frame, enum stage stage, cuda_call *call)
{
    /* Members on other machines reach no windows. */
    if (call->site->loan.num_groups > 0 && !call->member->group->spans)
        return run_borrowing(frame, stage, call);
    return stage == INITIALIZE ? initialize(call) : launch(call);
}

static oriel_status run(const xla_frame *frame, enum stage stage)
{
    double began = oriel_now();
    cuda_call call;
    oriel_status st;

    pthread_rwlock_rdlock(&oriel_attached.lock);
    st = read_call(frame, &call);
    if (st == ORIEL_OK) {
        pthread_mutex_lock(&call.gpu->lock);
        call.gpu->stream = call.stream;
        st = run_stage(frame, stage, &call);
        count(&call.gpu->costs[stage], oriel_now() - began);
        pthread_mutex_unlock(&call.gpu->lock);
        if (st != ORIEL_OK)
            st = say_where(&call, st);
        oriel_kernel_call_destroy(call.op.kernel);
    }
    pthread_rwlock_unlock(&oriel_attached.lock);
    return st;
}

void *oriel_ffi_cuda_instantiate(xla_frame *frame)
{
    return is_question(frame, XLA_TRAIT_COMMAND_BUFFER)
               ? NULL
               : oriel_attached_instantiate(frame, &oriel_ffi_cuda_site_type_id);
}

/* A member decides once in a world, and takes the lock for that. */
static oriel_status decide_loan(const xla_frame *frame, oriel_site *site, site_member **member_p)
{
    oriel_status st;

    pthread_rwlock_rdlock(&oriel_attached.lock);
    st = read_member(frame, site, member_p);
    if (st == ORIEL_OK)
        st = oriel_lend_decide(frame, *member_p);
    pthread_rwlock_unlock(&oriel_attached.lock);
    return st;
}

/* Once that is decided no lock is needed: the member lies in the site, which XLA keeps for as long
 * as the stage, and of what changes `loan` alone is read. */
static oriel_status prepare(const xla_frame *frame)
{
    site_member *member;
    oriel_site *site;
    int ordinal;
    oriel_status st = oriel_xla_site(frame, &oriel_ffi_cuda_site_type_id, &site);

    if (st != ORIEL_OK || site->loan.num_groups == 0)
        return st;
    st = oriel_xla_ordinal(frame, &ordinal);
    if (st != ORIEL_OK)
        return st;
    member = oriel_site_member(site, ordinal, oriel_attached.world);
    if (member == NULL || !oriel_lend_is_decided(member))
        st = decide_loan(frame, site, &member);
    return st == ORIEL_OK ? oriel_lend_request(frame, site, member) : st;
}

static void *handle(xla_frame *frame, uint32_t traits, enum stage stage)
{
    oriel_status st;

    if (is_question(frame, traits))
        return NULL;
    st = stage == PREPARE ? prepare(frame) : run(frame, stage);
    return st == ORIEL_OK ? NULL : oriel_xla_error(frame->api, st);
}

void *oriel_ffi_cuda_prepare(xla_frame *frame)
{
    return handle(frame, XLA_TRAIT_COMMAND_BUFFER, PREPARE);
}

void *oriel_ffi_cuda_initialize(xla_frame *frame)
{
    return handle(frame, XLA_TRAIT_COMMAND_BUFFER, INITIALIZE);
}

void *oriel_ffi_cuda_execute(xla_frame *frame)
{
    return handle(frame, XLA_TRAIT_COMMAND_BUFFER, EXECUTE);
}

void *oriel_ffi_cuda_execute_uncaptured(xla_frame *frame)
{
    return handle(frame, 0, EXECUTE);
}

static void add(oriel_ffi_cost *sum, oriel_ffi_cost *cost)
{
    sum->calls += cost->calls;
    sum->seconds += cost->seconds;
    if (cost->longest > sum->longest)
        sum->longest = cost->longest;
    *cost = (oriel_ffi_cost){0};
}

void oriel_ffi_cuda_costs(oriel_ffi_cost *initialize_p, oriel_ffi_cost *execute_p)
{
    oriel_ffi_cost sums[2] = {0};
    const oriel_comm *comm;

    pthread_rwlock_rdlock(&oriel_attached.lock);
    comm = oriel_attached.comm;
    for (int i = 0; comm != NULL && comm->devices != NULL && i < comm->local_ranks; i++) {
        attached_gpu *gpu = &oriel_attached.gpus[i];

        pthread_mutex_lock(&gpu->lock);
        add(&sums[INITIALIZE], &gpu->costs[INITIALIZE]);
        add(&sums[EXECUTE], &gpu->costs[EXECUTE]);
        pthread_mutex_unlock(&gpu->lock);
    }
    pthread_rwlock_unlock(&oriel_attached.lock);
    *initialize_p = sums[INITIALIZE];
    *execute_p = sums[EXECUTE];
}

void oriel_ffi_cuda_borrowed(oriel_borrow_counts *borrowed_p)
{
    oriel_borrow_counts none = {0};

    *borrowed_p = none;
    pthread_rwlock_rdlock(&oriel_attached.lock);
    if (oriel_attached.comm != NULL)
        oriel_borrow_count(oriel_attached.comm, borrowed_p);
    pthread_rwlock_unlock(&oriel_attached.lock);
}

oriel_status oriel_ffi_cuda_kernel(uint64_t hash, const char *name, const void *image, size_t bytes)
{
    return oriel_kernel_on_register(hash, name, image, bytes);
}

void *oriel_ffi_cuda_copy(xla_frame *frame)
{
    site_member first = {0};
    cuda_call call = {.member = &first};
    oriel_status st;

    if (oriel_xla_answer_metadata(frame, 0, XLA_TRAIT_COMMAND_BUFFER))
        return NULL;
    st = oriel_xla_stream(frame, &call.stream);
    pthread_rwlock_rdlock(&oriel_attached.lock);
    if (st == ORIEL_OK && (oriel_attached.comm == NULL || oriel_attached.comm->devices == NULL))
        st = oriel_fail(ORIEL_ERR_INVALID, "copy: there is no world of GPUs; call oriel.init()");
    if (st == ORIEL_OK) {
        first.rank = oriel_attached.comm->first_rank;
        st = oriel_xla_aliases(frame, ORIEL_KIND_BARRIER, copy_on, &call);
    }
    pthread_rwlock_unlock(&oriel_attached.lock);
    return st == ORIEL_OK ? NULL : oriel_xla_error(frame->api, st);
}
