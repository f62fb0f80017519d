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

/* A mapping of this process, as its rank exports it to peers. */
typedef struct oriel_export {
    _Atomic uint32_t state;  /* see register.c */
    uint32_t generation;     /* counts the uses of this entry; odd while peers may map it */
    uint64_t id;             /* the driver's: new for each mapping, whatever its address */
    cu_ptr base;             /* where the mapping begins */
    size_t bytes;            /* its length */
    int fd;                  /* what peers fetch, where the fabric has descriptors; else -1 */
    oriel_cuda_memory alias; /* the same memory again, where the fabric registers in rounds */
    int offered;             /* in a round that is under way */
    int registered;          /* in a round that is over */
    uint64_t group;          /* that maps it: its hash, see core/nccl/borrow.h; 0: all ranks */
    uint32_t others;         /* ranks that have to map it */
} oriel_export;

/* What came of borrowed communicators, all in all: see core/nccl/borrow.h. */
typedef struct oriel_borrow_counts {
    uint64_t lent;       /* calls that had a communicator */
    uint64_t meetings;   /* in which members registered something */
    uint64_t windows;    /* registered with own buffers */
    uint64_t fillers;    /* registered without, since a peer had something new */
    uint64_t dropped;    /* windows that were deregistered */
    uint64_t refused;    /* groups that went back to descriptors */
    uint64_t registered; /* windows that there are now */
    uint64_t ready;      /* buffers in them that peers can touch */
} oriel_borrow_counts;

/* What a call of a person's kernel is given, kept for the next call. */
typedef struct device_frame {
    uint64_t identity;         /* of the call */
    uint64_t group;            /* its group's hash */
    oriel_frame frame;         /* the kernel's argument */
    cu_ptr at;                 /* where what it points to lies, in device memory */
    struct device_frame *next; /* of the same rank */
} device_frame;

typedef struct oriel_device_rank {
    const oriel_gpu *gpu;          /* one of the process's */
    const oriel_device_code *code; /* the kernels on it */
    oriel_cuda_memory heap;        /* the rank's own */
    cu_ptr heaps[DEVICE_RANKS];    /* where this rank sees the heaps of all; 0: it does not */
    device_report *report;         /* in host memory: what its kernels report */
    cu_ptr report_at;              /* where the device sees that */
    int reported;                  /* a failure has been passed on to the comm */
    uint32_t begun;                /* calls of NCCL's, as last seen in the report */
    double begun_at;               /* since when it has been so many */
    device_frame *frames;          /* of kernels, in the arena: see ops/cuda/kernel_on.c */
    size_t frames_used;            /* bytes of the arena that they have */
    void *last_stream;             /* of the rank's last call */
    int last_early;                /* the next call on it may begin before that one has met peers */
    oriel_export *exports;         /* DEVICE_WINDOWS of them; NULL: no other process maps any */
    _Atomic int num_exports;       /* entries that were ever used */

    /* See core/nccl/borrow.c. */
    void (*free_lent)(struct oriel_device_rank *rank); /* frees `groups`; NULL: there are none */
    struct oriel_borrowed *groups;                     /* groups whose communicators were lent */
    struct oriel_borrowed *group;                      /* of the call at hand; NULL: none */
    struct nccl_comm_object *lent;                     /* to the call at hand; NULL: nothing */
    uint64_t shown_to;            /* the group that its buffers are exported to, as in an export */
    oriel_cuda_memory filler;     /* registered where the rank has nothing new */
    oriel_borrow_counts borrowed; /* what came of it */
} oriel_device_rank;

typedef struct oriel_devices {
    const struct oriel_device_fabric *fabric; /* how ranks reach each other's memory */
    struct oriel_nccl *nccl;                  /* of fabrics that use it: see core/nccl/comm.h */
    struct oriel_experimental *experimental;  /* see experimental/experimental.h */
    oriel_gpu *gpus;                          /* those of this process, each once */
    int num_gpus;                             /* how many */
    oriel_device_rank *ranks;                 /* per local rank */
    int num_ranks;                            /* how many */
    oriel_cuda_memory *mapped;                /* per rank: heaps of other processes */
    void *reports;                            /* one allocation in host memory */
    int one_gpu;                              /* all ranks of the world share it */
    int ctas;                  /* of a kernel at most: those of all ranks on a GPU fit together */
    int kernel_ctas;           /* the same of a person's kernel */
    uint32_t slot_lines;       /* of a thread in each slot */
    uint64_t slots_at;         /* in a heap, as the next three: slots of small calls */
    uint64_t ragged_at;        /* sizes and offsets of ragged_all_to_all */
    uint64_t arena_at;         /* operands and results of kernels of one's own */
    uint64_t stage_at;         /* what passes through the heap */
    uint32_t stage_bytes;      /* of a CTA, for what it sends; as many for what is reduced */
    size_t arena_bytes;        /* of a rank's arena */
    int multicast_fd;          /* what peers fetch of a multicast object; 0: none was made here */
    int left_behind;           /* no thread waits any more for what is still on the GPUs */
    _Atomic int drained;       /* all that was on the GPUs has ended */
    pthread_mutex_t look_lock; /* one thread at a time passes failures on */

    /* The registrar, where there are other processes. */
    struct oriel_import **imports; /* per rank: DEVICE_WINDOWS of them; NULL: none of its */
    pthread_t registrar;           /* its thread */
    int registering;               /* it runs */
    _Atomic int registrar_ends;    /* it is told to end */
} oriel_devices;

