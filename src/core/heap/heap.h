/* The layout of a comm's heap: one shared segment per machine that every
 * process there maps. It has entries for all ranks and processes of the world. Positions are
 * offsets, since each process maps it elsewhere.
 *
 *   header | processes | ranks (trace rings) | buckets (cells) | pools
 *
 * Each rank owns a pool: small blocks (member table and eager payload of one
 * operation), channels (staging of one large operation) and lanes (what a group
 * keeps for its ordered calls). */
#ifndef ORIEL_CORE_HEAP_HEAP_H
#define ORIEL_CORE_HEAP_HEAP_H

#include <stdatomic.h>

#include "base/sys.h"
#include "fabric/fabric.h"

enum {
    HEAP_LINE = 64,
    HEAP_BUCKETS = 256,
    HEAP_WAYS = 16,
    HEAP_TRACE = 1024,
    HEAP_BLOCK_WORDS = 8,   /* bitmap words: at most 512 blocks per rank */
    HEAP_MAX_CHANNELS = 64, /* one bitmap word */
    HEAP_MAX_LANES = 64,    /* the same */
    HEAP_LANE_SLOTS = 16,
    HEAP_LANE_SLOT = 1024,      /* bytes of one, small payloads included */
    HEAP_LANE_BULKS = 4,        /* places for larger payloads */
    HEAP_LANE_ROOM = 256 << 10, /* bytes of one, about */
    HEAP_MAX_RANKS = 1024,
    HEAP_TEXT = 256,
    HEAP_NAMES = 128, /* of kernels */
};

#define HEAP_ALIGNED __attribute__((aligned(HEAP_LINE)))

enum proc_state { PROC_ABSENT, PROC_ALIVE, PROC_LEFT, PROC_DEAD };

typedef struct heap_proc {
    _Atomic uint32_t state;         /* enum proc_state */
    _Atomic uint32_t control_round; /* control barriers this process has entered */
    _Atomic uint32_t leaving;       /* it has come to its end, and waits for others to */
    int32_t pid;
    _Atomic uint32_t watcher; /* a thread of it; the system takes it away when that ends, see
                               * reads.c; 0: none */
    int32_t first_rank;
    int32_t local_ranks;
    int32_t machine;             /* what stands here of processes of another comes by its bridge */
    _Atomic uint64_t round_vote; /* see register_nccl.c */
    _Atomic uint32_t reads;      /* it can read the memory of all others, see reads.c */
    uint64_t token_at;           /* where others find `token` in its memory */
    uint64_t token;
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
    uint64_t group;
    _Atomic uint64_t bytes;
    _Atomic double begun;
    _Atomic double ended;
    _Atomic uint16_t kind;
    uint8_t dtype;
    uint8_t redop;
    _Atomic uint32_t state;    /* enum trace_state */
    _Atomic int32_t waits_for; /* rank, -1: nobody */
    _Atomic double looked;     /* when that was so */
} heap_trace;

/* A mapping of a GPU's memory that its rank lets others map: see register.c. */
typedef struct heap_export {
    _Atomic uint32_t generation; /* odd: shown, even: withdrawn; 0: never used */
    _Atomic uint32_t mapped;     /* processes that have mapped this generation ... */
    _Atomic uint32_t released;   /* ... or have seen that it is withdrawn */
    uint32_t reserved;
    uint64_t bytes;
} heap_export;

/* What a rank brings to a round of registration, once its process has voted for that. */
typedef struct heap_offer {
    uint32_t number; /* of the export, from 1; 0: none */
    uint32_t generation;
    uint64_t bytes;
} heap_offer;

enum { HEAP_EXPORTS = 512, HEAP_GPU_OPTIONS = 7 };

/* What a member brings to an appointment, and what of its windows nobody needs any more: see
 * borrow.c. */
enum { HEAP_CLIQUES = 64, HEAP_BROUGHT = 8 };
typedef struct heap_brought {
    int32_t window; /* number of the rank's; -1: something that nobody asks for */
    uint32_t generation;
    uint64_t bytes;
} heap_brought;

