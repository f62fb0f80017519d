/* Ranks that are GPUs: their heaps in device memory, how each process sees those of all
 * others, and what their kernels report. A comm has this beside its heap in host memory,
 * or not at all. */
#ifndef ORIEL_CORE_DEVICE_DEVICE_H
#define ORIEL_CORE_DEVICE_DEVICE_H

#include "core/world/comm.h"
#include "core/device/code.h"
#include "core/device/layout.h"
#include "core/device/shown.h"
#include "oriel/detail/kernel_types.h"

/* A mapping of this process, as its rank shows it to others. */
typedef struct oriel_export {
    _Atomic uint32_t state; /* see register.c */
    uint32_t generation;
    uint64_t id; /* the driver's: new for each mapping, whatever its address */
    cu_ptr base;
    size_t bytes;
    int fd;                  /* what peers fetch, where the fabric has descriptors; else -1 */
    oriel_cuda_memory alias; /* the same memory again, where the fabric registers in rounds */
    int offered, registered; /* in a round that is under way, and in one that is over */
    uint64_t clique; /* whom it is shown to: a group, by its hash, see borrow.h; 0: all ... */
    uint32_t others; /* ... of whom so many have to map it */
} oriel_export;

/* What came of borrowed communicators, all in all: see borrow.h. */
typedef struct oriel_borrow_counts {
    uint64_t lent;       /* calls that had a communicator */
    uint64_t meetings;   /* in which members registered something */
    uint64_t windows;    /* registered with own buffers ... */
    uint64_t fillers;    /* ... and without, since a peer had something new */
    uint64_t dropped;    /* deregistered */
    uint64_t refused;    /* groups that went back to descriptors */
    uint64_t registered; /* windows that there are ... */
    uint64_t ready;      /* ... of whose buffers so many can be touched by peers */
} oriel_borrow_counts;

/* What a call of a person's kernel is given, and where what that points to is in device
 * memory; kept for the next. */
typedef struct device_frame {
    uint64_t identity, group;
    oriel_frame frame;
    cu_ptr at;
    struct device_frame *next;
} device_frame;

typedef struct oriel_device_rank {
    const oriel_gpu *gpu;
    const oriel_device_code *code;
    oriel_cuda_memory heap;
    device_report *report;       /* in host memory ... */
    cu_ptr report_at;            /* ... and where the device sees it */
    struct device_frame *frames; /* of kernels, in the arena: see ops/cuda/kernel_on.c */
    size_t frames_used;
    cu_ptr heaps[DEVICE_RANKS]; /* where this rank sees the heaps of all */
    int reported;               /* has been passed on to the comm */
    uint32_t begun;             /* as last seen in the report, and since when */
    double begun_at;
    void *last_stream;       /* of the rank's last call, and whether ... */
    int last_early;          /* ... the next on it may begin before that one has met the others */
    oriel_export *exports;   /* DEVICE_WINDOWS of them, if there are other processes ... */
    _Atomic int num_exports; /* ... of which so many were ever used */

    /* See core/nccl/borrow.c. */
    void (*free_lent)(struct oriel_device_rank *rank); /* frees the rest; NULL: nothing yet */
    struct oriel_clique *cliques;
    struct oriel_clique *clique;   /* of the call at hand */
    struct nccl_comm_object *lent; /* to the call at hand */
    uint64_t clique_key;           /* whom its buffers are shown to, as in an export */
    oriel_cuda_memory filler;
    oriel_borrow_counts borrowed;
} oriel_device_rank;

typedef struct oriel_devices {
    const struct oriel_device_fabric *fabric;
    oriel_gpu *gpus; /* those of this process, each once */
    int num_gpus;
    oriel_device_rank *ranks; /* per local rank */
    int num_ranks;
    oriel_cuda_memory *mapped; /* per rank of the world: heaps of other processes */
    void *reports;             /* one allocation in host memory */
    int one_gpu;               /* all ranks of the world share it */
    int ctas;                  /* of a kernel at most: those of all ranks on a GPU fit together */
    int kernel_ctas;           /* the same of a person's kernel */
    uint32_t slot_lines;       /* of a thread in each slot */
    uint64_t slots_at, ragged_at, arena_at, stage_at;
    uint32_t stage_bytes; /* of a CTA, for what it sends; as many for what is reduced */
    size_t arena_bytes;   /* where kernels of one's own have their operands and results */
    pthread_mutex_t look_lock;
    struct oriel_experimental *experimental; /* see experimental/experimental.h */
    int multicast_fd;    /* its multicast object, which peers fetch; 0: not made here */
    int left_behind;     /* nobody waits for what is still on the GPUs */
    _Atomic int drained; /* all has ended */

    struct oriel_nccl *nccl; /* of fabrics that use it: see core/nccl/comm.h */

    /* The registrar, where there are other processes. */
    struct oriel_import **imports; /* per rank of the world: DEVICE_WINDOWS of them, or NULL */
    pthread_t registrar;
    int registering;
    _Atomic int registrar_ends;
} oriel_devices;

/* The meetings of one call of a person's kernel or host function, which has others between
 * the two; told apart by the place of a reduction in its record. */
enum { DEVICE_STEP_BEGIN = 0, DEVICE_STEP_END = 255 };

/* A rank of this process. */
static inline oriel_device_rank *oriel_device_of(const oriel_comm *comm, int rank)
{
    const oriel_devices *devices = comm->devices;

    return &devices->ranks[rank - comm->first_rank];
}

/* Where a local rank sees the heap of a rank. */
static inline cu_ptr oriel_heap_seen(const oriel_comm *comm, int local_rank, int rank)
{
    return oriel_device_of(comm, local_rank)->heaps[rank];
}

