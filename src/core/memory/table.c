#include "core/memory/table.h"

#include "base/math.h"
#include "base/sys.h"
#include "core/memory/arena.h"

heap_table *oriel_table_of(const oriel_comm *comm)
{
    return &oriel_memory(&comm->heap)->table;
}

/* ---- the lock --------------------------------------------------------------------------- */

/* Turns until a thread sleeps, since the owner is stopped or gone; how long one that runs does not
 * have the lock, however busy the machine. */
enum { TURNS = 1000, NAP_MS = 1, WHILE_MS = 100 };

int oriel_table_stuck(const oriel_comm *comm)
{
    uint32_t owner = atomic_load(&oriel_table_of(comm)->owner);

    for (int i = 0; i < WHILE_MS && owner != 0; i += NAP_MS) {
        oriel_sys_now->poll(NULL, 0, NAP_MS);
        if (atomic_load(&oriel_table_of(comm)->owner) != owner)
            return -1;
    }
    return (int)owner - 1;
}

void oriel_table_abort_stuck(oriel_comm *comm, int process)
{
    oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, -1, process,
                     "process %d has had the table of windows for %.1f s, for which process %d "
                     "waits",
                     process, comm->timeout, comm->process);
}

/* Of a process that dies with it the comm hears, and of one that is stopped the deadline does. */
oriel_status oriel_table_lock(oriel_comm *comm)
{
    heap_table *table = oriel_table_of(comm);
    double deadline = oriel_now() + comm->timeout;
    uint32_t owner = 0;

    for (int turns = 0;
         !atomic_compare_exchange_strong(&table->owner, &owner, (uint32_t)comm->process + 1);
         turns++) {
        if (oriel_comm_aborted(comm))
            return oriel_comm_failure(comm);
        if (oriel_now() > deadline)
            oriel_table_abort_stuck(comm, (int)owner - 1);
        if (turns < TURNS)
            oriel_relax(1);
        else
            oriel_sys_now->poll(NULL, 0, NAP_MS);
        owner = 0;
    }
    return ORIEL_OK;
}

void oriel_table_unlock(oriel_comm *comm)
{
    atomic_store(&oriel_table_of(comm)->owner, 0);
}

/* ---- sizes: under the lock, as all that follows ---------------------------------------------- */

/* The class of this size, or the next larger or smaller one. Classes are an eighth of a power of
 * two apart, so that what is freed fits again. */
static unsigned class_of(uint64_t room, int larger, uint64_t *bytes_p)
{
    uint64_t pages = room / HEAP_PAGE;
    unsigned power = pages < 8 ? 0 : 60 - (unsigned)__builtin_clzll(pages); /* of the step */
    uint64_t steps = larger ? oriel_divide_up(pages, 1ull << power) : pages >> power; /* to 16 */

    *bytes_p = (steps << power) * HEAP_PAGE;
    return 8 * power + (unsigned)steps;
}

/* ---- records ------------------------------------------------------------------------------- */

static heap_window *at_index(heap_table *table, uint32_t index)
{
    return index > 0 ? &table->windows[index - 1] : NULL;
}

static uint32_t index_of(const heap_table *table, const heap_window *window)
{
    return (uint32_t)(window - table->windows) + 1;
}

/* There is always one: see TABLE_STRETCHES. */
static heap_window *record_take(heap_table *table)
{
    heap_window *record = at_index(table, table->spare);

    if (record == NULL)
        return &table->windows[table->used++];
    table->spare = record->next;
    return record;
}

static void record_give(heap_table *table, heap_window *record)
{
    record->next = table->spare;
    table->spare = index_of(table, record);
}

/* ---- free stretches, in lists ------------------------------------------------------------------
 */

static void list_add(heap_table *table, heap_window *stretch)
{
    uint64_t bytes;
    uint32_t *first = &table->free[class_of(stretch->room, 0, &bytes)];

    stretch->prior = 0;
    stretch->next = *first;
    if (*first > 0)
        at_index(table, *first)->prior = index_of(table, stretch);
    *first = index_of(table, stretch);
}

static void list_remove(heap_table *table, const heap_window *stretch)
{
    uint64_t bytes;

    if (stretch->prior > 0)
        at_index(table, stretch->prior)->next = stretch->next;
    else
        table->free[class_of(stretch->room, 0, &bytes)] = stretch->next;
    if (stretch->next > 0)
        at_index(table, stretch->next)->prior = stretch->prior;
}

/* ---- stretches, by address ------------------------------------------------------------------- */

