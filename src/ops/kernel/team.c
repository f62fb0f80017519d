/* How the threads of a kernel's team wait on the CPU. Between ranks they sleep by the
 * bells of wait.c; among themselves by a word of the call. Every wait ends when the comm
 * is revoked: the thread that drives the request watches the deadline. */
#include "base/sys.h"
#include "ops/kernel/kernel.h"

/* Turns of a wait among threads of one team before it sleeps, and how long then. */
enum { SYNC_TURNS = 64 };
#define NAP_S 0.05

static oriel_kernel_call *call_of(const oriel_team *team)
{
    return team->frame->inner;
}

static int has_failed(const oriel_kernel_call *call)
{
    return atomic_load_explicit(&call->trouble, memory_order_relaxed) != ORIEL_TROUBLE_NONE ||
           oriel_comm_aborted(call->comm);
}

/* A thread that asks is in a loop, and may be waiting for one that needs this core. */
static int team_failed(const oriel_team *team)
{
    oriel_relax(1);
    return has_failed(call_of(team));
}

/* The first one stays. */
static void team_trouble(const oriel_team *team, int what, int64_t value)
{
    oriel_kernel_call *call = call_of(team);
    uint32_t none = ORIEL_TROUBLE_NONE;

    if (atomic_compare_exchange_strong(&call->trouble, &none, (uint32_t)what))
        atomic_store(&call->trouble_value, value);
}

/* Other orders than the usual ones: what a race needs to show itself. */
static void jitter(const oriel_kernel_call *call)
{
    static _Thread_local uint64_t state;
    double until;

    if (call->jitter <= 0.0)
        return;
    state = state * 6364136223846793005u + (uint64_t)(uintptr_t)&state;
    until = oriel_now() + call->jitter * (double)(state >> 40) / (double)(1 << 24);
    while (oriel_now() < until)
        oriel_relax(1);
}

/* ---- one team ----------------------------------------------------------------------- */

/* The round is changed by the last thread to come, after which all go on. A thread that
 * sleeps counts itself before it looks; that last one looks for sleepers after the change. */
static int await_round(oriel_kernel_call *call, uint32_t round)
{
    for (uint32_t turn = 0; atomic_load(&call->sync_round) == round; turn++) {
        if (has_failed(call))
            return 1;
        if (turn < SYNC_TURNS) {
            oriel_relax(1);
            continue;
        }
        atomic_fetch_add(&call->sync_sleepers, 1);
        if (atomic_load(&call->sync_round) == round)
            oriel_sys_now->futex_wait(&call->sync_round, round, NAP_S);
        atomic_fetch_sub(&call->sync_sleepers, 1);
    }
    return has_failed(call);
}

static int sync_threads(oriel_kernel_call *call)
{
    uint32_t round = atomic_load(&call->sync_round);

    if (atomic_fetch_add(&call->sync_arrived, 1) + 1 != (uint32_t)call->num_threads)
        return await_round(call, round);
    atomic_store(&call->sync_arrived, 0);
    atomic_store(&call->sync_round, round + 1);
    if (atomic_load(&call->sync_sleepers) != 0)
        oriel_sys_now->futex_wake(&call->sync_round);
    return has_failed(call);
}

static int team_sync(oriel_team *team)
{
    jitter(call_of(team));
    return sync_threads(call_of(team));
}

/* ---- between ranks ------------------------------------------------------------------- */

/* Until *word >= value; `waits` tells others what for: 1 is a barrier, a signal is
 * 2 + slot + (value << 8). In the cell, which outlives every rank's call. A thread
 * that sleeps says it again and again, since others may wait for something else meanwhile. */
static int await_word(oriel_kernel_call *call, const uint64_t *word, uint64_t value, uint64_t waits)
{
    uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    oriel_waiter waiter = {0};
    int said = 0;

    while (seen < value && !has_failed(call)) {
        if (waiter.announced) {
            atomic_store_explicit(&call->member->seen, seen, memory_order_relaxed);
            atomic_store_explicit(&call->member->waits, waits, memory_order_relaxed);
            said = 1;
        }
        oriel_comm_pause(call->comm, &waiter);
        seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    }
    oriel_waiter_end(call->comm, &waiter);
    if (seen < value)
        return 1; /* `waits` stays, for the message */
    if (said)
        atomic_store_explicit(&call->member->waits, 0, memory_order_relaxed);
    return has_failed(call);
}

/* One thread tells all ranks that this one has come, and waits until all have. */
static int meet(oriel_team *team)
{
    oriel_kernel_call *call = call_of(team);
    const oriel_frame *frame = team->frame;
    uint64_t *mine = oriel_arrivals(frame->boards[frame->rank]);
    int failed = 0;

    for (int r = 0; r < frame->size; r++)
        __atomic_store_n(oriel_arrivals(frame->boards[r]) + frame->rank, team->epoch,
                         __ATOMIC_RELEASE);
    oriel_group_ring(call->group);
    for (int r = 0; r < frame->size && !failed; r++)
        failed = await_word(call, mine + r, team->epoch, 1);
    return failed;
}

static int team_barrier(oriel_team *team)
{
    oriel_kernel_call *call = call_of(team);

    jitter(call);
    team->epoch++;
    if (sync_threads(call) != 0)
        return 1;
    if (team->thread == 0 && meet(team) != 0)
        return 1;
    return sync_threads(call);
}

static int team_signal(oriel_team *team, int rank, int slot, uint64_t value)
{
    oriel_kernel_call *call = call_of(team);

    jitter(call);
    __atomic_fetch_add(&team->frame->boards[rank]->signals[slot], value, __ATOMIC_RELEASE);
    oriel_comm_ring(call->comm, call->comm->heap.ranks[call->group->ranks[rank]].process);
    return has_failed(call);
}

static int team_wait(oriel_team *team, int slot, uint64_t value)
{
    oriel_kernel_call *call = call_of(team);

    jitter(call);
    return await_word(call, &team->frame->boards[team->frame->rank]->signals[slot], value,
                      2 + (uint64_t)slot + (value << 8));
}

const oriel_team_calls oriel_team_calls_host = {
    .sync = team_sync,
    .barrier = team_barrier,
    .signal = team_signal,
    .wait = team_wait,
    .failed = team_failed,
    .trouble = team_trouble,
};
