/* What the host and the kernels share: the layout of a rank's heap in device memory and
 * the argument of a kernel. The common subset of C11 and CUDA C++; NVRTC compiles it too.
 *
 * Every rank maps the heaps of all others. A word has one writer: the owner, or for
 * arrays over ranks the rank that indexes it. Ranks meet pairwise: what two ranks have
 * exchanged so far is counted for each pair and CTA, so groups need no place of their
 * own, and all counts live in device memory, where a replayed graph finds them. */
#ifndef ORIEL_CORE_DEVICE_LAYOUT_H
#define ORIEL_CORE_DEVICE_LAYOUT_H

#include <stdint.h>

enum {
    DEVICE_RANKS = 64,
    DEVICE_CTAS = 160, /* most CTAs of a kernel */
    DEVICE_THREADS = 512,
    DEVICE_WINDOWS = 512,      /* buffers of one rank that its peers have mapped */
    DEVICE_SMALL_CTAS = 64,    /* of a call through the slots, each with ... */
    DEVICE_SMALL_BYTES = 4096, /* ... up to so much of a block: 8 bytes per thread; or ... */
    DEVICE_SMALL_LINES = 4     /* ... so many times that */
};
/* Which kernel of an operation: of small calls, of the larger ones among them, of large calls; of
 * what several machines have sent. */
enum device_family { DEVICE_SMALL, DEVICE_WIDE, DEVICE_LARGE, DEVICE_SPAN, DEVICE_FAMILIES };
/* A slice of ragged_all_to_all, in rows: as the sender tells the receiver. */
typedef struct device_slice {
    int64_t from, rows, to; /* where it begins at the sender, how long it is, where it goes */
} device_slice;
enum { DEVICE_SLICES = 1024 };

enum device_error {
    DEVICE_FINE,
    DEVICE_REVOKED,   /* a peer's kernel failed, or the comm was revoked earlier */
    DEVICE_ABORTED,   /* the host has revoked the comm */
    DEVICE_LATE,      /* a peer did not come in time */
    DEVICE_DIFFERENT, /* a peer asked for something else */
    DEVICE_RAGGED,    /* sizes of ragged_all_to_all that do not fit */
    DEVICE_KERNEL     /* a person's kernel: ORIEL_TROUBLE_... and its value are the details */
};

/* What a rank asked for, compared between ranks by its hash. */
typedef struct device_record {
    uint32_t call;  /* between the two ranks, counted from 1 */
    uint32_t hash;  /* of the call's oriel_record and its group */
    uint32_t what;  /* kind << 16 | dtype << 8 | redop */
    uint32_t n;     /* members of the group */
    uint64_t bytes; /* of a block */
    uint64_t shape; /* what else the kind needs: see op.h */
} device_record;

/* In host memory, one for each rank: what its kernels say, and hear, of failures. */
typedef struct device_report {
    uint32_t abort;   /* written by the host: the comm is revoked */
    uint32_t error;   /* written by the device, after the rest: enum device_error */
    int32_t peer;     /* world rank; -1: none */
    uint32_t revoked; /* written by the device: a result was poisoned, whichever rank failed */
    uint32_t begun;   /* likewise: calls of another library that may begin on the stream ... */
    uint32_t ended;   /* ... and that have ended there */
    device_record mine, theirs; /* what this rank asked for, and the peer, if there is one */
    int64_t detail[4];          /* what the sentence needs, by error: see device.c */
} device_report;

/* What two ranks have exchanged so far, for each CTA. */
typedef struct device_counts {
    uint32_t entered; /* large calls */
    uint32_t synced;  /* meetings within them */
    uint32_t slots;   /* small calls */
    uint32_t calls;   /* of both kinds; in CTA 0, which comes to every call */
} device_counts;

/* Where a CTA of a rank says that it has come, and where its buffers are: as addresses for
 * ranks of its process, as windows for others. Two lines, each with its tag. */
typedef struct device_entry {
    uint64_t send;     /* and DEVICE_REACHABLE: both can be touched by all members */
    uint64_t send_tag; /* count << 32 | hash */
    uint64_t recv;     /* the other buffer */
    uint64_t recv_tag; /* equal to the other tag */
} device_entry;
#define DEVICE_REACHABLE (1ull << 63)
/* A claim: the peer's tag, or that the owner has given up on it. */
#define DEVICE_GIVEN_UP (~(uint64_t)0)

