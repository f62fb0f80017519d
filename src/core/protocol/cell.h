/* The protocol of one operation: see docs/protocol.md. A cell is the meeting
 * place of one operation in the heap; its one atomic word decides everything on
 * which all members must agree. */
#ifndef ORIEL_CORE_PROTOCOL_CELL_H
#define ORIEL_CORE_PROTOCOL_CELL_H

#include "core/world/comm.h"

enum oriel_mode {
    ORIEL_MODE_EAGER = 1, /* payloads in the block; committed once all have arrived */
    ORIEL_MODE_STAGED,    /* through a channel, chunk by chunk; committed once all have finished */
    ORIEL_MODE_PULLED,    /* members read each other's memory; committed once all have finished */
    ORIEL_MODE_DIRECT,    /* in place, within one process; committed once all chunks are done */
    ORIEL_MODE_LANE,      /* payloads in the group's lane, without a cell */
    ORIEL_MODE_KERNEL,    /* a kernel runs; committed once it has ended on all */
};

typedef struct cell_view {
    uint32_t arrived, active, finished, left;
    int revoked, mismatch;
} cell_view;

/* Finds or makes the cell of `key` for member `index` (world rank `rank`).
 * ORIEL_IN_PROGRESS: a lock or a resource is taken, nothing is held, come again.
 * ORIEL_ERR_MISMATCH: the cell's record differs; the operation is revoked. */
oriel_status oriel_cell_enter(const oriel_group *group, int rank, int index, const oriel_key *key,
                              const oriel_record *record, heap_cell **cell_p);
/* Counts member `index` as arrived, after its payload or addresses are in place.
 * Returns 0 when the operation is revoked. */
int oriel_cell_arrive(const oriel_group *group, heap_cell *cell, int index);
cell_view oriel_cell_look(const heap_cell *cell);
int oriel_cell_committed(const heap_cell *cell);
/* Revokes the operation unless it is committed; returns whether it is revoked. */
int oriel_cell_revoke(heap_cell *cell);
/* Direct mode: before and after touching buffers of others; claim returns 0 when
 * the operation is revoked. */
int oriel_cell_claim(heap_cell *cell);
void oriel_cell_release(heap_cell *cell);
/* Direct mode, after a failure: returns once nobody touches buffers any more. */
void oriel_cell_drain(const heap_cell *cell);
/* Counts `by` members as finished; returns 0 when the operation is revoked. */
int oriel_cell_finish(heap_cell *cell, uint32_t by);
/* After success: the last member to leave frees the cell. */
void oriel_cell_leave(const oriel_group *group, heap_cell *cell);

/* The first member that has not arrived; once all have, the one that is furthest
 * behind in a staged transfer; -1: none. A world rank. */
int oriel_cell_missing(const oriel_group *group, const heap_cell *cell);
/* Who is just entering or leaving where this key's cell is or would be; -1: nobody. */
int oriel_cell_at_door(const oriel_comm *comm, const oriel_key *key);

#endif
