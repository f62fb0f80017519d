#include "ops/cuda/variant.h"

#include "core/device/multicast.h"
#include "core/nccl/borrow.h"
#include "core/nccl/via.h"
#include "ops/reduce/reduce.h"
#include "oriel/experimental/ways.h"

/* ---- what multimem can do ----------------------------------------------------------------- */

/* Floats have no minima and maxima here: the switch drops NaNs, oriel keeps them. */
static const uint8_t multimem_ops[ORIEL_DTYPE_COUNT][ORIEL_REDOP_COUNT] = {
    [ORIEL_F32] = {[ORIEL_SUM] = DEVICE_MULTIMEM_F32_SUM},
    [ORIEL_F64] = {[ORIEL_SUM] = DEVICE_MULTIMEM_F64_SUM},
    [ORIEL_F16] = {[ORIEL_SUM] = DEVICE_MULTIMEM_F16_SUM},
    [ORIEL_BF16] = {[ORIEL_SUM] = DEVICE_MULTIMEM_BF16_SUM},
    [ORIEL_C64] = {[ORIEL_SUM] = DEVICE_MULTIMEM_F32_SUM},
    [ORIEL_C128] = {[ORIEL_SUM] = DEVICE_MULTIMEM_F64_SUM},
    [ORIEL_U32] = {[ORIEL_SUM] = DEVICE_MULTIMEM_U32_SUM,
                   [ORIEL_MIN] = DEVICE_MULTIMEM_U32_MIN,
                   [ORIEL_MAX] = DEVICE_MULTIMEM_U32_MAX},
    [ORIEL_S32] = {[ORIEL_SUM] = DEVICE_MULTIMEM_U32_SUM,
                   [ORIEL_MIN] = DEVICE_MULTIMEM_S32_MIN,
                   [ORIEL_MAX] = DEVICE_MULTIMEM_S32_MAX},
    [ORIEL_U64] = {[ORIEL_SUM] = DEVICE_MULTIMEM_U64_SUM,
                   [ORIEL_MIN] = DEVICE_MULTIMEM_U64_MIN,
                   [ORIEL_MAX] = DEVICE_MULTIMEM_U64_MAX},
    [ORIEL_S64] = {[ORIEL_SUM] = DEVICE_MULTIMEM_U64_SUM,
                   [ORIEL_MIN] = DEVICE_MULTIMEM_S64_MIN,
                   [ORIEL_MAX] = DEVICE_MULTIMEM_S64_MAX},
};

uint32_t oriel_multimem_op(oriel_dtype dtype, oriel_redop op)
{
    return multimem_ops[dtype][op];
}

cu_ptr oriel_multimem_address(cu_ptr multimem, cu_ptr heap, size_t heap_bytes, cu_ptr at,
                              size_t bytes)
{
    cu_ptr offset = at - heap;

    if (multimem == 0 || at < heap || offset > heap_bytes || bytes > heap_bytes - offset ||
        (at | multimem) % 16 != 0)
        return 0;
    return DEVICE_MULTIMEM_AT(multimem, offset);
}

/* Whose sums do not depend on their order. */
static int is_exact(oriel_dtype dtype)
{
    return dtype == ORIEL_U32 || dtype == ORIEL_S32 || dtype == ORIEL_U64 || dtype == ORIEL_S64;
}

/* ---- what NCCL can do ---------------------------------------------------------------------- */

struct nccl_terms {
    int dtype, op;
    size_t parts; /* elements of NCCL's in each */
};

/* 0: NCCL has no such reduction. */
static int nccl_terms_of(oriel_dtype dtype, oriel_redop op, struct nccl_terms *terms_p)
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

    if (dtypes[dtype] < 0 || (complex && op != ORIEL_SUM))
        return 0;
    *terms_p = (struct nccl_terms){.dtype = dtypes[dtype], .op = ops[op], .parts = complex ? 2 : 1};
    if (dtype == ORIEL_BOOL) /* "or" and "and" */
        terms_p->op = op == ORIEL_SUM || op == ORIEL_MAX ? NCCL_MAX : NCCL_MIN;
    return 1;
}

/* ---- which are to be had ------------------------------------------------------------------- */

static oriel_status missing(oriel_via via, const char *why)
{
    return oriel_fail(ORIEL_ERR_UNSUPPORTED, "all_reduce via %s: %s", oriel_via_name(via), why);
}

static oriel_status check_all_ranks(const oriel_group *group, oriel_via via)
{
    if (group->n == group->comm->size)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                      "all_reduce via %s: it works over all %d ranks, and this group has %d; via "
                      "peer or sym_peer works over any",
                      oriel_via_name(via), group->comm->size, group->n);
}

static oriel_status check_operation(oriel_via via, int has, oriel_dtype dtype, oriel_redop op)
{
    if (has)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_UNSUPPORTED, "all_reduce via %s: there is no %s of %s that way",
                      oriel_via_name(via), oriel_redop_name(op), oriel_dtype_name(dtype));
}

