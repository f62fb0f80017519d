#include "ops/cuda/via.h"

#include "core/nccl/borrow.h"
#include "core/nccl/comm.h"
#include "experimental/via.h"
#include "ops/cuda/launch.h"
#include "ops/reduce/reduce.h"

/* ---- what NCCL can do ---------------------------------------------------------------------- */

struct nccl_terms {
    int dtype, op; /* NCCL_..., of one part */
    size_t parts;  /* elements of NCCL's in each */
};

/* 0: NCCL has no such reduction. */
static int nccl_terms_of(oriel_dtype dtype, oriel_redop redop, struct nccl_terms *terms_p)
{
    static const signed char dtypes[ORIEL_DTYPE_COUNT] = {
        [ORIEL_BOOL] = NCCL_UINT8,  [ORIEL_S8] = NCCL_INT8,       [ORIEL_S16] = -1,
        [ORIEL_S32] = NCCL_INT32,   [ORIEL_S64] = NCCL_INT64,     [ORIEL_U8] = NCCL_UINT8,
        [ORIEL_U16] = -1,           [ORIEL_U32] = NCCL_UINT32,    [ORIEL_U64] = NCCL_UINT64,
        [ORIEL_F16] = NCCL_FLOAT16, [ORIEL_BF16] = NCCL_BFLOAT16, [ORIEL_F32] = NCCL_FLOAT32,
        [ORIEL_F64] = NCCL_FLOAT64, [ORIEL_F8E4M3FN] = -1,        [ORIEL_F8E5M2] = -1,
        [ORIEL_C64] = NCCL_FLOAT32, [ORIEL_C128] = NCCL_FLOAT64};
    static const signed char ops[ORIEL_REDOP_COUNT] = {[ORIEL_SUM] = NCCL_SUM,
                                                       [ORIEL_PROD] = NCCL_PROD,
                                                       [ORIEL_MIN] = NCCL_MIN,
                                                       [ORIEL_MAX] = NCCL_MAX};
    int complex = dtype == ORIEL_C64 || dtype == ORIEL_C128;

    if (redop >= ORIEL_AND || dtypes[dtype] < 0 || (complex && redop != ORIEL_SUM))
        return 0;
    *terms_p =
        (struct nccl_terms){.dtype = dtypes[dtype], .op = ops[redop], .parts = complex ? 2 : 1};
    if (dtype == ORIEL_BOOL) /* "or" and "and" */
        terms_p->op = redop == ORIEL_SUM || redop == ORIEL_MAX ? NCCL_MAX : NCCL_MIN;
    return 1;
}

/* ---- which are to be had ------------------------------------------------------------------- */

static oriel_status missing(oriel_via via, const char *why)
{
    return oriel_fail(ORIEL_ERR_UNSUPPORTED, "all_reduce via %s: %s", oriel_via_name(via), why);
}

static const char *nccl_missing(const oriel_comm *comm)
{
    const struct oriel_nccl *nccl = comm->devices->nccl;

    if (!oriel_nccl_has_windows(comm))
        return "this comm has no NCCL communicator; set ORIEL_FABRIC=nccl on all processes before "
               "they start";
    return nccl->no_calls[0] != '\0' ? nccl->no_calls : NULL;
}

static oriel_status check_operation(oriel_via via, oriel_dtype dtype, oriel_redop redop)
{
    struct nccl_terms terms;

    if (via == ORIEL_VIA_NCCL ? nccl_terms_of(dtype, redop, &terms)
                              : oriel_experimental_reduces(via, dtype, redop))
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_UNSUPPORTED, "all_reduce via %s: there is no %s of %s that way",
                      oriel_via_name(via), oriel_redop_name(redop), oriel_dtype_name(dtype));
}

static oriel_status check_via(const oriel_group *group, oriel_via via, oriel_dtype dtype,
                              oriel_redop redop)
{
    const oriel_comm *comm = group->comm;
    const char *why =
        via == ORIEL_VIA_NCCL ? nccl_missing(comm) : oriel_experimental_missing(comm, via);

    if (why != NULL)
        return missing(via, why);
    if (group->n != comm->size && !oriel_experimental_any_group(via))
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "all_reduce via %s: it works over all %d ranks, and this group has %d; "
                          "via peer or sym_peer works over any",
                          oriel_via_name(via), comm->size, group->n);
    return check_operation(via, dtype, redop);
}

oriel_status oriel_via_check(const oriel_group *group, oriel_via via, oriel_dtype dtype,
                             oriel_redop redop)
{
    if (group == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "group is NULL");
    if ((unsigned)via >= ORIEL_VIA_COUNT)
        return oriel_fail(ORIEL_ERR_INVALID, "via is %d; ORIEL_VIA_... goes to %d", (int)via,
                          ORIEL_VIA_COUNT - 1);
    if (!oriel_dtype_known(dtype) || !oriel_reduce_supported(dtype, redop))
        return oriel_fail(ORIEL_ERR_INVALID, "dtype is %d and redop %d, which is no reduction",
                          (int)dtype, (int)redop);
    if (via == ORIEL_VIA_AUTO)
        return ORIEL_OK;
    if (group->comm->devices == NULL)
        return missing(via, "the ranks of this comm are CPUs; it is for comms of GPUs");
    if (group->spans)
        return missing(via, "the group spans machines, where there is one via alone");
    if (via == ORIEL_VIA_PEER && oriel_nccl_has_windows(group->comm))
        return missing(via, "with ORIEL_FABRIC=nccl ranks reach each other through NCCL's windows "
                            "alone: that is sym_peer; set ORIEL_FABRIC=cuda");
    return via == ORIEL_VIA_PEER ? ORIEL_OK : check_via(group, via, dtype, redop);
}

