/* The store of a job whose caller brings none: which one it is, and which process
 * holds it. */
#ifndef ORIEL_CORE_START_RENDEZVOUS_H
#define ORIEL_CORE_START_RENDEZVOUS_H

#include "core/start/meeting.h"

/* Fills `server` (if process 0 holds the store, and does not yet) and `own`. */
oriel_status oriel_rendezvous_open(oriel_meeting *meeting, const oriel_comm_params *params);

#endif
