/* How the data of a request moves: one machine for each mode, see docs/design.md. */
#ifndef ORIEL_OPS_HOST_TRANSFER_H
#define ORIEL_OPS_HOST_TRANSFER_H

#include "ops/host/request.h"

/* A result that is about to be written. */
void oriel_transfer_advise(const void *result, size_t bytes);
/* Before the member arrives: puts its payload or its addresses where the others
 * find them. ORIEL_ERR_SYSTEM: no memory. */
oriel_status oriel_transfer_expose(oriel_request *request);
/* All have arrived: moves data. ORIEL_OK: this rank's result is complete.
 * ORIEL_ERR_REVOKED: the operation is revoked. */
oriel_status oriel_transfer_step(oriel_request *request);

/* Staged and pulled, before arriving: if what others need of `send` lies in a window, says in the
 * member's entry where, and in `in_window` that it does. */
oriel_status oriel_transfer_show(oriel_request *request);
/* Where member `index` has its `send`, if it has shown it in a window; else NULL. It has published
 * something, or all have arrived. */
const char *oriel_transfer_shown(const oriel_request *request, int index);

/* ---- direct (direct.c) ------------------------------------------------------------ */

oriel_status oriel_direct_step(oriel_request *request);

/* ---- staged (staged.c) ------------------------------------------------------------ */

/* Member i's part of the channel is `area` bytes, in which chunk k begins at byte
 * (at + k * slot) mod `ring`. Where a member gives each other one something of its own, a
 * slot is divided into units, one for each receiver. */
struct stage {
    char *base;         /* of member 0's part */
    size_t area;        /* bytes */
    size_t slot;        /* bytes of one chunk */
    uint32_t slots;     /* places for chunks in the ring, 1 or more */
    size_t ring;        /* bytes of them */
    size_t at;          /* where chunk 0 begins there */
    size_t unit;        /* bytes for one receiver */
    uint32_t columns;   /* units that one range of `unit` bytes of the blocks needs */
    uint32_t per_chunk; /* units in a chunk; fewer than columns where slots are tiny */
};

enum counter { COUNTER_PUBLISHED, COUNTER_REDUCED, COUNTER_GATHERED };

struct stage oriel_stage_of(const oriel_request *request);
char *oriel_stage_slot(const struct stage *s, int member, uint32_t chunk);
/* Whether `whom` (a position, OP_NOBODY or OP_EVERYBODY) has come so far. */
int oriel_stage_reached(const oriel_request *request, int whom, enum counter which, uint32_t value);
/* Publishes the own progress to `whom`. */
void oriel_stage_advance(oriel_request *request, int whom, enum counter which, uint32_t value);
/* Whether slot of chunk `chunk` may be filled. */
int oriel_stage_writable(const oriel_request *request, const struct stage *s, uint32_t chunk);

oriel_status oriel_staged_step(oriel_request *request);
/* Before arriving. */
oriel_status oriel_staged_expose(oriel_request *request);

/* ---- pulled (pull.c) ---------------------------------------------------------------- */

oriel_status oriel_pull_expose(oriel_request *request);
oriel_status oriel_pull_step(oriel_request *request);
/* Copies memory of member `from`. ORIEL_ERR_PEER: it is gone; ORIEL_ERR_REVOKED: the operation
 * is revoked. */
oriel_status oriel_pull_read(const oriel_request *request, int from, char *dst, const char *src,
                             size_t bytes);

/* ---- all_reduce (all_reduce.c) ------------------------------------------------------ */

/* Staged: does each phase's next chunk if it may; returns how
 * many were done. */
int oriel_two_shot_round(oriel_request *request, const struct stage *s);

#endif
