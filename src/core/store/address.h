/* Where oriel's store listens: "unix:@name" (an abstract Unix socket) or TCP as
 * "host:port", "[v6]:port" or ":port" (the loopback). */
#ifndef ORIEL_CORE_STORE_ADDRESS_H
#define ORIEL_CORE_STORE_ADDRESS_H

#include <sys/socket.h>

#include "base/status.h"

enum { ORIEL_ADDRESS_HOST = 256, ORIEL_ADDRESS_TEXT = 272, ORIEL_ADDRESS_ENDPOINTS = 8 };

typedef struct oriel_address {
    int is_unix;                   /* an abstract Unix socket; else TCP */
    char host[ORIEL_ADDRESS_HOST]; /* the abstract name, a host name or a numeric address */
    unsigned port;                 /* of TCP: 0 ... 65535 */
} oriel_address;

typedef struct oriel_endpoint {
    struct sockaddr_storage addr; /* as the system takes it */
    socklen_t len;                /* of it that count */
} oriel_endpoint;

/* Pure: the text alone, no name is looked up. */
oriel_status oriel_address_parse(const char *text, oriel_address *address_p);
/* What oriel_address_parse would read back. */
void oriel_address_format(const oriel_address *address, char text_p[ORIEL_ADDRESS_TEXT]);
/* Looks the host up; waits as long as the system's resolver does. */
oriel_status oriel_address_resolve(const oriel_address *address,
                                   oriel_endpoint endpoints_p[ORIEL_ADDRESS_ENDPOINTS], int *n_p);
/* Of a TCP endpoint. */
unsigned oriel_endpoint_port(const oriel_endpoint *endpoint);
/* A socket that listens there; -1 and errno on failure. */
int oriel_endpoint_listen(const oriel_endpoint *endpoint);
/* TCP reaches beyond this user, so that there a secret is a must; NULL is none. */
oriel_status oriel_address_check_secret(const oriel_address *address, const char *secret);
/* Makes a connected socket ready, on either side: on TCP nothing is held back
 * and a dead machine is noticed; on a Unix socket the other side must be this
 * user's, otherwise ORIEL_ERR_AUTH. */
oriel_status oriel_address_prepare(const oriel_address *address, int fd);

#endif
