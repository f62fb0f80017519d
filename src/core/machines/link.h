/* One connection between two machines' leads: messages of one size, whole or not at all.
 * Never waits, but for oriel_link_wait. */
#ifndef ORIEL_CORE_MACHINES_LINK_H
#define ORIEL_CORE_MACHINES_LINK_H

#include "core/world/world.h"

enum link_kind {
    LINK_JOIN = 1, /* a lead to process 0: `process` is its machine */
    LINK_WELCOME,  /* process 0 to that */
    LINK_COME,     /* `process` has come to meeting `round`, with status `code` */
    LINK_STATE,    /* of `process`, if it has left: `code`; | 256 times enum proc_leaving */
    LINK_RANK,     /* the card of rank `rank`, see world.h */
    LINK_SHARE,    /* what process 0 shares in the meeting it comes to next */
    LINK_ABORT     /* the comm is revoked: a heap_abort in parts */
};

/* Machines of one world run one version, on processors of one byte order. */
typedef struct link_message {
    uint32_t kind;        /* enum link_kind */
    uint32_t round;       /* of LINK_COME: the meeting, from 0 */
    int32_t code;         /* a status or a state, by kind */
    int32_t rank;         /* of LINK_RANK and LINK_ABORT; -1: none */
    int32_t process;      /* by kind: of a process or of a machine; -1: none */
    uint32_t reserved;    /* 0 */
    char text[HEAP_TEXT]; /* a sentence, a card or what is shared, by kind */
} link_message;

_Static_assert((int)HEAP_CARD <= (int)HEAP_TEXT, "cards travel in the text");

typedef struct oriel_link {
    int fd;               /* -1: closed */
    int machine;          /* at the other end; -1: not known yet */
    int lead;             /* the process there */
    link_message in, out; /* the messages under way, one each way */
    size_t got;           /* bytes of `in` */
    size_t left;          /* bytes of `out` that are still to be sent */
    uint32_t *rounds;     /* what the other end has been told of each process: its meetings */
    uint32_t *states;     /* likewise: whether it lives */
    unsigned char *ranks; /* likewise of each rank */
    uint32_t shared;      /* for the meetings before this one */
    int aborted;          /* it has been told that the comm has failed */
} oriel_link;

/* On failure nothing is left, but `fd` is the caller's. */
oriel_status oriel_link_init(oriel_link *link, int fd, const oriel_heap *heap);
void oriel_link_free(oriel_link *link);
static inline int oriel_link_full(const oriel_link *link)
{
    return link->got == sizeof link->in;
}
/* Sends what is left, as far as it goes. ORIEL_ERR_PEER: the connection has ended. */
oriel_status oriel_link_flush(oriel_link *link);
/* Receives the rest of `in`, as far as it has come. The same. */
oriel_status oriel_link_receive(oriel_link *link);
/* Sends `out` and waits for `in`. */
oriel_status oriel_link_wait(oriel_link *link, double deadline);
/* The other end gets all that was sent, then the end; reads until it ends too, for a while.
 * What is closed with bytes unread takes back what it has sent. */
void oriel_link_end(oriel_link *link, double deadline);

#endif