/* A member of a group that makes appointments: see appoint.h. */
typedef struct heap_attendance {
    _Atomic uint64_t calls; /* so far */
    _Atomic uint32_t wants;
    /* Written before it comes, read while all are there. */
    int32_t seat; /* its rank on the communicator */
    uint64_t site;
    uint64_t done; /* bit for each window that it needs no more */
    uint32_t num_brought;
    uint32_t reserved;
    heap_brought brought[HEAP_BROUGHT];
} heap_attendance;

typedef struct heap_appointment {
    _Atomic uint64_t group; /* its hash; 0: free */
    _Atomic uint64_t at;    /* the call of each member in which all meet; 0: none */
    _Atomic uint32_t lock;  /* 0: free, else 1 + rank of the holder */
    _Atomic uint32_t came;
    _Atomic uint32_t left;
    _Atomic uint32_t off; /* there will be none any more */
} HEAP_ALIGNED heap_appointment;

typedef struct heap_rank {
    int32_t process;
    /* A rank that is a GPU shows these before the processes agree. */
    int32_t sms;
    char gpu[16];                           /* its UUID */
    uint64_t gpu_options[HEAP_GPU_OPTIONS]; /* the same on all: see device.c */
    uint64_t device_bytes;                  /* of its heap in device memory; 0: a CPU */
    _Atomic uint32_t num_exports;           /* ever used of those below */
    heap_export exports[HEAP_EXPORTS];
    _Atomic uint32_t unregistered; /* of those, as yet: see register_nccl.c */
    heap_offer offer;
    heap_attendance attendances[HEAP_CLIQUES]; /* one for each appointment */
    _Atomic uint64_t traced;                   /* operations so far */
    _Atomic uint32_t told;                     /* what revoked the comm: later calls say so */
    _Atomic uint64_t blocks[HEAP_BLOCK_WORDS]; /* bit set: taken */
    _Atomic uint64_t channels;
    _Atomic uint64_t lanes;
    _Atomic uint64_t staged; /* bytes so far, about */
    heap_trace trace[HEAP_TRACE];
} HEAP_ALIGNED heap_rank;

/* What an operation is, beside which one it is: compared between ranks. */
typedef struct oriel_record {
    uint64_t bytes; /* of one block; of a row in ragged_all_to_all */
    uint64_t shape; /* what else a kind needs: see op.h */
    uint32_t n;
    uint16_t kind; /* enum oriel_kind */
    uint8_t dtype;
    uint8_t redop;
    uint8_t mode; /* enum oriel_mode; follows from the rest */
    uint8_t reserved[3];
    uint32_t instances; /* calls of one site in one program, 0 outside of XLA */
} oriel_record;

typedef struct oriel_key {
    uint64_t group;
    uint64_t run;
    uint64_t site;
    uint64_t count;
} oriel_key;

typedef struct heap_member {
    _Atomic uint32_t arrived;
    _Atomic uint32_t published; /* chunks copied into the own staging slots */
    _Atomic uint32_t reduced;   /* chunks whose own slice is reduced */
    _Atomic uint32_t gathered;  /* chunks copied out */
    uint32_t chunks;            /* staged: how many this member has to publish */
    const void *send;           /* addresses mean something in direct mode alone */
    void *recv;
    const void *ragged;           /* oriel_ragged */
    _Atomic uint64_t waits, seen; /* kernels: what a thread waits for, and what there is */
} HEAP_ALIGNED heap_member;

typedef struct heap_cell {
    _Atomic uint64_t word; /* see cell.c */
    HEAP_ALIGNED _Atomic uint32_t next_chunk;
    _Atomic uint32_t done_chunks;
    oriel_key key HEAP_ALIGNED;
    oriel_record record;
    oriel_record second; /* the first that differed ... */
    int32_t second_rank; /* ... who brought it ... */
    int32_t record_rank; /* ... and who wrote the other */
    int32_t owner;       /* rank whose pool the block and the channel are of */
    int32_t block;
    int32_t channel; /* -1: none */
    uint64_t at;     /* staged: how many bytes were before it */
    int32_t lane;    /* taken for the group by its first call, of the owner's pool; -1: none */
} HEAP_ALIGNED heap_cell;

typedef struct heap_lane heap_lane; /* see lane.c */

