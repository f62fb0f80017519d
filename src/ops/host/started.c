/* Started requests: one list per rank, used by the rank's thread alone. */
#include <string.h>

#include "base/sys.h"
#include "ops/host/request.h"

static oriel_request **started_list(oriel_comm *comm, int rank)
{
    return &comm->started[rank - comm->first_rank];
}

static void started_release(oriel_request *request)
{
    oriel_request_drop(request);
    oriel_sys_now->release(request->text);
    oriel_sys_now->release(request);
}

/* Requests that nobody asked for go with their comm. */
static void started_free(oriel_request *list)
{
    while (list != NULL) {
        oriel_request *next = list->next;
        started_release(list);
        list = next;
    }
}

void oriel_started_add(oriel_request *request)
{
    oriel_request **link = started_list(request->comm, request->rank);

    atomic_store(&request->comm->free_started, started_free);
    while (*link != NULL)
        link = &(*link)->next;
    *link = request;
    oriel_started_step(request->comm, request->rank);
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
    started_release(request);
    return st;
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
    oriel_waiter waiter = {.patient = 1};

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
