/* The windows of a machine, in its heap: which stretch of the arena each has, who holds it, and how
 * those who make one come together. A stretch is at the same place of each rank. */
#ifndef ORIEL_CORE_MEMORY_TABLE_H
#define ORIEL_CORE_MEMORY_TABLE_H

#include "core/world/comm.h"

enum {
    TABLE_WINDOWS = 16384,  /* stretches at most, free ones too */
    TABLE_MEETINGS = 64,    /* windows being made at a time */
    TABLE_CLASSES = 8 * 64, /* sizes of stretches: eight to a power of two */
    TABLE_PROCS = HEAP_MAX_RANKS / 64
};

typedef struct heap_window {
    uint64_t number;   /* of the window, from 1, none twice in a world; 0: the stretch is free */
    uint64_t at, room; /* the stretch, in the part of each rank that is for windows */
    uint64_t bytes;    /* of each rank, as asked for */
    int32_t process;   /* that made it first; for those who look on */
    _Atomic uint32_t held; /* processes that have not let go of it */
    uint32_t next;         /* of the free ones of a class: index + 1; 0: none */
} heap_window;

/* From the first process that comes to make a window until the last has heard what came of it. */
typedef struct heap_meeting {
    uint64_t key;                      /* group, and which of its windows; 0: free */
    uint64_t bytes;                    /* as the first has asked */
    uint32_t window;                   /* index of its stretch; TABLE_WINDOWS: there is none */
    uint32_t status;                   /* of the first to fail, or ORIEL_OK */
    int32_t process;                   /* the first to come */
    _Atomic uint32_t come;             /* processes that are ready or have failed */
    _Atomic uint32_t heard;            /* processes that know of all that have come */
    _Atomic uint64_t who[TABLE_PROCS]; /* a bit for each of these */
    char text[HEAP_TEXT];              /* why it failed */
} heap_meeting;

typedef struct heap_table {
    _Atomic uint32_t owner;       /* of what follows: process + 1; 0: nobody */
    uint32_t used;                /* windows that ever were */
    uint64_t numbers;             /* given so far */
    uint64_t end;                 /* of all stretches */
    uint32_t free[TABLE_CLASSES]; /* by class: index + 1; 0: none */
    heap_meeting meetings[TABLE_MEETINGS];
    heap_window windows[TABLE_WINDOWS];
} heap_table;

/* A process of the group comes to make a window, the first or a later one; *meeting_p is where.
 * Fails alone only where the comm has been revoked. */
oriel_status oriel_table_come(oriel_group *group, uint64_t key, size_t bytes,
                              heap_meeting **meeting_p);
/* It is ready, or has failed with `mine`, whose sentence is the last error. Waits for the others;
 * what came of it is the same on all. On success the process holds the window. */
oriel_status oriel_table_meet(oriel_group *group, heap_meeting *meeting, oriel_status mine,
                              heap_window **window_p);
/* Local: the process lets go. Returns whether it was the last: then it alone has the stretch, makes
 * its pages zero, and gives it. */
int oriel_table_let_go(heap_window *window);
void oriel_table_give(oriel_comm *comm, heap_window *window);

#endif
