/* Between the machines of one world: each machine's lead keeps one authenticated TCP
 * connection to process 0, which passes on what it hears. See bridge.c. */
#ifndef ORIEL_CORE_MACHINES_BRIDGE_H
#define ORIEL_CORE_MACHINES_BRIDGE_H

#include "core/world/comm.h"

enum { BRIDGE_ADDRESSES = 8, BRIDGE_ADDRESS = 64, BRIDGE_SECRET = 32 };

typedef struct oriel_bridge oriel_bridge;

/* How to reach process 0; travels through the store that the processes meet in. */
typedef struct oriel_bridge_ticket {
    char addresses[BRIDGE_ADDRESSES][BRIDGE_ADDRESS]; /* without the port; "": no more */
    char secret[2 * BRIDGE_SECRET + 4];               /* 32 random bytes as text */
    uint32_t port;                                    /* that process 0 listens at */
} oriel_bridge_ticket;

/* Local, process 0: listens until all other machines have come, from a thread of its own. */
oriel_status oriel_bridge_open(oriel_comm *comm, oriel_bridge_ticket *ticket_p);
/* Local, the lead of another machine: returns when process 0 knows it. */
oriel_status oriel_bridge_join(oriel_comm *comm, const oriel_bridge_ticket *ticket,
                               double deadline);
/* Local, after this process has said in the heap that it leaves: tells the others. Takes 2 s
 * at most. */
void oriel_bridge_close(oriel_comm *comm);

/* ---- for bridge.c (reach.c) --------------------------------------------------------- */

/* Local: a listening socket, and how to reach it. */
oriel_status oriel_bridge_listen(oriel_bridge_ticket *ticket_p, int *fd_p);
/* Local: a socket whose other end has proved that it knows the ticket's secret. */
oriel_status oriel_bridge_dial(const oriel_bridge_ticket *ticket, double deadline, int *fd_p);

#endif
