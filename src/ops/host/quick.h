/* Ordered calls whose payload fits the group's lane. */
#ifndef ORIEL_OPS_HOST_QUICK_H
#define ORIEL_OPS_HOST_QUICK_H

#include "core/protocol/lane.h"
#include "ops/op.h"

/* Whether the call is carried out in the lane. All members find the same: it
 * follows from what they must agree on. */
int oriel_quick_fits(const oriel_group *group, const oriel_op *op);
/* Bytes of payload that a member brings to the call's first meeting in the lane. */
size_t oriel_quick_brings(const oriel_group *group, const oriel_seat *seat, const oriel_op *op);
/* Arrives at `call`, with the payload where the record's mode says so. */
void oriel_quick_arrive(const oriel_group *group, oriel_seat *seat, uint64_t call,
                        const oriel_op *op, const oriel_record *record);
/* Whom it has to look for then. */
lane_scan oriel_quick_scan(const oriel_seat *seat, const oriel_op *op);
/* Fills `recv` once the call is full. */
void oriel_quick_consume(const oriel_group *group, oriel_seat *seat, uint64_t call,
                         const oriel_op *op);

/* A blocking call without a request, for when the others come right away.
 * ORIEL_IN_PROGRESS: it needs one; `*call_p` is 0 where nothing has been done yet,
 * otherwise the call has arrived in the lane with `*record_p`. */
oriel_status oriel_quick_run(oriel_group *group, int rank, const oriel_op *op, uint64_t *call_p,
                             oriel_record *record_p);

#endif
