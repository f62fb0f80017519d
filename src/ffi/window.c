/* Windows as Python has them, and the two custom calls that read and write one: XLA knows of
 * neither, since to XLA what an operand has never changes. */
#include "ffi/window.h"

#include <string.h>

#include "base/sys.h"
#include "core/memory/arena.h"
#include "core/memory/window.h"
#include "core/protocol/group.h"
#include "ffi/attached.h"

struct oriel_ffi_window {
    oriel_window *window;   /* the comm's: gone with it */
    arena_mapping *mapping; /* what arrays of JAX's lie in */
    uint64_t world;         /* which of all that were attached it is of */
};

/* ---- making and letting go ---------------------------------------------------------------- */

oriel_status oriel_ffi_window_create(oriel_comm *comm, const int *ranks, int n, uint64_t bytes,
                                     oriel_ffi_window **window_p)
{
    oriel_group *group;
    oriel_window *window;
    oriel_ffi_window *made;
    oriel_status st = oriel_group_intern(comm, ranks, n, &group);

    if (st == ORIEL_OK)
        st = oriel_window_create(group, bytes, &window);
    if (st != ORIEL_OK)
        return st;
    made = oriel_sys_now->alloc(sizeof *made);
    if (made == NULL) {
        oriel_window_free(window);
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a window");
    }
    made->window = window;
    made->mapping = oriel_arena_hold(comm);
    made->world = atomic_load(&oriel_attached.world);
    *window_p = made;
    return ORIEL_OK;
}

/* The caller holds the lock. */
static int is_over(const oriel_ffi_window *window)
{
    return oriel_attached.comm == NULL || atomic_load(&oriel_attached.world) != window->world;
}

void oriel_ffi_window_release(oriel_ffi_window *window)
{
    if (window == NULL)
        return;
    pthread_rwlock_rdlock(&oriel_attached.lock);
    if (!is_over(window))
        oriel_window_free(window->window);
    pthread_rwlock_unlock(&oriel_attached.lock);
    oriel_arena_let_go(window->mapping);
    oriel_sys_now->release(window);
}

oriel_status oriel_ffi_window_look(const oriel_ffi_window *window, int rank, void **ptr_p,
                                   uint64_t *number_p)
{
    oriel_status st;

    pthread_rwlock_rdlock(&oriel_attached.lock);
    if (is_over(window)) {
        st = oriel_fail(ORIEL_ERR_INVALID,
                        "the window is of a world that has been finalized: make it anew");
    } else {
        st = oriel_window_ptr(window->window, rank, ptr_p);
        *number_p = oriel_window_number(window->window);
    }
    pthread_rwlock_unlock(&oriel_attached.lock);
    return st;
}

oriel_status oriel_ffi_window_find(const void *addr, uint64_t *number_p, int *rank_p,
                                   uint64_t *offset_p)
{
    oriel_window *window;
    size_t offset;
    oriel_status st = ORIEL_ERR_INVALID;

    pthread_rwlock_rdlock(&oriel_attached.lock);
    if (oriel_attached.comm != NULL)
        st = oriel_window_find(oriel_attached.comm, addr, &window, rank_p, &offset);
    if (st == ORIEL_OK) {
        *number_p = oriel_window_number(window);
        *offset_p = offset;
    }
    pthread_rwlock_unlock(&oriel_attached.lock);
    return st;
}

static oriel_status reads(oriel_comm *comm)
{
    if (comm->num_processes == 1 || oriel_group_reads(oriel_comm_world(comm)))
        return ORIEL_OK;
    for (int p = 0; p < comm->num_processes; p++) {
        if (!oriel_comm_is_here(comm, p))
            return oriel_fail(ORIEL_ERR_UNSUPPORTED, "process %d is on another machine", p);
    }
    if (!comm->heap.header->direct)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "ORIEL_DIRECT is 0, so that processes do not read "
                                                 "each other's memory");
    return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                      "the system does not let processes read each other's memory: they are of "
                      "several users or pid namespaces, or kernel.yama.ptrace_scope or a container "
                      "forbids it");
}

