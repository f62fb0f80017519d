/* Why an operation cannot go on, and the sentence that says so. */
#ifndef ORIEL_OPS_HOST_VERDICT_H
#define ORIEL_OPS_HOST_VERDICT_H

#include "ops/host/request.h"

enum { VERDICT_WAIT, VERDICT_ABORTED, VERDICT_LEFT, VERDICT_LATE, VERDICT_DIFFERENT };

/* Seconds after which an operation that waits looks for peers in a call that differs: when
 * the warnings begin, and in time before the deadline. */
double oriel_verdict_patience(const oriel_comm *comm);
/* Looks at the abort word, at members that have left, at the deadline and at
 * peers that wait in a call of the same site with another record; prints the
 * warning when it is due. */
int oriel_verdict_look(oriel_request *request);
/* Revokes the comm for what oriel_verdict_look found. */
void oriel_verdict_abort(const oriel_request *request, int why);
/* Revokes the comm because the cell saw two records. */
void oriel_verdict_mismatch(const oriel_group *group, const heap_cell *cell);
/* The same because member `index` has arrived in the lane with another record. */
void oriel_verdict_differ(const oriel_request *request, int index);
/* Records the sentence of a revoked operation for this thread; the status. */
oriel_status oriel_verdict_revoked(const oriel_request *request);

#endif
