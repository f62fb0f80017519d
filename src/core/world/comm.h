/* The comm of one process, seen from inside. */
#ifndef ORIEL_CORE_WORLD_COMM_H
#define ORIEL_CORE_WORLD_COMM_H

#include <pthread.h>

#include "core/world/world.h"

typedef struct oriel_member oriel_member;
struct oriel_area;

/* What is known of a group when it is made, and decides how its operations go: see
 * ops/choose.c. The same on all members. */
typedef struct oriel_facts {
    int n;           /* members */
    int one_process; /* they live in one process, and ORIEL_DIRECT lets them work on each other's
                      * buffers */
    int reads;       /* each process may read the memory of the others */
    int crowded;     /* ranks outnumber the cores */
    int apart;       /* cores may share no cache */
    size_t place;    /* bytes of payload that one place of the lane takes; 0: no lane */
    size_t eager;    /* bytes of payload that the block of a cell takes from each member */
    size_t cache;    /* bytes of the cache that the cores share, if they share one */
} oriel_facts;

struct oriel_group {
    oriel_comm *comm; /* that it is a subset of */
    uint64_t hash;    /* of the ranks and the instance; equal on all members */
    int n;            /* members */
    int num_procs;    /* length of `procs` */
    int one_process;  /* all members live in this process */
    int spans;        /* not all on one machine: memory is not shared */
    int each; /* members of a machine, where those of one come one after the other and all have as
               * many; else 1 */
    struct oriel_group *_Atomic here; /* those of this machine, if it spans: see
                                       * ops/cuda/span.c */
    int owned;                        /* freed with the comm, not by oriel_group_destroy */
    int *ranks;                       /* of the members, in the world */
    int *procs;                       /* distinct processes of the members */
    oriel_facts facts;                /* what follows from the group for the choice of a mode */
    _Atomic uint64_t windows;         /* made of it so far, failed ones too */
    uint64_t *sequence;               /* ordered calls so far, per local rank of this process */
    struct oriel_member *members;     /* per local rank: its place in the group's lane */
    struct oriel_group ***pairs; /* per local rank: those of its messages, see oriel_group_pair */
    struct oriel_group *next;    /* in comm->groups */
};

typedef struct oriel_group_list {
    uint64_t list;                 /* hash of the ranks */
    uint64_t instances;            /* groups made of this list so far */
    struct oriel_group_list *next; /* in comm->group_lists */
} oriel_group_list;

/* What GPUs add to the life of a comm; core/device installs it. */
typedef struct oriel_device_calls {
    /* Passes failures on: from kernels to the comm, and from the comm to kernels. */
    void (*look)(oriel_comm *comm);
    /* Whether a kernel of this process has poisoned a result. */
    int (*revoked)(const oriel_comm *comm);
} oriel_device_calls;

struct oriel_comm {
    const oriel_fabric *fabric; /* how processes share memory */
    oriel_heap heap;            /* what this process sees of it */
    int pid;                    /* a forked child has the object, but not the comm */
    int process;                /* this one's number */
    int num_processes;          /* of the world */
    int here;                   /* processes on this machine */
    int first_rank;             /* the first of this process */
    int local_ranks;            /* so many ranks it has */
    int size;                   /* ranks of the world */
    int injects;                /* the fabric wants to see every operation */
    int oversubscribed;         /* more ranks than cores: yield instead of pausing */
    int apart;                  /* cores may share no cache */
    size_t cache;               /* bytes of the cache that they share otherwise */
    double timeout;             /* seconds that an operation may take */
    double warn_after;          /* seconds until a waiting one says so */
    double spin;                /* seconds that a waiter spins before it sleeps */
    uint64_t token;             /* what others look for to see whether they can read this memory */

    oriel_port port;                   /* lead, and processes of GPUs: where peers fetch segments */
    oriel_segment_lookup find_segment; /* what they may fetch; its context is the comm */
    oriel_ticket lead;                 /* how to reach the machine's lead */
    int has_port;                      /* `port` is open */
    int on_gpus;                       /* its ranks are GPUs */
    oriel_invitation invitation;       /* of the fabric of its GPUs, from process 0 */

    struct oriel_devices *_Atomic devices;          /* ranks that are GPUs; NULL: they are CPUs */
    const oriel_device_calls *_Atomic device_calls; /* NULL as well */

