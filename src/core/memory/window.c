#include "core/memory/window.h"

#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/sys.h"
#include "core/memory/arena.h"

/* ---- those of this process, by address: under comm->lock ---------------------------- */

/* The first that does not lie before `at`. */
static int place_of(const oriel_comm *comm, size_t at)
{
    int begin = 0;
    int end = comm->num_windows;

    while (begin < end) {
        int middle = (begin + end) / 2;

        if (comm->windows[middle]->at + comm->windows[middle]->shared->room <= at)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* Room for one more than have been promised room. */
static oriel_status enlarge(oriel_comm *comm)
{
    oriel_window **more;
    int room = comm->room_windows == 0 ? 16 : 2 * comm->room_windows;

    if (comm->num_windows + comm->promised_windows < comm->room_windows)
        return ORIEL_OK;
    more = oriel_sys_now->alloc((size_t)room * sizeof *more);
    if (more == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %d windows", room);
    if (comm->windows != NULL)
        memcpy(more, comm->windows, (size_t)comm->num_windows * sizeof *more);
    oriel_sys_now->release(comm->windows);
    comm->windows = more;
    comm->room_windows = room;
    return ORIEL_OK;
}

static oriel_status promise(oriel_comm *comm)
{
    oriel_status st;

    pthread_mutex_lock(&comm->lock);
    st = enlarge(comm);
    comm->promised_windows += st == ORIEL_OK;
    pthread_mutex_unlock(&comm->lock);
    return st;
}

/* What has been promised is kept, by a window, or not needed: NULL. */
static void keep(oriel_comm *comm, oriel_window *window)
{
    int place;

    pthread_mutex_lock(&comm->lock);
    comm->promised_windows--;
    if (window != NULL) {
        place = place_of(comm, window->at);
        memmove(&comm->windows[place + 1], &comm->windows[place],
                (size_t)(comm->num_windows - place) * sizeof(oriel_window *));
        comm->windows[place] = window;
        comm->num_windows++;
    }
    pthread_mutex_unlock(&comm->lock);
}

static void drop(oriel_window *window)
{
    oriel_comm *comm = window->comm;
    int place;

    pthread_mutex_lock(&comm->lock);
    place = place_of(comm, window->at);
    comm->num_windows--;
    memmove(&comm->windows[place], &comm->windows[place + 1],
            (size_t)(comm->num_windows - place) * sizeof(oriel_window *));
    pthread_mutex_unlock(&comm->lock);
}

void oriel_windows_free(oriel_comm *comm)
{
    for (int i = 0; i < comm->num_windows; i++)
        oriel_sys_now->release(comm->windows[i]);
    oriel_sys_now->release(comm->windows);
}

/* ---- making and letting go -------------------------------------------------------------- */

/* Not the bytes: what is wrong with them on one process all are told. */
static oriel_status check_arguments(const oriel_group *group, oriel_window *const *window_p)
{
    if (group == NULL || window_p == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "%s is NULL", group == NULL ? "group" : "window_p");
    if (group->spans)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "a window of a group on %u machines: host memory is shared within one "
                          "machine (between machines it will need UCX)",
                          group->comm->heap.header->num_machines);
    for (int i = 0; i < group->num_procs; i++) {
        if (group->procs[i] == group->comm->process)
            return ORIEL_OK;
    }
    return oriel_fail(ORIEL_ERR_INVALID, "process %d has no rank in the group of the window",
                      group->comm->process);
}

/* What this process needs, in *window_p as far as it got; on success it has promised room. */
static oriel_status prepare(oriel_group *group, size_t bytes, oriel_window **window_p)
{
    oriel_window *window =
        oriel_sys_now->alloc(sizeof *window + (size_t)group->n * sizeof window->ranks[0]);
    oriel_status st;

    *window_p = window;
    if (window == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a window");
    window->comm = group->comm;
    window->bytes = bytes;
    window->n = group->n;
    memcpy(window->ranks, group->ranks, (size_t)group->n * sizeof window->ranks[0]);
    st = oriel_arena_open(group->comm);
    return st == ORIEL_OK ? promise(group->comm) : st;
}

/* The last to let go gives back the pages of all members' parts: what is read next is zero. */
static void let_go(oriel_window *window)
{
    oriel_comm *comm = window->comm;

    if (!oriel_table_let_go(comm, window->shared))
        return;
    for (int i = 0; i < window->n; i++)
        oriel_sys_now->forget(oriel_arena_at(comm, window->ranks[i], window->at),
                              window->shared->room);
    if (oriel_table_lock(comm) != ORIEL_OK)
        return; /* the comm makes no more windows */
    oriel_table_give(comm, window->shared);
    oriel_table_unlock(comm);
}

oriel_status oriel_window_create(oriel_group *group, size_t bytes, oriel_window **window_p)
{
    oriel_window *window = NULL;
    heap_meeting *meeting;
    heap_window *shared;
    uint64_t key;
    oriel_status mine;
    oriel_status st = check_arguments(group, window_p);

    if (st != ORIEL_OK)
        return st;
    if (oriel_comm_aborted(group->comm))
        return oriel_comm_failure(group->comm);
    key = oriel_mix(group->hash ^ oriel_mix(atomic_fetch_add(&group->windows, 1))) | 1;
    st = oriel_making_come(group, key, bytes, &meeting);
    if (st != ORIEL_OK)
        return st;
    mine = prepare(group, bytes, &window);
    st = oriel_making_end(group, meeting, mine, &shared);
    if (st == ORIEL_OK) {
        window->shared = shared;
        window->number = shared->number;
        window->at = oriel_memory(&group->comm->heap)->area_bytes + shared->at;
        *window_p = window;
    }
    if (mine == ORIEL_OK)
        keep(group->comm, st == ORIEL_OK ? window : NULL);
    if (st != ORIEL_OK)
        oriel_sys_now->release(window);
    return st;
}

void oriel_window_free(oriel_window *window)
{
    /* A forked child has the object, but does not hold the window. */
    if (window == NULL || window->comm->pid != (int)getpid())
        return;
    drop(window);
    let_go(window);
    oriel_sys_now->release(window);
}

/* ---- looking ------------------------------------------------------------------------------ */

size_t oriel_window_bytes(const oriel_window *window)
{
    return window ? window->bytes : 0;
}

uint64_t oriel_window_number(const oriel_window *window)
{
    return window ? window->number : 0;
}

static int is_member(const oriel_window *window, int rank)
{
    for (int i = 0; i < window->n; i++) {
        if (window->ranks[i] == rank)
            return 1;
    }
    return 0;
}

oriel_status oriel_window_ptr(const oriel_window *window, int rank, void **ptr_p)
{
    if (window == NULL || ptr_p == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "%s is NULL", window == NULL ? "window" : "ptr_p");
    if (rank < 0 || rank >= window->comm->size)
        return oriel_fail(ORIEL_ERR_INVALID, "rank is %d in a world of %d", rank,
                          window->comm->size);
    if (!is_member(window, rank))
        return oriel_fail(ORIEL_ERR_INVALID, "rank is %d, which has no part of the window", rank);
    *ptr_p = oriel_arena_at(window->comm, rank, window->at);
    return ORIEL_OK;
}

/* The one that has the byte `at` of each rank's part; NULL: none. */
static oriel_window *find(oriel_comm *comm, size_t at)
{
    oriel_window *found = NULL;
    int place;

    pthread_mutex_lock(&comm->lock);
    place = place_of(comm, at);
    if (place < comm->num_windows && at >= comm->windows[place]->at &&
        at - comm->windows[place]->at < comm->windows[place]->bytes)
        found = comm->windows[place];
    pthread_mutex_unlock(&comm->lock);
    return found;
}

oriel_status oriel_window_find(oriel_comm *comm, const void *addr, oriel_window **window_p,
                               int *rank_p, size_t *offset_p)
{
    oriel_window *found = NULL;
    int rank = 0;
    size_t at = 0;

    if (comm == NULL || window_p == NULL || rank_p == NULL || offset_p == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "comm or an output argument is NULL");
    if (oriel_arena_find(comm, addr, &rank, &at))
        found = find(comm, at);
    if (found == NULL || !is_member(found, rank))
        return oriel_fail(ORIEL_ERR_INVALID, "address %p belongs to no window of this comm", addr);
    *window_p = found;
    *rank_p = rank;
    *offset_p = at - found->at;
    return ORIEL_OK;
}

oriel_status oriel_window_place(oriel_comm *comm, int rank, const void *addr, size_t bytes,
                                int *inside_p, size_t *at_p)
{
    const oriel_window *window;
    int owner = -1;
    size_t at = 0;

    *inside_p = 0;
    if (bytes == 0 || !oriel_arena_find(comm, addr, &owner, &at))
        return ORIEL_OK;
    window = find(comm, at);
    if (window == NULL || !is_member(window, owner))
        return oriel_fail(ORIEL_ERR_INVALID,
                          "it lies at %p, among the windows of rank %d, but in none that is held: "
                          "it was freed",
                          addr, owner);
    if (bytes > window->bytes - (at - window->at))
        return oriel_fail(ORIEL_ERR_INVALID, "it has %zu bytes, of which window %llu holds %zu",
                          bytes, (unsigned long long)window->number,
                          window->bytes - (at - window->at));
    if (owner != rank)
        return ORIEL_OK;
    *inside_p = 1;
    *at_p = at;
    return ORIEL_OK;
}
