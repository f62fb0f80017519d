/* Windows, seen from inside: stretches of the arena at the same place of each rank. Making one is a
 * meeting of the group's processes (table.h); letting go is local, and the memory is used again
 * when all have. */
#ifndef ORIEL_CORE_MEMORY_WINDOW_H
#define ORIEL_CORE_MEMORY_WINDOW_H

#include "core/memory/table.h"

struct oriel_window {
    oriel_comm *comm;    /* that it was made on */
    heap_window *shared; /* in the heap */
    uint64_t number;     /* from 1, the same on all; none twice in a world */
    size_t at;           /* in each rank's part of the arena */
    size_t bytes;        /* of each rank, as asked for */
    int n;               /* members */
    int ranks[];         /* ... of the world, in the group's order */
};

/* Local: whether the bytes lie in the part of `rank`, which is of this process, of a window that
 * this process holds; *at_p is where, in the rank's part of the arena. What lies in another rank's
 * part is outside, as is any other memory. Fails where the bytes lie among windows, but in none. */
oriel_status oriel_window_place(oriel_comm *comm, int rank, const void *addr, size_t bytes,
                                int *inside_p, size_t *at_p);
/* Local, at the end of the comm: those that this process still has. */
void oriel_windows_free(oriel_comm *comm);

#endif