    struct oriel_bridge *bridge; /* a machine's lead, where there are several: see bridge.c */

    pthread_t watch;        /* a thread: see watch.c */
    int watch_wake;         /* eventfd that wakes the watch thread ... */
    _Atomic int watch_ends; /* ... to see this */
    int watching;           /* the thread was started */

    pthread_mutex_t lock;          /* groups, windows */
    oriel_group *groups;           /* all, by `next` */
    oriel_group_list *group_lists; /* all, by `next` */
    oriel_group *world;            /* the group of all ranks */
    oriel_window **windows;        /* those that this process holds, by address */
    int num_windows;               /* of them */
    int promised_windows;          /* so many more are being made */
    int room_windows;              /* in the array */

    pthread_mutex_t arena_lock;          /* the arena and the areas taken of it: see arena.h */
    oriel_segment arena;                 /* mapped when first needed; base NULL: not yet */
    struct arena_mapping *arena_mapping; /* the same with all that use it; NULL: not yet */
    _Atomic int arena_is_open;           /* for those who look without the lock */
    struct oriel_area **areas;           /* per local rank */

    struct oriel_request **started; /* per local rank: requests not waited for yet */
    void (*_Atomic free_started)(struct oriel_request *list); /* set when one is started */
};

/* ---- waiting (wait.c) ---------------------------------------------------

   A wait is a loop of looks with a pause between two of them:

       oriel_waiter waiter = {0};

       while (!look())
           oriel_comm_pause(comm, &waiter);
       oriel_waiter_end(comm, &waiter);
*/

typedef struct oriel_waiter {
    double spin_until; /* when it sleeps; 0: it has not begun to count */
    uint32_t turns;    /* looks so far: the clock is read in one of 32 */
    uint32_t bell;     /* as it was when the waiter announced itself */
    int announced;     /* counted in `sleepers`: ringers ring */
    int patient;       /* spins longer */
} oriel_waiter;

/* Rings one process: call it after the state change that it should see. Costs a
 * system call only if somebody sleeps there. */
void oriel_comm_ring(oriel_comm *comm, int process);
void oriel_comm_ring_all(oriel_comm *comm);
void oriel_group_ring(const oriel_group *group);
/* The same where the change itself was sequentially consistent. */
void oriel_group_ring_fenced(const oriel_group *group);

/* Spins for a while, a turn per call; then announces the waiter; in the call after
 * that sleeps until the bell rings, 50 ms at most, and starts over. Returns 0 from
 * a spin: the next look may be a cheap one. It returns 1 when the next look must
 * take in everything that is waited for: it is the last before a sleep, or time
 * has passed. */
int oriel_comm_pause(oriel_comm *comm, oriel_waiter *waiter);
/* The same without the spin, and sleeps for `seconds` at most. Returns whether it
 * slept. */
int oriel_waiter_sleep(oriel_comm *comm, oriel_waiter *waiter, double seconds);
/* Every loop ends with this, however it is left: a waiter that stays announced
 * costs each ringer a system call for ever. */
void oriel_waiter_end(oriel_comm *comm, oriel_waiter *waiter);

/* ---- failure (abort.c) --------------------------------------------------- */

static inline int oriel_comm_aborted(const oriel_comm *comm)
{
    return atomic_load_explicit(&oriel_control(&comm->heap)->abort.word, memory_order_acquire) != 0;
}
/* Revokes the comm; the first caller's record stays. `rank` and `process` name
 * the culprit (-1: none). */
void oriel_comm_abort(oriel_comm *comm, oriel_status code, int rank, int process, const char *fmt,
                      ...) __attribute__((format(printf, 5, 6)));
/* Revokes the comm because a process died or has left. */
void oriel_comm_abort_gone(oriel_comm *comm, int process);
/* The same, or because it is in finalize, where `rank` waits for it in the operation `what`. */
void oriel_comm_abort_missing(oriel_comm *comm, int process, int rank, const char *what);
/* Before an operation begins: the faults that ORIEL_FAULT asks for, if any. One that
 * fails revokes the comm, which the operation then finds; one that is dropped stays away
 * from the others until somebody's deadline. */
