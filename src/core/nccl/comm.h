/* NCCL beneath a comm of GPUs: a communicator for each local rank, over all ranks. With the nccl
 * fabric the heaps are memory of NCCL's, registered as one window, and peers are reached at the
 * addresses it gives; kernels, flags and deadlines stay oriel's own. With the span fabric NCCL
 * moves data between machines. Between oriel_nccl_enter and oriel_nccl_leave a rank may start
 * NCCL's own calls on its communicator. */
#ifndef ORIEL_CORE_NCCL_COMM_H
#define ORIEL_CORE_NCCL_COMM_H

#include "core/device/fabric.h"
#include "fabric/nccl/links.h"

/* Where NCCL's own calls of a rank run, beside the stream of its program. */
typedef struct oriel_nccl_stream {
    cu_stream stream; /* NCCL's kernels */
    cu_event fork;    /* what is on the caller's stream before them */
    cu_event join;    /* they have ended, for the caller's stream */
} oriel_nccl_stream;

struct oriel_nccl {
    oriel_nccl_links links; /* a communicator for each local rank */
    nccl_window *heaps;     /* per local rank: the window of all heaps; NULL: they are in none */
    _Atomic int broken;     /* something failed on the communicators: they do nothing more */
    _Atomic int breaks;     /* a thread is about to say so in `why` */
    char why[HEAP_TEXT];    /* why they are broken */
    int lost;               /* NCCL did not come back from their end */
    int parted;             /* all ranks are done with them */
    _Atomic int calls;      /* calls of NCCL's own may be under way: oriel_nccl_look polls */
    int revoked;            /* so many links have ended what they had on the GPUs */
    double trouble_at;      /* when NCCL first spoke of it; 0: never */
    struct oriel_rounds *rounds;          /* of the registrar: see register.c */
    oriel_nccl_stream *streams;           /* per local rank; NULL: not yet, or `no_calls` */
    char no_calls[200];                   /* why there is no all_reduce via NCCL; "": there is */
    oriel_cuda_memory kept[DEVICE_RANKS]; /* closed when the communicators have ended */
};

/* Collective over processes, bounded: all come, each with what it has to say so far. Makes the
 * communicators and calls `rest`. A failure revokes the comm, so that nobody waits for NCCL in
 * vain. */
oriel_status oriel_nccl_connect(oriel_comm *comm, oriel_status mine,
                                oriel_status (*rest)(oriel_comm *comm));

/* ---- slots of fabrics that have communicators ----------------------------------------------- */

oriel_status oriel_nccl_invite(oriel_invitation *invitation_p);
/* Without oriel_nccl_part, or on a revoked comm, oriel_nccl_close aborts instead of finalizing.
 * What oriel_nccl_look ends on the GPUs stays mapped: kernels behind it on the streams find it
 * there. */
void oriel_nccl_look(oriel_comm *comm);
oriel_status oriel_nccl_part(oriel_comm *comm);
int oriel_nccl_close(oriel_comm *comm);

/* ---- NCCL's own calls (streams.c) ----------------------------------------------------------- */

/* Whether one could be ended that hangs. */
oriel_status oriel_nccl_check_calls(const nccl_library *nccl);
/* Collective over processes, bounded: makes the streams, and has `calls` make the first calls
 * while it holds all communicators. */
oriel_status oriel_nccl_first_calls(oriel_comm *comm, oriel_status (*calls)(oriel_comm *comm));
/* For `calls`: starts one on each local rank and waits until all have ended on the GPUs. */
oriel_status oriel_nccl_call_all(oriel_comm *comm, oriel_nccl_call call, void *arg,
                                 const char *what);
/* The same for all_reduce via NCCL; `no_calls` says why there is none. */
oriel_status oriel_nccl_streams_open(oriel_comm *comm);
/* Local, before the communicators go. */
void oriel_nccl_streams_close(struct oriel_nccl *nccl);

/* The library of the comm's communicators; NULL: it has none. */
const nccl_library *oriel_nccl_calls(const oriel_comm *comm);
/* Whether the heaps are in a window of NCCL's. */
int oriel_nccl_has_windows(const oriel_comm *comm);
/* Whether the communicators can be finalized: all ranks are done with them, and nothing failed. */
int oriel_nccl_is_good(struct oriel_nccl *nccl);

/* Local, by the thread of a local rank: has its communicator to itself until oriel_nccl_leave.
 * Nothing may wait for a peer in between but NCCL itself. */
oriel_status oriel_nccl_enter(oriel_comm *comm, int rank, nccl_comm *nccl_p);
/* Waits, bounded by the comm's timeout and its revocation, until what was started there is on its
 * stream; `result` is what NCCL said when `what` was started. A failure revokes the comm. */
oriel_status oriel_nccl_leave(oriel_comm *comm, int rank, nccl_result result, const char *what);

/* Local: what has just failed in this thread is the end of them; the first to say so counts. */
void oriel_nccl_break(struct oriel_nccl *nccl);
/* Local: all communicators of this process at once, or none; without a wait, or with one that is
 * bounded as that of oriel_nccl_enter. */
int oriel_nccl_try_all(struct oriel_nccl *nccl);
oriel_status oriel_nccl_enter_all(oriel_comm *comm);
void oriel_nccl_leave_all(struct oriel_nccl *nccl);

/* Collective over processes: all have come to the same; `why` keeps the sentence, on all of them.
 * Fails where the comm is revoked. */
oriel_status oriel_nccl_note(oriel_comm *comm, oriel_status mine, char *why, size_t len);
/* How long to wait for NCCL, and why not: the comm's timeout and its revocation. */
oriel_nccl_wait oriel_nccl_patience(oriel_comm *comm, double seconds);

/* ---- rounds of the registrar (register.c) ------------------------------------------------- */

oriel_status oriel_rounds_open(oriel_comm *comm);
/* The registrar's thread: one step; whether something moved. */
int oriel_rounds_step(oriel_comm *comm);
/* Others may wait for this process in a round; false for a bounded time. */
int oriel_rounds_may_end(oriel_comm *comm);
/* When the registrar has ended. Windows are deregistered if nobody uses them any more; else that
 * is left to the end of the communicators. */
void oriel_rounds_close(struct oriel_nccl *nccl, int deregister);

/* ---- fabrics of device memory ----------------------------------------------------- */

extern const oriel_device_fabric oriel_device_nccl; /* windows of NCCL's, on one machine */
extern const oriel_device_fabric oriel_device_span; /* cuda on each machine, NCCL between them */

#endif