typedef struct device_table {
    uint32_t error;        /* enum device_error; every spin polls it, peers may set it */
    uint32_t reserved[31]; /* the words below are on a line of their own */
    uint32_t taken; /* items of a direct call that the rank's warps have taken, beyond the first
                     * of each; 0 between calls */
    uint32_t done;  /* warps that take no more; likewise */
    uint32_t mode;  /* of all CTAs of the call at hand: see reachable() in device.cuh */
    uint32_t begun; /* as in the report */
    uint32_t reserved_too[28];      /* to the end of that line */
    uint64_t timeout_ns;            /* how long a wait may last */
    uint64_t report;                /* where the device sees the rank's device_report */
    uint32_t ready[DEVICE_WINDOWS]; /* own windows: the generation all peers have mapped ... */
    uint32_t stale[DEVICE_WINDOWS]; /* ... and the one that means other memory by now, written
                                     * on the stream, whatever the registrar is about */
    device_counts counts[DEVICE_CTAS][DEVICE_RANKS]; /* what each pair has exchanged */
    /* What the others write: see "Calls on GPUs" in docs/protocol.md. */
    uint32_t sync[DEVICE_CTAS][DEVICE_RANKS];      /* how many meetings they have come to */
    uint64_t claim[DEVICE_CTAS][DEVICE_RANKS];     /* whether they came in time */
    device_entry entry[DEVICE_CTAS][DEVICE_RANKS]; /* the large call they have come to */
    device_record record[DEVICE_RANKS];            /* what they ask for in it */
    uint64_t window[DEVICE_RANKS][DEVICE_WINDOWS]; /* the registrar: where they are; 0: not */
} device_table;

enum device_flags {
    DEVICE_DIRECT = 1,     /* this rank would let others touch its buffers ... */
    DEVICE_SHOWS_SEND = 2, /* ... this one */
    DEVICE_SHOWS_RECV = 4, /* ... and this one */
    DEVICE_ONE_GPU = 8,    /* all members share a GPU */
    DEVICE_WIDE_INDEX = 16,
    DEVICE_EARLY = 32,    /* the next kernel on the stream may be launched before this one ends */
    DEVICE_NO_STAGE = 64, /* a person's kernel that finds no room in the arena */
    DEVICE_LSA = 128      /* peers are found in NCCL's window and met in its barrier */
};

/* What multimem instructions can do. */
enum device_multimem {
    DEVICE_MULTIMEM_NONE,
    DEVICE_MULTIMEM_F32_SUM,
    DEVICE_MULTIMEM_F16_SUM,
    DEVICE_MULTIMEM_BF16_SUM,
    DEVICE_MULTIMEM_F64_SUM,
    DEVICE_MULTIMEM_U32_SUM,
    DEVICE_MULTIMEM_U32_MIN,
    DEVICE_MULTIMEM_U32_MAX,
    DEVICE_MULTIMEM_S32_MIN,
    DEVICE_MULTIMEM_S32_MAX,
    DEVICE_MULTIMEM_U64_SUM,
    DEVICE_MULTIMEM_U64_MIN,
    DEVICE_MULTIMEM_U64_MAX,
    DEVICE_MULTIMEM_S64_MIN,
    DEVICE_MULTIMEM_S64_MAX
};

/* A via of all_reduce other than plain addresses: see experimental/via.cuh. */
typedef struct device_via {
    uint64_t multimem; /* where the stages of all ranks are one; 0: not asked for */
    uint64_t window;   /* NCCL's description of the window that the heaps are, from its begin */
    uint64_t barrier;  /* the state of NCCL's barrier on rank 0 ... */
    uint64_t stride;   /* ... and how far it is to the next rank's */
    uint32_t barriers; /* one for each CTA */
    uint32_t op;       /* enum device_multimem */
} device_via;

/* A window's number, from 1, above an offset of 48 bits; 0: no window. */
#define DEVICE_WINDOW_SHIFT 48

/* What small calls need stands together: it is fetched line by line, while nothing else
 * can be done. */