/* All ranks of this process see the heap of `rank` at `base`. */
static inline void oriel_heap_see(oriel_devices *devices, int rank, cu_ptr base)
{
    for (int i = 0; i < devices->num_ranks; i++)
        devices->ranks[i].heaps[rank] = base;
}

/* Local, before the processes agree: opens the GPUs, loads the kernels, makes the heaps
 * and shows them to the others. What exists afterwards is freed by
 * oriel_devices_close, also after a failure. */
oriel_status oriel_devices_prepare(oriel_comm *comm, const struct oriel_device_fabric *fabric,
                                   const int *ordinals);
/* Collective over processes, once all have prepared: maps the heaps of the others. */
oriel_status oriel_devices_connect(oriel_comm *comm);
/* Collective, before the comm is freed: waits until no kernel uses memory of others, where the
 * fabric needs that. */
oriel_status oriel_devices_part(oriel_comm *comm);
/* Local, after the watch thread has ended: waits for own kernels, which the abort word
 * ends where the comm is revoked. False: some did not end within the deadline, so nothing
 * was freed, nor may what they or the registrar use be: the comm and its heap. */
int oriel_devices_close(oriel_comm *comm);

/* What lies above core, in src/experimental, and lives as long as the devices are connected. */
typedef struct oriel_device_hook {
    /* Collective over processes, bounded, once all are connected. */
    oriel_status (*open)(oriel_comm *comm);
    /* Local, when own kernels have ended, before the fabric closes. */
    void (*close)(oriel_comm *comm);
} oriel_device_hook;
extern const oriel_device_hook oriel_experimental_hook;

/* Local: what a comm may have on a GPU at a time, such that kernels of all comms of this
 * process fit together; or that it does not fit. */
oriel_status oriel_room_take(oriel_gpu *gpu, int ctas);
void oriel_room_give(oriel_gpu *gpu);
/* Local: kernels that still run use the heaps of all ranks. Whether they have ended. */
int oriel_devices_drain(oriel_comm *comm);

/* In words. */
void oriel_device_describe(const oriel_comm *comm, const device_record *from, char *out,
                           size_t len);
/* Passes failures on: from kernels to the comm, and from the comm to kernels. */
void oriel_devices_look(oriel_comm *comm);
/* Calls that have ended on the GPUs of this process: while it grows they move on. */
uint64_t oriel_devices_progress(const oriel_comm *comm);
/* For who has waited for the deadline without any: revokes the comm, naming what does not
 * end. */
void oriel_devices_give_up(oriel_comm *comm);
/* Whether a kernel of this process has poisoned a result: the comm is revoked, or about to
 * be by the process whose kernel failed first. */
int oriel_devices_revoked(const oriel_comm *comm);

/* ---- buffers that others may map (register.c) -------------------------------------------- */

typedef struct oriel_place {
    uint64_t window; /* as in device_call; 0: nobody else can map it */
    uint32_t generation;
    int stale; /* the address meant other memory before */
} oriel_place;

oriel_status oriel_registrar_start(oriel_comm *comm);
/* Local: no more buffers are mapped; those that are stay so until oriel_registrar_free. */
void oriel_registrar_stop(oriel_comm *comm);
void oriel_registrar_free(oriel_comm *comm);
/* Local, no lock, called by one thread at a time for a rank, in its context: where
 * [at, at + bytes) lies in the rank's windows. One that is new will be mapped by the others
 * in a while. A graph that was captured when the address meant other memory must not find
 * that mapped: what comes next on `stream` does not. */
oriel_place oriel_register(oriel_comm *comm, int rank, const void *at, size_t bytes,
                           cu_stream stream);

/* Windows that are shown to a clique, the rank's `clique_key`, are mapped by its members
 * themselves, not by registrars. Local, by the thread of a call. */

/* How many of any clique can be touched by peers. */
uint32_t oriel_register_ready(const oriel_device_rank *rank);
/* How many of one nobody has mapped yet. */
uint32_t oriel_register_wanted(const oriel_device_rank *rank, uint64_t clique);
/* At most `most` of them, which `others` members are about to map: what they map is a mapping of
 * oriel's own, the caller's, so that it does not vanish while they do. */
typedef struct oriel_brought {
    int number; /* of the window */
    uint32_t generation;
    oriel_cuda_memory alias;
} oriel_brought;
int oriel_register_bring(oriel_comm *comm, int rank, uint64_t clique, uint32_t others, int most,
                         oriel_brought *brought);
/* Whether the others can map it: it is ready when they have, or will never be. */
void oriel_register_brought(oriel_device_rank *rank, int number, int can);
/* A local rank sees window `number` of `of`, another rank, at `at`. */
oriel_status oriel_register_reach(oriel_comm *comm, int rank, int of, int number, cu_ptr at);
/* Whether the window is what it was, or the rank's device may take it for that. */
int oriel_register_holds(const oriel_device_rank *rank, int number, uint32_t generation);
/* The clique's windows are gone: what comes next on the stream does not find them. */
void oriel_unregister(oriel_device_rank *rank, uint64_t clique, cu_stream stream);

/* The descriptor of a window that a peer asks for; -1: none. */
int oriel_export_fd(const oriel_device_rank *rank, uint64_t window);

/* The segment that a peer asks the port for: a rank's device heap, or one of its
 * windows, from 1, above bit 32. */
#define DEVICE_SEGMENT           (1ull << 63)
#define DEVICE_SEGMENT_MULTICAST (DEVICE_SEGMENT | 1ull << 62) /* of the process of rank 0 */
const oriel_segment *oriel_devices_lookup(oriel_comm *comm, uint64_t id, oriel_segment *buffer);

#endif
