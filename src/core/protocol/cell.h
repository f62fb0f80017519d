/* The protocol of one operation: see docs/protocol.md, and the model in
 * tests/model/cell.pml. A cell is the meeting place of one operation in the heap; its
 * one atomic word decides everything on which all members must agree. */
#ifndef ORIEL_CORE_PROTOCOL_CELL_H
#define ORIEL_CORE_PROTOCOL_CELL_H

#include "core/heap/pool.h"
#include "core/world/comm.h"
#include "core/world/record.h"

enum oriel_mode {
    ORIEL_MODE_EAGER = 1, /* payloads in the block; committed once all have arrived */
    ORIEL_MODE_STAGED,    /* through a channel, chunk by chunk; committed once all have finished */
    ORIEL_MODE_PULLED,    /* members read each other's memory; committed once all have finished */
    ORIEL_MODE_DIRECT,    /* in place, within one process; committed once all chunks are done */
    ORIEL_MODE_LANE,      /* payloads in the group's lane, without a cell */
    ORIEL_MODE_KERNEL,    /* a kernel runs; committed once it has ended on all */
};

typedef struct oriel_key {
    uint64_t group; /* its hash */
    uint64_t site;  /* the call in its program, by name; 0 in ordered calls */
    uint64_t count; /* how often the rank made it before, in this world */
} oriel_key;

typedef struct heap_member {
    _Atomic uint32_t arrived;   /* at the cell */
    _Atomic uint32_t published; /* chunks copied into the own staging slots */
    _Atomic uint32_t reduced;   /* chunks whose own slice is reduced */
    _Atomic uint32_t gathered;  /* chunks copied out */
    uint32_t chunks;            /* staged: how many this member has to publish */
    uint32_t in_window;         /* staged and pulled: others read its `send` where it lies */
    const void *send;           /* direct and pulled: an address in the member's process; of a list
                                 * that of its arrays; in a window where in its part of the arena */
    void *recv;                 /* direct: the same; of a list nothing */
    const void *ragged;         /* direct: its oriel_ragged */
    _Atomic uint64_t waits;     /* kernels: what a thread waits for ... */
    _Atomic uint64_t seen;      /* ... and what there is */
} HEAP_ALIGNED heap_member;
_Static_assert(sizeof(heap_member) == HEAP_BLOCK_MEMBER, "blocks are planned for it");

typedef struct heap_cell {
    _Atomic uint64_t word;                    /* see cell.c */
    HEAP_ALIGNED _Atomic uint32_t next_chunk; /* direct: the first that nobody has taken ... */
    _Atomic uint32_t done_chunks;             /* ... and how many are done */
    oriel_key key HEAP_ALIGNED;               /* of the operation it serves */
    oriel_record record;                      /* as its creator asked for it */
    oriel_record second;                      /* the first that differed ... */
    int32_t second_rank;                      /* ... the rank that brought it ... */
    int32_t record_rank;                      /* ... and the rank that wrote `record` */
    int32_t owner;                            /* rank whose pool the block and the channel are of */
    int32_t block;                            /* with the members' table */
    int32_t channel;                          /* -1: none */
    uint64_t at;                              /* staged: how many bytes were before it */
    int32_t lane; /* taken for the group by its first call, of the owner's pool; -1: none */
} HEAP_ALIGNED heap_cell;

/* Cells are found by their keys: the hash of a key leads to a bucket. */
enum { HEAP_BUCKETS = 256, HEAP_WAYS = 16 };

typedef struct heap_bucket {
    _Atomic uint32_t lock;                 /* 0: free, else 1 + rank of the holder */
    uint32_t used;                         /* bit per way */
    HEAP_ALIGNED uint64_t hash[HEAP_WAYS]; /* of the keys */
    heap_cell cells[HEAP_WAYS];            /* in use where `used` says so */
} HEAP_ALIGNED heap_bucket;

extern const heap_section oriel_protocol_sections[];

static inline heap_member *oriel_heap_members(const oriel_heap *heap, const heap_cell *cell)
{
    return (heap_member *)(void *)oriel_heap_block(heap, cell->owner, cell->block);
}
/* Where member `index` of `n` keeps its eager payload, and how much fits. */
size_t oriel_heap_eager_bytes(const oriel_heap *heap, int n);
char *oriel_heap_eager(const oriel_heap *heap, const heap_cell *cell, int n, int index);

typedef struct cell_view {
    uint32_t arrived, active, finished, left; /* members that did so: see cell.c */
    int revoked, mismatch;                    /* it has failed; its records differ */
} cell_view;

/* Finds or makes the cell of `key` for member `index` (world rank `rank`).
 * ORIEL_IN_PROGRESS: a lock or a resource is taken, nothing is held, come again.
 * ORIEL_ERR_MISMATCH: the cell's record differs; the operation is revoked. */
oriel_status oriel_cell_enter(const oriel_group *group, int rank, int index, const oriel_key *key,
                              const oriel_record *record, heap_cell **cell_p);
/* Counts member `index` as arrived, after its payload or addresses are in place.
 * Returns 0 when the operation is revoked. */
int oriel_cell_arrive(const oriel_group *group, heap_cell *cell, int index);
cell_view oriel_cell_look(const heap_cell *cell);
/* Revokes the operation unless it is committed; returns whether it is revoked. */
int oriel_cell_revoke(heap_cell *cell);
/* Direct mode: before and after touching buffers of others; claim returns 0 when
 * the operation is revoked. */
int oriel_cell_claim(heap_cell *cell);
void oriel_cell_release(heap_cell *cell);
/* Direct mode, after a failure: returns once nobody touches buffers any more. */
void oriel_cell_drain(const heap_cell *cell);
/* Counts `by` members as finished; returns 0 when the operation is revoked. */
int oriel_cell_finish(heap_cell *cell, uint32_t by);
/* After success: the last member to leave frees the cell. */
void oriel_cell_leave(const oriel_group *group, heap_cell *cell);

/* The first member that has not arrived; once all have, the one that is furthest
 * behind in a staged transfer; -1: none. A world rank. */
int oriel_cell_missing(const oriel_group *group, const heap_cell *cell);
/* A rank that is just entering or leaving where this key's cell is or would be; -1: none. */
int oriel_cell_lock_holder(const oriel_comm *comm, const oriel_key *key);

#endif
