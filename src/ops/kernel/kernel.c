#include "ops/kernel/kernel.h"

#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/math.h"
#include "base/sys.h"
#include "base/hash.h"
#include "core/world/names.h"
#include "ops/kernel/host_op.h"
#include "ops/reduce/reduce.h"
#include "ops/host/transfer.h"

/* How long after a failure a kernel that does not return is reported. */
#define COMPLAIN_AFTER_S 5.0

/* ---- known kernels ----------------------------------------------------------------- */

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static oriel_kernel *registry;

static oriel_kernel *find_locked(uint64_t hash)
{
    oriel_kernel *kernel = registry;

    while (kernel != NULL && kernel->hash != hash)
        kernel = kernel->next;
    return kernel;
}

const oriel_kernel *oriel_kernel_find(uint64_t hash)
{
    const oriel_kernel *kernel;

    pthread_mutex_lock(&registry_lock);
    kernel = find_locked(hash);
    pthread_mutex_unlock(&registry_lock);
    return kernel;
}

static oriel_status add(uint64_t hash, const char *name, oriel_kernel_entry entry,
                        oriel_op_function op)
{
    oriel_kernel *kernel;
    oriel_status st = ORIEL_OK;

    pthread_mutex_lock(&registry_lock);
    kernel = find_locked(hash);
    if (kernel == NULL) {
        kernel = oriel_sys_now->alloc(sizeof *kernel);
        if (kernel != NULL) {
            kernel->hash = hash;
            snprintf(kernel->name, sizeof kernel->name, "%s", name);
            kernel->next = registry;
            registry = kernel;
        }
    }
    if (kernel != NULL) {
        kernel->entry = entry;
        kernel->op = op;
    } else {
        st = oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for kernel %s", name);
    }
    pthread_mutex_unlock(&registry_lock);
    return st;
}

oriel_status oriel_kernel_register(uint64_t hash, const char *name, oriel_kernel_entry entry)
{
    if (name == NULL || entry == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "%s is NULL", name == NULL ? "name" : "entry");
    return add(hash, name, entry, NULL);
}

oriel_status oriel_host_op_register(uint64_t hash, const char *name, oriel_op_function op)
{
    if (name == NULL || op == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "%s is NULL", name == NULL ? "name" : "op");
    return add(hash, name, oriel_host_op_run, op);
}

static const char *kind_of(const oriel_kernel *kernel)
{
    return kernel->op != NULL ? "op" : "kernel";
}

/* ---- a call ------------------------------------------------------------------------- */

static size_t lines(size_t bytes)
{
    return oriel_round_up(bytes, HEAP_LINE);
}

static const struct oriel_custom_moves moves;

/* One allocation: the call, and behind it its arrays, so many bytes from its begin; `bytes` is
 * its length. */
struct layout {
    size_t buffers, reach, peers, boards, threads, board, bytes;
};

static struct layout layout_of(int n, int num_buffers, int num_threads)
{
    size_t members = (size_t)n;
    size_t count = (size_t)num_buffers;
    struct layout at;

    at.buffers = lines(sizeof(oriel_kernel_call));
    at.reach = at.buffers + lines(count * sizeof(kernel_buffer));
    at.peers = at.reach + lines(count * sizeof(oriel_buffer));
    at.boards = at.peers + lines(count * members * sizeof(void *));
    at.threads = at.boards + lines(members * sizeof(oriel_board *));
    at.board = at.threads + lines((size_t)num_threads * sizeof(kernel_thread));
    at.bytes = at.board + ORIEL_BOARD_BYTES(n);
    return at;
}

