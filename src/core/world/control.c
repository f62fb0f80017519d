/* Barrier and vote between processes, for set-up and teardown.
 *
 * One word decides: round (32 bits) | revoked (1 bit) | arrived (16 bits). The
 * last to arrive starts the next round; a process whose deadline fires sets
 * `revoked` only while the round is incomplete, so a round succeeds for all or
 * for nobody.
 *
 * A vote is status (16 bits) | process (16 bits), the largest wins; the sentence
 * behind it stands with the process. Vote and sentence of a round are read before
 * the next round is over, and written anew in the one after that.
 *
 * Where a world spans machines each has its own word, and a bridge is one more party to
 * each round: it comes when all processes of all other machines have (bridge.c). There a
 * round may be over on one machine while another gives it up, whose deadline has passed just
 * then; the comm is revoked in that case, on all. */
#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/sys.h"
#include "core/world/trace.h"

#define ARRIVED(word) ((uint32_t)((word)&0xffff))
#define REVOKED_BIT   (1ull << 16)
#define ROUND(word)   ((uint32_t)((word) >> 32))

/* The vote, and that the process has come. */
void oriel_control_come(oriel_comm *comm, int process, uint32_t round, oriel_status status,
                        const char *text)
{
    _Atomic uint32_t *box = &oriel_control(&comm->heap)->control_vote[round & 1];
    heap_proc *proc = &comm->heap.procs[process];
    uint32_t mine = (uint32_t)status << 16 | (uint32_t)process;
    uint32_t seen = atomic_load(box);

    proc->vote[round & 1] = (uint32_t)status;
    if (status != ORIEL_OK) {
        snprintf(proc->vote_text[round & 1], HEAP_TEXT, "%.*s", HEAP_TEXT - 1, text);
        while (seen < mine && !atomic_compare_exchange_weak(box, &seen, mine)) {
        }
    }
    atomic_store(&proc->control_round, round + 1);
}

/* The outcome of a round that is over. */
static oriel_status outcome(const oriel_comm *comm, uint32_t round)
{
    uint32_t word = atomic_load(&oriel_control(&comm->heap)->control_vote[round & 1]);
    oriel_status status = (oriel_status)(word >> 16);
    int process = (int)(word & 0xffff);
    const char *text;

    if (status == ORIEL_OK)
        return ORIEL_OK;
    text = comm->heap.procs[process].vote_text[round & 1];
    if (process == comm->process)
        return oriel_fail(status, "%.*s", HEAP_TEXT - 1, text);
    return oriel_fail(status, "process %d: %.*s", process, HEAP_TEXT - 1, text);
}

/* Returns 0 and the round joined, or -1 when the barrier is revoked. */
static int arrive(oriel_comm *comm, uint32_t *round_p)
{
    heap_control *h = oriel_control(&comm->heap);
    uint64_t word = atomic_load(&h->control);
    uint64_t next;

    do {
        if (word & REVOKED_BIT)
            return -1;
        next = word + 1;
        if (ARRIVED(next) == comm->heap.header->parties) {
            /* Nobody reads the next round's vote any more: all are in this one. */
            atomic_store(&h->control_vote[(ROUND(word) + 1) & 1], ORIEL_OK);
            next = (uint64_t)(ROUND(word) + 1) << 32;
        }
    } while (!atomic_compare_exchange_weak(&h->control, &word, next));
    *round_p = ROUND(word);
    if (ROUND(next) != ROUND(word))
        oriel_comm_ring_all(comm);
    return 0;
}

/* Sets the revoked bit unless round `round` is over; returns whether it did. */
static int revoke(heap_control *h, uint32_t round)
{
    uint64_t word = atomic_load(&h->control);

    while (ROUND(word) == round && !(word & REVOKED_BIT)) {
        if (atomic_compare_exchange_weak(&h->control, &word, word | REVOKED_BIT))
            return 1;
    }
    return ROUND(word) == round;
}

static int first_missing(const oriel_heap *heap, uint32_t round)
{
    for (int p = 0; p < (int)heap->header->num_processes; p++) {
        if (atomic_load(&heap->procs[p].control_round) <= round)
            return p;
    }
    return -1;
}

int oriel_control_missing(const oriel_heap *heap, int process)
{
    uint64_t word = atomic_load(&oriel_control(heap)->control);

    if ((word & REVOKED_BIT) || atomic_load(&heap->procs[process].control_round) <= ROUND(word))
        return -1;
    return first_missing(heap, ROUND(word));
}

