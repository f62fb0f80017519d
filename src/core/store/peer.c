#include "core/store/peer.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "base/sys.h"

static const double handshake_s = 5.0;

enum { SMALL_REQUEST = 512, NAME_BYTES = 80 };

enum peer_state { PEER_PROVING, PEER_READY, PEER_PARKED };

struct oriel_store_peer {
    int fd;                           /* non-blocking */
    enum peer_state state;            /* how far it is */
    double deadline;                  /* of the handshake or of the parked get */
    char name[NAME_BYTES];            /* for log lines */
    uint8_t nonce[ORIEL_NONCE_BYTES]; /* the server's challenge to it */

    uint8_t *in;           /* `small`, or allocated for a longer request */
    size_t in_len;         /* bytes that have come */
    size_t in_need;        /* no byte beyond the message under way is ever read */
    size_t in_capacity;    /* bytes there is room for */
    oriel_message request; /* of a parked get; points into `in` */

    uint8_t out[ORIEL_HELLO_BYTES]; /* the longest of hello, verdict and reply header */
    size_t out_len;                 /* bytes of it */
    const uint8_t *body;            /* in the table */
    size_t body_len;                /* bytes of it */
    size_t sent;                    /* bytes of `out` and `body` that are gone */

    uint8_t small[SMALL_REQUEST]; /* room for most requests */
};

/* ---- sending ------------------------------------------------------------ */

static int has_output(const oriel_store_peer *peer)
{
    return peer->sent < peer->out_len + peer->body_len;
}

/* A proven peer that goes away is ordinary; a stranger's end is worth a line. */
static oriel_status lost(const oriel_store_peer *peer, const char *how)
{
    if (peer->state != PEER_PROVING && peer->in_len == 0)
        return oriel_fail(ORIEL_ERR_PEER, "%s", how);
    if (peer->state != PEER_PROVING)
        return oriel_fail(ORIEL_ERR_SYSTEM, "%s after %zu bytes of a request", how, peer->in_len);
    return oriel_fail(ORIEL_ERR_AUTH, "%s before it proved that it knows the secret", how);
}

static oriel_status flush(oriel_store_peer *peer)
{
    while (has_output(peer)) {
        size_t head = peer->sent < peer->out_len ? peer->out_len - peer->sent : 0;
        size_t body_at = head > 0 ? 0 : peer->sent - peer->out_len;
        struct iovec iov[2] = {{.iov_base = peer->out + peer->out_len - head, .iov_len = head}};
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 1};
        ssize_t n;

        if (peer->body_len > 0) {
            iov[1].iov_base = (void *)(peer->body + body_at);
            iov[1].iov_len = peer->body_len - body_at;
            msg.msg_iovlen = 2;
        }
        n = oriel_sys_now->sendmsg(peer->fd, &msg);
        if (n < 0 && errno == EAGAIN)
            return ORIEL_OK;
        if (n < 0)
            return lost(peer, strerror(errno));
        peer->sent += (size_t)n;
    }
    peer->out_len = peer->body_len = peer->sent = 0;
    peer->body = NULL;
    return ORIEL_OK;
}

/* Ends the request under way. */
static oriel_status reply(oriel_store_peer *peer, enum oriel_message_answer answer,
                          const uint8_t *value, size_t len)
{
    oriel_message message = {
        .op = ORIEL_MESSAGE_REPLY, .answer = answer, .value = value, .value_len = len};
    oriel_status st = oriel_message_encode(&message, peer->out);

    if (st != ORIEL_OK)
        return st;
    peer->out_len = ORIEL_MESSAGE_HEADER;
    peer->body = value;
    peer->body_len = len;
    peer->sent = 0;
    peer->state = PEER_READY;
    peer->deadline = INFINITY;
    if (peer->in != peer->small)
        oriel_sys_now->release(peer->in);
    peer->in = peer->small;
    peer->in_capacity = sizeof(peer->small);
    peer->in_len = 0;
    peer->in_need = ORIEL_MESSAGE_HEADER;
    return flush(peer);
}

/* ---- receiving ---------------------------------------------------------- */

