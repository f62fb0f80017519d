/* A fabric is a way to make memory of one rank reachable from another: one
 * const table each, every slot filled. Capability is asked at set-up, never in
 * the hot path. */
#ifndef ORIEL_FABRIC_FABRIC_H
#define ORIEL_FABRIC_FABRIC_H

#include "base/status.h"

/* Memory that several processes map. */
typedef struct oriel_segment {
    void *base;   /* where it is mapped here; NULL: it is not */
    size_t bytes; /* of the mapping */
    int fd;       /* of the file behind it; -1: none */
} oriel_segment;

/* Where segments of one process can be fetched from: printable, so that it can
 * travel through a key-value store. A process that can read the ticket may fetch. */
enum { ORIEL_TICKET_BYTES = 128 };
typedef struct oriel_ticket {
    char text[ORIEL_TICKET_BYTES]; /* a string */
} oriel_ticket;

/* What process 0 tells the others before they join, for a fabric that needs it: opaque bytes. */
enum { ORIEL_INVITATION_BYTES = 128 };
typedef struct oriel_invitation {
    unsigned char bytes[ORIEL_INVITATION_BYTES]; /* as the fabric wrote them */
} oriel_invitation;

/* The serving end of a ticket: `fd` listens, and is readable when a peer waits. */
typedef struct oriel_port {
    int fd;                  /* -1: closed */
    unsigned char token[32]; /* what a peer must show; in the ticket */
    oriel_ticket ticket;     /* for peers */
} oriel_port;

/* Finds the segment a peer asks for; NULL when there is none. */
typedef const oriel_segment *(*oriel_segment_lookup)(void *ctx, uint64_t id);

typedef struct oriel_fabric {
    const char *name; /* for messages */
    const char *note; /* goes behind the sentence of a revoked comm; mostly "" */
    int injects;      /* whether `operation` has something to do */
    /* Whether this machine can use it; the sentence says why not. */
    oriel_status (*probe)(void);

    /* Local: zeroed memory that peers can fetch; closing unmaps it here alone. */
    oriel_status (*segment_create)(size_t bytes, oriel_segment *segment_p);
    void (*segment_close)(oriel_segment *segment);

    /* Local: where peers fetch segments of this process; closing turns them away. */
    oriel_status (*port_create)(oriel_port *port_p);
    void (*port_close)(oriel_port *port);
    /* Answers one waiting peer; port->fd is readable. Bounded: a peer that says
     * nothing is dropped. */
    void (*port_serve)(oriel_port *port, oriel_segment_lookup lookup, void *ctx);
    /* Asks the port behind `ticket` for segment `id`. */
    oriel_status (*segment_fetch)(const oriel_ticket *ticket, uint64_t id, size_t bytes,
                                  double timeout_s, oriel_segment *segment_p);

    /* Takes life lock `member` of the segment; it goes with the process, after
     * the process's last store. */
    oriel_status (*member_join)(const oriel_segment *segment, int member);
    /* 1: another process holds it, 0: nobody does. */
    int (*member_alive)(const oriel_segment *segment, int member);

    /* Copies memory of a process that it has not shared, and then, unless that is NULL, the 8
     * bytes at `token`, which tell whether it was the right one. ORIEL_ERR_PEER: it is gone;
     * another failure: the system does not allow it, or there is no such memory. */
    oriel_status (*memory_read)(int pid, void *dst, const void *src, size_t bytes,
                                const void *token, uint64_t *token_p);

    /* Before each operation of the process begins, if the fabric injects: a failure
     * revokes the comm; ORIEL_ERR_TIMEOUT does at the operation's deadline, to which the
     * process does not come. */
    oriel_status (*operation)(void);
} oriel_fabric;

extern const oriel_fabric oriel_fabric_host;
extern const oriel_fabric oriel_fabric_fault; /* wraps another: not in the list */

/* Local: the fabric of a comm on this machine, with the faults of ORIEL_FAULT. */
oriel_status oriel_fabric_choose(int process, const oriel_fabric **fabric_p);
/* Local: what the fault fabric wraps and where it strikes; see docs/errors.md. The
 * same text again leaves the counts of calls as they are. */
oriel_status oriel_fault_plan(const oriel_fabric *inner, const char *spec, int process);

#endif
