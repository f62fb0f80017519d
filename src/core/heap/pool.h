/* The pool of a rank: memory of the heap that operations take and give back. It has small blocks
 * (member table and eager payload of one operation), channels (staging of one large operation) and
 * lanes (what a group keeps for its ordered calls). */
#ifndef ORIEL_CORE_HEAP_POOL_H
#define ORIEL_CORE_HEAP_POOL_H

#include "core/heap/heap.h"

enum {
    HEAP_BLOCK_WORDS = 8,   /* bitmap words: at most 512 blocks per rank */
    HEAP_MAX_CHANNELS = 64, /* one bitmap word */
    HEAP_MAX_LANES = 64,    /* the same */
    HEAP_BLOCK_MEMBER = 64, /* bytes of the table that a block has for each member */
    HEAP_LANE_SLOTS = 16,
    HEAP_LANE_SLOT = 1024,      /* bytes of one, small payloads included */
    HEAP_LANE_BULKS = 4,        /* places for larger payloads */
    HEAP_LANE_ROOM = 256 << 10, /* bytes of one, about */
    HEAP_LANE_RANKS = 8,        /* ranks whose lanes have all that room; more share it */
    HEAP_LANE_HEAD = 2048,      /* bytes that a lane plans for each member beside slots and bulks */
};

typedef struct heap_pool {
    _Atomic uint64_t blocks[HEAP_BLOCK_WORDS]; /* bit set: taken */
    _Atomic uint64_t channels;                 /* bit set: taken */
    _Atomic uint64_t lanes;                    /* bit set: taken */
    _Atomic uint64_t staged;                   /* bytes so far, about */
} HEAP_ALIGNED heap_pool;

extern const heap_section oriel_pool_sections[];

/* How pools are divided, by the options, for a heap of so many ranks. */
oriel_status oriel_pool_plan(heap_header *header);
/* Whether what a header says of its pools is no more than a pool's bytes. */
int oriel_pool_is_sound(const heap_header *header);

char *oriel_heap_block(const oriel_heap *heap, int owner, int block);
char *oriel_heap_channel(const oriel_heap *heap, int owner, int channel);
char *oriel_heap_lane(const oriel_heap *heap, int owner, int lane);
/* Takes the lowest free bit below `limit`, so that the same memory is used again
 * while it is warm; -1: none. */
int oriel_heap_take_bit(_Atomic uint64_t *word, uint32_t limit);
void oriel_heap_give_bit(_Atomic uint64_t *word, int bit);

#endif