static oriel_status make_room(oriel_store_peer *peer, size_t need)
{
    if (need > peer->in_capacity) {
        uint8_t *in = oriel_sys_now->alloc(need);

        if (in == NULL)
            return oriel_fail(ORIEL_ERR_NO_RESOURCE, "no memory for a request of %zu bytes", need);
        memcpy(in, peer->in, peer->in_len);
        peer->in = in; /* it was `small`: one request makes room once */
        peer->in_capacity = need;
    }
    peer->in_need = need;
    return ORIEL_OK;
}

/* ORIEL_OK: bytes came. ORIEL_IN_PROGRESS: none for now. */
static oriel_status receive(oriel_store_peer *peer)
{
    struct iovec iov = {.iov_base = peer->in + peer->in_len,
                        .iov_len = peer->in_need - peer->in_len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n = oriel_sys_now->recvmsg(peer->fd, &msg);

    if (n < 0 && errno == EAGAIN)
        return ORIEL_IN_PROGRESS;
    if (n < 0)
        return lost(peer, strerror(errno));
    if (n == 0)
        return lost(peer, "the peer closed the connection");
    peer->in_len += (size_t)n;
    return ORIEL_OK;
}

static oriel_status judge_proof(oriel_store_peer *peer, const oriel_store_host *host)
{
    const uint8_t *nonce, *mac;
    uint8_t expected[ORIEL_SHA256_BYTES];
    oriel_status st = oriel_proof_decode(peer->in, peer->in_len, &nonce, &mac);

    if (st != ORIEL_OK)
        return st;
    oriel_handshake_mac(host->secret, 'C', peer->nonce, nonce, expected);
    peer->out_len = ORIEL_VERDICT_BYTES;
    if (!oriel_digest_equal(mac, expected)) {
        oriel_verdict_encode(NULL, peer->out);
        flush(peer); /* 33 bytes into an empty socket; lost, the peer sees the end */
        return oriel_fail(ORIEL_ERR_AUTH, "it does not know the secret: set ORIEL_SECRET to the "
                                          "same value in all processes");
    }
    oriel_handshake_mac(host->secret, 'S', peer->nonce, nonce, expected);
    oriel_verdict_encode(expected, peer->out);
    peer->state = PEER_READY;
    peer->deadline = INFINITY;
    peer->in_len = 0;
    peer->in_need = ORIEL_MESSAGE_HEADER;
    return flush(peer);
}

static oriel_status take_request(oriel_store_peer *peer, const oriel_store_host *host, double now)
{
    size_t need;
    oriel_status st = oriel_message_decode(peer->in, peer->in_len, &peer->request, &need);

    if (st == ORIEL_IN_PROGRESS) {
        st = make_room(peer, need);
        return st == ORIEL_OK ? ORIEL_IN_PROGRESS : st;
    }
    if (st != ORIEL_OK)
        return st;

    switch (peer->request.op) {
    case ORIEL_MESSAGE_SET:
        return reply(peer, oriel_store_table_set(host->table, &peer->request), NULL, 0);
    case ORIEL_MESSAGE_GET:
        peer->state = PEER_PARKED;
        peer->deadline = now + peer->request.timeout_ms * 1e-3;
        return oriel_store_peer_tick(peer, host, now);
    case ORIEL_MESSAGE_REPLY:
        break;
    }
    return oriel_fail(ORIEL_ERR_INVALID, "a reply where a request was due");
}

oriel_status oriel_store_peer_service(oriel_store_peer *peer, short revents,
                                      const oriel_store_host *host, double now)
{
    oriel_status st = ORIEL_IN_PROGRESS;

    if (revents == 0)
        return ORIEL_OK;
    if (has_output(peer))
        return flush(peer);
    if (peer->state == PEER_PARKED)
        return oriel_fail(ORIEL_ERR_PEER, "the peer left while it waited for a key");

    /* At most one message, so that a busy peer leaves room for the others. */
    while (st == ORIEL_IN_PROGRESS) {
        st = receive(peer);
        if (st == ORIEL_IN_PROGRESS)
            return ORIEL_OK;
        if (st == ORIEL_OK)
            st = peer->state == PEER_PROVING ? judge_proof(peer, host)
                                             : take_request(peer, host, now);
    }
    return st;
}

oriel_status oriel_store_peer_tick(oriel_store_peer *peer, const oriel_store_host *host, double now)
{
    const uint8_t *value;
    size_t len;

    if (peer->state == PEER_PROVING && now >= peer->deadline)
        return oriel_fail(ORIEL_ERR_TIMEOUT,
                          "it did not prove within %.0f s that it knows the secret", handshake_s);
    if (peer->state != PEER_PARKED)
        return ORIEL_OK;
    if (oriel_store_table_get(host->table, &peer->request, &value, &len))
        return reply(peer, ORIEL_ANSWER_OK, value, len);
    if (host->ends)
        return oriel_fail(ORIEL_ERR_PEER, "the store ends");
    if (now >= peer->deadline)
        return reply(peer, ORIEL_ANSWER_NOT_FOUND, NULL, 0);
    return ORIEL_OK;
}

/* ---- life --------------------------------------------------------------- */

static void write_name(oriel_store_peer *peer, const oriel_address *address)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);
    char host[48] = "?", port[8] = "?";

    if (address->is_unix) {
        struct ucred cred = {0};

        len = sizeof(cred);
        oriel_sys_now->getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
        snprintf(peer->name, sizeof(peer->name), "pid %d, uid %u", (int)cred.pid,
                 (unsigned)cred.uid);
        return;
    }
    if (getpeername(peer->fd, (struct sockaddr *)&addr, &len) == 0)
        getnameinfo((struct sockaddr *)&addr, len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(peer->name, sizeof(peer->name), "%s port %s", host, port);
}

