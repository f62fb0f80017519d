/* How the processes of a job come to share a heap. */
#ifndef ORIEL_CORE_START_BOOTSTRAP_H
#define ORIEL_CORE_START_BOOTSTRAP_H

#include "core/world/comm.h"

/* Fills fabric, heap, process numbers and lead; joins. With a failure as `mine`
 * the process only tells the others why it cannot join, and fails with that. */
oriel_status oriel_bootstrap(oriel_comm *comm, const oriel_comm_params *params, oriel_status mine);

#endif
