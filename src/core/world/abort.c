/* The comm's one failure. The first to fail writes the record and wakes all;
 * every wait polls its word, so later calls fail at once. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/sys.h"
#include "core/store/store.h"
#include "core/world/comm.h"

enum { BEING_WRITTEN = 1, WRITTEN = 2 };

void oriel_comm_abort(oriel_comm *comm, oriel_status code, int rank, int process, const char *fmt,
                      ...)
{
    heap_abort *record = &oriel_control(&comm->heap)->abort;
    uint32_t none = 0;
    va_list args;
    size_t used;

    if (!atomic_compare_exchange_strong(&record->word, &none, BEING_WRITTEN))
        return;
    record->code = (uint32_t)code;
    record->rank = rank;
    record->process = process;
    va_start(args, fmt);
    vsnprintf(record->text, sizeof record->text, fmt, args);
    va_end(args);
    used = strlen(record->text);
    snprintf(record->text + used, sizeof record->text - used, "%s", comm->fabric->note);
    atomic_store_explicit(&record->word, WRITTEN, memory_order_release);
    oriel_comm_ring_all(comm);
}

void oriel_comm_abort_gone(oriel_comm *comm, int process)
{
    const heap_proc *proc = &comm->heap.procs[process];

    oriel_comm_abort(comm, ORIEL_ERR_PEER, proc->first_rank, process,
                     atomic_load(&proc->state) == PROC_DEAD ? "process %d (pid %d) is gone"
                                                            : "process %d (pid %d) has left the "
                                                              "comm",
                     process, (int)proc->pid);
}

void oriel_comm_abort_missing(oriel_comm *comm, int process, int rank, const char *what)
{
    const heap_proc *proc = &comm->heap.procs[process];

    if (atomic_load(&proc->state) >= PROC_LEFT)
        oriel_comm_abort_gone(comm, process);
    oriel_comm_abort(comm, ORIEL_ERR_PEER, proc->first_rank, process,
                     "process %d (pid %d) is in finalize and calls no more, and rank %d waits for "
                     "it in %s",
                     process, (int)proc->pid, rank, what);
}

/* A store's keys are set once: the first process that says it stays the first. A store that is not
 * there, or that is no launcher's, does no harm. */
static void tell_launcher(const oriel_comm *comm)
{
    const char *address = oriel_config_string(ORIEL_OPT_STORE);
    oriel_store store = ORIEL_STORE_INIT;
    char text[16];

    if (address[0] == '\0' || oriel_store_connect(address, oriel_config_string(ORIEL_OPT_SECRET),
                                                  0.2, &store) != ORIEL_OK)
        return;
    snprintf(text, sizeof text, "%d", comm->process);
    store.set(store.ctx, ORIEL_STORE_FIRST, text, strlen(text) + 1);
    oriel_store_disconnect(&store);
}

void oriel_comm_quit(oriel_comm *comm, const char *why)
{
    if (comm->num_processes > 1 && !oriel_comm_aborted(comm))
        tell_launcher(comm);
    oriel_comm_abort(comm, ORIEL_ERR_PEER, comm->first_rank, comm->process,
                     "process %d (pid %d) has left the comm: %s", comm->process, comm->pid, why);
}

/* A little longer than the others wait, so that they give up first and name it. */
#define AWAY_MARGIN_S 0.25

static void stay_away(oriel_comm *comm)
{
    double until = oriel_now() + comm->timeout + AWAY_MARGIN_S;

    while (!oriel_comm_aborted(comm) && oriel_now() < until)
        oriel_sys_now->poll(NULL, 0, 5);
    oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, comm->first_rank, comm->process,
                     "process %d did not come within %.1f s: %s", comm->process, comm->timeout,
                     oriel_last_error());
}

void oriel_comm_inject(oriel_comm *comm)
{
    oriel_status st = comm->fabric->operation();

    if (st == ORIEL_ERR_TIMEOUT)
        stay_away(comm);
    else if (st != ORIEL_OK)
        oriel_comm_abort(comm, st, -1, comm->process, "process %d: %s", comm->process,
                         oriel_last_error());
}

const heap_abort *oriel_comm_abort_record(const oriel_comm *comm)
{
    const heap_abort *record = &oriel_control(&comm->heap)->abort;
    double until = oriel_now() + 0.1;
    uint32_t word;

    /* The writer may have died between its two stores: do not wait long. */
    while ((word = atomic_load_explicit(&record->word, memory_order_acquire)) == BEING_WRITTEN) {
        if (oriel_now() > until)
            return NULL;
        oriel_relax(1);
    }
    return word == WRITTEN ? record : NULL;
}

/* A rank that revokes an operation or a meeting writes the record right after. */
static const heap_abort *await_record(const oriel_comm *comm)
{
    double until = oriel_now() + 1.0;

    while (!oriel_comm_aborted(comm) && oriel_now() < until)
        oriel_relax(1);
    return oriel_comm_abort_record(comm);
}

oriel_status oriel_comm_failure(const oriel_comm *comm)
{
    const heap_abort *record = await_record(comm);

    if (record == NULL)
        return oriel_fail(ORIEL_ERR_REVOKED, "the comm was revoked by a process that did not say "
                                             "why");
    if (record->code == ORIEL_ERR_TIMEOUT && record->process == comm->process)
        return oriel_fail(ORIEL_ERR_TIMEOUT, "this process was late: %s", record->text);
    return oriel_fail((oriel_status)record->code, "%s", record->text);
}

oriel_status oriel_comm_check(oriel_comm *comm)
{
    const oriel_device_calls *calls;
    const heap_abort *record;

    if (comm == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "comm is NULL");
    oriel_comm_look(comm);
    calls = atomic_load(&comm->device_calls);
    if (!oriel_comm_aborted(comm) && (calls == NULL || !calls->revoked(comm)))
        return ORIEL_OK;
    record = await_record(comm);
    return oriel_fail(ORIEL_ERR_REVOKED, "the comm was revoked: %s",
                      record ? record->text : "by a process that died while saying why");
}
