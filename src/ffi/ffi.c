/* The XLA handlers of CPUs. A call that can end at once ends in XLA's thread; otherwise
 * XLA gets a future, which the engine completes. */
#include <stdio.h>
#include <string.h>

#include "base/sys.h"
#include "ffi/attached.h"
#include "ffi/ffi.h"
#include "ffi/window.h"

int64_t oriel_ffi_site_type_id;

/* The others cannot know what is wrong with the call, and wait for it. */
static void refuse(const oriel_site *site, const site_member *member, oriel_status st)
{
    oriel_comm *comm = oriel_attached.comm;

    oriel_comm_abort(comm, st, member->rank, comm->process, "rank %d, %s at %.*s: %s", member->rank,
                     oriel_kind_name(site->op.kind), (int)strcspn(site->told, "\n"), site->told,
                     oriel_last_error());
    atomic_store(&comm->heap.ranks[member->rank].told, 1);
}

/* The key tells this operation from all others that the group has under way. */
static oriel_status find_key(const xla_frame *frame, oriel_site *site, site_member *member,
                             oriel_key *key_p, uint16_t *execution_p)
{
    int64_t run;
    oriel_status st = oriel_xla_run_id(frame, &run);

    if (st != ORIEL_OK)
        return st;
    key_p->group = member->group->hash;
    key_p->site = site->name;
    st = oriel_site_arrive(site, member, run, &key_p->count, execution_p);
    if (st != ORIEL_OK)
        refuse(site, member, st);
    return st;
}

static oriel_status copy_here(void *to, const void *from, size_t bytes, void *arg)
{
    (void)arg;
    memcpy(to, from, bytes);
    return ORIEL_OK;
}

/* The error of a wrong call names the rank. */
static oriel_status check(const oriel_group *group, int rank, const oriel_op *op)
{
    oriel_status st = oriel_op_check(group, rank, op);
    const char *kind = oriel_kind_name(op->kind);
    char text[256];

    if (st == ORIEL_OK)
        return ORIEL_OK;
    snprintf(text, sizeof text, "%s", oriel_last_error());
    if (strncmp(text, kind, strlen(kind)) == 0)
        return oriel_fail(st, "rank %d: %s", rank, text);
    return oriel_fail(st, "%s on rank %d: %s", kind, rank, text);
}

/* Operands and results that must lie in windows do, and not in an array that XLA made of one. */
static oriel_status check_windows(const xla_frame *data, const oriel_site *site, int rank)
{
    const char *what = oriel_kind_name(site->op.kind);
    oriel_status st = ORIEL_OK;

    for (int64_t i = 0; i < data->args.size && site->read >> i != 0 && st == ORIEL_OK; i++) {
        const xla_buffer *window = data->args.items[i];

        if (site->read >> i & 1)
            st = oriel_ffi_in_window(rank, window->data, oriel_xla_bytes(window), what);
    }
    for (int64_t i = 0; site->into > 0 && i < data->rets.size && st == ORIEL_OK; i++) {
        const xla_buffer *window = data->rets.items[i];

        st = oriel_ffi_in_window(rank, window->data, oriel_xla_bytes(window), what);
    }
    return st;
}

/* A kernel may read an operand when it has written results: it is given none that lies where a
 * result goes. */
static oriel_status check_apart(const xla_frame *data, const oriel_site *site, int rank)
{
    if (site->into == 0 || site->op.kind != ORIEL_KIND_KERNEL)
        return ORIEL_OK;
    for (int64_t i = 0; i < data->args.size; i++) {
        const xla_buffer *operand = data->args.items[i];

        for (int64_t j = 0; j < data->rets.size; j++) {
            const xla_buffer *window = data->rets.items[j];

            if (operand->data == window->data)
                return oriel_fail(ORIEL_ERR_INVALID,
                                  "kernel %s on rank %d: operand %d is the window that a result "
                                  "goes to (into=), given to the program twice: give it once",
                                  site->kernel->name, rank, (int)i);
        }
    }
    return ORIEL_OK;
}

/* Reads and checks the call of a frame. The caller destroys `op->kernel` and releases the arrays,
 * on failure as well. */
