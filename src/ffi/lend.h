/* XLA's communicators, which it lends to calls that ask for them: through an extension of the call
 * frame, which is there or not, whatever the version of jaxlib says. */
#ifndef ORIEL_FFI_LEND_H
#define ORIEL_FFI_LEND_H

#include "ffi/frame.h"
#include "fabric/nccl/library.h"

/* In the prepare stage: asks XLA for the communicator of the group, which XLA then makes if it has
 * none. Where it cannot be had the call goes on without, unless ORIEL_NCCL_COMM is xla: then it
 * fails with the reason. */
oriel_status lend_request(const xla_frame *frame, oriel_site *site, const oriel_group *group);
/* In later stages: the communicator, for as long as the stage; NULL: the call goes without. */
oriel_status lend_take(const xla_frame *frame, oriel_site *site, nccl_comm *comm_p);

#endif