oriel_status oriel_store_peer_create(int fd, const oriel_store_host *host, double now,
                                     oriel_store_peer **peer_p)
{
    oriel_store_peer *peer = oriel_sys_now->alloc(sizeof(*peer));
    oriel_status st;

    if (peer == NULL) {
        oriel_sys_now->close(fd);
        return oriel_fail(ORIEL_ERR_NO_RESOURCE, "no memory for a connection");
    }
    peer->fd = fd;
    peer->state = PEER_PROVING;
    peer->deadline = now + handshake_s;
    peer->in = peer->small;
    peer->in_capacity = sizeof(peer->small);
    peer->in_need = ORIEL_PROOF_BYTES;
    write_name(peer, &host->address);

    st = oriel_address_prepare(&host->address, fd);
    if (st == ORIEL_OK && oriel_sys_now->random(peer->nonce, sizeof(peer->nonce)) != 0)
        st = oriel_fail(ORIEL_ERR_SYSTEM, "no random bytes: %s", strerror(errno));
    if (st == ORIEL_OK) {
        oriel_hello_encode(peer->nonce, peer->out);
        peer->out_len = ORIEL_HELLO_BYTES;
        st = flush(peer);
    }
    if (st != ORIEL_OK) {
        oriel_store_peer_destroy(peer);
        return st;
    }

    *peer_p = peer;
    return ORIEL_OK;
}

void oriel_store_peer_destroy(oriel_store_peer *peer)
{
    if (peer == NULL)
        return;
    oriel_sys_now->close(peer->fd);
    if (peer->in != peer->small)
        oriel_sys_now->release(peer->in);
    oriel_sys_now->release(peer);
}

int oriel_store_peer_take(oriel_store_peer *peer)
{
    int fd = peer->fd;

    if (has_output(peer))
        return -1;
    oriel_sys_now->release(peer);
    return fd;
}

const char *oriel_store_peer_name(const oriel_store_peer *peer)
{
    return peer->name;
}

int oriel_store_peer_is_proven(const oriel_store_peer *peer)
{
    return peer->state != PEER_PROVING;
}

int oriel_store_peer_fd(const oriel_store_peer *peer)
{
    return peer->fd;
}

short oriel_store_peer_events(const oriel_store_peer *peer)
{
    if (has_output(peer))
        return POLLOUT;
    /* A parked peer may only leave; what it sends early stays in the socket. */
    return peer->state == PEER_PARKED ? POLLRDHUP : POLLIN;
}

double oriel_store_peer_deadline(const oriel_store_peer *peer)
{
    return peer->deadline;
}
