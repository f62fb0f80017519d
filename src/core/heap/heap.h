/* A comm's heap: one shared segment per machine that every process there maps. It has entries
 * for all ranks and processes of the world. Positions are offsets, since each process maps it
 * elsewhere.
 *
 *   header | sections, in the order of their ids | pools of the ranks (pool.h)
 *
 * What a section holds is declared by the room that it belongs to, in its own header; here
 * sections are bytes that are laid out. */
#ifndef ORIEL_CORE_HEAP_HEAP_H
#define ORIEL_CORE_HEAP_HEAP_H

#include <stdatomic.h>

#include "base/sys.h"
#include "fabric/fabric.h"

enum { HEAP_LINE = 64, HEAP_PAGE = 4096, HEAP_MAX_RANKS = 1024, HEAP_TEXT = 512 };

#define HEAP_ALIGNED __attribute__((aligned(HEAP_LINE)))

/* `oriel doctor` reads what lies before the cells. */
enum heap_section_id {
    /* core/world */
    SECTION_PROCS,
    SECTION_RANKS,
    SECTION_CONTROL,
    SECTION_NAMES,
    /* core/protocol */
    SECTION_BUCKETS,
    /* core/heap */
    SECTION_POOLS,
    /* core/memory */
    SECTION_MEMORY,
    /* core/device */
    SECTION_EXPORTS,
    /* core/nccl */
    SECTION_ROUNDS,
    SECTION_VOTES,
    SECTION_OFFERS,
    SECTION_APPOINTMENTS,
    SECTION_ATTENDANCES,
    HEAP_SECTIONS
};

/* The owner of a section: all together have one, or each has its own. */
enum heap_share { HEAP_OF_ALL, HEAP_PER_PROCESS, HEAP_PER_RANK };

typedef struct heap_section {
    const char *name;        /* a part of the magic */
    enum heap_section_id id; /* its place in the order */
    enum heap_share share;   /* how many shares there are */
    size_t bytes;            /* of each share; 0 ends a list */
} heap_section;

/* The lists of all rooms; NULL ends them. core/start has the one that comms are made with. */
typedef const heap_section *const *heap_rooms;

typedef struct heap_header {
    uint64_t magic;         /* of the version and of all sections: nobody takes another's heap */
    uint64_t bytes;         /* of the whole segment */
    uint32_t num_processes; /* of the world */
    uint32_t num_ranks;     /* of the world */
    uint32_t num_machines;  /* of the world */
    uint32_t machine;       /* the one that this heap is of */
    uint32_t parties;       /* of a meeting: the machine's processes, and its bridge */
    uint32_t lead;          /* the process that made it */
    uint32_t direct;        /* direct mode allowed */
    uint32_t num_blocks;    /* in each pool */
    uint32_t num_channels;  /* in each pool */
    uint32_t num_lanes;     /* in each pool */
    uint32_t chunk_bytes;   /* what an operation stages at a time, at most */
    uint64_t block_bytes;   /* of one */
    uint64_t channel_bytes; /* of one */
    uint64_t lane_bytes;    /* of one */
    uint64_t pool_bytes;    /* of one */
    uint64_t pools_at;      /* bytes from the begin: the first rank's pool */
    uint64_t at[HEAP_SECTIONS];           /* likewise, each section by its id */
    HEAP_ALIGNED _Atomic uint32_t parked; /* calls that wait for a place in a pool */
} heap_header;

/* Where this process sees it. Sections that calls use have a pointer of their own type. */
typedef struct oriel_heap {
    oriel_segment segment;        /* all of it, as mapped here */
    heap_header *header;          /* how the segment begins */
    struct heap_proc *procs;      /* by process number */
    struct heap_rank *ranks;      /* by world rank */
    struct heap_bucket *buckets;  /* HEAP_BUCKETS of them: see cell.h */
    struct heap_pool *pool;       /* per rank: what of its pool is taken */
    char *pools;                  /* ... and the pools themselves */
    void *section[HEAP_SECTIONS]; /* by id */
} oriel_heap;

/* Bytes and layout of a heap for these processes with the present options. */
oriel_status oriel_heap_plan(heap_rooms rooms, const int *local_ranks, int num_processes,
                             heap_header *header_p);
/* Lead: lays the heap out in a fresh, zeroed segment. */
void oriel_heap_format(oriel_segment segment, const heap_header *plan, oriel_heap *heap_p);
/* Others: finds its way in a segment the lead has formatted. Reads the header alone, and believes
 * nothing of it. */
oriel_status oriel_heap_open(heap_rooms rooms, oriel_segment segment, oriel_heap *heap_p);

#endif