oriel_status oriel_ffi_reads(void)
{
    oriel_status st;

    pthread_rwlock_rdlock(&oriel_attached.lock);
    if (oriel_attached.comm == NULL)
        st = oriel_fail(ORIEL_ERR_INVALID, "there is no world: call oriel.init() first");
    else
        st = reads(oriel_attached.comm);
    pthread_rwlock_unlock(&oriel_attached.lock);
    return st;
}

/* ---- in a program --------------------------------------------------------------------------- */

oriel_status oriel_ffi_in_window(int rank, const void *addr, size_t bytes, const char *what)
{
    int inside;
    size_t at;
    oriel_status st = oriel_window_place(oriel_attached.comm, rank, addr, bytes, &inside, &at);

    if (st != ORIEL_OK)
        return oriel_fail_in(st, "%s on rank %d", what, rank);
    if (inside || bytes == 0)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_INVALID,
                      "%s on rank %d: XLA hands over %zu bytes at %p, which is in no window: pass "
                      "the window itself to the jitted function, not donated, and use it as it is",
                      what, rank, bytes, addr);
}

/* Operand 0 is the window, in full; `data` is what has as many bytes. Under the lock. */
static oriel_status check(const xla_frame *frame, const char *what, const xla_buffer *data,
                          int itself, size_t *bytes_p)
{
    const xla_buffer *window = frame->args.items[0];
    int ordinal;
    int rank;
    oriel_status st = oriel_xla_ordinal(frame, &ordinal);

    if (st != ORIEL_OK)
        return st;
    if (oriel_attached.comm == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "%s: oriel is not initialised; call oriel.init()",
                          what);
    rank = oriel_attached_rank(ordinal);
    if (rank < 0)
        return oriel_fail(ORIEL_ERR_INVALID, "%s: device %d is no rank of this world", what,
                          ordinal);
    *bytes_p = oriel_xla_bytes(window);
    if (window->dtype != data->dtype || *bytes_p != oriel_xla_bytes(data))
        return oriel_fail(ORIEL_ERR_INVALID,
                          "%s on rank %d: a window of %zu bytes of XLA dtype %d, and %zu bytes of "
                          "%d",
                          what, rank, *bytes_p, window->dtype, oriel_xla_bytes(data), data->dtype);
    return itself ? oriel_ffi_in_window(rank, window->data, *bytes_p, what) : ORIEL_OK;
}

/* The window and what is copied there or from there, both right. */
static oriel_status find(const xla_frame *frame, const char *what, const xla_buffer *data,
                         int itself, size_t *bytes_p)
{
    if (data == NULL || frame->args.size < 1 || frame->rets.size != 1)
        return oriel_fail(ORIEL_ERR_INVALID, "%s: the call has %lld operands and %lld results",
                          what, (long long)frame->args.size, (long long)frame->rets.size);
    return check(frame, what, data, itself, bytes_p);
}

static oriel_status store(const xla_frame *frame)
{
    const xla_buffer *value = frame->args.size > 1 ? frame->args.items[1] : NULL;
    size_t bytes;
    oriel_status st = find(frame, "oriel.store", value, 1, &bytes);

    if (st != ORIEL_OK)
        return st;
    memmove(((const xla_buffer *)frame->args.items[0])->data, value->data, bytes);
    return oriel_xla_ticket(frame);
}

static oriel_status load(const xla_frame *frame)
{
    const xla_buffer *value = frame->rets.size > 0 ? frame->rets.items[0] : NULL;
    size_t bytes;
    /* What comes after nothing may as well be a copy that XLA has made. */
    oriel_status st = find(frame, "oriel.load", value, frame->args.size > 1, &bytes);

    if (st == ORIEL_OK)
        memcpy(value->data, ((const xla_buffer *)frame->args.items[0])->data, bytes);
    return st;
}

static void *run(xla_frame *frame, oriel_status (*function)(const xla_frame *))
{
    oriel_status st;

    if (oriel_xla_answer_metadata(frame, 0, 0))
        return NULL;
    pthread_rwlock_rdlock(&oriel_attached.lock);
    st = function(frame);
    pthread_rwlock_unlock(&oriel_attached.lock);
    return st == ORIEL_OK ? NULL : oriel_xla_error(frame->api, st);
}

void *oriel_ffi_store(xla_frame *frame)
{
    return run(frame, store);
}

void *oriel_ffi_load(xla_frame *frame)
{
    return run(frame, load);
}
