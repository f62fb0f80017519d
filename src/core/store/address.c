#include "core/store/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/sys.h"

enum { BACKLOG = 4096 };

static const char unix_prefix[] = "unix:";

static oriel_status parse_unix(const char *text, const char *path, oriel_address *address_p)
{
    /* The leading '@' stands for the zero byte of an abstract name. */
    const size_t name_max = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;
    size_t len;

    if (path[0] != '@')
        return oriel_fail(ORIEL_ERR_INVALID,
                          "store address \"%.160s\": only abstract sockets, \"unix:@name\", are "
                          "supported",
                          text);
    len = strlen(path + 1);
    if (len == 0 || len > name_max)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "store address \"%.160s\": a name of %zu bytes, which must be 1 to %zu",
                          text, len, name_max);

    memset(address_p, 0, sizeof(*address_p));
    address_p->is_unix = 1;
    memcpy(address_p->host, path + 1, len);
    return ORIEL_OK;
}

static oriel_status parse_port(const char *text, const char *digits, unsigned *port_p)
{
    unsigned port = 0;
    size_t len = strlen(digits);

    if (len == 0 || len > 5 || strspn(digits, "0123456789") != len)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "store address \"%.160s\": the port must be a number from 0 to 65535",
                          text);
    for (size_t i = 0; i < len; i++)
        port = port * 10 + (unsigned)(digits[i] - '0');
    if (port > 65535)
        return oriel_fail(ORIEL_ERR_INVALID, "store address \"%.160s\": port %u is above 65535",
                          text, port);
    *port_p = port;
    return ORIEL_OK;
}

oriel_status oriel_address_parse(const char *text, oriel_address *address_p)
{
    oriel_address address = {0};
    const char *host = text;
    const char *colon;
    size_t len;
    oriel_status st;

    if (text == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "store address: NULL");
    if (strncmp(text, unix_prefix, strlen(unix_prefix)) == 0)
        return parse_unix(text, text + strlen(unix_prefix), address_p);

    colon = strrchr(text, ':');
    len = colon == NULL ? 0 : (size_t)(colon - text);
    if (colon != NULL && len >= 2 && text[0] == '[' && colon[-1] == ']' &&
        memchr(text, ':', len) != NULL) {
        host++;
        len -= 2;
    } else if (colon == NULL || memchr(text, ':', len) != NULL) {
        return oriel_fail(ORIEL_ERR_INVALID,
                          "store address \"%.160s\": expected \"unix:@name\", \"host:port\" or "
                          "\"[v6 address]:port\"",
                          text);
    }
    if (len >= sizeof(address.host) || (host != text && len == 0))
        return oriel_fail(ORIEL_ERR_INVALID, "store address \"%.160s\": a host name of %zu bytes",
                          text, len);
    if (memchr(host, '[', len) != NULL || memchr(host, ']', len) != NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "store address \"%.160s\": a bracket in the host name",
                          text);
    memcpy(address.host, host, len);
    if (len == 0)
        strcpy(address.host, "127.0.0.1");
    st = parse_port(text, colon + 1, &address.port);
    if (st != ORIEL_OK)
        return st;

    *address_p = address;
    return ORIEL_OK;
}

void oriel_address_format(const oriel_address *address, char text_p[ORIEL_ADDRESS_TEXT])
{
    int is_v6 = strchr(address->host, ':') != NULL;

    if (address->is_unix)
        snprintf(text_p, ORIEL_ADDRESS_TEXT, "unix:@%s", address->host);
    else
        snprintf(text_p, ORIEL_ADDRESS_TEXT, "%s%s%s:%u", is_v6 ? "[" : "", address->host,
                 is_v6 ? "]" : "", address->port);
}

static void resolve_unix(const oriel_address *address, oriel_endpoint *endpoint_p)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t len = strlen(address->host);

    memcpy(addr.sun_path + 1, address->host, len);
    memcpy(&endpoint_p->addr, &addr, sizeof(addr));
    endpoint_p->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

oriel_status oriel_address_resolve(const oriel_address *address,
                                   oriel_endpoint endpoints_p[ORIEL_ADDRESS_ENDPOINTS], int *n_p)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char port[16];
    int n = 0;
    int err;

    if (address->is_unix) {
        resolve_unix(address, endpoints_p);
        *n_p = 1;
        return ORIEL_OK;
    }
    snprintf(port, sizeof(port), "%u", address->port);
    err = oriel_sys_now->resolve(address->host, port, &hints, &list);
    if (err != 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "the host name \"%s\" was not found: %s", address->host,
                          gai_strerror(err));
    for (struct addrinfo *ai = list; ai != NULL && n < ORIEL_ADDRESS_ENDPOINTS; ai = ai->ai_next) {
        memcpy(&endpoints_p[n].addr, ai->ai_addr, ai->ai_addrlen);
        endpoints_p[n++].len = ai->ai_addrlen;
    }
    freeaddrinfo(list);
    *n_p = n;
    return ORIEL_OK;
}

unsigned oriel_endpoint_port(const oriel_endpoint *endpoint)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    if (endpoint->addr.ss_family == AF_INET6) {
        memcpy(&v6, &endpoint->addr, sizeof(v6));
        return ntohs(v6.sin6_port);
    }
    memcpy(&v4, &endpoint->addr, sizeof(v4));
    return ntohs(v4.sin_port);
}

oriel_status oriel_address_check_secret(const oriel_address *address, const char *secret)
{
    char text[ORIEL_ADDRESS_TEXT];

    if (address->is_unix || (secret != NULL && secret[0] != '\0'))
        return ORIEL_OK;
    oriel_address_format(address, text);
    return oriel_fail(ORIEL_ERR_INVALID,
                      "store at %s: TCP needs a secret: set ORIEL_SECRET to the same value in all "
                      "processes",
                      text);
}

static void set_option(int fd, int level, int option, int value)
{
    /* These only make things better: without them the store still works. */
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

int oriel_endpoint_listen(const oriel_endpoint *endpoint)
{
    int fd = oriel_sys_now->socket(endpoint->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int error;

    if (fd < 0)
        return -1;
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    /* IPv4 too, whatever the system's default is; other sockets have no such option. */
    set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (oriel_sys_now->bind(fd, (const struct sockaddr *)&endpoint->addr, endpoint->len) == 0 &&
        oriel_sys_now->listen(fd, BACKLOG) == 0)
        return fd;
    error = errno;
    oriel_sys_now->close(fd);
    errno = error;
    return -1;
}

oriel_status oriel_address_prepare(const oriel_address *address, int fd)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    if (!address->is_unix) {
        set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
        set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
        set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
        set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
        return ORIEL_OK;
    }
    if (oriel_sys_now->getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "the other side's user is unknown: %s",
                          strerror(errno));
    if (cred.uid != geteuid())
        return oriel_fail(ORIEL_ERR_AUTH, "the other side (pid %d) is of user %u, not of user %u",
                          (int)cred.pid, (unsigned)cred.uid, (unsigned)geteuid());
    return ORIEL_OK;
}
