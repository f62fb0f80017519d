/* What processes that register memory with NCCL agree on in the heap. */
#ifndef ORIEL_CORE_NCCL_SECTIONS_H
#define ORIEL_CORE_NCCL_SECTIONS_H

#include "core/heap/heap.h"

/* ---- rounds of the registrars: see register.c ---------------------------------------------- */

typedef struct heap_rounds {
    _Atomic uint64_t round;  /* its number and phase, by the lead */
    _Atomic uint32_t failed; /* there will be no more */
} HEAP_ALIGNED heap_rounds;

/* Of a process. */
typedef struct heap_vote {
    _Atomic uint64_t word; /* the round, and what it says in it */
} HEAP_ALIGNED heap_vote;

/* What a rank brings to a round of registration, once its process has voted for that. */
typedef struct heap_offer {
    uint32_t number;     /* of the export, from 1; 0: none */
    uint32_t generation; /* of the export */
    uint64_t bytes;      /* of the export */
} heap_offer;

/* Of a rank. */
typedef struct heap_offers {
    _Atomic uint32_t unregistered; /* exports, as yet */
    heap_offer offer;              /* in the round at hand */
} HEAP_ALIGNED heap_offers;

/* ---- appointments of groups: see appoint.h and borrow.c -------------------------------------- */

enum { HEAP_APPOINTMENTS = 64, HEAP_BROUGHT = 8 };

typedef struct heap_appointment {
    _Atomic uint64_t group; /* its hash; 0: free */
    _Atomic uint64_t at;    /* the call of each member in which all meet; 0: none */
    _Atomic uint32_t lock;  /* 0: free, else 1 + rank of the holder */
    _Atomic uint32_t came;  /* members that are there */
    _Atomic uint32_t left;  /* members that have gone again */
    _Atomic uint32_t off;   /* there will be none any more */
} HEAP_ALIGNED heap_appointment;

/* What a member brings to an appointment. */
typedef struct heap_brought {
    int32_t window;      /* number of the rank's; -1: something that nobody asks for */
    uint32_t generation; /* of that window */
    uint64_t bytes;      /* of that window */
} heap_brought;

/* A member of a group that makes appointments. */
typedef struct heap_attendance {
    _Atomic uint64_t calls; /* so far */
    _Atomic uint32_t wants; /* so many things */
    /* Written before it comes, read while all are there. */
    int32_t member;       /* its rank on the communicator */
    uint64_t site;        /* the call that it is in */
    uint64_t done;        /* bit for each window that it needs no more */
    uint32_t num_brought; /* of the following */
    heap_brought brought[HEAP_BROUGHT];
} heap_attendance;

extern const heap_section oriel_nccl_sections[];

static inline heap_rounds *oriel_rounds_word(const oriel_heap *heap)
{
    return heap->section[SECTION_ROUNDS];
}

static inline heap_vote *oriel_vote(const oriel_heap *heap, int process)
{
    return &((heap_vote *)heap->section[SECTION_VOTES])[process];
}

static inline heap_offers *oriel_offers(const oriel_heap *heap, int rank)
{
    return &((heap_offers *)heap->section[SECTION_OFFERS])[rank];
}

static inline heap_appointment *oriel_appointment(const oriel_heap *heap, int place)
{
    return &((heap_appointment *)heap->section[SECTION_APPOINTMENTS])[place];
}

/* Of a rank, for the appointment at `place`. */
static inline heap_attendance *oriel_attendance_of(const oriel_heap *heap, int rank, int place)
{
    heap_attendance *all = heap->section[SECTION_ATTENDANCES];

    return &all[rank * HEAP_APPOINTMENTS + place];
}

#endif
