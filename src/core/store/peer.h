/* One connection of the store server: proves, then asks, one request at a time.
 * Everything here is called by the server's thread and never waits.
 *
 * Memory is bounded: a request of at most one message, and a reply that points at
 * the table's value instead of copying it. */
#ifndef ORIEL_CORE_STORE_PEER_H
#define ORIEL_CORE_STORE_PEER_H

#include "core/store/address.h"
#include "core/store/table.h"

typedef struct oriel_store_peer oriel_store_peer;

/* What all connections of a server share. */
typedef struct oriel_store_host {
    oriel_address address;    /* where the server listens */
    char *secret;             /* that a peer must know */
    oriel_store_table *table; /* NULL: the peers are no clients of a store */
    int ends;                 /* nobody will set a key any more */
} oriel_store_host;

/* Takes `fd`, also when it fails. */
oriel_status oriel_store_peer_create(int fd, const oriel_store_host *host, double now,
                                     oriel_store_peer **peer_p);
void oriel_store_peer_destroy(oriel_store_peer *peer);
/* Of one that has proved itself: its socket, from which no byte beyond the handshake was
 * read; the rest is freed. -1: something is still to be sent. */
int oriel_store_peer_take(oriel_store_peer *peer);

/* The name of the client, for a log line. */
const char *oriel_store_peer_name(const oriel_store_peer *peer);
int oriel_store_peer_is_proven(const oriel_store_peer *peer);
int oriel_store_peer_fd(const oriel_store_peer *peer);
/* What to poll for. */
short oriel_store_peer_events(const oriel_store_peer *peer);
/* When oriel_store_peer_tick must be called at the latest; may be infinite. */
double oriel_store_peer_deadline(const oriel_store_peer *peer);

/* On failure the connection is of no more use. ORIEL_ERR_PEER: a proven peer
 * has left, which is no fault of its. */
oriel_status oriel_store_peer_service(oriel_store_peer *peer, short revents,
                                      const oriel_store_host *host, double now);
/* Answers a parked get whose key has come or whose time is up. */
oriel_status oriel_store_peer_tick(oriel_store_peer *peer, const oriel_store_host *host,
                                   double now);

#endif
