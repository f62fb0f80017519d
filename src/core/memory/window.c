/* Windows: one segment for all ranks, made by the lead and fetched by the
 * others; rank r's part starts at r strides. */
#include <string.h>

#include "base/sys.h"
#include "base/math.h"
#include "core/memory/arena.h"
#include "core/memory/window.h"

static void add_window(oriel_comm *comm, oriel_window *window)
{
    pthread_mutex_lock(&comm->lock);
    window->next = comm->windows;
    comm->windows = window;
    pthread_mutex_unlock(&comm->lock);
}

static void window_free(oriel_window *window)
{
    oriel_comm *comm;
    oriel_window **link;

    if (window == NULL)
        return;
    comm = window->comm;
    pthread_mutex_lock(&comm->lock);
    for (link = &comm->windows; *link != NULL && *link != window; link = &(*link)->next) {
    }
    if (*link != NULL)
        *link = window->next;
    pthread_mutex_unlock(&comm->lock);
    comm->fabric->segment_close(&window->segment);
    oriel_sys_now->release(window);
}

void oriel_windows_free(oriel_comm *comm)
{
    while (comm->windows != NULL)
        window_free(comm->windows);
}

const oriel_segment *oriel_window_lookup(oriel_comm *comm, uint64_t id)
{
    const oriel_segment *found = NULL;

    pthread_mutex_lock(&comm->lock);
    for (const oriel_window *w = comm->windows; w != NULL; w = w->next) {
        if (w->id == id)
            found = &w->segment;
    }
    pthread_mutex_unlock(&comm->lock);
    return found;
}

/* The first to come writes its size, the others compare theirs with it. */
static oriel_status agree_bytes(oriel_comm *comm, size_t bytes)
{
    _Atomic uint64_t *asked = &oriel_memory(&comm->heap)->window_bytes;
    uint64_t none = 0;
    oriel_status st = ORIEL_OK;
    oriel_status next;

    if (!atomic_compare_exchange_strong(asked, &none, bytes) && none != bytes)
        st = oriel_fail(ORIEL_ERR_MISMATCH,
                        "window of %zu bytes on process %d, of %llu bytes on another", bytes,
                        comm->process, (unsigned long long)none);
    st = oriel_comm_agree(comm, st, comm->timeout);
    if (comm->process == 0)
        atomic_store(asked, 0);
    /* The next window's first request must come after that. */
    next = oriel_comm_agree(comm, ORIEL_OK, comm->timeout);
    return st != ORIEL_OK ? st : next;
}

/* The local object, and the segment on the lead, where the others can fetch it. */
static oriel_status window_new(oriel_comm *comm, size_t bytes, oriel_window **window_p)
{
    oriel_window *window = oriel_sys_now->alloc(sizeof *window);
    oriel_status st;

    if (window == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a window");
    window->comm = comm;
    window->bytes = bytes;
    window->stride = oriel_round_up(bytes, HEAP_PAGE);
    window->id = comm->windows_made;
    if (comm->process == 0) {
        st = comm->fabric->segment_create(window->stride * (size_t)comm->size, &window->segment);
        if (st != ORIEL_OK) {
            oriel_sys_now->release(window);
            return st;
        }
        add_window(comm, window);
    }
    *window_p = window;
    return ORIEL_OK;
}

static oriel_status window_fetch(oriel_window *window)
{
    oriel_comm *comm = window->comm;
    oriel_status st;

    if (comm->process == 0)
        return ORIEL_OK;
    st = comm->fabric->segment_fetch(&comm->lead, window->id, window->stride * (size_t)comm->size,
                                     comm->timeout, &window->segment);
    if (st != ORIEL_OK)
        return oriel_fail_in(st, "fetching a window from process 0");
    add_window(comm, window);
    return ORIEL_OK;
}

oriel_status oriel_window_create(oriel_comm *comm, size_t bytes, oriel_window **window_p)
{
    oriel_window *window = NULL;
    oriel_status st;

    if (comm == NULL || window_p == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "%s is NULL", comm == NULL ? "comm" : "window_p");
    if (bytes == 0 || bytes > (size_t)1 << 46)
        return oriel_fail(ORIEL_ERR_INVALID, "bytes is %zu; 1 to 2^46 are possible", bytes);
    if (comm->heap.header->num_machines > 1)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "a window of a world on %u machines: host memory is shared within one "
                          "machine (between machines it will need UCX)",
                          comm->heap.header->num_machines);
    st = agree_bytes(comm, bytes);
    if (st != ORIEL_OK)
        return st;
    /* Every process counts it, also where one fails: the number is how peers name the segment. */
    comm->windows_made++;
    st = oriel_comm_agree(comm, window_new(comm, bytes, &window), comm->timeout);
    if (st == ORIEL_OK)
        st = oriel_comm_agree(comm, window_fetch(window), comm->timeout);
    if (st != ORIEL_OK) {
        window_free(window);
        return st;
    }
    *window_p = window;
    return ORIEL_OK;
}

oriel_status oriel_window_destroy(oriel_window *window)
{
    oriel_status st;

    if (window == NULL)
        return ORIEL_OK;
    st = oriel_comm_agree(window->comm, ORIEL_OK, window->comm->timeout);
    window_free(window);
    return st;
}

size_t oriel_window_bytes(const oriel_window *window)
{
    return window ? window->bytes : 0;
}

oriel_status oriel_window_ptr(const oriel_window *window, int rank, void **ptr_p)
{
    if (window == NULL || ptr_p == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "%s is NULL", window == NULL ? "window" : "ptr_p");
    if (rank < 0 || rank >= window->comm->size)
        return oriel_fail(ORIEL_ERR_INVALID, "rank is %d in a world of %d", rank,
                          window->comm->size);
    *ptr_p = (char *)window->segment.base + (size_t)rank * window->stride;
    return ORIEL_OK;
}

oriel_status oriel_window_find(oriel_comm *comm, const void *addr, oriel_window **window_p,
                               int *rank_p, size_t *offset_p)
{
    oriel_status st = ORIEL_ERR_INVALID;

    if (comm == NULL || window_p == NULL || rank_p == NULL || offset_p == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "comm or an output argument is NULL");
    pthread_mutex_lock(&comm->lock);
    for (oriel_window *w = comm->windows; w != NULL; w = w->next) {
        uintptr_t at = (uintptr_t)addr - (uintptr_t)w->segment.base;

        if ((uintptr_t)addr < (uintptr_t)w->segment.base || at >= w->segment.bytes ||
            at % w->stride >= w->bytes)
            continue;
        *window_p = w;
        *rank_p = (int)(at / w->stride);
        *offset_p = at % w->stride;
        st = ORIEL_OK;
    }
    pthread_mutex_unlock(&comm->lock);
    return st == ORIEL_OK ? st
                          : oriel_fail(st, "address %p belongs to no window of this comm", addr);
}