void oriel_comm_inject(oriel_comm *comm);
static inline void oriel_comm_operation(oriel_comm *comm)
{
    if (__builtin_expect(comm->injects, 0))
        oriel_comm_inject(comm);
}
/* Fails with what revoked the comm, or is just about to. */
oriel_status oriel_comm_failure(const oriel_comm *comm);
/* Local: passes failures on between the comm and kernels on GPUs, if it has them. */
static inline void oriel_comm_look(oriel_comm *comm)
{
    const oriel_device_calls *calls = atomic_load(&comm->device_calls);

    if (calls != NULL)
        calls->look(comm);
}
/* The record, waiting a moment for one that is being written; NULL: none. */
const heap_abort *oriel_comm_abort_record(const oriel_comm *comm);

/* ---- processes (control.c, watch.c) --------------------------------------- */

/* Collective over processes, bounded by `timeout_s`: returns the largest status
 * anybody brought, the same everywhere. */
oriel_status oriel_comm_agree(oriel_comm *comm, oriel_status mine, double timeout_s);
/* The same, and what process 0 has in `data` is there on all: at most HEAP_TEXT bytes. 0 s: the
 * comm's timeout. */
ORIEL_API oriel_status oriel_comm_share(oriel_comm *comm, oriel_status mine, void *data,
                                        size_t bytes, double timeout_s);
/* Local: says that this process has come to its end, but stays for the others' sake; how many
 * have said so. */
ORIEL_API void oriel_comm_leave(oriel_comm *comm);
ORIEL_API int oriel_comm_leaving(const oriel_comm *comm);
/* Local: whether a process is gone, has left, or is in finalize. What it did before is seen by a
 * look that comes after this one. */
int oriel_comm_cannot_call(const oriel_comm *comm, int process);
/* Local: this process ends, although others may need it, for the reason `why`: revokes the
 * comm, and tells `oriel run` that it was the first. */
ORIEL_API void oriel_comm_quit(oriel_comm *comm, const char *why);
/* Local: -1 unless another process waits for an operation that this one has not begun; then how
 * many it has begun. */
ORIEL_API int64_t oriel_comm_awaited(const oriel_comm *comm);
/* Local: whether a process is on this machine, so that memory can be shared with it. */
static inline int oriel_comm_is_here(const oriel_comm *comm, int process)
{
    return comm->heap.procs[process].machine == (int)comm->heap.header->machine;
}
/* Local: the process that `process` waits for there; -1: it does not wait. */
int oriel_control_missing(const oriel_heap *heap, int process);
/* In a round that is open: a process has come, with its vote; and for the bridge: all processes
 * have; the bridge has. */
uint32_t oriel_control_round(const oriel_comm *comm);
void oriel_control_come(oriel_comm *comm, int process, uint32_t round, oriel_status status,
                        const char *text);
int oriel_control_complete(const oriel_comm *comm, uint32_t round);
void oriel_control_arrive(oriel_comm *comm);
oriel_status oriel_watch_start(oriel_comm *comm);
void oriel_watch_stop(oriel_comm *comm);

/* ---- memory of others (reads.c) ----------------------------------------------- */

/* Local: shows a token before the others look for it. */
void oriel_reads_show(oriel_comm *comm);
/* Local: looks for those of all others and notes whether it found them. */
void oriel_reads_probe(oriel_comm *comm);
/* Copies memory of `process`, this one or another. ORIEL_ERR_PEER: it is gone. */
oriel_status oriel_reads_copy(const oriel_comm *comm, int process, void *dst, const void *src,
                              size_t bytes);
/* A thread that lives as long as the comm stands for its process: where others read, they need
 * not look for the token. */
typedef struct oriel_robust {
    struct robust_list_head head;    /* the thread's robust list, with one entry ... */
    struct robust_list word;         /* ... which stands for the process's `watcher` */
    struct robust_list_head *before; /* the list that the thread had */
} oriel_robust;
/* Local, by that thread: from here on until it ends, or drops the list. */
void oriel_reads_hold_robust(oriel_comm *comm, oriel_robust *robust);
void oriel_reads_drop_robust(oriel_comm *comm, const oriel_robust *robust);
/* Whether each process of the group can read the memory of the others. */
int oriel_group_reads(const oriel_group *group);

/* ---- cores (spread.c) ---------------------------------------------------------- */

/* Local: shows which cores this process may use, before all have joined. */
void oriel_spread_show(oriel_comm *comm);
/* Local, once all have: finds out whether cores are shared, and takes one. */
ORIEL_API void oriel_spread_begin(oriel_comm *comm);

#endif
