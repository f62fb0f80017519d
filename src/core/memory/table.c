#include "core/memory/table.h"

#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/math.h"
#include "base/sys.h"
#include "core/memory/arena.h"
#include "core/world/trace.h"

static heap_table *table_of(const oriel_comm *comm)
{
    return &oriel_memory(&comm->heap)->table;
}

/* Held for a few hundred instructions. Of a process that dies with it the comm hears, and of one
 * that is stopped the others' deadline does. */
static oriel_status lock(oriel_comm *comm)
{
    heap_table *table = table_of(comm);
    double deadline = oriel_now() + comm->timeout;
    uint32_t nobody = 0;

    while (!atomic_compare_exchange_weak(&table->owner, &nobody, (uint32_t)comm->process + 1)) {
        if (oriel_comm_aborted(comm))
            return oriel_comm_failure(comm);
        if (oriel_now() > deadline)
            return oriel_fail(ORIEL_ERR_TIMEOUT,
                              "process %u has had the table of windows for %.1f s", nobody - 1,
                              comm->timeout);
        oriel_relax(1);
        nobody = 0;
    }
    return ORIEL_OK;
}

static void unlock(oriel_comm *comm)
{
    atomic_store(&table_of(comm)->owner, 0);
}

/* ---- stretches: under the lock ------------------------------------------------------- */

/* So many bytes that an eighth more would be too many: then what is freed fits again. */
static uint64_t room_for(uint64_t bytes, unsigned *class_p)
{
    uint64_t pages = oriel_divide_up(bytes, HEAP_PAGE);
    unsigned power = pages < 8 ? 0 : 60 - (unsigned)__builtin_clzll(pages); /* of the step */
    uint64_t steps = oriel_divide_up(pages, 1ull << power);                 /* 1 to 16 */

    *class_p = 8 * power + (unsigned)steps;
    return (steps << power) * HEAP_PAGE;
}

/* One that has been used, of this class or the next larger ones. */
static heap_window *take_free(heap_table *table, unsigned class)
{
    for (unsigned c = class; c < class + 8 && c < TABLE_CLASSES; c++) {
        if (table->free[c] != 0) {
            heap_window *window = &table->windows[table->free[c] - 1];

            table->free[c] = window->next;
            return window;
        }
    }
    return NULL;
}

static heap_window *take(oriel_comm *comm, size_t bytes)
{
    heap_table *table = table_of(comm);
    uint64_t most = oriel_memory(&comm->heap)->window_bytes;
    unsigned class;
    uint64_t room = room_for(bytes + 1, &class); /* none begins where another ends */
    heap_window *window = take_free(table, class);

    if (window != NULL)
        return window;
    if (table->used == TABLE_WINDOWS) {
        oriel_fail(ORIEL_ERR_NO_RESOURCE, "a world has at most %d windows", TABLE_WINDOWS);
        return NULL;
    }
    if (room > most - table->end) {
        oriel_fail(ORIEL_ERR_NO_RESOURCE,
                   "a window of %zu bytes: of the %llu of ORIEL_WINDOWS %llu are left", bytes,
                   (unsigned long long)most, (unsigned long long)(most - table->end));
        return NULL;
    }
    window = &table->windows[table->used++];
    window->at = table->end;
    window->room = room;
    table->end += room;
    return window;
}

static void give(heap_table *table, heap_window *window)
{
    unsigned class;

    room_for(window->room, &class);
    window->number = 0;
    window->next = table->free[class];
    table->free[class] = (uint32_t)(window - table->windows) + 1;
}

int oriel_table_let_go(heap_window *window)
{
    return atomic_fetch_sub(&window->held, 1) == 1;
}

void oriel_table_give(oriel_comm *comm, heap_window *window)
{
    if (lock(comm) != ORIEL_OK)
        return; /* the comm makes no more windows */
    give(table_of(comm), window);
    unlock(comm);
}