/* ---- which is meant ------------------------------------------------------------------------ */

/* Seen with NCCL 2.30.7: two ranks of a process that capture at the same time, on communicators
 * that do not block, hang. One rank for each process does not. */
static oriel_status check_capture(const oriel_group *group, void *stream)
{
    int captured = 0;
    oriel_status st =
        oriel_cuda_check(oriel_cu->stream_captured(stream, &captured), "asking a stream");

    if (st != ORIEL_OK || !captured || group->comm->local_ranks == 1)
        return st;
    return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                      "all_reduce via nccl: it can be captured in a graph where each process has "
                      "one rank, and this one has %d",
                      group->comm->local_ranks);
}

oriel_status oriel_via_resolve(const oriel_group *group, int rank, oriel_op *op, void *stream)
{
    oriel_status st;

    if (op->kind != ORIEL_KIND_ALL_REDUCE || op->via == ORIEL_VIA_AUTO)
        return ORIEL_OK;
    /* What is borrowed needs nothing of the comm's own. */
    st = op->via == ORIEL_VIA_NCCL && oriel_borrow_comm(group->comm, rank) != NULL
             ? check_operation(op->via, op->dtype, op->redop)
             : oriel_via_check(group, op->via, op->dtype, op->redop);
    if (st == ORIEL_OK && op->via == ORIEL_VIA_NCCL)
        st = check_capture(group, stream);
    if (st == ORIEL_OK && (op->via == ORIEL_VIA_PEER || group->n == 1))
        op->via = ORIEL_VIA_AUTO;
    return st;
}

/* ---- NCCL's own call ------------------------------------------------------------------------ */

static nccl_result all_reduce(const nccl_library *nccl, nccl_comm link, const oriel_op *op,
                              cu_stream stream)
{
    struct nccl_terms terms = {0};

    nccl_terms_of(op->dtype, op->redop, &terms);
    return nccl->all_reduce(op->send, op->recv, op->count * terms.parts, terms.dtype, terms.op,
                            link, stream);
}

/* On XLA's communicator and its stream: nothing of NCCL's was made beforehand. */
static oriel_status start_borrowed(const oriel_group *group, const oriel_op *op, nccl_comm lent,
                                   cu_stream stream)
{
    const nccl_library *nccl;
    oriel_status st = oriel_nccl_open(&nccl);

    if (st != ORIEL_OK)
        return st;
    return oriel_borrow_settle(group->comm, lent, all_reduce(nccl, lent, op, stream),
                               "an all-reduce");
}

static oriel_status start_nccl(const oriel_group *group, int rank, const oriel_op *op,
                               cu_stream stream)
{
    oriel_comm *comm = group->comm;
    nccl_comm link;
    oriel_status st = oriel_nccl_enter(comm, rank, &link);

    if (st != ORIEL_OK)
        return st;
    return oriel_nccl_leave(comm, rank, all_reduce(oriel_nccl_calls(comm), link, op, stream),
                            "an all-reduce");
}

/* A stream of its own, since what NCCL puts on one may be more than kernels, and XLA's has a
 * program's work on it. Events between the two are captured like everything else. */
static oriel_status fork_nccl(const oriel_group *group, int rank, const oriel_op *op, void *stream)
{
    const oriel_comm *comm = group->comm;
    const oriel_nccl_stream *own = &comm->devices->nccl->streams[rank - comm->first_rank];
    oriel_status st = oriel_cuda_check(oriel_cu->event_record(own->fork, stream), "an event");

    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->stream_follow(own->stream, own->fork, 0), "an event");
    if (st == ORIEL_OK)
        st = start_nccl(group, rank, op, own->stream);
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->event_record(own->join, own->stream), "an event");
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->stream_follow(stream, own->join, 0), "an event");
    return st;
}

/* NCCL compares nothing and has no deadline, so all meet before: see span.cuh. */
oriel_status oriel_via_nccl(const oriel_group *group, int rank, const oriel_op *op,
                            device_call *call, void *stream)
{
    const oriel_comm *comm = group->comm;
    const oriel_device_rank *self = oriel_device_of(comm, rank);
    nccl_comm lent = oriel_borrow_comm(comm, rank);
    device_call meeting = *call;
    void *meets[] = {&meeting};
    void *judges[] = {call};
    oriel_status st;

    /* Nobody's broadcast: a meeting without data that says what it is for. */
    meeting.kind = ORIEL_KIND_BROADCAST;
    meeting.root = -1;
    meeting.recv_bytes = 0;
    st = oriel_launch_start(self, self->code->meet, 1, DEVICE_THREADS, 0, meets, stream);
    if (st == ORIEL_OK)
        st = lent != NULL ? start_borrowed(group, op, lent, stream)
                          : fork_nccl(group, rank, op, stream);
    return st == ORIEL_OK
               ? oriel_launch_start(self, self->code->judge, 1, DEVICE_THREADS, 0, judges, stream)
               : st;
}
