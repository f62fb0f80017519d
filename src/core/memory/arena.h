/* The arena: memory of each rank that every process can address. One sparse segment of the comm,
 * laid out by the heap's header, made by the lead and fetched by the others when a call first
 * needs it; pages cost something when they are touched.
 *
 *   rank 0: areas | windows;  rank 1: areas | windows;  ...
 *
 * Areas are for operands and results of kernels whose own memory others cannot reach: each rank
 * takes and gives its own. Windows lie at the same place of each rank: see window.h. */
#ifndef ORIEL_CORE_MEMORY_ARENA_H
#define ORIEL_CORE_MEMORY_ARENA_H

#include "core/memory/table.h"
#include "core/world/comm.h"

typedef struct heap_memory {
    uint64_t area_bytes;                  /* of each rank, for areas */
    uint64_t window_bytes;                /* of each rank, for windows, which come behind them */
    _Atomic uint64_t mapped[TABLE_WORDS]; /* a bit for each process that has mapped it */
    heap_table table;                     /* the windows */
} heap_memory;

extern const heap_section oriel_memory_sections[];

static inline heap_memory *oriel_memory(const oriel_heap *heap)
{
    return heap->section[SECTION_MEMORY];
}

/* Lead, before anybody else sees the heap: how large the arena will be. */
void oriel_arena_plan(const oriel_heap *heap);

/* A stretch of one rank's part, from the call's begin to its end. */
typedef struct oriel_area {
    size_t at, bytes;        /* within the part; bytes 0: not taken */
    struct oriel_area *next; /* by address */
} oriel_area;

/* What peers ask the lead's port for. */
#define ARENA_SEGMENT UINT64_MAX

/* Local; maps the arena where that has not been done. */
oriel_status oriel_arena_open(oriel_comm *comm);
/* Whether all processes of the group have mapped it: then they have until the comm's end. */
int oriel_arena_is_shared(const oriel_group *group);
/* Local, and opens it; `rank` is of this process; the area lies where the least address has room.
 * ORIEL_ERR_NO_RESOURCE: there is none. */
oriel_status oriel_arena_take(oriel_comm *comm, int rank, size_t bytes, oriel_area *area);
/* Nobody may touch it any more. One that was not taken is fine. */
void oriel_arena_give(oriel_comm *comm, int rank, oriel_area *area);
/* Where `rank`, of any process, has its byte `at`. The arena is mapped. */
char *oriel_arena_at(const oriel_comm *comm, int rank, size_t at);
/* Whose byte an address is: whether it is one of the arena, as far as it is mapped. */
int oriel_arena_find(const oriel_comm *comm, const void *addr, int *rank_p, size_t *at_p);

/* Memory that others than the comm use, JAX's arrays: it stays mapped until the last of them has
 * let go, though the comm may be gone by then. */
typedef struct arena_mapping {
    oriel_segment segment;      /* the arena */
    const oriel_fabric *fabric; /* that mapped it */
    _Atomic int holders;        /* the comm is one while it lasts */
} arena_mapping;

/* The arena is mapped. Any thread may let go at any time. */
arena_mapping *oriel_arena_hold(oriel_comm *comm);
void oriel_arena_let_go(arena_mapping *mapping);

/* Lead: the segment, made if need be; NULL: it cannot be. */
const oriel_segment *oriel_arena_lookup(oriel_comm *comm);
void oriel_arena_free(oriel_comm *comm);

#endif
