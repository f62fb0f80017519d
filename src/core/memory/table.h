/* The windows of a machine, in its heap: which stretch of the arena each has, who holds it, and how
 * those who make one come together. A stretch is at the same place of each rank. */
#ifndef ORIEL_CORE_MEMORY_TABLE_H
#define ORIEL_CORE_MEMORY_TABLE_H

#include "core/world/comm.h"

enum {
    TABLE_WINDOWS = 16384,               /* at a time */
    TABLE_STRETCHES = 2 * TABLE_WINDOWS, /* no two free ones lie beside each other, none is last */
    TABLE_MEETINGS = HEAP_MAX_RANKS,     /* windows being made at a time: one by each process */
    TABLE_CLASSES = 8 * 64,              /* sizes of stretches: eight to a power of two */
    TABLE_WORDS = HEAP_MAX_RANKS / 64    /* of a bit for each process */
};

/* A window, or a stretch between windows that is free. Indices are one more than the place in
 * `windows`, so that 0 is none. */
typedef struct heap_window {
    uint64_t number;   /* of the window, from 1, none twice in a world; 0: the stretch is free */
    uint64_t at, room; /* the stretch, in the part of each rank that is for windows */
    uint64_t bytes;    /* of each rank, as asked for */
    uint32_t ranks;    /* that have a part of it */
    _Atomic uint32_t held; /* processes that have not let go of it */
    uint32_t below, above; /* the stretches beside it */
    uint32_t prior, next;  /* of a free one: in the list of its class; of a record in no use: `next`
                            * is the next of these */
    _Atomic uint64_t
        who[TABLE_WORDS]; /* a bit for each process that holds it: for those who look on
                           */
} heap_window;

/* From the first process that comes to make a window until the last has heard what came of it. */
typedef struct heap_meeting {
    uint64_t bytes;                /* as the first has asked */
    uint32_t window;               /* its stretch; 0: there is none */
    uint32_t status;               /* of the first to fail, or ORIEL_OK */
    int32_t process;               /* the first to come */
    _Atomic uint32_t come;         /* processes that are ready or have failed; or MEETING_REVOKED:
                                    * one has given up before all had come, so nobody has it */
    _Atomic uint32_t heard;        /* processes that know of all that have come */
    uint64_t members[TABLE_WORDS]; /* a bit for each process of the group ... */
    _Atomic uint64_t who[TABLE_WORDS]; /* ... and for each of those that have come */
    char text[HEAP_TEXT];              /* why it failed */
} heap_meeting;

enum { MEETING_REVOKED = 1 << 30 }; /* and more than there are processes */

typedef struct heap_table {
    _Atomic uint32_t owner;        /* of what follows: process + 1; 0: nobody */
    uint32_t used;                 /* records that ever were */
    uint32_t spare;                /* the first that is in no use any more */
    uint32_t held;                 /* windows */
    uint32_t last;                 /* the stretch that ends at `end` */
    _Atomic uint32_t waiting;      /* threads that find no place to meet */
    uint64_t numbers;              /* given so far */
    uint64_t end;                  /* of all stretches */
    uint32_t free[TABLE_CLASSES];  /* of each class the first */
    uint64_t keys[TABLE_MEETINGS]; /* group, and which of its windows; 0: free */
    heap_meeting meetings[TABLE_MEETINGS];
    heap_window windows[TABLE_STRETCHES];
} heap_table;

heap_table *oriel_table_of(const oriel_comm *comm);
/* Held for a few hundred instructions. Fails where the comm is revoked, which the caller does not
 * change any more. */
oriel_status oriel_table_lock(oriel_comm *comm);
void oriel_table_unlock(oriel_comm *comm);
/* The process that has had the lock for a while, which no running one does; -1: none has. And the
 * comm is revoked because of it. */
int oriel_table_stuck(const oriel_comm *comm);
void oriel_table_abort_stuck(oriel_comm *comm, int process);
/* Under the lock: a stretch for a window of the group, all of whose processes hold it; NULL: there
 * is none, and why is the last error. */
heap_window *oriel_table_take(oriel_group *group, size_t bytes);
/* Likewise: nobody uses it any more, and its pages are zero. */
void oriel_table_give(oriel_comm *comm, heap_window *window);
/* Local: the process lets go. Returns whether it was the last: then it alone has the stretch, makes
 * its pages zero, and gives it. */
int oriel_table_let_go(const oriel_comm *comm, heap_window *window);

/* A process of the group comes to make a window, the first or a later one; *meeting_p is where.
 * Fails where the comm has been revoked. */
oriel_status oriel_making_come(oriel_group *group, uint64_t key, size_t bytes,
                               heap_meeting **meeting_p);
/* It is ready, or has failed with `mine`, whose sentence is the last error. Waits for the others;
 * what came of it is the same on all. On success the process holds the window. */
oriel_status oriel_making_end(oriel_group *group, heap_meeting *meeting, oriel_status mine,
                              heap_window **window_p);
/* The first process that has not come; -1: all have. */
int oriel_making_missing(const heap_meeting *meeting);

#endif