/* ---- meetings ------------------------------------------------------------------------- */

static void fail_meeting(heap_meeting *meeting, oriel_status status)
{
    if (meeting->status != ORIEL_OK)
        return;
    meeting->status = (uint32_t)status;
    snprintf(meeting->text, sizeof meeting->text, "%s", oriel_last_error());
}

/* The first to come: whatever it finds, the others hear of it at the end. */
static void begin(oriel_group *group, heap_meeting *meeting, uint64_t key, size_t bytes)
{
    heap_table *table = table_of(group->comm);
    heap_window *window = take(group->comm, bytes);

    meeting->key = key;
    meeting->bytes = bytes;
    meeting->process = group->comm->process;
    meeting->status = ORIEL_OK;
    meeting->window = TABLE_WINDOWS;
    atomic_store(&meeting->come, 0);
    atomic_store(&meeting->heard, 0);
    for (int i = 0; i < TABLE_PROCS; i++)
        atomic_store(&meeting->who[i], 0);
    if (window == NULL) {
        fail_meeting(meeting, ORIEL_ERR_NO_RESOURCE);
        return;
    }
    window->number = ++table->numbers;
    window->bytes = bytes;
    window->process = group->comm->process;
    atomic_store(&window->held, (uint32_t)group->num_procs);
    meeting->window = (uint32_t)(window - table->windows);
}

/* The one with this key; else a free one, or NULL. */
static heap_meeting *find(heap_table *table, uint64_t key)
{
    heap_meeting *free = NULL;

    for (int i = 0; i < TABLE_MEETINGS; i++) {
        if (table->meetings[i].key == key)
            return &table->meetings[i];
        if (table->meetings[i].key == 0)
            free = &table->meetings[i];
    }
    return free;
}

static oriel_status enter(oriel_group *group, uint64_t key, size_t bytes, heap_meeting **meeting_p)
{
    oriel_comm *comm = group->comm;
    heap_meeting *meeting;
    oriel_status st = lock(comm);

    if (st != ORIEL_OK)
        return st;
    meeting = find(table_of(comm), key);
    if (meeting != NULL && meeting->key == 0) {
        begin(group, meeting, key, bytes);
    } else if (meeting != NULL && meeting->bytes != bytes) {
        oriel_fail(ORIEL_ERR_MISMATCH, "window of %zu bytes on process %d, of %llu on process %d",
                   bytes, comm->process, (unsigned long long)meeting->bytes, (int)meeting->process);
        fail_meeting(meeting, ORIEL_ERR_MISMATCH);
    }
    unlock(comm);
    *meeting_p = meeting;
    return meeting != NULL ? ORIEL_OK : ORIEL_IN_PROGRESS;
}

oriel_status oriel_table_come(oriel_group *group, uint64_t key, size_t bytes,
                              heap_meeting **meeting_p)
{
    double deadline = oriel_now() + group->comm->timeout;
    oriel_waiter waiter = {0};
    oriel_status st;

    while ((st = enter(group, key, bytes, meeting_p)) == ORIEL_IN_PROGRESS) {
        if (oriel_now() > deadline)
            st = oriel_fail(ORIEL_ERR_TIMEOUT, "%d windows are being made for %.1f s",
                            TABLE_MEETINGS, group->comm->timeout);
        if (st != ORIEL_IN_PROGRESS)
            break;
        oriel_comm_pause(group->comm, &waiter);
    }
    oriel_waiter_end(group->comm, &waiter);
    return st;
}

/* The first process of the group that is not ready. */
static int missing(const oriel_group *group, const heap_meeting *meeting)
{
    for (int i = 0; i < group->num_procs; i++) {
        int p = group->procs[i];

        if (!(atomic_load(&meeting->who[p / 64]) >> p % 64 & 1))
            return p;
    }
    return -1;
}