static oriel_status read_call(const xla_frame *frame, const oriel_site *site,
                              const site_member *member, oriel_op *op, oriel_ragged *ragged,
                              oriel_array **arrays_p)
{
    const xla_frame data = oriel_xla_data(frame, site);
    oriel_group *group = member->group;
    oriel_status st = check_windows(&data, site, member->rank);

    *op = site->op;
    if (st == ORIEL_OK)
        st = check_apart(&data, site, member->rank);
    if (st == ORIEL_OK && site->into > 0)
        st = oriel_xla_ticket(frame);
    if (st != ORIEL_OK)
        return st;
    if (op->kind == ORIEL_KIND_KERNEL)
        st = oriel_xla_kernel(&data, site, group, oriel_attached.crew, &op->kernel);
    else if (oriel_xla_lists(&data, op))
        st = oriel_xla_arrays(&data, group->n, member->index, op, arrays_p);
    else
        st = oriel_xla_buffers(&data, group->n, member->index, op, ragged);
    if (st == ORIEL_OK)
        st = oriel_xla_aliases(&data, op->kind, copy_here, NULL);
    if (st == ORIEL_OK)
        st = check(group, member->rank, op);
    if (st == ORIEL_OK)
        oriel_xla_unwritten(&data, member->index, op);
    return st;
}

static void complete(oriel_request *request, oriel_status status)
{
    const xla_api *api = request->done_arg[0];
    xla_future_args args = {.struct_size = sizeof args, .future = request->done_arg[1]};

    if (status == ORIEL_OK) {
        api->future_set_available(&args);
        return;
    }
    args.error = oriel_xla_error(api, status);
    api->future_set_error(&args);
}

/* Gives XLA a future and the request to the engine. */
static xla_error *go_on_later(xla_frame *frame, oriel_engine *engine, oriel_request *request)
{
    xla_future_args args = {.struct_size = sizeof args};
    xla_error *error = frame->api->future_create(&args);
    const xla_api *api = frame->api;

    if (error != NULL) {
        /* XLA has no future to give: the call blocks instead. */
        oriel_status st = oriel_request_run(request);
        xla_destroy_args destroy = {.struct_size = sizeof destroy, .error = error};

        api->error_destroy(&destroy);
        oriel_engine_give(engine, request);
        return st == ORIEL_OK ? NULL : oriel_xla_error(api, st);
    }
    request->done = complete;
    request->done_arg[0] = (void *)(uintptr_t)api;
    request->done_arg[1] = args.future;
    frame->future = args.future;
    oriel_engine_submit(engine, request);
    return NULL;
}

/* Nobody looks at the outcome of a message that its sender has left: finalize tells a failure, if
 * nothing has before. */
static void complete_left(oriel_request *request, oriel_status status)
{
    (void)request;
    if (status != ORIEL_OK)
        atomic_store(&oriel_attached.lost, 1);
}

/* The others wait for this rank. They see themselves what is wrong with a call, unless it is
 * wrong with the numbers that this rank alone was given. */
static void tell_others(const oriel_site *site, const site_member *member, oriel_status status)
{
    oriel_comm *comm = oriel_attached.comm;

    if (status != ORIEL_ERR_SYSTEM && site->op.kind != ORIEL_KIND_RAGGED_ALL_TO_ALL)
        return;
    oriel_comm_abort(comm, status, comm->first_rank, comm->process,
                     "process %d could not begin an operation: %s", comm->process,
                     oriel_last_error());
    if (member != NULL)
        atomic_store(&comm->heap.ranks[member->rank].told, 1);
}

/* ---- beginning -------------------------------------------------------------------------- */

/* An operation that a custom call begins: of a sendrecv one of two. */
typedef struct beginning {
    oriel_site *site;
    site_member *member;    /* the rank in it; NULL: not found yet */
    oriel_request *request; /* what becomes of it */
    oriel_op op;            /* with this execution's buffers; the request's once that has begun */
    oriel_ragged ragged;    /* what op.ragged points to */
    oriel_array *arrays;    /* a list's; the request's once that has begun */
    oriel_key key;
    int begun; /* the request has */
} beginning;

