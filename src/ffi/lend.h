/* XLA's communicators, which it lends to calls that ask for them: through an extension of the call
 * frame, which is there or not, whatever the version of jaxlib says. */
#ifndef ORIEL_FFI_LEND_H
#define ORIEL_FFI_LEND_H

#include "ffi/frame.h"
#include "fabric/nccl/library.h"

/* ---- the prepare stage --------------------------------------------------------------------- */

/* Whether the member has decided in this world. */
int oriel_lend_is_decided(const site_member *member);
/* The caller holds the world. Where the communicator cannot be had the call goes on without it,
 * unless ORIEL_NCCL_COMM is xla: then it fails with the reason. */
oriel_status oriel_lend_decide(const xla_frame *frame, site_member *member);
/* Asks XLA for the communicator of the group, which XLA then makes if it has none. */
oriel_status oriel_lend_request(const xla_frame *frame, const oriel_site *site,
                                const site_member *member);

/* ---- later stages -------------------------------------------------------------------------- */

/* The communicator is lent for as long as the stage; NULL: the call goes without it. */
oriel_status oriel_lend_take(const xla_frame *frame, const oriel_site *site,
                             const site_member *member, nccl_comm *comm_p);

#endif
