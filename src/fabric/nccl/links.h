/* NCCL's communicators of one process, one for each of its ranks. They do not block: whatever
 * needs the other ranks is started, then looked at until it has ended, the time is over or the
 * caller wants to stop. After a failure nothing can be done with them but close them. */
#ifndef ORIEL_FABRIC_NCCL_LINKS_H
#define ORIEL_FABRIC_NCCL_LINKS_H

#include <pthread.h>

#include "fabric/cuda/memory.h"
#include "fabric/nccl/library.h"

typedef struct oriel_nccl_link {
    nccl_comm comm;       /* of one rank */
    const oriel_gpu *gpu; /* where that rank computes */
    pthread_mutex_t lock; /* a communicator does one thing at a time */
} oriel_nccl_link;

typedef struct oriel_nccl_links {
    const nccl_library *nccl; /* that made them */
    oriel_nccl_link *links;   /* `n` of them */
    int n;                    /* of this process ... */
    int first;                /* ... from this rank on ... */
    int size;                 /* ... of so many */
} oriel_nccl_links;

/* How long to look. */
typedef struct oriel_nccl_wait {
    double until;           /* as oriel_now() */
    int (*stops)(void *of); /* whether there is a reason to give up; may be NULL */
    void *of;               /* what `stops` is called with */
} oriel_nccl_wait;

/* Local, one rank of a job: what all need to find each other. */
oriel_status oriel_nccl_id(nccl_id *id_p);

/* What a rank brings: where it computes, and how much of its GPU NCCL's kernels may have. */
typedef struct oriel_nccl_plan {
    nccl_id id;         /* as oriel_nccl_id made it for all */
    int size, first, n; /* ranks in all, the first of this process, and so many from there */
    int max_ctas;       /* 0: as NCCL likes */
    int shared;         /* ranks share a GPU */
} oriel_nccl_plan;

/* Collective over all `size` ranks. gpus[i] is that of rank first + i. */
oriel_status oriel_nccl_links_open(const oriel_nccl_plan *plan, const oriel_gpu *const *gpus,
                                   const oriel_nccl_wait *wait, oriel_nccl_links *links_p);
/* Local and bounded by `seconds`. `all`: all ranks come, and nobody uses any of it any more;
 * else what is under way is aborted. False: NCCL did not come back, what it holds is lost. */
int oriel_nccl_links_close(oriel_nccl_links *links, int all, double seconds);

/* Waits until what was started on links [from, to) has ended. */
oriel_status oriel_nccl_links_settle(const oriel_nccl_links *links, int from, int to,
                                     const char *what, const oriel_nccl_wait *wait);

/* Starts `call` on each link, in the context of its GPU, all in one group; and waits until that
 * has ended. */
typedef nccl_result (*oriel_nccl_call)(const oriel_nccl_links *links, int i, void *arg);
oriel_status oriel_nccl_links_each(const oriel_nccl_links *links, oriel_nccl_call call, void *arg,
                                   const char *what, const oriel_nccl_wait *wait);

/* Device memory that NCCL can register: its own, zeroed. */
oriel_status oriel_nccl_memory_create(const nccl_library *nccl, const oriel_gpu *gpu, size_t bytes,
                                      cu_ptr *at_p);
void oriel_nccl_memory_free(const nccl_library *nccl, const oriel_gpu *gpu, cu_ptr at);

/* Collective over all ranks, in the same order: registers at[i], of bytes[i], for link i, as
 * `how` says: NCCL_WINDOW_.... Before 2.30 sizes are the same on all ranks. */
oriel_status oriel_nccl_links_register(oriel_nccl_links *links, const cu_ptr *at,
                                       const size_t *bytes, int how, const oriel_nccl_wait *wait,
                                       nccl_window *windows_p);
/* Local: nobody touches them any more. NULL entries are skipped. */
void oriel_nccl_links_deregister(oriel_nccl_links *links, const nccl_window *windows);
/* Local: where link i sees what `rank` has registered in that window. */
oriel_status oriel_nccl_links_pointer(const oriel_nccl_links *links, int i, nccl_window window,
                                      int rank, cu_ptr *at_p);

#endif
