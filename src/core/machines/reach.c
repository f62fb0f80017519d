/* How machines find process 0: the addresses it may have, and how another tries them. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/sys.h"
#include "core/store/address.h"
#include "core/machines/bridge.h"
#include "core/store/store.h"

enum { PAUSE_MS = 20 };
#define FIRST_DIAL_S 1.0

/* -1: it cannot listen there. */
static int listen_at(const char *text)
{
    oriel_address address;
    oriel_endpoint at[ORIEL_ADDRESS_ENDPOINTS];
    int n = 0;

    if (oriel_address_parse(text, &address) != ORIEL_OK ||
        oriel_address_resolve(&address, at, &n) != ORIEL_OK || n == 0)
        return -1;
    return oriel_endpoint_listen(&at[0]);
}

/* At ORIEL_ADDRESS, if that is one of this machine's own; else at all of them: one socket takes
 * both kinds where there is IPv6. */
static oriel_status listen_somewhere(int *fd_p, uint32_t *port_p)
{
    const char *given = oriel_config_string(ORIEL_OPT_ADDRESS);
    char own[BRIDGE_ADDRESS + 8] = "";
    const char *const places[] = {own, "[::]:0", "0.0.0.0:0"};
    oriel_endpoint bound = {.len = sizeof bound.addr};
    int listener = -1;
    int error;

    if (given[0] != '\0')
        snprintf(own, sizeof own, strchr(given, ':') != NULL ? "[%.63s]:0" : "%.63s:0", given);
    for (int i = given[0] == '\0'; i < 3 && listener < 0; i++)
        listener = listen_at(places[i]);
    if (listener >= 0 &&
        oriel_sys_now->getsockname(listener, (struct sockaddr *)&bound.addr, &bound.len) == 0) {
        *port_p = oriel_endpoint_port(&bound);
        *fd_p = listener;
        return ORIEL_OK;
    }
    error = errno;
    if (listener >= 0)
        oriel_sys_now->close(listener);
    return oriel_fail(ORIEL_ERR_SYSTEM, "cannot listen for other machines: %s", strerror(error));
}

/* The number of an address that others may reach; 0: none. */
static int write_address(const struct ifaddrs *entry, char text[BRIDGE_ADDRESS])
{
    const struct sockaddr *addr = entry->ifa_addr;

    if (addr == NULL || !(entry->ifa_flags & IFF_UP))
        return 0;
    if (addr->sa_family == AF_INET)
        return inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)addr)->sin_addr, text,
                         BRIDGE_ADDRESS) != NULL;
    if (addr->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr;

        return !IN6_IS_ADDR_LINKLOCAL(v6) && inet_ntop(AF_INET6, v6, text, BRIDGE_ADDRESS) != NULL;
    }
    return 0;
}

/* The loopback comes last: elsewhere it means another machine. */
static oriel_status list_addresses(oriel_bridge_ticket *ticket)
{
    const char *given = oriel_config_string(ORIEL_OPT_ADDRESS);
    struct ifaddrs *list = NULL;
    int n = 0;

    if (given[0] != '\0') {
        if (strlen(given) >= BRIDGE_ADDRESS)
            return oriel_fail(ORIEL_ERR_INVALID, "ORIEL_ADDRESS has %zu characters; at most %d",
                              strlen(given), BRIDGE_ADDRESS - 1);
        strcpy(ticket->addresses[0], given);
        return ORIEL_OK;
    }
    if (oriel_sys_now->interfaces(&list) != 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "the addresses of this machine are unknown: %s",
                          strerror(errno));
    for (int loopback = 0; loopback < 2; loopback++) {
        for (const struct ifaddrs *e = list; e != NULL && n < BRIDGE_ADDRESSES; e = e->ifa_next) {
            if (((e->ifa_flags & IFF_LOOPBACK) != 0) == loopback)
                n += write_address(e, ticket->addresses[n]);
        }
    }
    freeifaddrs(list);
    return n > 0 ? ORIEL_OK : oriel_fail(ORIEL_ERR_SYSTEM, "this machine has no address");
}

static oriel_status make_secret(oriel_bridge_ticket *ticket)
{
    unsigned char bytes[BRIDGE_SECRET];

    if (oriel_sys_now->random(bytes, sizeof bytes) != 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "no random bytes: %s", strerror(errno));
    for (int i = 0; i < BRIDGE_SECRET; i++)
        snprintf(ticket->secret + 2 * i, 3, "%02x", bytes[i]);
    return ORIEL_OK;
}

oriel_status oriel_bridge_listen(oriel_bridge_ticket *ticket_p, int *fd_p)
{
    oriel_status st = make_secret(ticket_p);

    if (st == ORIEL_OK)
        st = list_addresses(ticket_p);
    return st == ORIEL_OK ? listen_somewhere(fd_p, &ticket_p->port) : st;
}

/* Each address in turn, first with little patience. */
oriel_status oriel_bridge_dial(const oriel_bridge_ticket *ticket, double deadline, int *fd_p)
{
    double patience = FIRST_DIAL_S;
    char first[160] = "";
    oriel_status st;

    do {
        for (int i = 0; i < BRIDGE_ADDRESSES && ticket->addresses[i][0] != '\0'; i++) {
            const char *host = ticket->addresses[i];
            int v6 = strchr(host, ':') != NULL;
            char address[ORIEL_ADDRESS_TEXT];

            snprintf(address, sizeof address, "%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "",
                     ticket->port);
            st = oriel_store_dial(address, ticket->secret, patience, fd_p);
            if (st == ORIEL_OK)
                return ORIEL_OK;
            if (first[0] == '\0')
                snprintf(first, sizeof first, "%.60s: %.90s", address, oriel_last_error());
        }
        patience *= 2;
        oriel_sys_now->poll(NULL, 0, PAUSE_MS);
    } while (oriel_now() + patience < deadline);
    return oriel_fail(ORIEL_ERR_TIMEOUT,
                      "process 0 is not to be reached from this machine (%s); set ORIEL_ADDRESS "
                      "on process 0 to the address it has for others",
                      first);
}