/* The meetings of one call of a person's kernel or host function, which has others between
 * the two; told apart by the place of a reduction in its record. */
enum { DEVICE_STEP_BEGIN = 0, DEVICE_STEP_END = 255 };

/* A number of all that a captured call of oriel's own has of the world's layout: addresses of
 * heaps, and what follows from options. In another world where it is the same the graph may run. */
uint64_t oriel_devices_layout(const oriel_comm *comm);

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

/* Ranks of the world on the GPU with this UUID. */
int oriel_ranks_on(const oriel_comm *comm, const void *uuid);
/* Local: what a comm may have on a GPU at a time, such that kernels of all comms of this
 * process fit together; or that it does not fit. */
oriel_status oriel_room_take(oriel_gpu *gpu, int ctas);
void oriel_room_give(oriel_gpu *gpu);
/* Local: kernels that still run use the heaps of all ranks. Whether they have ended. */
int oriel_devices_drain(oriel_comm *comm);

/* Writes a record in words. Returns the call, as in an oriel_record. */
uint64_t oriel_device_describe(oriel_comm *comm, const device_record *from, char *out, size_t len);
/* Passes failures on: from kernels to the comm, and from the comm to kernels. */
void oriel_devices_look(oriel_comm *comm);
/* Calls that have ended on the GPUs of this process: while it grows they move on. */
uint64_t oriel_devices_progress(const oriel_comm *comm);
/* For a thread that has waited for the deadline without any: revokes the comm, naming what does not
 * end. */
void oriel_devices_give_up(oriel_comm *comm);
/* Whether a kernel of this process has poisoned a result: the comm is revoked, or about to
 * be by the process whose kernel failed first. */
int oriel_devices_revoked(const oriel_comm *comm);

/* ---- buffers that others may map (register.c) -------------------------------------------- */

typedef struct oriel_place {
    uint64_t window;     /* as in device_call; 0: nobody else can map it */
    uint32_t generation; /* of the window */
    int stale;           /* the address meant other memory before */
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

/* Windows that are shown to a group, the rank's `shown_to`, are mapped by its members themselves,
 * not by registrars. Local, by the thread of a call. */

/* How many of any group can be touched by peers. */
uint32_t oriel_register_ready(const oriel_device_rank *rank);
/* How many of one nobody has mapped yet. */
uint32_t oriel_register_wanted(const oriel_device_rank *rank, uint64_t group);
/* At most `most` of them, which `others` members are about to map: what they map is a mapping of
 * oriel's own, the caller's, so that it does not vanish while they do. */
typedef struct oriel_brought {
    int number;              /* of the window */
    uint32_t generation;     /* of the window */
    oriel_cuda_memory alias; /* the mapping that others map */
} oriel_brought;
int oriel_register_bring(oriel_comm *comm, int rank, uint64_t group, uint32_t others, int most,
                         oriel_brought *brought);
/* Whether the others can map it: it is ready when they have, or will never be. */
void oriel_register_brought(oriel_device_rank *rank, int number, int can);
/* A local rank sees window `number` of `of`, another rank, at `at`. */
oriel_status oriel_register_reach(oriel_comm *comm, int rank, int of, int number, cu_ptr at);
/* Whether the window is what it was, or the rank's device may take it for that. */
int oriel_register_holds(const oriel_device_rank *rank, int number, uint32_t generation);
/* The group's windows are gone: what comes next on the stream does not find them. */
void oriel_unregister(oriel_device_rank *rank, uint64_t group, cu_stream stream);

/* The descriptor of a window that a peer asks for; -1: none. */
int oriel_export_fd(const oriel_device_rank *rank, uint64_t window);

/* The segment that a peer asks the port for: a rank's device heap, or one of its
 * windows, from 1, above bit 32. */
#define DEVICE_SEGMENT           (1ull << 63)
#define DEVICE_SEGMENT_MULTICAST (DEVICE_SEGMENT | 1ull << 62) /* of the process of rank 0 */
const oriel_segment *oriel_devices_lookup(oriel_comm *comm, uint64_t id, oriel_segment *buffer);

#endif