typedef struct device_call {
    uint64_t table;                    /* own heap; the slots and the stages lie behind it */
    uint64_t slots_at;                 /* slots of small calls, in every member's heap */
    uint64_t send, recv;               /* buffers; addresses of this process */
    uint64_t block;                    /* bytes, as in the public header */
    uint32_t hash;                     /* of what is asked for: see device_record */
    uint32_t flags;                    /* enum device_flags */
    uint32_t kind;                     /* enum oriel_kind */
    uint32_t n, index, world;          /* members, this one's position, ranks of the comm */
    uint32_t slot_lines;               /* that a thread has in each slot */
    uint32_t what;                     /* as in the record */
    int32_t root, source, destination; /* positions; -1: none */
    uint32_t stage; /* bytes of a CTA's stage for what it sends; as many for what is reduced */
    uint16_t ranks[DEVICE_RANKS]; /* of the members, in the world */
    uint64_t heap[DEVICE_RANKS];  /* where this rank sees the members' heaps */
    uint64_t shape;               /* as in the record */
    uint64_t recv_bytes;          /* in all, to poison */
    uint64_t poison[2];           /* 16 bytes that a failed result is filled with */
    uint64_t plain; /* bit per member: it lives in this process, addresses mean the same */
    uint64_t ragged_at, stage_at;      /* in a heap: tables of ragged_all_to_all, and the stages */
    uint64_t send_window, recv_window; /* the buffers again, as others reach them; 0: they do not */
    uint32_t send_generation, recv_generation; /* of the windows */
    uint32_t tile;                 /* bytes that a CTA works on at a time, see ops/choose_on.c */
    uint32_t item;                 /* bytes that a warp works on at a time, direct */
    uint32_t slices;               /* ragged_all_to_all, and all below */
    uint64_t send_rows, recv_rows; /* of the two buffers */
    uint64_t input_offsets, send_sizes, output_offsets, recv_sizes; /* device memory */
    device_via via;                                                 /* all zero: plain addresses */
} device_call;

/* ---- a person's kernel: see kernel.cuh -------------------------------------------------- */

enum { DEVICE_BUFFERS = 64 };
/* As ORIEL_TROUBLE_ABORT and ORIEL_NOT_MET. */
enum { DEVICE_TROUBLE_ABORT = 2, DEVICE_NOT_MET = 1 };

/* Where a rank has a buffer, for ranks of its process and for others. */
typedef struct device_shown {
    uint64_t address, window; /* as in a device_call; window 0: none */
} device_shown;

/* How a rank's arena begins. All before `shown` is 0 when a call begins. */
typedef struct device_arena {
    uint64_t board[256];                /* an oriel_board */
    uint64_t sync;                      /* as in an oriel_frame */
    uint32_t error;                     /* as in an oriel_frame */
    uint32_t reserved[61];              /* to the next line */
    device_shown shown[DEVICE_BUFFERS]; /* what this rank has, by the number of the buffer */
} device_arena;

typedef struct device_buffer {
    uint64_t address;    /* in this process */
    uint64_t window;     /* as in a device_call */
    uint64_t at;         /* in the arena */
    uint32_t generation; /* of the window */
    uint32_t reserved;   /* 0 */
} device_buffer;

/* What the meeting before a kernel is told beside the call. */
typedef struct device_begin {
    uint64_t arena_at; /* in the heaps */
    /* Where the kernel finds everybody's buffers, [n][members] of them; its own ones, [n], if
     * it has copies; and where it is told that. */
    uint64_t peers, homes, staged;
    uint64_t n;   /* the first two are the call's send and recv as well */
    uint64_t far; /* bit per member: it is on another machine */
    device_buffer buffers[DEVICE_BUFFERS];
} device_begin;

typedef struct device_result {
    uint64_t to, bytes; /* the caller's memory */
    uint64_t poison[2]; /* what a failed one is filled with */
} device_result;

/* What is left to do when it has ended. */
typedef struct device_end {
    uint64_t arena, staged; /* where the kernel said what is wrong, and was told its mode */
    uint64_t n;             /* results */
    device_result results[DEVICE_BUFFERS]; /* the first n count */
} device_end;

/* ---- calls that span machines: see span.cuh --------------------------------------------- */

typedef struct device_span {
    uint64_t from[DEVICE_RANKS]; /* what is reduced, in this order */
    uint64_t to, bytes;          /* the result */
    uint32_t n;                  /* buffers in `from` */
} device_span;

/* Rows [first, first + rows) of everybody's `send` lie in `data`, a block for each member. */
typedef struct device_pick {
    uint64_t data, block; /* the first member's, and bytes to the next one's */
    uint64_t first, rows; /* in everybody's `send` */
    uint64_t tables; /* [input_offsets | send_sizes | output_offsets] of each member for this one */
    uint32_t checks; /* the sizes too */
} device_pick;

#endif