static oriel_status check_nccl(const oriel_group *group, oriel_via via, oriel_dtype dtype,
                               oriel_redop op)
{
    const oriel_nccl_ways *ways = oriel_nccl_ways_of(group->comm);
    oriel_status st = ORIEL_OK;
    struct nccl_terms terms;

    if (ways == NULL)
        return missing(via, "this comm has no NCCL communicator; set ORIEL_FABRIC=nccl on all "
                            "processes before they start");
    if (via == ORIEL_VIA_NCCL && ways->no_calls[0] != '\0')
        return missing(via, ways->no_calls);
    if (via == ORIEL_VIA_LSA && ways->no_lsa[0] != '\0')
        return missing(via, ways->no_lsa);
    if (via == ORIEL_VIA_SYM_MULTIMEM && ways->no_multimem[0] != '\0')
        return missing(via, ways->no_multimem);
    if (via != ORIEL_VIA_SYM_PEER)
        st = check_all_ranks(group, via);
    if (st == ORIEL_OK && via == ORIEL_VIA_NCCL)
        st = check_operation(via, nccl_terms_of(dtype, op, &terms), dtype, op);
    if (st == ORIEL_OK && via == ORIEL_VIA_SYM_MULTIMEM)
        st = check_operation(via, oriel_multimem_op(dtype, op) != 0, dtype, op);
    return st;
}

static oriel_status check_multicast(const oriel_group *group, oriel_dtype dtype, oriel_redop op)
{
    const oriel_multicast *multicast = oriel_multicast_of(group->comm);
    oriel_status st;

    if (multicast->base == 0)
        return missing(ORIEL_VIA_MULTICAST, multicast->why);
    st = check_all_ranks(group, ORIEL_VIA_MULTICAST);
    return st == ORIEL_OK
               ? check_operation(ORIEL_VIA_MULTICAST, oriel_multimem_op(dtype, op) != 0, dtype, op)
               : st;
}

oriel_status oriel_via_check(const oriel_group *group, oriel_via via, oriel_dtype dtype,
                             oriel_redop op)
{
    if (group == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "group is NULL");
    if ((unsigned)via >= ORIEL_VIA_COUNT)
        return oriel_fail(ORIEL_ERR_INVALID, "via is %d; ORIEL_VIA_... goes to %d", (int)via,
                          ORIEL_VIA_COUNT - 1);
    if (!oriel_dtype_known(dtype) || !oriel_reduce_supported(dtype, op))
        return oriel_fail(ORIEL_ERR_INVALID, "dtype is %d and op %d, which is no reduction",
                          (int)dtype, (int)op);
    if (via == ORIEL_VIA_AUTO)
        return ORIEL_OK;
    if (group->comm->devices == NULL)
        return missing(via, "the ranks of this comm are CPUs; it is for comms of GPUs");
    if (group->spans)
        return missing(via, "the group spans machines, where there is one way alone");
    if (via == ORIEL_VIA_PEER && oriel_nccl_ways_of(group->comm) != NULL)
        return missing(via, "with ORIEL_FABRIC=nccl ranks reach each other through NCCL's windows "
                            "alone: that is sym_peer; set ORIEL_FABRIC=cuda");
    if (via == ORIEL_VIA_PEER)
        return ORIEL_OK;
    return via == ORIEL_VIA_MULTICAST ? check_multicast(group, dtype, op)
                                      : check_nccl(group, via, dtype, op);
}

/* ---- which is meant ------------------------------------------------------------------------ */

/* Where the switch can sum, that moves half the bytes; it may where no order matters. Small calls
 * are faster without. */
enum { LEAST_MULTICAST = 1 << 20 };

static int prefers_multicast(const oriel_group *group, const oriel_op *op)
{
    const oriel_multicast *multicast = oriel_multicast_of(group->comm);

    return multicast != NULL && multicast->base != 0 && group->n == group->comm->size &&
           is_exact(op->dtype) && oriel_multimem_op(op->dtype, op->redop) != 0 &&
           oriel_op_block(op) >= LEAST_MULTICAST;
}

/* What is borrowed needs nothing of the comm's own. */
static oriel_status check_borrowed(const oriel_op *op)
{
    struct nccl_terms terms;

    return check_operation(op->via, nccl_terms_of(op->dtype, op->redop, &terms), op->dtype,
                           op->redop);
}

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

oriel_status oriel_variant_resolve(const oriel_group *group, int rank, oriel_op *op, void *stream)
{
    oriel_status st;

    if (op->kind != ORIEL_KIND_ALL_REDUCE)
        return ORIEL_OK;
    if (op->via == ORIEL_VIA_AUTO) {
        op->via = prefers_multicast(group, op) ? ORIEL_VIA_MULTICAST : ORIEL_VIA_AUTO;
        return ORIEL_OK;
    }
    st = op->via == ORIEL_VIA_NCCL && oriel_borrow_comm(group->comm, rank) != NULL
             ? check_borrowed(op)
             : oriel_via_check(group, op->via, op->dtype, op->redop);
    if (st == ORIEL_OK && op->via == ORIEL_VIA_NCCL)
        st = check_capture(group, stream);
    if (st == ORIEL_OK && (op->via == ORIEL_VIA_PEER || group->n == 1))
        op->via = ORIEL_VIA_AUTO;
    return st;
}