oriel_status oriel_kernel_call_create(const oriel_kernel *kernel, oriel_crew *crew, int n,
                                      int num_operands, int num_results, const int64_t *values,
                                      int64_t num_values, oriel_kernel_call **call_p)
{
    int num_buffers = num_operands + num_results;
    int num_threads = kernel->op != NULL ? 1 : (int)oriel_config_number(ORIEL_OPT_TEAM);
    struct layout at = layout_of(n, num_buffers, num_threads);
    oriel_kernel_call *call;
    char *base;

    if (num_buffers > KERNEL_MAX_BUFFERS)
        return oriel_fail(ORIEL_ERR_INVALID, "%s %s has %d operands and results, more than %d",
                          kind_of(kernel), kernel->name, num_buffers, (int)KERNEL_MAX_BUFFERS);
    base = oriel_sys_now->alloc(at.bytes);
    call = (oriel_kernel_call *)(void *)base;
    if (call == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a call of kernel %s", kernel->name);
    call->custom.moves = &moves;
    call->kernel = kernel;
    call->crew = crew;
    call->num_operands = num_operands;
    call->num_buffers = num_buffers;
    call->buffers = (kernel_buffer *)(void *)(base + at.buffers);
    call->reach = (oriel_buffer *)(void *)(base + at.reach);
    call->peers = (void **)(void *)(base + at.peers);
    call->boards = (oriel_board **)(void *)(base + at.boards);
    call->threads = (kernel_thread *)(void *)(base + at.threads);
    call->board = (oriel_board *)(void *)(base + at.board);
    call->num_threads = num_threads;
    call->jitter = oriel_config_number(ORIEL_OPT_JITTER) * 1e-6;
    call->frame.values = values;
    call->num_values = num_values;
    *call_p = call;
    return ORIEL_OK;
}

void oriel_kernel_call_destroy(oriel_kernel_call *call)
{
    oriel_sys_now->release(call);
}

/* "[4,16]"; "[64]" where the caller has no shape. Returns how long it is. */
static size_t describe_shape(const kernel_buffer *buffer, char *out, size_t len)
{
    size_t used;

    if (buffer->ndim < 2 || buffer->ndim > KERNEL_DIMS)
        return (size_t)snprintf(out, len, "[%zu]", buffer->count);
    used = (size_t)snprintf(out, len, "[%lld", (long long)buffer->dims[0]);
    for (int d = 1; d < buffer->ndim && used < len; d++)
        used += (size_t)snprintf(out + used, len - used, ",%lld", (long long)buffer->dims[d]);
    if (used < len)
        used += (size_t)snprintf(out + used, len - used, "]");
    return used;
}

/* "kernel halo(f32[4,16]) -> f32[64] with width=2": what the others see if they ask for something
 * else. */
static void describe(const oriel_kernel_call *call, char *out, size_t len)
{
    size_t used = (size_t)snprintf(out, len, "%s %s(", kind_of(call->kernel), call->kernel->name);

    for (int i = 0; i < call->num_buffers && used < len; i++) {
        const kernel_buffer *buffer = &call->buffers[i];
        const char *before = i == call->num_operands ? ") -> " : i > 0 ? ", " : "";

        used += (size_t)snprintf(out + used, len - used, "%s%s", before,
                                 oriel_dtype_name(buffer->dtype));
        if (used < len)
            used += describe_shape(buffer, out + used, len - used);
    }
    if (call->said != NULL && call->said[0] != '\0' && used < len)
        snprintf(out + used, len - used, " with %s", call->said);
}

void oriel_kernel_call_identify(oriel_kernel_call *call, const oriel_heap *heap)
{
    char text[sizeof((heap_name *)0)->text];
    uint64_t identity = oriel_mix(call->kernel->hash ^ (uint64_t)call->num_operands);

    for (int i = 0; i < call->num_buffers; i++) {
        const kernel_buffer *buffer = &call->buffers[i];

        identity = oriel_mix(identity ^ (uint64_t)buffer->count);
        identity = oriel_mix(identity ^ (uint64_t)buffer->dtype);
        for (int d = 0; d < buffer->ndim && d < KERNEL_DIMS; d++)
            identity = oriel_mix(identity ^ (uint64_t)buffer->dims[d]);
        call->custom.bytes += oriel_kernel_bytes(buffer);
    }
    for (int64_t i = 0; i < call->num_values; i++)
        identity = oriel_mix(identity ^ (uint64_t)call->frame.values[i]);
    call->custom.identity = identity | 1; /* 0 is nobody's */
    if (oriel_name_known(heap, call->custom.identity))
        return;
    describe(call, text, sizeof text);
    oriel_name_keep(heap, call->custom.identity, text);
}

/* ---- where the others find it ----------------------------------------------------------- */

/* An area has the board first, then where in the rank's part of the arena each buffer is, then
 * those buffers that lie in no window. */
static size_t lay_out(oriel_kernel_call *call, int n)
{
    size_t at = lines(ORIEL_BOARD_BYTES(n)) + lines((size_t)call->num_buffers * sizeof(uint64_t));

    for (int i = 0; i < call->num_buffers; i++) {
        if (call->buffers[i].in_window)
            continue;
        call->buffers[i].at = at;
        at += lines(oriel_kernel_bytes(&call->buffers[i]) + 1); /* none begins where another ends */
    }
    return at;
}

static uint64_t *places_of(char *area, int n)
{
    return (uint64_t *)(void *)(area + lines(ORIEL_BOARD_BYTES(n)));
}

/* A kernel knows its buffers by their addresses, and others read an operand while its result is
 * written. So of what is there twice, or in place, the first alone is used where it lies. */
static void keep_apart(oriel_kernel_call *call)
{
    for (int i = 0; i < call->num_buffers; i++) {
        kernel_buffer *later = &call->buffers[i];

        for (int k = 0; k < i && later->in_window; k++) {
            const kernel_buffer *first = &call->buffers[k];

            if (first->in_window && first->at < later->at + oriel_kernel_bytes(later) &&
                later->at < first->at + oriel_kernel_bytes(first))
                later->in_window = 0;
        }
    }
}

/* What is in a window is used there. */
static oriel_status find_windows(oriel_request *request)
{
    oriel_kernel_call *call = request->op.kernel;

    for (int i = 0; i < call->num_buffers; i++) {
        kernel_buffer *buffer = &call->buffers[i];
        oriel_status st =
            oriel_window_place(request->comm, request->rank, buffer->data,
                               oriel_kernel_bytes(buffer), &buffer->in_window, &buffer->at);

        if (st != ORIEL_OK)
            return oriel_fail_in(
                st, "%s %d of kernel %s", i < call->num_operands ? "operand" : "result",
                i < call->num_operands ? i : i - call->num_operands, call->kernel->name);
    }
    keep_apart(call);
    return ORIEL_OK;
}

/* Between the caller's memory and the area. What does not fit the caches goes past them:
 * every rank has it twice. */
static void copy(const oriel_kernel_call *call, void *to, const void *from, size_t bytes)
{
    if (2 * (size_t)call->group->n * call->custom.bytes > call->comm->cache)
        oriel_copy_stream(to, from, bytes);
    else
        oriel_copy(to, from, bytes);
}

static oriel_status expose_area(oriel_request *request, heap_member *member)
{
    oriel_kernel_call *call = request->op.kernel;
    oriel_status st = find_windows(request);
    uint64_t *places;
    char *base;

    if (st == ORIEL_OK)
        st = oriel_arena_take(request->comm, request->rank, lay_out(call, request->group->n),
                              &call->area);
    if (st != ORIEL_OK)
        return st;
    base = oriel_arena_at(request->comm, request->rank, call->area.at);
    memset(base, 0, ORIEL_BOARD_BYTES(request->group->n));
    places = places_of(base, request->group->n);
    for (int i = 0; i < call->num_buffers; i++) {
        kernel_buffer *buffer = &call->buffers[i];

        places[i] = buffer->in_window ? buffer->at : call->area.at + buffer->at;
        if (i < call->num_operands && !buffer->in_window)
            copy(call, base + buffer->at, buffer->data, oriel_kernel_bytes(buffer));
    }
    member->send = (const void *)(uintptr_t)call->area.at;
    return ORIEL_OK;
}

static oriel_status kernel_expose(oriel_request *request)
{
    oriel_kernel_call *call = request->op.kernel;
    heap_member *member = &oriel_heap_members(&request->comm->heap, request->cell)[request->index];

    call->comm = request->comm;
    call->group = request->group;
    call->cell = request->cell;
    call->member = member;
    for (int i = call->num_operands; i < call->num_buffers; i++)
        oriel_transfer_advise(call->buffers[i].data, oriel_kernel_bytes(&call->buffers[i]));
    call->deadline = request->begun + request->comm->timeout;
    if (!request->group->one_process)
        return expose_area(request, member);
    member->send = call;
    return ORIEL_OK;
}

/* Fills in where member `r` has everything. */
static void connect_member(oriel_kernel_call *call, const heap_member *member, int r)
{
    int n = call->group->n;
    const oriel_kernel_call *theirs = member->send;
    char *base;

    if (call->group->one_process) {
        call->boards[r] = theirs->board;
        for (int i = 0; i < call->num_buffers; i++)
            call->peers[i * n + r] = theirs->buffers[i].data;
        return;
    }
    base = oriel_arena_at(call->comm, call->group->ranks[r], (size_t)(uintptr_t)member->send);
    call->boards[r] = (oriel_board *)(void *)base;
    for (int i = 0; i < call->num_buffers; i++)
        call->peers[i * n + r] =
            oriel_arena_at(call->comm, call->group->ranks[r], places_of(base, n)[i]);
}

static void connect_all(oriel_request *request)
{
    oriel_kernel_call *call = request->op.kernel;
    const heap_member *members = oriel_heap_members(&request->comm->heap, request->cell);
    int n = request->group->n;

    for (int r = 0; r < n; r++)
        connect_member(call, &members[r], r);
    for (int i = 0; i < call->num_buffers; i++)
        call->reach[i] = (oriel_buffer){
            .bytes = oriel_kernel_bytes(&call->buffers[i]),
            .peers = call->peers + i * n,
        };
    call->frame.rank = request->index;
    call->frame.size = n;
    call->frame.num_buffers = (uint32_t)call->num_buffers;
    call->frame.num_operands = (uint32_t)call->num_operands;
    call->frame.buffers = call->reach;
    call->frame.boards = call->boards;
    call->frame.calls = &oriel_team_calls_host;
    call->frame.inner = call;
}

/* ---- running ------------------------------------------------------------------------------ */

/* The last thread to end takes the claim back: from then on this rank touches nobody's
 * memory. After `ended` the call may be gone. */
static void run_thread(crew_task *task)
{
    kernel_thread *thread = (kernel_thread *)(void *)task;
    oriel_kernel_call *call = thread->call;
    oriel_comm *comm = call->comm;

    call->kernel->entry(&thread->team);
    if (atomic_fetch_sub(&call->running, 1) != 1)
        return;
    oriel_cell_release(call->cell);
    atomic_store(&call->ended, 1);
    oriel_comm_ring(comm, comm->process);
}

/* Threads get their numbers, and begin, in an order that differs from call to call: a
 * kernel that works in one order alone shows it. */
static oriel_status start(oriel_request *request)
{
    oriel_kernel_call *call = request->op.kernel;
    uint64_t dice =
        oriel_mix(call->custom.identity ^ request->key.count ^ (uint64_t)request->index);
    uint32_t n = (uint32_t)call->num_threads;
    oriel_status st;

    for (uint32_t i = 0; i < n; i++) {
        kernel_thread *thread = &call->threads[i];

        thread->task.run = run_thread;
        thread->task.next = i + 1 < n ? &call->threads[i + 1].task : NULL;
        thread->call = call;
        thread->team.frame = &call->frame;
        thread->team.thread = i;
        thread->team.threads = n;
    }
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t other = (uint32_t)((dice = oriel_mix(dice)) % (i + 1));
        uint32_t number = call->threads[i].team.thread;

        call->threads[i].team.thread = call->threads[other].team.thread;
        call->threads[other].team.thread = number;
    }
    atomic_store(&call->running, n);
    st = oriel_crew_start(call->crew, &call->threads[0].task, call->num_threads);
    call->started = st == ORIEL_OK;
    return st;
}