/* A new one right above `below`, or the first. */
static heap_window *insert_above(heap_table *table, heap_window *below, uint64_t room)
{
    heap_window *stretch = record_take(table);
    heap_window *above = below != NULL ? at_index(table, below->above) : NULL;

    stretch->number = 0;
    stretch->at = below != NULL ? below->at + below->room : 0;
    stretch->room = room;
    stretch->below = below != NULL ? index_of(table, below) : 0;
    stretch->above = above != NULL ? index_of(table, above) : 0;
    if (below != NULL)
        below->above = index_of(table, stretch);
    if (above != NULL)
        above->below = index_of(table, stretch);
    else
        table->last = index_of(table, stretch);
    return stretch;
}

static void remove_stretch(heap_table *table, heap_window *stretch)
{
    heap_window *below = at_index(table, stretch->below);
    heap_window *above = at_index(table, stretch->above);

    if (below != NULL)
        below->above = stretch->above;
    if (above != NULL)
        above->below = stretch->below;
    else
        table->last = stretch->below;
    record_give(table, stretch);
}

/* A free one that is large enough, cut to `room`; NULL: there is none. */
static heap_window *take_free(heap_table *table, unsigned class, uint64_t room)
{
    heap_window *stretch = NULL;
    uint64_t rest;

    for (unsigned c = class; stretch == NULL && c < TABLE_CLASSES; c++)
        stretch = at_index(table, table->free[c]);
    if (stretch == NULL)
        return NULL;
    list_remove(table, stretch);
    rest = stretch->room - room;
    stretch->room = room;
    if (rest > 0)
        list_add(table, insert_above(table, stretch, rest));
    return stretch;
}

/* The largest size that still has room. */
static uint64_t largest_left(const heap_table *table, uint64_t most)
{
    uint64_t largest = most - table->end;

    for (int c = TABLE_CLASSES - 1; c >= 0; c--) {
        if (table->free[c] == 0)
            continue;
        if (table->windows[table->free[c] - 1].room > largest)
            largest = table->windows[table->free[c] - 1].room;
        break;
    }
    return largest;
}

static heap_window *find_room(oriel_comm *comm, size_t bytes)
{
    heap_table *table = oriel_table_of(comm);
    uint64_t most = oriel_memory(&comm->heap)->window_bytes;
    uint64_t room;
    /* None begins where another ends. */
    unsigned class = class_of(oriel_round_up(bytes + 1, HEAP_PAGE), 1, &room);
    heap_window *stretch = take_free(table, class, room);

    if (stretch != NULL)
        return stretch;
    if (room <= most - table->end) {
        table->end += room;
        return insert_above(table, at_index(table, table->last), room);
    }
    oriel_fail(ORIEL_ERR_NO_RESOURCE,
               "a window of %zu bytes needs %llu of the %llu of ORIEL_WINDOWS, of which at most "
               "%llu are left in one piece",
               bytes, (unsigned long long)room, (unsigned long long)most,
               (unsigned long long)largest_left(table, most));
    return NULL;
}

heap_window *oriel_table_take(oriel_group *group, size_t bytes)
{
    heap_table *table = oriel_table_of(group->comm);
    heap_window *window;

    if (table->held == TABLE_WINDOWS) {
        oriel_fail(ORIEL_ERR_NO_RESOURCE, "a world has at most %d windows", TABLE_WINDOWS);
        return NULL;
    }
    window = find_room(group->comm, bytes);
    if (window == NULL)
        return NULL;
    table->held++;
    window->number = ++table->numbers;
    window->bytes = bytes;
    window->ranks = (uint32_t)group->n;
    for (int i = 0; i < TABLE_WORDS; i++)
        atomic_store_explicit(&window->who[i], 0, memory_order_relaxed);
    for (int i = 0; i < group->num_procs; i++)
        atomic_fetch_or_explicit(&window->who[group->procs[i] / 64], 1ull << group->procs[i] % 64,
                                 memory_order_relaxed);
    atomic_store(&window->held, (uint32_t)group->num_procs);
    return window;
}

/* Becomes one with the free ones beside it; what is last is no stretch any more. */
void oriel_table_give(oriel_comm *comm, heap_window *window)
{
    heap_table *table = oriel_table_of(comm);
    heap_window *below = at_index(table, window->below);
    heap_window *above = at_index(table, window->above);

    table->held--;
    window->number = 0;
    if (above != NULL && above->number == 0) {
        list_remove(table, above);
        window->room += above->room;
        remove_stretch(table, above);
    }
    if (below != NULL && below->number == 0) {
        list_remove(table, below);
        below->room += window->room;
        remove_stretch(table, window);
        window = below;
    }
    if (window->above > 0) {
        list_add(table, window);
        return;
    }
    table->end = window->at;
    remove_stretch(table, window);
}

int oriel_table_let_go(const oriel_comm *comm, heap_window *window)
{
    atomic_fetch_and(&window->who[comm->process / 64], ~(1ull << comm->process % 64));
    return atomic_fetch_sub(&window->held, 1) == 1;
}
