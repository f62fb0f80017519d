/* An NCCL communicator that belongs to somebody else, XLA, and is lent for one call at a time:
 * its ranks are the members of a group. Buffers of the calls are registered as windows on it, and
 * peers' addresses come from there: instead of through descriptors, as register.c has it.
 *
 * A communicator that is lent is never aborted, kept beyond the call, or used from another
 * thread: windows are registered and deregistered in calls that it is lent to, by their thread.
 * When XLA has another one, all that was registered on the last is forgotten. */
#ifndef ORIEL_CORE_NCCL_BORROW_H
#define ORIEL_CORE_NCCL_BORROW_H

#include "core/device/device.h"
#include "fabric/nccl/library.h"

/* Why NCCL would refuse a communicator of the group, which its owner makes when it is asked for:
 * ranks that share a GPU. NULL: it would not, as far as is known. */
const char *oriel_borrow_obstacle(const oriel_group *group, char *out, size_t len);

/* Local, by the thread of a call: `lent`, or NULL where the stage of the call has none, and it is
 * known from an earlier one. From here to oriel_borrow_end the rank's buffers are windows of the
 * group's communicator; where nothing is lent, or windows were refused, they are shown as without
 * it. */
void oriel_borrow_begin(oriel_group *group, int rank, nccl_comm lent, cu_stream stream);
/* Between the two, when the call's buffers are known, once in each execution on every member, in
 * the same order; `site` is which call it is. Waits for peers only in calls that all have
 * agreed on before. Fails with what revoked the comm. */
oriel_status oriel_borrow_meet(oriel_group *group, int rank, uint64_t site);
void oriel_borrow_end(oriel_comm *comm, int rank);
/* Local: this rank cannot take part in a call that others count; buffers of the group go without
 * from now on. */
void oriel_borrow_give_up(oriel_group *group, int rank);
/* The communicator lent to the call at hand; NULL: none. */
nccl_comm oriel_borrow_comm(const oriel_comm *comm, int rank);
/* `result` is what NCCL said when `what` was started on it: waits until that has been, where the
 * communicator does not block, bounded by the comm's deadline and its revocation. One that
 * blocks, as XLA's are unless told otherwise, has waited already, without a bound. */
oriel_status oriel_borrow_settle(oriel_comm *comm, nccl_comm lent, nccl_result result,
                                 const char *what);

void oriel_borrow_count(const oriel_comm *comm, oriel_borrow_counts *sum_p);

#endif