static oriel_status give_up(oriel_request *request, oriel_status st)
{
    oriel_cell_revoke(request->cell);
    oriel_comm_abort(request->comm, st, request->rank, request->comm->process, "rank %d: %s",
                     request->rank, oriel_last_error());
    oriel_group_ring(request->group);
    return ORIEL_ERR_REVOKED;
}

/* What the kernel itself did wrong. */
static oriel_status check_trouble(const oriel_kernel_call *call)
{
    const char *name = call->kernel->name;
    long long value = (long long)atomic_load(&call->trouble_value);

    switch (atomic_load(&call->trouble)) {
    case ORIEL_TROUBLE_NONE:
        return oriel_host_op_outcome(call);
    case ORIEL_TROUBLE_POINTER:
        return oriel_fail(ORIEL_ERR_INVALID,
                          "kernel %s asked about a pointer that is in none of its operands and "
                          "results",
                          name);
    case ORIEL_TROUBLE_RANK:
        return oriel_fail(ORIEL_ERR_INVALID, "kernel %s named rank %lld of %d", name, value,
                          call->group->n);
    default:
        return oriel_fail(ORIEL_ERR_INVALID, "kernel %s named signal %lld of %d", name, value,
                          (int)ORIEL_SIGNALS);
    }
}

static void copy_out(const oriel_request *request)
{
    const oriel_kernel_call *call = request->op.kernel;
    const char *base;

    if (request->group->one_process)
        return;
    base = oriel_arena_at(request->comm, request->rank, call->area.at);
    for (int i = call->num_operands; i < call->num_buffers; i++) {
        if (!call->buffers[i].in_window)
            copy(call, call->buffers[i].data, base + call->buffers[i].at,
                 oriel_kernel_bytes(&call->buffers[i]));
    }
}