/* A process that has left will not come any more. */
static int gone(const oriel_comm *comm, uint32_t round)
{
    int missing = first_missing(&comm->heap, round);

    return missing >= 0 && atomic_load(&comm->heap.procs[missing].state) >= PROC_LEFT;
}

/* The one that is missing hears this too, wherever it waits: so the process that waited is named
 * first. */
static void abort_late(oriel_comm *comm, int missing, double timeout_s)
{
    int rank = comm->heap.procs[missing].first_rank;
    char last[200];

    oriel_trace_describe(comm, rank, last, sizeof last);
    oriel_comm_abort(
        comm, ORIEL_ERR_TIMEOUT, -1, missing,
        "process %d was in a meeting of all processes (init, finalize or a barrier), to "
        "which process %d did not come within %.1f s; rank %d: %s",
        comm->process, missing, timeout_s, rank, last);
}

/* ORIEL_IN_PROGRESS while the round is open. */
static oriel_status look_at_round(oriel_comm *comm, uint32_t round, double deadline,
                                  double timeout_s)
{
    heap_control *h = oriel_control(&comm->heap);
    uint64_t word = atomic_load(&h->control);
    int late = oriel_now() > deadline;
    int left = gone(comm, round);
    int interrupted = oriel_interrupted();
    int missing;

    if (ROUND(word) != round)
        return ORIEL_OK;
    if (!late && !left && !interrupted && !oriel_comm_aborted(comm) && !(word & REVOKED_BIT))
        return ORIEL_IN_PROGRESS;
    missing = first_missing(&comm->heap, round);
    if (!revoke(h, round))
        return ORIEL_OK;
    if (left)
        oriel_comm_abort_gone(comm, missing);
    else if (interrupted)
        oriel_comm_abort(comm, oriel_interrupt_fail(), comm->first_rank, comm->process,
                         "process %d (pid %d): %s", comm->process, comm->pid, oriel_last_error());
    else if (late)
        abort_late(comm, missing, timeout_s);
    return oriel_comm_failure(comm);
}

static oriel_status wait_round(oriel_comm *comm, uint32_t round, double timeout_s)
{
    double deadline = oriel_now() + timeout_s;
    oriel_waiter waiter = {0};
    oriel_status st;

    while ((st = look_at_round(comm, round, deadline, timeout_s)) == ORIEL_IN_PROGRESS)
        oriel_comm_pause(comm, &waiter);
    oriel_waiter_end(comm, &waiter);
    return st;
}

oriel_status oriel_comm_agree(oriel_comm *comm, oriel_status mine, double timeout_s)
{
    uint32_t round = oriel_control_round(comm);
    oriel_status st;

    if (oriel_comm_aborted(comm))
        return oriel_comm_failure(comm);
    oriel_control_come(comm, comm->process, round, mine,
                       mine == ORIEL_OK ? "" : oriel_last_error());
    if (arrive(comm, &round) != 0)
        return oriel_comm_failure(comm);
    st = wait_round(comm, round, timeout_s);
    if (st != ORIEL_OK)
        return st;
    return outcome(comm, round);
}

oriel_status oriel_comm_share(oriel_comm *comm, oriel_status mine, void *data, size_t bytes,
                              double timeout_s)
{
    char *shared = oriel_control(&comm->heap)->shared;
    oriel_status st;

    if (bytes > HEAP_TEXT)
        mine = oriel_fail(ORIEL_ERR_INVALID, "%zu bytes to share; at most %d", bytes, HEAP_TEXT);
    if (timeout_s <= 0.0)
        timeout_s = comm->timeout;
    if (comm->process == 0 && mine == ORIEL_OK)
        memcpy(shared, data, bytes);
    st = oriel_comm_agree(comm, mine, timeout_s);
    if (st != ORIEL_OK)
        return st;
    memcpy(data, shared, bytes);
    /* The next one's must not be there before all have read this one's. */
    return oriel_comm_agree(comm, ORIEL_OK, timeout_s);
}

/* ---- between machines: for the bridge ------------------------------------- */

uint32_t oriel_control_round(const oriel_comm *comm)
{
    return ROUND(atomic_load(&oriel_control(&comm->heap)->control));
}

int oriel_control_complete(const oriel_comm *comm, uint32_t round)
{
    return first_missing(&comm->heap, round) < 0;
}

void oriel_control_arrive(oriel_comm *comm)
{
    uint32_t round;

    arrive(comm, &round); /* one that is revoked is over too */
}

oriel_status oriel_comm_barrier(oriel_comm *comm)
{
    if (comm == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "comm is NULL");
    return oriel_comm_agree(comm, ORIEL_OK, comm->timeout);
}
