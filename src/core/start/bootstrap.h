/* How the processes of a job come to share a heap. */
#ifndef ORIEL_CORE_START_BOOTSTRAP_H
#define ORIEL_CORE_START_BOOTSTRAP_H

#include "core/world/comm.h"

/* Fills fabric, heap, process numbers and lead; joins. With a failure as `mine`
 * the process only tells the others why it cannot join, and fails with that. */
oriel_status oriel_bootstrap(oriel_comm *comm, const oriel_comm_params *params, oriel_status mine);

/* Local: this process cannot make the comm that `given` asks for, for the reason `why`, and says so
 * to the others, so that they need not wait for it. Waits for nobody, but a while for the store. */
ORIEL_API void oriel_comm_refuse(const oriel_comm_params *given, oriel_status status,
                                 const char *why);

#endif
