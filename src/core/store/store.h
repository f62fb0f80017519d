/* oriel's own small key-value store, for jobs that bring none: a server thread
 * (in process 0 or in `oriel run`) and a client that fills an oriel_store.
 *
 * Address: "unix:@name" (abstract Unix socket, the peer's uid is checked) or
 * "host:port" (TCP; a secret is required). Before anything is parsed, both
 * sides prove with HMAC-SHA-256 over fresh nonces that they know the secret. */
#ifndef ORIEL_CORE_STORE_STORE_H
#define ORIEL_CORE_STORE_STORE_H

#include "base/status.h"

typedef struct oriel_store_server oriel_store_server;

/* The key in the store of `oriel run` where the process says its number that ends first,
 * although others still need it: they may end before it does. */
#define ORIEL_STORE_FIRST "oriel/first"

/* Local: binds, listens and serves from a thread of its own. `address` may be
 * NULL (a fresh abstract Unix socket) or end in ":0" (a free TCP port). TCP
 * without a secret is refused. */
oriel_status oriel_store_server_create(const char *address, const char *secret,
                                       oriel_store_server **server_p);
/* The address clients connect to. */
const char *oriel_store_server_address(const oriel_store_server *server);
/* Waits at most `linger_s` seconds until every client has closed, then ends. Meanwhile it gives out
 * the keys there are; a client that waits for another, or comes anew, is sent away at once. */
void oriel_store_server_destroy(oriel_store_server *server, double linger_s);

/* Local: connects, retrying until `timeout_s` has passed (process 0 may be
 * late), and fills `store_p`. */
oriel_status oriel_store_connect(const char *address, const char *secret, double timeout_s,
                                 oriel_store *store_p);
void oriel_store_disconnect(oriel_store *store);

/* Local: one try to connect to the process that listens at `address` and to prove the secret to
 * each other as with a store; the socket is the caller's, and non-blocking. */
oriel_status oriel_store_dial(const char *address, const char *secret, double timeout_s, int *fd_p);

#endif
