/* How the processes of a group make a window together. They meet in the table of the heap: the
 * first finds a stretch, each says when it is ready, or why it is not, and the last to hear what
 * came of it ends the meeting. One word decides: who gives up does so only while some have not
 * come, so that all have the window or nobody. */
#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/sys.h"
#include "core/memory/table.h"
#include "core/world/trace.h"

static void fail_meeting(heap_meeting *meeting, oriel_status status)
{
    if (meeting->status != ORIEL_OK)
        return;
    meeting->status = (uint32_t)status;
    snprintf(meeting->text, sizeof meeting->text, "%s", oriel_last_error());
}

/* ---- coming ------------------------------------------------------------------------------- */

static heap_window *take(oriel_group *group, size_t bytes, oriel_status *status_p)
{
    heap_window *window;

    if (bytes == 0 || bytes > (size_t)1 << 46) {
        *status_p = oriel_fail(ORIEL_ERR_INVALID, "bytes is %zu; 1 to 2^46 are possible", bytes);
        return NULL;
    }
    window = oriel_table_take(group, bytes);
    *status_p = window != NULL ? ORIEL_OK : ORIEL_ERR_NO_RESOURCE;
    return window;
}

/* The first to come: whatever it finds, the others hear of it at the end. */
static void begin(oriel_group *group, heap_meeting *meeting, size_t bytes)
{
    heap_table *table = oriel_table_of(group->comm);
    oriel_status st;
    const heap_window *window = take(group, bytes, &st);

    meeting->bytes = bytes;
    meeting->process = group->comm->process;
    meeting->status = ORIEL_OK;
    meeting->window = window != NULL ? (uint32_t)(window - table->windows) + 1 : 0;
    atomic_store(&meeting->come, 0);
    atomic_store(&meeting->heard, 0);
    for (int i = 0; i < TABLE_WORDS; i++)
        atomic_store_explicit(&meeting->who[i], 0, memory_order_relaxed);
    memset(meeting->members, 0, sizeof meeting->members);
    for (int i = 0; i < group->num_procs; i++)
        meeting->members[group->procs[i] / 64] |= 1ull << group->procs[i] % 64;
    if (st != ORIEL_OK)
        fail_meeting(meeting, st);
}

/* The place of this key; else a free one; else TABLE_MEETINGS. */
static int find(const heap_table *table, uint64_t key)
{
    int free = TABLE_MEETINGS;

    for (int i = 0; i < TABLE_MEETINGS; i++) {
        if (table->keys[i] == key)
            return i;
        if (table->keys[i] == 0 && free == TABLE_MEETINGS)
            free = i;
    }
    return free;
}

/* ORIEL_IN_PROGRESS: there is no place. */
static oriel_status enter(oriel_group *group, uint64_t key, size_t bytes, heap_meeting **meeting_p)
{
    oriel_comm *comm = group->comm;
    heap_table *table = oriel_table_of(comm);
    heap_meeting *meeting;
    oriel_status st = oriel_table_lock(comm);
    int place;

    if (st != ORIEL_OK)
        return st;
    place = find(table, key);
    if (place == TABLE_MEETINGS) {
        oriel_table_unlock(comm);
        return ORIEL_IN_PROGRESS;
    }
    meeting = &table->meetings[place];
    if (table->keys[place] == 0) {
        begin(group, meeting, bytes);
        table->keys[place] = key;
    } else if (meeting->bytes != bytes) {
        oriel_fail(ORIEL_ERR_MISMATCH, "window of %zu bytes on process %d, of %llu on process %d",
                   bytes, comm->process, (unsigned long long)meeting->bytes, (int)meeting->process);
        fail_meeting(meeting, ORIEL_ERR_MISMATCH);
    }
    oriel_table_unlock(comm);
    *meeting_p = meeting;
    return ORIEL_OK;
}

oriel_status oriel_making_come(oriel_group *group, uint64_t key, size_t bytes,
                               heap_meeting **meeting_p)
{
    oriel_comm *comm = group->comm;
    _Atomic uint32_t *waiting = &oriel_table_of(comm)->waiting;
    double deadline = oriel_now() + comm->timeout;
    oriel_waiter waiter = {0};
    oriel_status st = enter(group, key, bytes, meeting_p);

    if (st != ORIEL_IN_PROGRESS)
        return st;
    atomic_fetch_add(waiting, 1);
    while ((st = enter(group, key, bytes, meeting_p)) == ORIEL_IN_PROGRESS) {
        if (oriel_now() > deadline)
            oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, -1, comm->process,
                             "process %d found no place to make a window within %.1f s: %d are "
                             "being made",
                             comm->process, comm->timeout, TABLE_MEETINGS);
        oriel_comm_pause(comm, &waiter);
        if (oriel_comm_aborted(comm)) {
            st = oriel_comm_failure(comm);
            break;
        }
    }
    oriel_waiter_end(comm, &waiter);
    atomic_fetch_sub(waiting, 1);
    return st;
}

/* ---- waiting ------------------------------------------------------------------------------- */

int oriel_making_missing(const heap_meeting *meeting)
{
    for (int i = 0; i < TABLE_WORDS; i++) {
        uint64_t absent = meeting->members[i] & ~atomic_load(&meeting->who[i]);

        if (absent != 0)
            return 64 * i + __builtin_ctzll(absent);
    }
    return -1;
}

