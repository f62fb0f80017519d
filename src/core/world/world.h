/* What a heap says of the world: its processes, its ranks and what they last did, their meetings,
 * and the one failure of the comm. */
#ifndef ORIEL_CORE_WORLD_WORLD_H
#define ORIEL_CORE_WORLD_WORLD_H

#include "core/heap/heap.h"

enum { HEAP_TRACE = 1024, HEAP_CARD = 128 };

enum proc_state { PROC_ABSENT, PROC_ALIVE, PROC_LEFT, PROC_DEAD };

/* A program that has ended may have calls under way. A process in finalize (oriel_comm_destroy) has
 * none, and makes none. */
enum proc_leaving { LEAVING_NOT, LEAVING_PROGRAM, LEAVING_FINALIZE };

typedef struct heap_proc {
    _Atomic uint32_t state;         /* enum proc_state */
    _Atomic uint32_t control_round; /* control barriers this process has entered */
    _Atomic uint32_t leaving;       /* enum proc_leaving: it waits for others to come as far */
    int32_t pid;                    /* in its own namespace */
    _Atomic uint32_t watcher;       /* a thread of it; the system takes it away when that ends, see
                                     * reads.c; 0: none */
    int32_t first_rank;             /* its ranks are this one ... */
    int32_t local_ranks;            /* ... and so many in all */
    int32_t machine;              /* what stands here of processes of another comes by its bridge */
    _Atomic uint32_t reads;       /* it can read the memory of all others, see reads.c */
    uint64_t token_at;            /* where others find `token` in its memory */
    uint64_t token;               /* by which they know that the memory is its own */
    oriel_ticket ticket;          /* processes of GPUs: where their segments are to be had */
    uint32_t vote[2];             /* its status, for even and odd rounds ... */
    char vote_text[2][HEAP_TEXT]; /* ... and why it voted against */
    /* A line of their own: it stays in every ringer's cache while nobody sleeps. */
    HEAP_ALIGNED _Atomic uint32_t sleepers; /* threads that sleep, or are about to */
    _Atomic uint32_t bell;                  /* futex: changes when somebody sleeps and may go on */
} HEAP_ALIGNED heap_proc;

/* One operation in a rank's ring; read by other processes without a lock, so a
 * torn entry is possible and only ever costs a wrong word in a message. */
typedef struct heap_trace {
    _Atomic uint64_t sequence; /* 1, 2, ...; 0: never used */
    uint64_t group;            /* its hash */
    _Atomic uint64_t bytes;    /* as in the record */
    _Atomic double begun;      /* when it was called */
    _Atomic double ended;      /* when it was done or failed; 0: not yet */
    _Atomic uint64_t call;     /* as in the record */
    _Atomic uint16_t kind;     /* enum oriel_kind */
    _Atomic uint32_t state;    /* enum trace_state */
    _Atomic int32_t waits_for; /* rank, -1: nobody */
    _Atomic double looked;     /* when that was so */
} heap_trace;

typedef struct heap_rank {
    int32_t process;                         /* that it is of */
    uint32_t has_card;                       /* it shows a card */
    _Alignas(uint64_t) char card[HEAP_CARD]; /* what all machines must know of it before the
                                              * processes agree; the room that writes it knows
                                              * what it means */
    _Atomic uint64_t traced;                 /* operations so far */
    _Atomic uint32_t told;                   /* what revoked the comm: later calls say so */
    heap_trace trace[HEAP_TRACE];            /* the last operations, by sequence % HEAP_TRACE */
} HEAP_ALIGNED heap_rank;

typedef struct heap_abort {
    _Atomic uint32_t word; /* 0: none, 1: being written, 2: written */
    uint32_t code;         /* oriel_status */
    int32_t rank;          /* one that is missing or asked for something else; -1: see process */
    int32_t process;       /* the same; -1: nobody */
    char text[HEAP_TEXT];  /* the sentence */
} heap_abort;

/* What the processes have together. */
typedef struct heap_control {
    _Atomic uint64_t control;         /* process barrier: see control.c */
    _Atomic uint32_t control_vote[2]; /* the largest of all votes, for even and odd rounds */
    char shared[HEAP_TEXT];           /* by process 0: see oriel_comm_share */
    HEAP_ALIGNED heap_abort abort;    /* what revoked the comm */
    _Atomic uint64_t cpus[CPU_WORDS]; /* that some process may run on */
} HEAP_ALIGNED heap_control;

extern const heap_section oriel_world_sections[];

static inline heap_control *oriel_control(const oriel_heap *heap)
{
    return heap->section[SECTION_CONTROL];
}

/* Lead, before anybody else sees it: which process has how many ranks and is on which machine,
 * and which machine this is. */
void oriel_world_place(oriel_heap *heap, const int *local_ranks, const int *machines, int machine,
                       int lead);

#endif
