/* What a launcher fills in for a kernel: see "Layout of a call" in docs/kernels.md.
 * Kernels include oriel/kernel.h. */
#ifndef ORIEL_KERNEL_TYPES_H
#define ORIEL_KERNEL_TYPES_H

#if defined(__CUDACC_RTC__) /* has no headers */
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

#if defined(__CUDACC__)
#define ORIEL_FN           static __device__ __forceinline__
#define ORIEL_KERNEL(name) static __device__ __attribute__((unused)) void name
#else
#define ORIEL_FN           static inline __attribute__((unused))
#define ORIEL_KERNEL(name) static __attribute__((unused)) void name
#endif

/* ---- what a launcher fills in ---------------------------------------------------- */

enum { ORIEL_SIGNALS = 64 };

enum { ORIEL_SHARED = 16 };

/* Of one rank, in memory that all can reach. The number of barriers that each rank has
 * entered follows: see oriel_arrivals. All 0 when a kernel begins. */
typedef struct oriel_board {
    uint64_t signals[ORIEL_SIGNALS]; /* what has been added to each by oriel_signal */
    uint32_t taken[ORIEL_SHARED];    /* CUDA: how far the team has come in its k-th reduction */
} oriel_board;

/* An operand or a result. */
typedef struct oriel_buffer {
    uint64_t bytes;     /* of one rank's; the same on all */
    void *const *peers; /* [size]: where each rank's is reached from here */
    void *multimem;     /* the multicast address of all of them; NULL: there is none */
} oriel_buffer;

typedef struct oriel_team oriel_team;

/* Host alone: how a team waits. What returns int is not 0 once the call has failed. */
typedef struct oriel_team_calls {
    /* The threads of this rank meet. */
    int (*sync)(oriel_team *team);
    /* The threads of all ranks meet. */
    int (*barrier)(oriel_team *team);
    /* Adds `value` to a signal of `rank`. */
    int (*signal)(oriel_team *team, int rank, int slot, uint64_t value);
    /* Waits until a signal of this rank is at least `value`. */
    int (*wait)(oriel_team *team, int slot, uint64_t value);
    /* Whether to give up, for loops of one's own. */
    int (*failed)(const oriel_team *team);
    /* Fails the call: ORIEL_TROUBLE_..., and the number that was wrong. The first stays. */
    void (*trouble)(const oriel_team *team, int what, int64_t value);
} oriel_team_calls;

enum {
    ORIEL_TROUBLE_NONE,
    ORIEL_TROUBLE_LATE,    /* the time is up */
    ORIEL_TROUBLE_ABORT,   /* the comm was revoked */
    ORIEL_TROUBLE_POINTER, /* a pointer into no operand or result */
    ORIEL_TROUBLE_RANK,    /* no such rank */
    ORIEL_TROUBLE_SLOT,    /* no such signal */
    ORIEL_TROUBLE_REACH,   /* a rank of another machine, by address */
    ORIEL_TROUBLE_SPAN     /* a group that spans machines, by a kernel without kernel_gin.h */
};

/* One rank's part in one call. */
typedef struct oriel_frame {
    int32_t rank, size;          /* in the group */
    uint32_t num_buffers;        /* operands and results */
    uint32_t num_operands;       /* of them the first so many */
    const oriel_buffer *buffers; /* operands, then results, each as the kernel has them */
    oriel_board *const *boards;  /* [size] */
    const int64_t *values;       /* attributes, see docs/kernels.md */
    /* CUDA alone */
    uint32_t *error;       /* the first trouble in the low byte, its value above */
    const uint32_t *abort; /* not 0: give up; in the host's memory ... */
    const uint32_t *gone;  /* ... and in the device's */
    uint64_t *sync;        /* blocks that have come to oriel_team_sync, counted on; 0 at first */
    uint64_t limit_ns;     /* how long it may take */
    /* *staged: [num_buffers], the caller's, if what the kernel has are copies; NULL: it has
     * those; ORIEL_NOT_MET: the ranks did not meet, and it does nothing */
    void *const *const *staged;
    /* host alone */
    const oriel_team_calls *calls;
    void *inner; /* the launcher's own */
    /* CUDA, groups that span machines: ranks on others have NULL for boards and buffers */
    struct oriel_gin *gin; /* NULL: there are none */
    const uint16_t *world; /* [size]: the ranks' numbers in the world */
} oriel_frame;

#define ORIEL_NOT_MET ((void *const *)1)

/* What one thread knows. */
struct oriel_team {
    const oriel_frame *frame; /* the same for all threads of the rank */
    uint32_t thread, threads; /* this one, from 0, of so many */
    uint64_t epoch;           /* barriers that this rank has entered */
    uint64_t started;         /* CUDA: %globaltimer */
    uint32_t reductions;      /* CUDA: begun so far; picks the word of `taken` */
};

/* How many barriers each rank has entered. */
ORIEL_FN uint64_t *oriel_arrivals(oriel_board *board)
{
    return (uint64_t *)(void *)(board + 1);
}

#define ORIEL_BOARD_BYTES(size) (sizeof(oriel_board) + sizeof(uint64_t) * (size_t)(size))

#endif