static oriel_status begin(oriel_request *request)
{
    oriel_status st;

    /* A call that cannot succeed reads nothing that others may be leaving half done. */
    if (oriel_comm_aborted(request->comm))
        oriel_cell_revoke(request->cell);
    if (!oriel_cell_claim(request->cell))
        return ORIEL_ERR_REVOKED;
    connect_all(request);
    st = start(request);
    if (st == ORIEL_OK)
        return ORIEL_IN_PROGRESS;
    oriel_cell_release(request->cell);
    return give_up(request, st);
}

static oriel_status kernel_step(oriel_request *request)
{
    oriel_kernel_call *call = request->op.kernel;
    cell_view seen;
    oriel_status st;

    if (!call->started)
        return begin(request);
    if (!atomic_load(&call->ended)) /* once it has failed there is only that to wait for */
        return oriel_cell_look(request->cell).revoked ? ORIEL_ERR_REVOKED : ORIEL_IN_PROGRESS;
    if (!call->counted) {
        /* Its waits were cut short, so what it has done is nothing to go by. */
        if (oriel_comm_aborted(request->comm))
            return oriel_cell_revoke(request->cell) ? ORIEL_ERR_REVOKED : ORIEL_IN_PROGRESS;
        st = check_trouble(call);
        if (st != ORIEL_OK)
            return give_up(request, st);
        atomic_store(
            &oriel_heap_members(&request->comm->heap, request->cell)[request->index].published, 1);
        if (!oriel_cell_finish(request->cell, 1))
            return ORIEL_ERR_REVOKED;
        call->counted = 1;
        request->published = 1;
        oriel_group_ring(request->group);
    }
    seen = oriel_cell_look(request->cell);
    if (seen.revoked)
        return ORIEL_ERR_REVOKED;
    if (seen.finished < request->record.n)
        return ORIEL_IN_PROGRESS;
    copy_out(request);
    oriel_arena_give(request->comm, request->rank, &call->area);
    return ORIEL_OK;
}

