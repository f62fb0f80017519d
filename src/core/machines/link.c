#include "core/machines/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/sys.h"

/* The system itself sees that the other machine is gone, within 4 s: it asks once a second,
 * and is answered there also for a process that is stopped. */
enum { ASK_S = 1, ASKS = 3, SILENT_MS = 4000 };

static void set_option(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

oriel_status oriel_link_init(oriel_link *link, int fd, const oriel_heap *heap)
{
    const heap_header *h = heap->header;

    *link = (oriel_link){.fd = fd, .machine = -1, .lead = -1};
    link->rounds = oriel_sys_now->alloc(h->num_processes * sizeof *link->rounds);
    link->states = oriel_sys_now->alloc(h->num_processes * sizeof *link->states);
    link->ranks = oriel_sys_now->alloc(h->num_ranks);
    if (link->rounds == NULL || link->states == NULL || link->ranks == NULL) {
        link->fd = -1;
        oriel_link_free(link);
        return oriel_fail(ORIEL_ERR_NO_RESOURCE, "no memory for a connection between machines");
    }
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, ASK_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, ASK_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, ASKS);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SILENT_MS);
    return ORIEL_OK;
}

void oriel_link_free(oriel_link *link)
{
    if (link->fd >= 0)
        oriel_sys_now->close(link->fd);
    link->fd = -1;
    oriel_sys_now->release(link->rounds);
    oriel_sys_now->release(link->states);
    oriel_sys_now->release(link->ranks);
    link->rounds = link->states = NULL;
    link->ranks = NULL;
}

static oriel_status broken(ssize_t n)
{
    return oriel_fail(ORIEL_ERR_PEER, "%s",
                      n < 0 ? strerror(errno) : "the other end closed the connection");
}

oriel_status oriel_link_flush(oriel_link *link)
{
    while (link->left > 0) {
        struct iovec iov = {.iov_base = (char *)&link->out + sizeof link->out - link->left,
                            .iov_len = link->left};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t n = oriel_sys_now->sendmsg(link->fd, &msg);

        if (n < 0 && errno == EAGAIN)
            return ORIEL_OK;
        if (n < 0)
            return broken(n);
        link->left -= (size_t)n;
    }
    return ORIEL_OK;
}

oriel_status oriel_link_receive(oriel_link *link)
{
    while (!oriel_link_full(link)) {
        struct iovec iov = {.iov_base = (char *)&link->in + link->got,
                            .iov_len = sizeof link->in - link->got};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t n = oriel_sys_now->recvmsg(link->fd, &msg);

        if (n < 0 && errno == EAGAIN)
            return ORIEL_OK;
        if (n <= 0)
            return broken(n);
        link->got += (size_t)n;
    }
    return ORIEL_OK;
}

static int wait_ready(const oriel_link *link, double deadline)
{
    struct pollfd poll = {.fd = link->fd, .events = link->left > 0 ? POLLOUT : POLLIN};
    double left = deadline - oriel_now();

    oriel_sys_now->poll(&poll, 1, left <= 0 ? 0 : left < 1 ? (int)(left * 1e3) + 1 : 1000);
    return left > 0;
}

oriel_status oriel_link_wait(oriel_link *link, double deadline)
{
    oriel_status st = ORIEL_OK;

    while (st == ORIEL_OK && !oriel_link_full(link)) {
        st = oriel_link_flush(link);
        if (st == ORIEL_OK)
            st = oriel_link_receive(link);
        if (st == ORIEL_OK && !oriel_link_full(link) && !wait_ready(link, deadline))
            st = oriel_fail(ORIEL_ERR_TIMEOUT, "it did not answer in time");
    }
    return st;
}

void oriel_link_end(oriel_link *link, double deadline)
{
    oriel_status st = ORIEL_OK;

    while (st == ORIEL_OK && link->left > 0) {
        st = oriel_link_flush(link);
        if (link->left > 0 && !wait_ready(link, deadline))
            break;
    }
    shutdown(link->fd, SHUT_WR);
    while (st == ORIEL_OK && oriel_now() < deadline) {
        link->got = 0;
        wait_ready(link, deadline);
        st = oriel_link_receive(link);
    }
}
