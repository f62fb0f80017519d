/* The windows of a running job, and the processes that are making some, as a copy of the table in
 * its heap tells. */
#ifndef ORIEL_TOOLS_WINDOWS_H
#define ORIEL_TOOLS_WINDOWS_H

#include "core/memory/arena.h"
#include "doctor/attach.h"

typedef struct oriel_windows_view {
    heap_memory *memory;      /* the copy; of the windows only those records that were ever used */
    const heap_window **list; /* windows, the largest first */
    int count;                /* of them */
    double bytes;             /* of all of them, on all their ranks */
    long long taken;          /* memory that the arena takes; -1: not known, or there is no arena */
    int num_processes;        /* of the comm */
} oriel_windows_view;

/* Returns -1 where memory ran out, or the heap cannot be read. */
int oriel_windows_take(const oriel_comm_view *comm, oriel_windows_view *view_p);
void oriel_windows_view_free(oriel_windows_view *view);
/* The process that `process` waits for, where it is making a window; -1: it does not wait. *bytes_p
 * is what was asked for. */
int oriel_windows_missing(const oriel_windows_view *view, int process, uint64_t *bytes_p);
/* How many there are and what they take, and the largest of them: nothing where there is none. */
void oriel_windows_print(const oriel_windows_view *view);
/* The same as an object, where there is none, too. */
void oriel_windows_print_json(const oriel_windows_view *view);

#endif
