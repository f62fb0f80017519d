/* Descriptors pass over an abstract Unix socket, to this user's processes that know the
 * token alone. Nothing has a name in a file system. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "fabric/port.h"

enum { TOKEN_BYTES = ORIEL_SHA256_BYTES, SERVE_LIMIT_MS = 500 };

struct request {
    unsigned char token[TOKEN_BYTES]; /* of the ticket */
    uint64_t id;                      /* of the segment */
};

/* Abstract names have no terminator; the length says where they end. */
static socklen_t abstract_address(const char *name, struct sockaddr_un *addr_p)
{
    size_t len = strlen(name);

    memset(addr_p, 0, sizeof *addr_p);
    addr_p->sun_family = AF_UNIX;
    memcpy(addr_p->sun_path + 1, name, len);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

static void hex(const unsigned char *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        sprintf(out + 2 * i, "%02x", bytes[i]);
}

oriel_status oriel_port_create(oriel_port *port_p)
{
    struct sockaddr_un addr;
    unsigned char tag[8];
    char name[32] = "oriel-";
    char token[2 * TOKEN_BYTES + 1];
    socklen_t len;
    oriel_status st;
    oriel_port port = {0};

    if (oriel_sys_now->random(port.token, TOKEN_BYTES) != 0 ||
        oriel_sys_now->random(tag, sizeof tag) != 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "host fabric: no random bytes: %s", strerror(errno));
    hex(tag, sizeof tag, name + strlen(name));
    hex(port.token, TOKEN_BYTES, token);
    snprintf(port.ticket.text, sizeof port.ticket.text, "%s %s", name, token);

    port.fd = oriel_sys_now->socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (port.fd < 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "host fabric: no Unix socket: %s", strerror(errno));
    len = abstract_address(name, &addr);
    if (oriel_sys_now->bind(port.fd, (struct sockaddr *)&addr, len) != 0 ||
        oriel_sys_now->listen(port.fd, 1024) != 0) {
        st = oriel_fail(ORIEL_ERR_SYSTEM, "host fabric: listening on @%s failed: %s", name,
                        strerror(errno));
        oriel_sys_now->close(port.fd);
        return st;
    }
    *port_p = port;
    return ORIEL_OK;
}

void oriel_port_close(oriel_port *port)
{
    if (port->fd > 0)
        oriel_sys_now->close(port->fd);
    memset(port, 0, sizeof *port);
}

/* Receives exactly `len` bytes (and at most one descriptor) before `deadline`. */
static int receive(int fd, void *buf, size_t len, int *passed_fd_p, double deadline)
{
    size_t have = 0;

    while (have < len) {
        char control[CMSG_SPACE(sizeof(int))];
        struct iovec iov = {(char *)buf + have, len - have};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        double left = deadline - oriel_now();
        int ready;
        ssize_t n;

        if (left <= 0.0 || oriel_interrupted())
            return -1;
        left = left < INTERRUPT_LOOK_S ? left : INTERRUPT_LOOK_S;
        ready = oriel_sys_now->poll(&pfd, 1, (int)(left * 1e3) + 1);
        if (ready < 0)
            return -1;
        if (ready == 0)
            continue;
        n = oriel_sys_now->recvmsg(fd, &msg);
        if (n <= 0 && !(n < 0 && (errno == EAGAIN || errno == EINTR)))
            return -1;
        if (n > 0 && passed_fd_p != NULL && CMSG_FIRSTHDR(&msg) != NULL &&
            CMSG_FIRSTHDR(&msg)->cmsg_type == SCM_RIGHTS)
            memcpy(passed_fd_p, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
        have += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int send_fd(int sock, int fd)
{
    char control[CMSG_SPACE(sizeof(int))] = {0};
    char ok = 1;
    struct iovec iov = {&ok, 1};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    return oriel_sys_now->sendmsg(sock, &msg) == 1 ? 0 : -1;
}

void oriel_port_serve(oriel_port *port, oriel_segment_lookup lookup, void *ctx)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    struct request req;
    const oriel_segment *segment;
    int sock = oriel_sys_now->accept(port->fd);

    if (sock < 0)
        return;
    if (oriel_sys_now->getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 ||
        peer.uid != geteuid()) {
        oriel_log(ORIEL_LOG_WARN, "host fabric: closed a connection of an unknown or another user");
        goto out_close;
    }
    if (receive(sock, &req, sizeof req, NULL, oriel_now() + SERVE_LIMIT_MS * 1e-3) != 0 ||
        !oriel_digest_equal(req.token, port->token)) {
        oriel_log(ORIEL_LOG_WARN, "host fabric: closed a connection without the job's token");
        goto out_close;
    }
    segment = lookup(ctx, req.id);
    if (segment == NULL)
        oriel_log(ORIEL_LOG_WARN, "host fabric: a peer asked for segment %llu, which is not here",
                  (unsigned long long)req.id);
    else if (send_fd(sock, segment->fd) != 0)
        oriel_log(ORIEL_LOG_WARN, "host fabric: handing over segment %llu failed: %s",
                  (unsigned long long)req.id, strerror(errno));
out_close:
    oriel_sys_now->close(sock);
}

static oriel_status ask(int sock, const char *name, const struct request *req, double deadline,
                        int *fd_p)
{
    struct sockaddr_un addr;
    socklen_t len = abstract_address(name, &addr);
    struct iovec iov = {(void *)(uintptr_t)req, sizeof *req};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    char ok;
    int fd = -1;

    while (oriel_sys_now->connect(sock, (struct sockaddr *)&addr, len) != 0) {
        /* EAGAIN: the listener's queue is full, which passes. */
        if (errno != EAGAIN && errno != EINTR)
            return oriel_fail(ORIEL_ERR_PEER, "host fabric: connecting to @%s failed: %s", name,
                              strerror(errno));
        if (oriel_now() > deadline)
            return oriel_fail(ORIEL_ERR_TIMEOUT, "host fabric: @%s does not accept", name);
        oriel_sys_now->poll(NULL, 0, 1);
    }
    if (oriel_sys_now->sendmsg(sock, &msg) != (ssize_t)sizeof *req)
        return oriel_fail(ORIEL_ERR_PEER, "host fabric: asking @%s failed: %s", name,
                          strerror(errno));
    if (receive(sock, &ok, 1, &fd, deadline) != 0 && oriel_now() >= deadline)
        return oriel_fail(ORIEL_ERR_TIMEOUT, "host fabric: @%s did not answer in time", name);
    if (fd < 0)
        return oriel_fail(ORIEL_ERR_PEER, "host fabric: @%s handed over no segment", name);
    *fd_p = fd;
    return ORIEL_OK;
}

static int parse_ticket(const oriel_ticket *ticket, char name[32], unsigned char *token)
{
    char digits[2 * TOKEN_BYTES + 1];

    if (sscanf(ticket->text, "%31s %64s", name, digits) != 2 || strlen(digits) != 2 * TOKEN_BYTES)
        return -1;
    for (int i = 0; i < TOKEN_BYTES; i++) {
        unsigned byte;
        if (sscanf(digits + 2 * i, "%2x", &byte) != 1)
            return -1;
        token[i] = (unsigned char)byte;
    }
    return 0;
}

oriel_status oriel_port_fetch(const oriel_ticket *ticket, uint64_t id, double timeout_s, int *fd_p)
{
    struct request req = {.id = id};
    char name[32];
    oriel_status st;
    int sock;

    if (parse_ticket(ticket, name, req.token) != 0)
        return oriel_fail(ORIEL_ERR_INVALID, "host fabric: '%.100s' is no ticket", ticket->text);
    sock = oriel_sys_now->socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sock < 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "host fabric: no Unix socket: %s", strerror(errno));
    st = ask(sock, name, &req, oriel_now() + timeout_s, fd_p);
    oriel_sys_now->close(sock);
    return st;
}
