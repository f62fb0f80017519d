/* What a launcher fills in for kernels that reach other machines, on a GPU: see kernel_gin.h. */
#ifndef ORIEL_GIN_TYPES_H
#define ORIEL_GIN_TYPES_H

#include <oriel/detail/kernel_types.h>

/* It lies ORIEL_GIN_AT bytes behind the rank's board; ranks are those of the world. Kept from call
 * to call; all counts begin with 0. */
enum { ORIEL_GIN_AT = (4 << 20) - (64 << 10), ORIEL_GIN_RANKS = 64 };
/* Signals of NCCL's: those of kernels, then one for each rank, which counts barriers. */
enum { ORIEL_GIN_SIGNALS = ORIEL_SIGNALS + ORIEL_GIN_RANKS };

typedef struct oriel_gin {
    /* NCCL's queues to each rank, which a thread on the host empties. */
    uint64_t (*queues)[16];
    uint32_t *posted;           /* [ranks]: entries so far ... */
    const uint32_t *done;       /* ... and of those that have been done */
    const uint64_t *signals;    /* of this rank, ORIEL_GIN_SIGNALS of them; they are never reset */
    uint32_t queue_size, self;  /* entries of each queue; this rank */
    uint64_t window, window_at; /* NCCL's name for the memory; the board's place in it, on all */
    /* By this rank alone. */
    uint64_t dirty;                    /* thread 0: bit of each rank with puts under way */
    uint64_t asked[ORIEL_GIN_RANKS];   /* thread 0: so often to settle what went to a rank */
    uint64_t met[ORIEL_GIN_RANKS];     /* barriers with a rank */
    uint64_t before[ORIEL_SIGNALS];    /* what signals have come to before this call */
    uint64_t come[ORIEL_GIN_RANKS];    /* barriers of ranks of this machine, by them ... */
    uint64_t settled[ORIEL_GIN_RANKS]; /* ... and what others asked for, by the network */
    uint64_t seen[ORIEL_GIN_RANKS];    /* copies of others' `settled`, by the network */
} oriel_gin;

#endif