int oriel_variant_staged(const oriel_op *op)
{
    return op->via == ORIEL_VIA_LSA || op->via == ORIEL_VIA_MULTICAST ||
           op->via == ORIEL_VIA_SYM_MULTIMEM;
}

/* ---- how they are gone --------------------------------------------------------------------- */

void oriel_variant_describe(const oriel_group *group, int rank, const oriel_op *op,
                            device_call *call)
{
    const oriel_comm *comm = group->comm;
    const oriel_devices *devices = comm->devices;
    const oriel_nccl_ways *ways = oriel_nccl_ways_of(comm);
    int local = rank - comm->first_rank;
    const oriel_cuda_memory *heap = &devices->ranks[local].heap;
    cu_ptr multimem = op->via == ORIEL_VIA_MULTICAST      ? oriel_multicast_of(comm)->base
                      : op->via == ORIEL_VIA_SYM_MULTIMEM ? ways->of[local].multimem
                                                          : 0;

    call->flags &= ~(uint32_t)DEVICE_DIRECT;
    if (op->via == ORIEL_VIA_LSA) {
        call->via = ways->of[local].lsa;
        call->flags |= DEVICE_LSA;
    }
    call->via.multimem =
        oriel_multimem_address(multimem, heap->base, heap->bytes, heap->base + devices->stage_at,
                               2 * (size_t)devices->ctas * devices->stage_bytes);
    call->via.op = oriel_multimem_op(op->dtype, op->redop);
}

/* On XLA's communicator and its stream: nothing of NCCL's was made beforehand. */
static oriel_status start_borrowed(const oriel_group *group, const oriel_op *op, nccl_comm lent,
                                   cu_stream stream)
{
    const nccl_library *nccl;
    struct nccl_terms terms = {0};
    oriel_status st = oriel_nccl_open(&nccl);

    if (st != ORIEL_OK)
        return st;
    nccl_terms_of(op->dtype, op->redop, &terms);
    return oriel_borrow_settle(group->comm, lent,
                               nccl->all_reduce(op->send, op->recv, op->count * terms.parts,
                                                terms.dtype, terms.op, lent, stream),
                               "an all-reduce");
}

static oriel_status start_nccl(const oriel_group *group, int rank, const oriel_op *op,
                               cu_stream stream)
{
    oriel_comm *comm = group->comm;
    const nccl_library *nccl = oriel_nccl_calls(comm);
    struct nccl_terms terms = {0};
    nccl_comm link;
    oriel_status st = oriel_nccl_enter(comm, rank, &link);

    if (st != ORIEL_OK)
        return st;
    nccl_terms_of(op->dtype, op->redop, &terms);
    return oriel_nccl_leave(comm, rank,
                            nccl->all_reduce(op->send, op->recv, op->count * terms.parts,
                                             terms.dtype, terms.op, link, stream),
                            "an all-reduce");
}

/* A stream of its own, since what NCCL puts on one may be more than kernels, and XLA's has a
 * program's work on it. Events between the two are captured like everything else. */
static oriel_status fork_nccl(const oriel_group *group, int rank, const oriel_op *op, void *stream)
{
    const oriel_comm *comm = group->comm;
    const oriel_nccl_way *way = &oriel_nccl_ways_of(comm)->of[rank - comm->first_rank];
    oriel_status st = oriel_cuda_check(oriel_cu->event_record(way->fork, stream), "an event");

    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->stream_follow(way->stream, way->fork, 0), "an event");
    if (st == ORIEL_OK)
        st = start_nccl(group, rank, op, way->stream);
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->event_record(way->join, way->stream), "an event");
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->stream_follow(stream, way->join, 0), "an event");
    return st;
}

static oriel_status launch(cu_function function, const device_call *call, void *stream)
{
    void *params[] = {(void *)(uintptr_t)call};

    return oriel_cuda_check(
        oriel_cu->launch(function, 1, 1, 1, DEVICE_THREADS, 1, 1, 0, stream, params, NULL),
        "launching a kernel");
}

/* NCCL compares nothing and has no deadline, so all meet before: see variant.cuh. */
oriel_status oriel_variant_nccl(const oriel_group *group, int rank, const oriel_op *op,
                                const device_call *call, void *stream)
{
    const oriel_comm *comm = group->comm;
    const oriel_devices *devices = comm->devices;
    const oriel_device_code *code = devices->ranks[rank - comm->first_rank].code;
    nccl_comm lent = oriel_borrow_comm(comm, rank);
    device_call meeting = *call;
    oriel_status st;

    /* Nobody's broadcast: a meeting without data that says what it is for. */
    meeting.kind = ORIEL_KIND_BROADCAST;
    meeting.root = -1;
    meeting.recv_bytes = 0;
    st = launch(code->meet, &meeting, stream);
    if (st == ORIEL_OK)
        st = lent != NULL ? start_borrowed(group, op, lent, stream)
                          : fork_nccl(group, rank, op, stream);
    return st == ORIEL_OK ? launch(code->judge, call, stream) : st;
}
