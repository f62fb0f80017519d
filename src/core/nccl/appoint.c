#include "core/nccl/appoint.h"

#include "base/sys.h"

/* A holder has a few dozen instructions to do; one that was not scheduled comes back. */
#define LOCK_LIMIT_S 5.0

static heap_appointment *appointment_of(const oriel_appointed *a)
{
    return oriel_appointment(&a->group->comm->heap, a->place);
}

int oriel_appoint_find(const oriel_heap *heap, uint64_t group)
{
    for (uint64_t i = 0; i < HEAP_APPOINTMENTS; i++) {
        int place = (int)((group + i) % HEAP_APPOINTMENTS);
        uint64_t found = 0;

        if (atomic_compare_exchange_strong(&oriel_appointment(heap, place)->group, &found, group) ||
            found == group)
            return place;
    }
    return -1;
}

static oriel_status lock(const oriel_appointed *a)
{
    heap_appointment *word = appointment_of(a);
    oriel_comm *comm = a->group->comm;
    double until = 0.0;

    for (uint32_t turn = 1;; turn++) {
        uint32_t free_word = 0;

        if (atomic_compare_exchange_weak_explicit(&word->lock, &free_word, (uint32_t)a->rank + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return ORIEL_OK;
        oriel_relax(turn % 64 == 0 || comm->oversubscribed);
        if (turn % 1024 != 0)
            continue;
        if (oriel_comm_aborted(comm))
            return oriel_comm_failure(comm);
        if (until == 0.0)
            until = oriel_now() + LOCK_LIMIT_S;
        if (oriel_now() > until) {
            oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, a->rank, comm->process,
                             "rank %d holds a lock in the heap for more than %.0f s",
                             (int)atomic_load(&word->lock) - 1, LOCK_LIMIT_S);
            return oriel_comm_failure(comm);
        }
    }
}

static void unlock(const oriel_appointed *a)
{
    atomic_store_explicit(&appointment_of(a)->lock, 0, memory_order_release);
}

/* With the lock held: makes an appointment where enough want one. */
static void make(const oriel_appointed *a)
{
    heap_appointment *word = appointment_of(a);
    uint64_t last = 0;
    int wanting = 0;

    if (atomic_load(&word->at) != 0 || atomic_load(&word->off))
        return;
    for (int i = 0; i < a->group->n; i++) {
        heap_attendance *member = oriel_attendance(a, i);
        uint64_t calls = atomic_load(&member->calls);

        wanting += atomic_load(&member->wants) > 0;
        last = calls > last ? calls : last;
    }
    if (wanting == a->group->n || (wanting > 0 && a->alone))
        atomic_store(&word->at, last + 1);
}

oriel_status oriel_appoint_call(const oriel_appointed *a, uint32_t wants, int *due_p)
{
    heap_attendance *mine = oriel_attendance_of(&a->group->comm->heap, a->rank, a->place);
    oriel_status st = lock(a);
    uint64_t call;

    if (st != ORIEL_OK)
        return st;
    call = atomic_load(&mine->calls) + 1;
    atomic_store(&mine->calls, call);
    atomic_store(&mine->wants, wants);
    *due_p = atomic_load(&appointment_of(a)->at) == call;
    if (wants > 0)
        make(a);
    unlock(a);
    return ORIEL_OK;
}

/* Leaves before all have come; 0: they have. */
static int retract(heap_appointment *word, uint32_t n)
{
    uint32_t came = atomic_load(&word->came);

    while (came < n) {
        if (atomic_compare_exchange_weak(&word->came, &came, came - 1))
            return 1;
    }
    return 0;
}

static int find_missing(const oriel_appointed *a)
{
    uint64_t at = atomic_load(&appointment_of(a)->at);

    for (int i = 0; i < a->group->n; i++) {
        if (atomic_load(&oriel_attendance(a, i)->calls) < at)
            return a->group->ranks[i];
    }
    return a->rank;
}

static oriel_status give_up(const oriel_appointed *a)
{
    oriel_comm *comm = a->group->comm;
    int missing = find_missing(a);
    int process = comm->heap.ranks[missing].process;

    oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, missing, process,
                     "registering buffers with NCCL on rank %d: rank %d (process %d) did not come "
                     "within %.1f s",
                     a->rank, missing, process, comm->timeout);
    return oriel_comm_failure(comm);
}

oriel_status oriel_appoint_meet(const oriel_appointed *a, int *all_p)
{
    heap_appointment *word = appointment_of(a);
    oriel_comm *comm = a->group->comm;
    uint32_t n = (uint32_t)a->group->n;
    double until = oriel_now() + a->patience;
    oriel_waiter waiter = {.patient = 1};
    int gone = 0;
    int late = 0;

    atomic_fetch_add(&word->came, 1);
    oriel_group_ring(a->group);
    while (!gone && atomic_load(&word->came) < n) {
        if (oriel_comm_pause(comm, &waiter)) {
            late = oriel_now() > until;
            if (late || oriel_comm_aborted(comm) || atomic_load(&word->off))
                gone = retract(word, n);
        }
    }
    oriel_waiter_end(comm, &waiter);
    *all_p = !gone;
    if (!gone)
        return ORIEL_OK;
    if (oriel_comm_aborted(comm))
        return oriel_comm_failure(comm);
    if (late && a->patience >= comm->timeout)
        return give_up(a);
    if (late)
        oriel_appoint_call_off(a);
    return ORIEL_OK;
}

void oriel_appoint_leave(const oriel_appointed *a)
{
    heap_appointment *word = appointment_of(a);

    if (atomic_fetch_add(&word->left, 1) + 1 < (uint32_t)a->group->n)
        return;
    atomic_store(&word->left, 0);
    atomic_store(&word->came, 0);
    atomic_store(&word->at, 0); /* last: from here on there may be another */
}

void oriel_appoint_call_off(const oriel_appointed *a)
{
    atomic_store(&appointment_of(a)->off, 1);
    oriel_group_ring(a->group);
}

int oriel_appoint_is_off(const oriel_heap *heap, int place)
{
    return atomic_load(&oriel_appointment(heap, place)->off) != 0;
}