/* Whether all have come. */
static int is_complete(const oriel_group *group, const heap_meeting *meeting)
{
    return atomic_load(&meeting->come) == (uint32_t)group->num_procs;
}

/* Gives up unless all have come; returns whether it did, or another has. */
static int revoke(const oriel_group *group, heap_meeting *meeting)
{
    uint32_t come = atomic_load(&meeting->come);

    while (come < (uint32_t)group->num_procs &&
           !atomic_compare_exchange_weak(&meeting->come, &come, come | MEETING_REVOKED)) {
    }
    return come != (uint32_t)group->num_procs;
}

/* One that waits for the table did not come, and who has the table did not let it. */
static void abort_late(oriel_group *group, const heap_meeting *meeting, int late)
{
    oriel_comm *comm = group->comm;
    int owner = oriel_table_stuck(comm);
    char last[200];

    if (owner >= 0) {
        oriel_table_abort_stuck(comm, owner);
        return;
    }
    oriel_trace_describe(comm, comm->heap.procs[late].first_rank, last, sizeof last);
    oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, -1, late,
                     "process %d was making a window of %llu bytes, to which process %d did not "
                     "come within %.1f s; rank %d: %s",
                     comm->process, (unsigned long long)meeting->bytes, late, comm->timeout,
                     comm->heap.procs[late].first_rank, last);
}

/* ORIEL_IN_PROGRESS while some have not come. */
static oriel_status look(oriel_group *group, heap_meeting *meeting, double deadline)
{
    oriel_comm *comm = group->comm;
    int late = oriel_now() > deadline;
    int interrupted = oriel_interrupted();
    int absent = oriel_making_missing(meeting);
    int gone = absent >= 0 && oriel_comm_cannot_call(comm, absent);

    if (is_complete(group, meeting))
        return ORIEL_OK;
    if (!late && !interrupted && !gone && !oriel_comm_aborted(comm) &&
        !(atomic_load(&meeting->come) & MEETING_REVOKED))
        return ORIEL_IN_PROGRESS;
    if (gone && oriel_making_missing(meeting) != absent)
        return ORIEL_IN_PROGRESS; /* it came before it went */
    if (!revoke(group, meeting))
        return ORIEL_OK;
    if (gone)
        oriel_comm_abort_missing(comm, absent, comm->first_rank, "the making of a window");
    else if (interrupted)
        oriel_comm_abort(comm, oriel_interrupt_fail(), comm->first_rank, comm->process,
                         "process %d (pid %d): %s", comm->process, comm->pid, oriel_last_error());
    else if (late)
        abort_late(group, meeting, absent >= 0 ? absent : comm->process);
    return oriel_comm_failure(comm);
}

static oriel_status wait(oriel_group *group, heap_meeting *meeting)
{
    double deadline = oriel_now() + group->comm->timeout;
    oriel_waiter waiter = {0};
    oriel_status st;

    while ((st = look(group, meeting, deadline)) == ORIEL_IN_PROGRESS)
        oriel_comm_pause(group->comm, &waiter);
    oriel_waiter_end(group->comm, &waiter);
    return st;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* The last to hear: the place is free. Where the comm has been revoked in between, nobody needs it.
 */
static void end(oriel_comm *comm, heap_meeting *meeting)
{
    heap_table *table = oriel_table_of(comm);

    if (oriel_table_lock(comm) != ORIEL_OK)
        return;
    if (meeting->status != ORIEL_OK && meeting->window > 0)
        oriel_table_give(comm, &table->windows[meeting->window - 1]);
    table->keys[meeting - table->meetings] = 0;
    oriel_table_unlock(comm);
    if (atomic_load(&table->waiting) > 0)
        oriel_comm_ring_all(comm);
}

/* What came of it; nobody has a window that failed. */
static oriel_status outcome(oriel_group *group, heap_meeting *meeting, heap_window **window_p)
{
    oriel_status st = (oriel_status)meeting->status;
    heap_window *window = NULL;
    char why[HEAP_TEXT] = "";

    if (st == ORIEL_OK)
        window = &oriel_table_of(group->comm)->windows[meeting->window - 1];
    else
        snprintf(why, sizeof why, "%s", meeting->text);
    if (atomic_fetch_add(&meeting->heard, 1) + 1 == (uint32_t)group->num_procs)
        end(group->comm, meeting);
    if (st != ORIEL_OK)
        return oriel_fail(st, "%s", why);
    *window_p = window;
    return ORIEL_OK;
}

oriel_status oriel_making_end(oriel_group *group, heap_meeting *meeting, oriel_status mine,
                              heap_window **window_p)
{
    oriel_comm *comm = group->comm;
    char why[HEAP_TEXT] = "";
    oriel_status st;
    uint32_t come;

    if (mine != ORIEL_OK) {
        snprintf(why, sizeof why, "process %d: %s", comm->process, oriel_last_error());
        st = oriel_table_lock(comm);
        if (st != ORIEL_OK)
            return st;
        oriel_fail(mine, "%s", why);
        fail_meeting(meeting, mine);
        oriel_table_unlock(comm);
    }
    /* In this order: where one stops in between, the others do not wait for it. */
    come = atomic_fetch_add(&meeting->come, 1) + 1;
    atomic_fetch_or(&meeting->who[comm->process / 64], 1ull << comm->process % 64);
    if (come == (uint32_t)group->num_procs)
        oriel_group_ring_fenced(group);
    st = wait(group, meeting);
    return st == ORIEL_OK ? outcome(group, meeting, window_p) : st;
}