/* ---- failing ------------------------------------------------------------------------------ */

static int kernel_quiet(const oriel_request *request)
{
    oriel_kernel_call *call = request->op.kernel;
    int mine = !call->started || atomic_load(&call->ended);

    if (mine && (!request->group->one_process || request->cell == NULL ||
                 oriel_cell_look(request->cell).active == 0))
        return 1;
    if (!call->complained &&
        oriel_now() - request->begun > request->comm->timeout + COMPLAIN_AFTER_S) {
        call->complained = 1;
        oriel_log(ORIEL_LOG_ERROR,
                  "kernel %s does not return, though its waits do since it failed; rank %d waits "
                  "for it",
                  call->kernel->name, request->rank);
    }
    return 0;
}

/* The area is given back as well: peers may still write there, but a rank that takes it
 * now is in a call that fails, since the comm is revoked. */
static void kernel_fail(oriel_request *request)
{
    oriel_kernel_call *call = request->op.kernel;

    for (int i = call->num_operands; i < call->num_buffers; i++)
        oriel_poison(call->buffers[i].data, call->buffers[i].count, call->buffers[i].dtype);
    oriel_arena_give(request->comm, request->rank, &call->area);
}

static void kernel_describe(const oriel_request *request, char *out, size_t len)
{
    const heap_member *members = oriel_heap_members(&request->comm->heap, request->cell);
    uint64_t waits = 0;
    int who = -1;

    /* The first that has not ended; rather one that waits for a signal. */
    for (int r = 0; r < request->group->n; r++) {
        uint64_t theirs = atomic_load_explicit(&members[r].waits, memory_order_relaxed);

        if (atomic_load(&members[r].published) == 0 && (who < 0 || (waits < 2 && theirs >= 2))) {
            who = r;
            waits = theirs;
        }
    }
    if (who < 0)
        snprintf(out, len, "all ranks came, but the kernel did not end on all");
    else if (waits == 0)
        snprintf(out, len, "rank %d runs on", request->group->ranks[who]);
    else if (waits == 1)
        snprintf(out, len, "rank %d waits in oriel_barrier_all", request->group->ranks[who]);
    else
        snprintf(
            out, len, "rank %d waits in oriel_wait for signal %d to reach %llu, it is %llu",
            request->group->ranks[who], (int)((waits - 2) & 0xff),
            (unsigned long long)((waits - 2) >> 8),
            (unsigned long long)atomic_load_explicit(&members[who].seen, memory_order_relaxed));
}

static void kernel_destroy(oriel_custom *custom)
{
    oriel_kernel_call_destroy((oriel_kernel_call *)(void *)custom);
}

static const struct oriel_custom_moves moves = {
    .expose = kernel_expose,
    .step = kernel_step,
    .quiet = kernel_quiet,
    .fail = kernel_fail,
    .describe = kernel_describe,
    .destroy = kernel_destroy,
};