static void revoke_late(oriel_group *group, const heap_meeting *meeting, int late)
{
    oriel_comm *comm = group->comm;
    char last[200];

    oriel_trace_describe(comm, comm->heap.procs[late].first_rank, last, sizeof last);
    oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, -1, late,
                     "process %d was making a window of %llu bytes, to which process %d did not "
                     "come within %.1f s; rank %d: %s",
                     comm->process, (unsigned long long)meeting->bytes, late, comm->timeout,
                     comm->heap.procs[late].first_rank, last);
}

/* ORIEL_IN_PROGRESS while some have not come. */
static oriel_status look(oriel_group *group, const heap_meeting *meeting, double deadline)
{
    oriel_comm *comm = group->comm;
    int absent = missing(group, meeting);

    if (atomic_load(&meeting->come) == (uint32_t)group->num_procs)
        return ORIEL_OK;
    if (oriel_comm_aborted(comm))
        return oriel_comm_failure(comm);
    if (absent >= 0 && oriel_comm_cannot_call(comm, absent) && missing(group, meeting) == absent)
        oriel_comm_abort_missing(comm, absent, comm->first_rank, "the making of a window");
    else if (oriel_interrupted())
        oriel_comm_abort(comm, oriel_interrupt_fail(), comm->first_rank, comm->process,
                         "process %d (pid %d): %s", comm->process, comm->pid, oriel_last_error());
    else if (oriel_now() > deadline)
        revoke_late(group, meeting, absent >= 0 ? absent : comm->process);
    else
        return ORIEL_IN_PROGRESS;
    return oriel_comm_failure(comm);
}

static oriel_status wait(oriel_group *group, const heap_meeting *meeting)
{
    double deadline = oriel_now() + group->comm->timeout;
    oriel_waiter waiter = {0};
    oriel_status st;

    while ((st = look(group, meeting, deadline)) == ORIEL_IN_PROGRESS)
        oriel_comm_pause(group->comm, &waiter);
    oriel_waiter_end(group->comm, &waiter);
    return st;
}

/* What came of it. The last to hear ends the meeting; nobody has a window that failed. */
static oriel_status outcome(oriel_group *group, heap_meeting *meeting, heap_window **window_p)
{
    oriel_comm *comm = group->comm;
    heap_table *table = table_of(comm);
    uint32_t index = meeting->window;
    oriel_status st = ORIEL_OK;

    if (meeting->status != ORIEL_OK)
        st = oriel_fail((oriel_status)meeting->status, "%s", meeting->text);
    else
        *window_p = &table->windows[index];
    if (atomic_fetch_add(&meeting->heard, 1) + 1 < (uint32_t)group->num_procs)
        return st;
    if (lock(comm) != ORIEL_OK)
        return oriel_comm_failure(comm);
    if (st != ORIEL_OK && index < TABLE_WINDOWS)
        give(table, &table->windows[index]);
    meeting->key = 0;
    unlock(comm);
    oriel_comm_ring_all(comm); /* one may wait for a meeting */
    return st;
}

oriel_status oriel_table_meet(oriel_group *group, heap_meeting *meeting, oriel_status mine,
                              heap_window **window_p)
{
    oriel_comm *comm = group->comm;
    char why[HEAP_TEXT] = "";
    oriel_status st;

    if (mine != ORIEL_OK) {
        snprintf(why, sizeof why, "process %d: %s", comm->process, oriel_last_error());
        st = lock(comm);
        if (st != ORIEL_OK)
            return st;
        oriel_fail(mine, "%s", why);
        fail_meeting(meeting, mine);
        unlock(comm);
    }
    atomic_fetch_or(&meeting->who[comm->process / 64], 1ull << comm->process % 64);
    if (atomic_fetch_add(&meeting->come, 1) + 1 == (uint32_t)group->num_procs)
        oriel_group_ring(group);
    st = wait(group, meeting);
    return st == ORIEL_OK ? outcome(group, meeting, window_p) : st;
}
