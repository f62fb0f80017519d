/* Windows, seen from inside; struct oriel_window is in comm.h. */
#ifndef ORIEL_CORE_MEMORY_WINDOW_H
#define ORIEL_CORE_MEMORY_WINDOW_H

#include "core/world/comm.h"

/* The segment of window `id`, counted from 1; NULL: there is none here. */
const oriel_segment *oriel_window_lookup(oriel_comm *comm, uint64_t id);
void oriel_windows_free(oriel_comm *comm);

#endif