static oriel_status prepare(const xla_frame *frame, oriel_engine *engine, beginning *b)
{
    oriel_status st;

    b->request = oriel_engine_take(engine);
    if (b->request == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a request");
    st = oriel_attached_member(frame, b->site, &b->member);
    if (st == ORIEL_OK)
        st = read_call(frame, b->site, b->member, &b->op, &b->ragged, &b->arrays);
    return st;
}

static oriel_status begin(beginning *b)
{
    oriel_request *request = b->request;
    oriel_status st;

    request->op = b->op; /* the request's from here on, with its kernel */
    b->op.kernel = NULL;
    st = oriel_request_begin(request, b->member->group, b->member->rank, b->member->index, &b->key);
    if (st != ORIEL_OK)
        return st;
    request->arrays = b->arrays;
    b->arrays = NULL;
    b->begun = 1;
    return ORIEL_OK;
}

/* Nothing is counted before all are known to be right, and nothing begins before all are
 * counted. `failed_p` is the one that is not. */
static oriel_status begin_all(const xla_frame *frame, oriel_engine *engine, beginning *all, int n,
                              beginning **failed_p)
{
    oriel_status st = ORIEL_OK;

    for (int i = 0; i < n && st == ORIEL_OK; i++)
        st = prepare(frame, engine, *failed_p = &all[i]);
    for (int i = 0; i < n && st == ORIEL_OK; i++) {
        beginning *b = *failed_p = &all[i];

        st = find_key(frame, b->site, b->member, &b->key, &b->op.execution);
    }
    for (int i = 0; i < n && st == ORIEL_OK; i++)
        st = begin(*failed_p = &all[i]);
    return st;
}

static void give_up(oriel_engine *engine, beginning *b)
{
    oriel_kernel_call_destroy(b->op.kernel);
    oriel_sys_now->release(b->arrays);
    if (b->begun) {
        oriel_trace_end(b->request->trace, TRACE_FAILED);
        oriel_request_drop(b->request);
    }
    if (b->request != NULL)
        oriel_engine_give(engine, b->request);
}

/* The request is all that the call has to wait for. */
static oriel_status begin_call(const xla_frame *frame, oriel_engine *engine, oriel_site *site,
                               oriel_request **request_p)
{
    beginning all[2] = {{.site = site}, {.site = site->received}};
    int n = site->received != NULL ? 2 : 1;
    beginning *failed;
    oriel_status st = begin_all(frame, engine, all, n, &failed);

    if (st != ORIEL_OK) {
        tell_others(failed->site, failed->member, st);
        for (int i = 0; i < n; i++)
            give_up(engine, &all[i]);
        return st;
    }
    if (n == 2)
        oriel_request_pair(all[1].request, all[0].request);
    *request_p = all[n - 1].request;
    return ORIEL_OK;
}

static xla_error *execute(xla_frame *frame)
{
    oriel_request *request;
    oriel_engine *engine = oriel_attached.engine;
    oriel_site *site;
    oriel_status st = oriel_xla_site(frame, &oriel_ffi_site_type_id, &site);

    if (st == ORIEL_OK)
        st = oriel_attached_check(site, 0);
    if (st == ORIEL_OK)
        st = begin_call(frame, engine, site, &request);
    if (st != ORIEL_OK)
        return oriel_xla_error(frame->api, st);
    st = oriel_engine_linger(request);
    if (st == ORIEL_IN_PROGRESS && request->left) {
        request->done = complete_left;
        oriel_engine_submit(engine, request);
        return NULL;
    }
    if (st == ORIEL_IN_PROGRESS)
        return go_on_later(frame, engine, request);
    oriel_engine_give(engine, request);
    return st == ORIEL_OK ? NULL : oriel_xla_error(frame->api, st);
}

void *oriel_ffi_execute(xla_frame *frame)
{
    xla_error *error;

    if (oriel_xla_answer_metadata(frame, oriel_ffi_site_type_id, 0))
        return NULL;
    pthread_rwlock_rdlock(&oriel_attached.lock);
    error = execute(frame);
    pthread_rwlock_unlock(&oriel_attached.lock);
    return error;
}

oriel_status oriel_ffi_kernel(uint64_t hash, const char *name, void (*entry)(void *))
{
    return oriel_kernel_register(hash, name, (oriel_kernel_entry)(void (*)(void))entry);
}

oriel_status oriel_ffi_op(uint64_t hash, const char *name,
                          oriel_status (*function)(struct oriel_call *))
{
    return oriel_host_op_register(hash, name, function);
}

void *oriel_ffi_after(xla_frame *frame)
{
    oriel_status st;

    if (oriel_xla_answer_metadata(frame, 0, 0))
        return NULL;
    st = oriel_xla_aliases(frame, ORIEL_KIND_BARRIER, copy_here, NULL);
    return st == ORIEL_OK ? NULL : oriel_xla_error(frame->api, st);
}

void *oriel_ffi_empty(xla_frame *frame)
{
    oriel_xla_answer_metadata(frame, 0, 0);
    return NULL;
}

void *oriel_ffi_instantiate(xla_frame *frame)
{
    if (oriel_xla_answer_metadata(frame, oriel_ffi_site_type_id, 0))
        return NULL;
    return oriel_attached_instantiate(frame, &oriel_ffi_site_type_id);
}
