/* The public operations: check the arguments, make a request, drive it. */
#include <string.h>

#include "base/sys.h"
#include "ops/reduce.h"
#include "ops/request.h"

/* Calls from C are matched by their order on the group: run 0 is theirs alone,
 * since XLA's run ids are never 0 together with site 0. */
static oriel_key next_key(const oriel_group *group, int rank)
{
    uint64_t count = atomic_fetch_add_explicit(&group->sequence[rank - group->comm->first_rank], 1,
                                               memory_order_relaxed);

    return (oriel_key){.group = group->hash, .count = count};
}

static int overlaps(const void *a, const void *b, size_t bytes)
{
    uintptr_t x = (uintptr_t)a;
    uintptr_t y = (uintptr_t)b;

    return x != y && (x < y ? y - x < bytes : x - y < bytes);
}

static oriel_status check_call(const oriel_group *group, int rank, const void *send,
                               const void *recv, size_t count, oriel_dtype dtype)
{
    size_t size = oriel_dtype_size(dtype);

    if (group == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "group is NULL");
    if (rank < group->comm->first_rank ||
        rank >= group->comm->first_rank + group->comm->local_ranks)
        return oriel_fail(ORIEL_ERR_INVALID, "rank is %d; process %d holds ranks %d to %d", rank,
                          group->comm->process, group->comm->first_rank,
                          group->comm->first_rank + group->comm->local_ranks - 1);
    if (oriel_group_index(group, rank) < 0)
        return oriel_fail(ORIEL_ERR_INVALID, "rank %d is no member of the group", rank);
    if (size == 0)
        return oriel_fail(ORIEL_ERR_INVALID, "dtype is %d, which is none", (int)dtype);
    if (count > ((size_t)1 << 47) / size)
        return oriel_fail(ORIEL_ERR_INVALID, "count is %zu elements of %zu bytes: too large", count,
                          size);
    if (count > 0 && (send == NULL || recv == NULL))
        return oriel_fail(ORIEL_ERR_INVALID, "%s is NULL", send == NULL ? "send" : "recv");
    if (overlaps(send, recv, count * size))
        return oriel_fail(ORIEL_ERR_INVALID, "send and recv overlap without being equal");
    return ORIEL_OK;
}

/* ---- started requests: one list per rank, used by the rank's thread alone ------- */

static oriel_request **started_list(oriel_comm *comm, int rank)
{
    return &comm->started[rank - comm->first_rank];
}

/* Requests that nobody asked for go with their comm. */
static void started_free(oriel_request *list)
{
    while (list != NULL) {
        oriel_request *next = list->next;
        oriel_sys_now->release(list->text);
        oriel_sys_now->release(list);
        list = next;
    }
}

static void started_add(oriel_request *request)
{
    oriel_request **link = started_list(request->comm, request->rank);

    atomic_store(&request->comm->free_started, started_free);
    while (*link != NULL)
        link = &(*link)->next;
    *link = request;
}

void oriel_started_step(oriel_comm *comm, int rank)
{
    for (oriel_request *r = *started_list(comm, rank); r != NULL; r = r->next) {
        if (r->ended)
            continue;
        r->outcome = oriel_request_step(r);
        r->ended = r->outcome != ORIEL_IN_PROGRESS;
        if (r->ended && r->outcome != ORIEL_OK) {
            r->text = oriel_sys_now->alloc(strlen(oriel_last_error()) + 1);
            if (r->text != NULL)
                strcpy(r->text, oriel_last_error());
        }
    }
}

/* Takes the request out, frees it and says how it ended. */
static oriel_status started_end(oriel_request *request)
{
    oriel_request **link = started_list(request->comm, request->rank);
    oriel_status st = request->outcome;

    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
    if (st != ORIEL_OK)
        oriel_fail(st, "%s", request->text ? request->text : oriel_status_name(st));
    oriel_sys_now->release(request->text);
    oriel_sys_now->release(request);
    return st;
}

/* ---- operations --------------------------------------------------------------------- */

static oriel_status begin_all_reduce(oriel_group *group, int rank, const void *send, void *recv,
                                     size_t count, oriel_dtype dtype, oriel_redop op,
                                     oriel_request *request)
{
    oriel_status st = check_call(group, rank, send, recv, count, dtype);
    oriel_record record;
    oriel_key key;

    if (st != ORIEL_OK)
        return st;
    if (!oriel_reduce_supported(dtype, op))
        return oriel_fail(ORIEL_ERR_INVALID, "op is %d, which is none for %s", (int)op,
                          oriel_dtype_name(dtype));
    key = next_key(group, rank);
    oriel_all_reduce_record(group, count, dtype, op, &record);
    oriel_request_begin(request, group, rank, oriel_group_index(group, rank), &key, &record, send,
                        recv, count);
    return ORIEL_OK;
}

oriel_status oriel_all_reduce(oriel_group *group, int rank, const void *send, void *recv,
                              size_t count, oriel_dtype dtype, oriel_redop op)
{
    oriel_request request;
    oriel_status st = begin_all_reduce(group, rank, send, recv, count, dtype, op, &request);

    return st == ORIEL_OK ? oriel_request_run(&request) : st;
}

oriel_status oriel_all_reduce_start(oriel_group *group, int rank, const void *send, void *recv,
                                    size_t count, oriel_dtype dtype, oriel_redop op,
                                    oriel_request **request_p)
{
    oriel_request *request;
    oriel_status st;

    if (request_p == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "request_p is NULL");
    request = oriel_sys_now->alloc(sizeof *request);
    if (request == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a request");
    st = begin_all_reduce(group, rank, send, recv, count, dtype, op, request);
    if (st != ORIEL_OK) {
        oriel_sys_now->release(request);
        return st;
    }
    started_add(request);
    oriel_started_step(group->comm, rank);
    *request_p = request;
    return ORIEL_OK;
}

oriel_status oriel_request_test(oriel_request *request)
{
    if (request == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "request is NULL");
    oriel_started_step(request->comm, request->rank);
    return request->ended ? started_end(request) : ORIEL_IN_PROGRESS;
}

oriel_status oriel_request_wait(oriel_request *request)
{
    oriel_waiter waiter = {0};

    if (request == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "request is NULL");
    for (;;) {
        oriel_started_step(request->comm, request->rank);
        if (request->ended)
            break;
        if (oriel_comm_pause(request->comm, &waiter))
            request->polls = 0;
    }
    oriel_waiter_end(request->comm, &waiter);
    return started_end(request);
}