typedef struct heap_bucket {
    _Atomic uint32_t lock; /* 0: free, else 1 + rank of the holder */
    uint32_t used;         /* bit per way */
    HEAP_ALIGNED uint64_t hash[HEAP_WAYS];
    heap_cell cells[HEAP_WAYS];
} HEAP_ALIGNED heap_bucket;

typedef struct heap_abort {
    _Atomic uint32_t word; /* 0: none, 1: being written, 2: written */
    uint32_t code;         /* oriel_status */
    int32_t rank;          /* who is missing or asked for something else; -1: see process */
    int32_t process;
    char text[HEAP_TEXT];
} heap_abort;

/* See names.h. */
typedef struct heap_name {
    _Atomic uint64_t identity; /* 0: free */
    _Atomic uint32_t written;
    char text[116];
} heap_name;

typedef struct heap_header {
    uint64_t magic;
    uint64_t bytes;
    uint32_t num_processes;
    uint32_t num_ranks;
    uint32_t num_machines;
    uint32_t machine; /* whose heap this is */
    uint32_t parties; /* of a meeting: the machine's processes, and its bridge */
    uint32_t lead;    /* the process that made it */
    uint32_t direct;  /* direct mode allowed */
    uint32_t num_blocks;
    uint32_t num_channels;
    uint32_t num_lanes;
    uint32_t chunk_bytes;
    uint64_t block_bytes;
    uint64_t channel_bytes;
    uint64_t lane_bytes;
    uint64_t arena_bytes; /* per rank, of another segment: see arena.h */
    uint64_t procs_at, ranks_at, buckets_at, pools_at, pool_bytes;
    HEAP_ALIGNED _Atomic uint64_t control; /* process barrier: see control.c */
    _Atomic uint32_t control_vote[2];
    char shared[HEAP_TEXT];               /* by process 0: see oriel_comm_share */
    _Atomic uint64_t round;               /* of registration with NCCL: see register_nccl.c */
    _Atomic uint32_t round_failed;        /* there will be no more */
    _Atomic uint64_t window_bytes;        /* what the window being made was asked for */
    HEAP_ALIGNED _Atomic uint32_t parked; /* calls that wait for a resource */
    HEAP_ALIGNED heap_abort abort;
    _Atomic uint64_t cpus[CPU_WORDS]; /* that some process may run on */
    heap_name names[HEAP_NAMES];
    heap_appointment appointments[HEAP_CLIQUES];
} heap_header;

typedef struct oriel_heap {
    oriel_segment segment;
    heap_header *header;
    heap_proc *procs;
    heap_rank *ranks;
    heap_bucket *buckets;
    char *pools;
} oriel_heap;

/* Bytes of a heap for these processes with the present options. */
oriel_status oriel_heap_plan(const int *local_ranks, int num_processes, heap_header *header_p);
/* Lead: lays the heap out in a fresh, zeroed segment. */
void oriel_heap_format(oriel_segment segment, const heap_header *plan, const int *local_ranks,
                       oriel_heap *heap_p);
/* Lead, before anybody else sees it: who is on which machine, and which one this is. */
void oriel_heap_place(oriel_heap *heap, const int *machines, int machine, int lead);
/* Others: finds its way in a segment the lead has formatted. */
oriel_status oriel_heap_open(oriel_segment segment, oriel_heap *heap_p);

char *oriel_heap_block(const oriel_heap *heap, int owner, int block);
char *oriel_heap_channel(const oriel_heap *heap, int owner, int channel);
heap_lane *oriel_heap_lane(const oriel_heap *heap, int owner, int lane);
/* Takes the lowest free bit below `limit`, so that the same memory is used again
 * while it is warm; -1: none. */
int oriel_heap_take_bit(_Atomic uint64_t *word, uint32_t limit);
void oriel_heap_give_bit(_Atomic uint64_t *word, int bit);
static inline heap_member *oriel_heap_members(const oriel_heap *heap, const heap_cell *cell)
{
    return (heap_member *)(void *)oriel_heap_block(heap, cell->owner, cell->block);
}
/* Where member `index` of `n` keeps its eager payload, and how much fits. */
size_t oriel_heap_eager_bytes(const oriel_heap *heap, int n);
char *oriel_heap_eager(const oriel_heap *heap, const heap_cell *cell, int n, int index);

#endif
