/* The public operations: describe the call, make a request, drive it. */
#include <string.h>

#include "base/sys.h"
#include "core/protocol/group.h"
#include "ops/arrays.h"
#include "ops/host/request.h"

static oriel_status begin(oriel_group *group, int rank, oriel_request *request)
{
    int index = group->members[rank - group->comm->first_rank].index;

    return oriel_request_begin(request, group, rank, index, NULL);
}

/* With request->op there and checked. */
static inline oriel_status run_checked(oriel_group *group, int rank, oriel_request *request)
{
    oriel_status st = begin(group, rank, request);

    if (st != ORIEL_OK)
        return st;
    oriel_request_order(request);
    return oriel_request_run(request);
}

/* With request->op there. */
static oriel_status run(oriel_group *group, int rank, oriel_request *request)
{
    oriel_status st = oriel_op_check(group, rank, &request->op);

    return st == ORIEL_OK ? run_checked(group, rank, request) : st;
}

static oriel_status start(oriel_group *group, int rank, const oriel_op *op,
                          oriel_request **request_p)
{
    oriel_request *request;
    oriel_status st;

    if (request_p == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "request_p is NULL");
    request = oriel_sys_now->alloc(sizeof *request);
    if (request == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a request");
    request->op = *op;
    st = oriel_op_check(group, rank, op);
    if (st == ORIEL_OK)
        st = begin(group, rank, request);
    if (st == ORIEL_OK)
        st = oriel_request_keep(request);
    if (st != ORIEL_OK) {
        oriel_sys_now->release(request);
        return st;
    }
    /* Last: a call that fails before does not count. */
    oriel_request_order(request);
    oriel_started_add(request);
    *request_p = request;
    return ORIEL_OK;
}

/* Field by field: see begin_scan in request.c. */
static void describe(oriel_op *op, enum oriel_kind kind, const void *send, void *recv, size_t count,
                     oriel_dtype dtype)
{
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->dtype = dtype;
    op->send = send;
    op->recv = recv;
    op->count = count;
}

oriel_status oriel_all_reduce(oriel_group *group, int rank, const void *send, void *recv,
                              size_t count, oriel_dtype dtype, oriel_redop redop)
{
    oriel_request request;

    describe(&request.op, ORIEL_KIND_ALL_REDUCE, send, recv, count, dtype);
    request.op.redop = redop;
    return run(group, rank, &request);
}

oriel_status oriel_all_reduce_start(oriel_group *group, int rank, const void *send, void *recv,
                                    size_t count, oriel_dtype dtype, oriel_redop redop,
                                    oriel_request **request_p)
{
    oriel_op call;

    describe(&call, ORIEL_KIND_ALL_REDUCE, send, recv, count, dtype);
    call.redop = redop;
    return start(group, rank, &call, request_p);
}

oriel_status oriel_all_gather(oriel_group *group, int rank, const void *send, void *recv,
                              size_t count, oriel_dtype dtype)
{
    oriel_request request;

    describe(&request.op, ORIEL_KIND_ALL_GATHER, send, recv, count, dtype);
    return run(group, rank, &request);
}

oriel_status oriel_all_gather_start(oriel_group *group, int rank, const void *send, void *recv,
                                    size_t count, oriel_dtype dtype, oriel_request **request_p)
{
    oriel_op call;

    describe(&call, ORIEL_KIND_ALL_GATHER, send, recv, count, dtype);
    return start(group, rank, &call, request_p);
}

oriel_status oriel_reduce_scatter(oriel_group *group, int rank, const void *send, void *recv,
                                  size_t count, oriel_dtype dtype, oriel_redop redop)
{
    oriel_request request;

    describe(&request.op, ORIEL_KIND_REDUCE_SCATTER, send, recv, count, dtype);
    request.op.redop = redop;
    return run(group, rank, &request);
}

oriel_status oriel_reduce_scatter_start(oriel_group *group, int rank, const void *send, void *recv,
                                        size_t count, oriel_dtype dtype, oriel_redop redop,
                                        oriel_request **request_p)
{
    oriel_op call;

    describe(&call, ORIEL_KIND_REDUCE_SCATTER, send, recv, count, dtype);
    call.redop = redop;
    return start(group, rank, &call, request_p);
}

oriel_status oriel_all_to_all(oriel_group *group, int rank, const void *send, void *recv,
                              size_t count, oriel_dtype dtype)
{
    oriel_request request;

    describe(&request.op, ORIEL_KIND_ALL_TO_ALL, send, recv, count, dtype);
    return run(group, rank, &request);
}

oriel_status oriel_all_to_all_start(oriel_group *group, int rank, const void *send, void *recv,
                                    size_t count, oriel_dtype dtype, oriel_request **request_p)
{
    oriel_op call;

    describe(&call, ORIEL_KIND_ALL_TO_ALL, send, recv, count, dtype);
    return start(group, rank, &call, request_p);
}

oriel_status oriel_broadcast(oriel_group *group, int rank, const void *send, void *recv,
                             size_t count, oriel_dtype dtype, int root)
{
    oriel_request request;

    describe(&request.op, ORIEL_KIND_BROADCAST, send, recv, count, dtype);
    request.op.root = root;
    return run(group, rank, &request);
}

oriel_status oriel_broadcast_start(oriel_group *group, int rank, const void *send, void *recv,
                                   size_t count, oriel_dtype dtype, int root,
                                   oriel_request **request_p)
{
    oriel_op call;

    describe(&call, ORIEL_KIND_BROADCAST, send, recv, count, dtype);
    call.root = root;
    return start(group, rank, &call, request_p);
}

oriel_status oriel_permute(oriel_group *group, int rank, const void *send, void *recv, size_t count,
                           oriel_dtype dtype, const int *pairs, int num_pairs)
{
    oriel_request request;

    describe(&request.op, ORIEL_KIND_PERMUTE, send, recv, count, dtype);
    request.op.pairs = pairs;
    request.op.num_pairs = num_pairs;
    return run(group, rank, &request);
}

oriel_status oriel_permute_start(oriel_group *group, int rank, const void *send, void *recv,
                                 size_t count, oriel_dtype dtype, const int *pairs, int num_pairs,
                                 oriel_request **request_p)
{
    oriel_op call;

    describe(&call, ORIEL_KIND_PERMUTE, send, recv, count, dtype);
    call.pairs = pairs;
    call.num_pairs = num_pairs;
    return start(group, rank, &call, request_p);
}

oriel_status oriel_barrier(oriel_group *group, int rank)
{
    oriel_request request;

    describe(&request.op, ORIEL_KIND_BARRIER, NULL, NULL, 0, 0);
    return run(group, rank, &request);
}

oriel_status oriel_barrier_start(oriel_group *group, int rank, oriel_request **request_p)
{
    oriel_op call = {.kind = ORIEL_KIND_BARRIER};

    return start(group, rank, &call, request_p);
}

oriel_status oriel_ragged_all_to_all(oriel_group *group, int rank, const void *send, void *recv,
                                     oriel_dtype dtype, const oriel_ragged *ragged)
{
    oriel_request request;

    describe(&request.op, ORIEL_KIND_RAGGED_ALL_TO_ALL, send, recv, 0, dtype);
    request.op.ragged = ragged;
    return run(group, rank, &request);
}

oriel_status oriel_ragged_all_to_all_start(oriel_group *group, int rank, const void *send,
                                           void *recv, oriel_dtype dtype,
                                           const oriel_ragged *ragged, oriel_request **request_p)
{
    oriel_op call;

    describe(&call, ORIEL_KIND_RAGGED_ALL_TO_ALL, send, recv, 0, dtype);
    call.ragged = ragged;
    return start(group, rank, &call, request_p);
}

oriel_status oriel_gather(oriel_group *group, int rank, const void *send, void *recv, size_t count,
                          oriel_dtype dtype, int root)
{
    oriel_request request;

    describe(&request.op, ORIEL_KIND_GATHER, send, recv, count, dtype);
    request.op.root = root;
    return run(group, rank, &request);
}

oriel_status oriel_gather_start(oriel_group *group, int rank, const void *send, void *recv,
                                size_t count, oriel_dtype dtype, int root,
                                oriel_request **request_p)
{
    oriel_op call;

    describe(&call, ORIEL_KIND_GATHER, send, recv, count, dtype);
    call.root = root;
    return start(group, rank, &call, request_p);
}

oriel_status oriel_scatter(oriel_group *group, int rank, const void *send, void *recv, size_t count,
                           oriel_dtype dtype, int root)
{
    oriel_request request;

    describe(&request.op, ORIEL_KIND_SCATTER, send, recv, count, dtype);
    request.op.root = root;
    return run(group, rank, &request);
}

oriel_status oriel_scatter_start(oriel_group *group, int rank, const void *send, void *recv,
                                 size_t count, oriel_dtype dtype, int root,
                                 oriel_request **request_p)
{
    oriel_op call;

    describe(&call, ORIEL_KIND_SCATTER, send, recv, count, dtype);
    call.root = root;
    return start(group, rank, &call, request_p);
}

oriel_status oriel_reduce(oriel_group *group, int rank, const void *send, void *recv, size_t count,
                          oriel_dtype dtype, oriel_redop redop, int root)
{
    oriel_request request;

    describe(&request.op, ORIEL_KIND_REDUCE, send, recv, count, dtype);
    request.op.redop = redop;
    request.op.root = root;
    return run(group, rank, &request);
}

oriel_status oriel_reduce_start(oriel_group *group, int rank, const void *send, void *recv,
                                size_t count, oriel_dtype dtype, oriel_redop redop, int root,
                                oriel_request **request_p)
{
    oriel_op call;

    describe(&call, ORIEL_KIND_REDUCE, send, recv, count, dtype);
    call.redop = redop;
    call.root = root;
    return start(group, rank, &call, request_p);
}

oriel_status oriel_scan(oriel_group *group, int rank, const void *send, void *recv, size_t count,
                        oriel_dtype dtype, oriel_redop redop)
{
    oriel_request request;

    describe(&request.op, ORIEL_KIND_SCAN, send, recv, count, dtype);
    request.op.redop = redop;
    return run(group, rank, &request);
}

oriel_status oriel_scan_start(oriel_group *group, int rank, const void *send, void *recv,
                              size_t count, oriel_dtype dtype, oriel_redop redop,
                              oriel_request **request_p)
{
    oriel_op call;

    describe(&call, ORIEL_KIND_SCAN, send, recv, count, dtype);
    call.redop = redop;
    return start(group, rank, &call, request_p);
}

/* ---- lists ------------------------------------------------------------------------------ */

/* Field by field, as describe. */
static oriel_status describe_many(oriel_op *op, enum oriel_kind kind, const oriel_array *arrays,
                                  int num_arrays, oriel_dtype dtype)
{
    describe(op, kind, NULL, NULL, 0, dtype);
    return oriel_arrays_describe(op, arrays, num_arrays);
}

static oriel_status check_many(oriel_group *group, int rank, const oriel_op *op)
{
    oriel_status st = oriel_op_check(group, rank, op);

    return st == ORIEL_OK ? oriel_arrays_apart(group, rank, op) : st;
}

static oriel_status run_many(oriel_group *group, int rank, oriel_request *request)
{
    oriel_status st = check_many(group, rank, &request->op);

    return st == ORIEL_OK ? run_checked(group, rank, request) : st;
}

static oriel_status start_many(oriel_group *group, int rank, const oriel_op *op,
                               oriel_request **request_p)
{
    oriel_status st = check_many(group, rank, op);

    return st == ORIEL_OK ? start(group, rank, op, request_p) : st;
}

oriel_status oriel_all_reduce_many(oriel_group *group, int rank, const oriel_array *arrays,
                                   int num_arrays, oriel_dtype dtype, oriel_redop redop)
{
    oriel_request request;
    oriel_status st = describe_many(&request.op, ORIEL_KIND_ALL_REDUCE, arrays, num_arrays, dtype);

    request.op.redop = redop;
    return st == ORIEL_OK ? run_many(group, rank, &request) : st;
}

oriel_status oriel_all_reduce_many_start(oriel_group *group, int rank, const oriel_array *arrays,
                                         int num_arrays, oriel_dtype dtype, oriel_redop redop,
                                         oriel_request **request_p)
{
    oriel_op call;
    oriel_status st = describe_many(&call, ORIEL_KIND_ALL_REDUCE, arrays, num_arrays, dtype);

    call.redop = redop;
    return st == ORIEL_OK ? start_many(group, rank, &call, request_p) : st;
}

oriel_status oriel_all_gather_many(oriel_group *group, int rank, const oriel_array *arrays,
                                   int num_arrays, oriel_dtype dtype)
{
    oriel_request request;
    oriel_status st = describe_many(&request.op, ORIEL_KIND_ALL_GATHER, arrays, num_arrays, dtype);

    return st == ORIEL_OK ? run_many(group, rank, &request) : st;
}

oriel_status oriel_all_gather_many_start(oriel_group *group, int rank, const oriel_array *arrays,
                                         int num_arrays, oriel_dtype dtype,
                                         oriel_request **request_p)
{
    oriel_op call;
    oriel_status st = describe_many(&call, ORIEL_KIND_ALL_GATHER, arrays, num_arrays, dtype);

    return st == ORIEL_OK ? start_many(group, rank, &call, request_p) : st;
}

oriel_status oriel_reduce_scatter_many(oriel_group *group, int rank, const oriel_array *arrays,
                                       int num_arrays, oriel_dtype dtype, oriel_redop redop)
{
    oriel_request request;
    oriel_status st =
        describe_many(&request.op, ORIEL_KIND_REDUCE_SCATTER, arrays, num_arrays, dtype);

    request.op.redop = redop;
    return st == ORIEL_OK ? run_many(group, rank, &request) : st;
}

oriel_status oriel_reduce_scatter_many_start(oriel_group *group, int rank,
                                             const oriel_array *arrays, int num_arrays,
                                             oriel_dtype dtype, oriel_redop redop,
                                             oriel_request **request_p)
{
    oriel_op call;
    oriel_status st = describe_many(&call, ORIEL_KIND_REDUCE_SCATTER, arrays, num_arrays, dtype);

    call.redop = redop;
    return st == ORIEL_OK ? start_many(group, rank, &call, request_p) : st;
}

oriel_status oriel_broadcast_many(oriel_group *group, int rank, const oriel_array *arrays,
                                  int num_arrays, oriel_dtype dtype, int root)
{
    oriel_request request;
    oriel_status st = describe_many(&request.op, ORIEL_KIND_BROADCAST, arrays, num_arrays, dtype);

    request.op.root = root;
    return st == ORIEL_OK ? run_many(group, rank, &request) : st;
}

oriel_status oriel_broadcast_many_start(oriel_group *group, int rank, const oriel_array *arrays,
                                        int num_arrays, oriel_dtype dtype, int root,
                                        oriel_request **request_p)
{
    oriel_op call;
    oriel_status st = describe_many(&call, ORIEL_KIND_BROADCAST, arrays, num_arrays, dtype);

    call.root = root;
    return st == ORIEL_OK ? start_many(group, rank, &call, request_p) : st;
}

/* ---- messages ----------------------------------------------------------------------- */

/* Finds the group of two in which the caller and the member at `peer` meet. */
static oriel_status find_pair(oriel_group *group, int rank, int sends, int peer,
                              oriel_group **pair_p)
{
    const char *role = sends ? "dest" : "source";
    oriel_status st = oriel_op_check_member(group, rank);
    int mine;

    if (st != ORIEL_OK)
        return st;
    mine = group->members[rank - group->comm->first_rank].index;
    if (peer < 0 || peer >= group->n)
        return oriel_fail(ORIEL_ERR_INVALID, "%s is %d in a group of %d", role, peer, group->n);
    if (peer == mine)
        return oriel_fail(ORIEL_ERR_INVALID, "%s is %d, which is rank %d itself", role, peer, rank);
    return oriel_group_pair(group, rank, sends ? mine : peer, sends ? peer : mine, pair_p);
}

static oriel_status run_message(oriel_group *group, int rank, const void *send, void *recv,
                                size_t count, oriel_dtype dtype, int sends, int peer)
{
    oriel_group *pair;
    oriel_request request;
    oriel_status st = find_pair(group, rank, sends, peer, &pair);

    if (st != ORIEL_OK)
        return st;
    describe(&request.op, ORIEL_KIND_MESSAGE, send, recv, count, dtype);
    return run(pair, rank, &request);
}

static oriel_status start_message(oriel_group *group, int rank, const void *send, void *recv,
                                  size_t count, oriel_dtype dtype, int sends, int peer,
                                  oriel_request **request_p)
{
    oriel_group *pair;
    oriel_op call;
    oriel_status st = find_pair(group, rank, sends, peer, &pair);

    if (st != ORIEL_OK)
        return st;
    describe(&call, ORIEL_KIND_MESSAGE, send, recv, count, dtype);
    return start(pair, rank, &call, request_p);
}

oriel_status oriel_send(oriel_group *group, int rank, const void *send, size_t count,
                        oriel_dtype dtype, int dest)
{
    return run_message(group, rank, send, NULL, count, dtype, 1, dest);
}

oriel_status oriel_recv(oriel_group *group, int rank, void *recv, size_t count, oriel_dtype dtype,
                        int source)
{
    return run_message(group, rank, NULL, recv, count, dtype, 0, source);
}

oriel_status oriel_send_start(oriel_group *group, int rank, const void *send, size_t count,
                              oriel_dtype dtype, int dest, oriel_request **request_p)
{
    return start_message(group, rank, send, NULL, count, dtype, 1, dest, request_p);
}

oriel_status oriel_recv_start(oriel_group *group, int rank, void *recv, size_t count,
                              oriel_dtype dtype, int source, oriel_request **request_p)
{
    return start_message(group, rank, NULL, recv, count, dtype, 0, source, request_p);
}

/* What is wrong with the one is found before the other has begun. */
oriel_status oriel_sendrecv(oriel_group *group, int rank, const void *send, size_t send_count,
                            int dest, void *recv, size_t recv_count, int source, oriel_dtype dtype)
{
    oriel_request *sent;
    oriel_request request;
    oriel_group *pair;
    oriel_status received, st = find_pair(group, rank, 0, source, &pair);

    if (st != ORIEL_OK)
        return st;
    describe(&request.op, ORIEL_KIND_MESSAGE, NULL, recv, recv_count, dtype);
    st = oriel_op_check(pair, rank, &request.op);
    if (st == ORIEL_OK)
        st = oriel_send_start(group, rank, send, send_count, dtype, dest, &sent);
    if (st != ORIEL_OK)
        return st;
    received = run(pair, rank, &request);
    st = oriel_request_wait(sent);
    return received != ORIEL_OK ? received : st;
}
