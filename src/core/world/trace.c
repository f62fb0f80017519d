#include <stdio.h>

#include "base/sys.h"
#include "core/world/names.h"
#include "core/world/trace.h"

#define LOOKS_S 0.25 /* several times what a rank that waits sleeps between two looks */

heap_trace *oriel_trace_add(oriel_comm *comm, int rank, uint64_t group, const oriel_record *record,
                            enum trace_state state)
{
    heap_rank *r = &comm->heap.ranks[rank];
    uint64_t sequence = atomic_fetch_add_explicit(&r->traced, 1, memory_order_relaxed) + 1;
    heap_trace *entry = &r->trace[sequence % HEAP_TRACE];
    double now = oriel_now_coarse();

    entry->group = group;
    atomic_store_explicit(&entry->bytes, record->bytes, memory_order_relaxed);
    atomic_store_explicit(&entry->call, record->call, memory_order_relaxed);
    atomic_store_explicit(&entry->kind, record->kind, memory_order_relaxed);
    atomic_store_explicit(&entry->begun, now, memory_order_relaxed);
    atomic_store_explicit(&entry->ended, state == TRACE_DONE ? now : 0.0, memory_order_relaxed);
    atomic_store_explicit(&entry->waits_for, -1, memory_order_relaxed);
    atomic_store_explicit(&entry->state, state, memory_order_relaxed);
    atomic_store_explicit(&entry->sequence, sequence, memory_order_release);
    return entry;
}

void oriel_trace_end(heap_trace *entry, enum trace_state state)
{
    atomic_store_explicit(&entry->ended, oriel_now_coarse(), memory_order_relaxed);
    atomic_store_explicit(&entry->state, state, memory_order_release);
}

void oriel_trace_wait(heap_trace *entry, int rank, double now)
{
    atomic_store_explicit(&entry->looked, now, memory_order_relaxed);
    atomic_store_explicit(&entry->waits_for, rank, memory_order_relaxed);
}

static const heap_trace *last_entry(const oriel_comm *comm, int rank, uint64_t *sequence_p)
{
    const heap_rank *r = &comm->heap.ranks[rank];
    uint64_t sequence = atomic_load_explicit(&r->traced, memory_order_acquire);
    const heap_trace *entry = &r->trace[sequence % HEAP_TRACE];

    /* A rank that was stopped just then has counted the last one and not written it yet. */
    if (sequence > 0 && atomic_load_explicit(&entry->sequence, memory_order_acquire) != sequence)
        entry = &r->trace[--sequence % HEAP_TRACE];
    *sequence_p = sequence;
    return entry;
}

static int is_open(const heap_trace *entry, uint64_t sequence)
{
    return sequence > 0 && atomic_load(&entry->state) < TRACE_DONE;
}

int64_t oriel_comm_awaited(const oriel_comm *comm)
{
    int end = comm->first_rank + comm->local_ranks;
    uint64_t sequence;
    int64_t begun = 0;
    int awaited = 0;

    for (int rank = 0; rank < comm->size; rank++) {
        const heap_trace *entry = last_entry(comm, rank, &sequence);
        int here = rank >= comm->first_rank && rank < end;
        int to = atomic_load(&entry->waits_for);

        if (here && is_open(entry, sequence))
            return -1;
        begun += here ? (int64_t)sequence : 0;
        awaited |= !here && is_open(entry, sequence) && to >= comm->first_rank && to < end;
    }
    return awaited ? begun : -1;
}

int oriel_trace_culprit(const oriel_comm *comm, int rank, int asker)
{
    double recently = oriel_now() - LOOKS_S;
    int at = rank;

    for (int steps = 0; steps < comm->size; steps++) {
        uint64_t sequence;
        const heap_trace *entry = last_entry(comm, at, &sequence);
        int to = atomic_load(&entry->waits_for);

        if (!is_open(entry, sequence) || to < 0 || to >= comm->size || entry->looked < recently)
            return at;
        if (to == asker)
            return rank;
        at = to;
    }
    return rank;
}

void oriel_trace_describe(const oriel_comm *comm, int rank, char *out, size_t len)
{
    uint64_t sequence;
    const heap_trace *entry = last_entry(comm, rank, &sequence);
    double now = oriel_now();
    char place[80];
    uint32_t state;

    oriel_name_place(&comm->heap, entry->call, place, sizeof place);
    state = atomic_load_explicit(&entry->state, memory_order_acquire);
    if (sequence == 0)
        snprintf(out, len, "it has not called any operation yet");
    else if (state == TRACE_DONE || state == TRACE_FAILED)
        snprintf(out, len, "its last operation was %s #%llu of %llu bytes%s, %s %.1f s ago",
                 oriel_kind_name(entry->kind), (unsigned long long)sequence,
                 (unsigned long long)entry->bytes, place, state == TRACE_DONE ? "done" : "failed",
                 now - entry->ended);
    else if (entry->waits_for >= 0)
        snprintf(out, len, "it is in %s #%llu of %llu bytes%s for %.1f s, waiting for rank %d",
                 oriel_kind_name(entry->kind), (unsigned long long)sequence,
                 (unsigned long long)entry->bytes, place, now - entry->begun,
                 (int)entry->waits_for);
    else
        snprintf(out, len, "it is in %s #%llu of %llu bytes%s for %.1f s",
                 oriel_kind_name(entry->kind), (unsigned long long)sequence,
                 (unsigned long long)entry->bytes, place, now - entry->begun);
}
