/* The ring of a rank's last operations, in the heap, so that a peer that waits
 * can say what the one it waits for did last. */
#ifndef ORIEL_CORE_WORLD_TRACE_H
#define ORIEL_CORE_WORLD_TRACE_H

#include "core/world/comm.h"
#include "core/world/record.h"

enum trace_state { TRACE_ENTERED, TRACE_ARRIVED, TRACE_DONE, TRACE_FAILED };

/* An operation has begun, or (TRACE_DONE) was over before anybody could ask. */
heap_trace *oriel_trace_add(oriel_comm *comm, int rank, uint64_t group, const oriel_record *record,
                            enum trace_state state);
void oriel_trace_end(heap_trace *entry, enum trace_state state);
/* The rank waits for another (-1: nobody), as it sees now. */
void oriel_trace_wait(heap_trace *entry, int rank, double now);
/* The rank that holds `rank` up in the end: it waits for another, that one for the next, until one
 * waits for nobody, or has not looked for a while: it may be stopped. In a circle, or where that is
 * `asker`, which waits for `rank`: `rank`. */
int oriel_trace_culprit(const oriel_comm *comm, int rank, int asker);
/* "its last operation was all_reduce #17 of 64 bytes, done 4.2 s ago" */
void oriel_trace_describe(const oriel_comm *comm, int rank, char *out, size_t len);

#endif
