/* The client of oriel's store. Each call has a connection to itself: a thread
 * that waits for a key does not keep another from setting it. Connections that
 * nobody uses are kept for the next call. */
#include "core/store/store.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>

#include "base/config.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/sys.h"
#include "core/store/address.h"
#include "core/store/codec.h"

static const double handshake_s = 5.0;
/* How much longer than the server a get waits for the server's "not found",
 * and the least that a set waits. */
static const double answer_grace_s = 5.0;
/* How long one that is interrupted waits for each answer: it has yet to tell the others. */
static const double last_word_s = 0.2;
static const double backoff_first_s = 0.005;
static const double backoff_last_s = 0.2;

struct link {
    struct link *next; /* in `idle` */
    int fd;            /* connected and proven */
};

struct client {
    oriel_address address;         /* of the server */
    char text[ORIEL_ADDRESS_TEXT]; /* the same, for messages */
    char *secret;                  /* its own copy */
    double timeout_s;              /* for connecting, and for a set */
    int was_reached;      /* from then on a refused connection means: the server has ended */
    pthread_mutex_t lock; /* guards `idle` */
    struct link *idle;    /* under `lock` */
    _Atomic unsigned long requests; /* made so far, for the log */
};

/* ---- bytes on a socket, with a deadline --------------------------------- */

static int milliseconds_until(double deadline)
{
    double seconds = deadline - oriel_now();

    if (seconds <= 0)
        return 0;
    return seconds < 3600 ? (int)ceil(seconds * 1e3) : 3600 * 1000;
}

static oriel_status wait_ready(int fd, short events, double deadline)
{
    struct pollfd poll = {.fd = fd, .events = events};
    double hurry = INFINITY;

    for (;;) {
        double look = oriel_now() + INTERRUPT_LOOK_S;
        int n = oriel_sys_now->poll(&poll, 1, milliseconds_until(fmin(deadline, look)));

        if (n > 0)
            return ORIEL_OK;
        if (n < 0)
            return oriel_fail(ORIEL_ERR_SYSTEM, "poll failed: %s", strerror(errno));
        if (oriel_interrupted() && hurry == INFINITY)
            hurry = oriel_now() + last_word_s;
        if (oriel_now() >= hurry)
            return oriel_interrupt_fail();
        if (oriel_now() >= deadline)
            return oriel_fail(ORIEL_ERR_TIMEOUT, "it did not answer in time");
    }
}

static oriel_status broken(ssize_t n)
{
    return oriel_fail(ORIEL_ERR_PEER, "the store ended the connection%s%s", n < 0 ? ": " : "",
                      n < 0 ? strerror(errno) : "");
}

static oriel_status send_all(int fd, struct iovec *iov, size_t count, double deadline)
{
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count};

    while (msg.msg_iovlen > 0) {
        ssize_t n = oriel_sys_now->sendmsg(fd, &msg);
        oriel_status st = ORIEL_OK;

        if (n < 0 && errno != EAGAIN)
            return broken(n);
        if (n < 0)
            st = wait_ready(fd, POLLOUT, deadline);
        if (st != ORIEL_OK)
            return st;
        while (n >= 0 && msg.msg_iovlen > 0 && (size_t)n >= msg.msg_iov->iov_len) {
            n -= (ssize_t)msg.msg_iov->iov_len;
            msg.msg_iov++;
            msg.msg_iovlen--;
        }
        if (n > 0) {
            msg.msg_iov->iov_base = (char *)msg.msg_iov->iov_base + n;
            msg.msg_iov->iov_len -= (size_t)n;
        }
    }
    return ORIEL_OK;
}

static oriel_status receive_all(int fd, uint8_t *bytes, size_t len, double deadline)
{
    size_t got = 0;

    while (got < len) {
        struct iovec iov = {.iov_base = bytes + got, .iov_len = len - got};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t n = oriel_sys_now->recvmsg(fd, &msg);
        oriel_status st = ORIEL_OK;

        if (n == 0 || (n < 0 && errno != EAGAIN))
            return broken(n);
        if (n < 0)
            st = wait_ready(fd, POLLIN, deadline);
        if (st != ORIEL_OK)
            return st;
        if (n > 0)
            got += (size_t)n;
    }
    return ORIEL_OK;
}

/* ---- connecting --------------------------------------------------------- */

/* A socket that tries a free port of its own machine can be given that same
 * port and so be connected to itself, and then keeps the server from it. */
static int is_own_end(int fd)
{
    struct sockaddr_storage a = {0}, b = {0};
    socklen_t a_len = sizeof(a), b_len = sizeof(b);

    return getsockname(fd, (struct sockaddr *)&a, &a_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&b, &b_len) == 0 && a_len == b_len &&
           memcmp(&a, &b, a_len) == 0;
}

/* ORIEL_ERR_PEER: nobody listens there. */
static oriel_status connect_socket(int fd, const oriel_endpoint *endpoint, double deadline)
{
    const struct sockaddr *addr = (const struct sockaddr *)&endpoint->addr;
    int error = oriel_sys_now->connect(fd, addr, endpoint->len) == 0 ? 0 : errno;
    socklen_t len = sizeof(error);

    if (error == EINPROGRESS) {
        oriel_status st = wait_ready(fd, POLLOUT, deadline);

        if (st != ORIEL_OK)
            return st;
        if (oriel_sys_now->getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
            error = errno;
    }
    if (error == 0 && endpoint->addr.ss_family != AF_UNIX && is_own_end(fd))
        error = ECONNREFUSED;
    if (error == ECONNREFUSED)
        return oriel_fail(ORIEL_ERR_PEER, "nobody listens there");
    if (error != 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "cannot connect: %s", strerror(error));
    return ORIEL_OK;
}

static oriel_status prove(const struct client *client, int fd, double deadline)
{
    uint8_t hello[ORIEL_HELLO_BYTES], proof[ORIEL_PROOF_BYTES], verdict[ORIEL_VERDICT_BYTES];
    uint8_t nonce[ORIEL_NONCE_BYTES], expected[ORIEL_SHA256_BYTES];
    struct iovec iov = {.iov_base = proof, .iov_len = sizeof(proof)};
    const uint8_t *server_nonce, *mac;
    oriel_status st = receive_all(fd, hello, sizeof(hello), deadline);

    if (st == ORIEL_OK)
        st = oriel_hello_decode(hello, sizeof(hello), &server_nonce);
    if (st == ORIEL_OK && oriel_sys_now->random(nonce, sizeof(nonce)) != 0)
        st = oriel_fail(ORIEL_ERR_SYSTEM, "no random bytes: %s", strerror(errno));
    if (st != ORIEL_OK)
        return st;
    oriel_handshake_mac(client->secret, 'C', server_nonce, nonce, expected);
    oriel_proof_encode(nonce, expected, proof);
    st = send_all(fd, &iov, 1, deadline);
    if (st == ORIEL_OK)
        st = receive_all(fd, verdict, sizeof(verdict), deadline);
    if (st == ORIEL_OK)
        st = oriel_verdict_decode(verdict, sizeof(verdict), &mac);
    if (st != ORIEL_OK)
        return st;
    oriel_handshake_mac(client->secret, 'S', server_nonce, nonce, expected);
    if (!oriel_digest_equal(mac, expected))
        return oriel_fail(ORIEL_ERR_AUTH,
                          "it does not know this process's secret: set ORIEL_SECRET "
                          "to the same value in all processes");
    return ORIEL_OK;
}

/* One try at one endpoint. */
static oriel_status dial(const struct client *client, const oriel_endpoint *endpoint,
                         double deadline, int *fd_p)
{
    int fd = oriel_sys_now->socket(endpoint->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    oriel_status st;

    if (fd < 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "cannot make a socket: %s", strerror(errno));
    deadline = fmin(deadline, oriel_now() + handshake_s);
    st = connect_socket(fd, endpoint, deadline);
    if (st == ORIEL_OK)
        st = oriel_address_prepare(&client->address, fd);
    if (st == ORIEL_OK) {
        st = prove(client, fd, deadline);
        /* Cut off here, the place may have gone to somebody else: try again. */
        if (st == ORIEL_ERR_PEER)
            st = ORIEL_ERR_SYSTEM;
    }
    if (st != ORIEL_OK) {
        oriel_sys_now->close(fd);
        return st;
    }

    *fd_p = fd;
    return ORIEL_OK;
}

/* Each address of the host in turn, until one answers. */
static oriel_status dial_any(const struct client *client, double deadline, int *fd_p)
{
    oriel_endpoint endpoints[ORIEL_ADDRESS_ENDPOINTS];
    int n;
    oriel_status st = oriel_address_resolve(&client->address, endpoints, &n);

    if (st != ORIEL_OK)
        return st;
    for (int i = 0; i < n; i++) {
        st = dial(client, &endpoints[i], deadline, fd_p);
        if (st == ORIEL_OK || st == ORIEL_ERR_AUTH)
            break;
    }
    return st;
}

static int is_worth_a_retry(const struct client *client, oriel_status st)
{
    return st == ORIEL_ERR_SYSTEM || st == ORIEL_ERR_TIMEOUT ||
           (st == ORIEL_ERR_PEER && !client->was_reached);
}

static oriel_status dial_until(const struct client *client, double timeout_s, int *fd_p)
{
    double start = oriel_now();
    double deadline = start + timeout_s;
    double warn_at = start + oriel_config_number(ORIEL_OPT_WARN_AFTER);
    double pause = backoff_first_s;

    for (;;) {
        oriel_status st = dial_any(client, deadline, fd_p);
        double now = oriel_now();

        if (st == ORIEL_OK)
            return ORIEL_OK;
        if (!is_worth_a_retry(client, st))
            return oriel_fail_in(st, "store at %s", client->text);
        if (oriel_interrupted())
            return oriel_interrupt_fail();
        if (now >= deadline)
            return oriel_fail(ORIEL_ERR_TIMEOUT,
                              "store at %s: not reached within %.1f s: %s; is process 0 running, "
                              "and has every process the same store address?",
                              client->text, timeout_s, oriel_last_error());
        if (now >= warn_at) {
            oriel_log(ORIEL_LOG_WARN, "store at %s: not reached for %.0f s, still trying: %s",
                      client->text, now - start, oriel_last_error());
            warn_at = INFINITY;
        }
        oriel_sys_now->poll(NULL, 0, milliseconds_until(fmin(now + pause, deadline)));
        pause = fmin(2 * pause, backoff_last_s);
    }
}

/* ---- connections in use and idle ---------------------------------------- */

static oriel_status link_take(struct client *client, double timeout_s, struct link **link_p)
{
    struct link *link;
    oriel_status st;

    pthread_mutex_lock(&client->lock);
    link = client->idle;
    if (link != NULL)
        client->idle = link->next;
    pthread_mutex_unlock(&client->lock);
    if (link == NULL) {
        link = oriel_sys_now->alloc(sizeof(*link));
        if (link == NULL)
            return oriel_fail(ORIEL_ERR_NO_RESOURCE, "store at %s: no memory for a connection",
                              client->text);
        st = dial_until(client, timeout_s, &link->fd);
        if (st != ORIEL_OK) {
            oriel_sys_now->release(link);
            return st;
        }
    }

    *link_p = link;
    return ORIEL_OK;
}

static void link_keep(struct client *client, struct link *link)
{
    pthread_mutex_lock(&client->lock);
    link->next = client->idle;
    client->idle = link;
    pthread_mutex_unlock(&client->lock);
}

static void link_close(struct link *link)
{
    oriel_sys_now->close(link->fd);
    oriel_sys_now->release(link);
}

/* ---- calls -------------------------------------------------------------- */

/* The reply's value lies in `*bytes_p`, which the caller releases. */
static oriel_status receive_reply(int fd, double deadline, uint8_t **bytes_p,
                                  oriel_message *reply_p)
{
    uint8_t header[ORIEL_MESSAGE_HEADER];
    uint8_t *bytes;
    size_t size;
    oriel_status st = receive_all(fd, header, sizeof(header), deadline);

    if (st == ORIEL_OK)
        st = oriel_message_decode(header, sizeof(header), reply_p, &size);
    if (st != ORIEL_OK && st != ORIEL_IN_PROGRESS)
        return st;
    bytes = oriel_sys_now->alloc(size);
    if (bytes == NULL)
        return oriel_fail(ORIEL_ERR_NO_RESOURCE, "no memory for a reply of %zu bytes", size);
    memcpy(bytes, header, sizeof(header));
    st = receive_all(fd, bytes + sizeof(header), size - sizeof(header), deadline);
    if (st == ORIEL_OK)
        st = oriel_message_decode(bytes, size, reply_p, &size);
    if (st == ORIEL_OK && reply_p->op != ORIEL_MESSAGE_REPLY)
        st = oriel_fail(ORIEL_ERR_INVALID, "it answered with a request");
    if (st != ORIEL_OK) {
        oriel_sys_now->release(bytes);
        return st;
    }

    *bytes_p = bytes;
    return ORIEL_OK;
}

static oriel_status call(struct client *client, const oriel_message *request, double timeout_s,
                         uint8_t **bytes_p, oriel_message *reply_p)
{
    uint8_t header[ORIEL_MESSAGE_HEADER];
    struct iovec iov[3] = {
        {.iov_base = header, .iov_len = sizeof(header)},
        {.iov_base = (void *)request->key, .iov_len = request->key_len},
        {.iov_base = (void *)request->value, .iov_len = request->value_len},
    };
    double deadline = oriel_now() + timeout_s;
    struct link *link;
    oriel_status st = oriel_message_encode(request, header);

    if (st == ORIEL_OK)
        st = link_take(client, timeout_s, &link);
    if (st != ORIEL_OK)
        return st;
    atomic_fetch_add(&client->requests, 1);
    st = send_all(link->fd, iov, 3, deadline);
    if (st == ORIEL_OK)
        st = receive_reply(link->fd, deadline, bytes_p, reply_p);
    if (st != ORIEL_OK) {
        link_close(link); /* a late answer must not meet the next call */
        return oriel_fail_in(st, "store at %s: %s of \"%.80s\"", client->text,
                             request->op == ORIEL_MESSAGE_SET ? "set" : "get", request->key);
    }
    link_keep(client, link);
    return ORIEL_OK;
}

static oriel_status judge_answer(const struct client *client, enum oriel_message_answer answer,
                                 const char *key, double timeout_s)
{
    switch (answer) {
    case ORIEL_ANSWER_OK:
        return ORIEL_OK;
    case ORIEL_ANSWER_NOT_FOUND:
        return oriel_fail(ORIEL_ERR_TIMEOUT, "store at %s: nobody set \"%.80s\" within %.1f s",
                          client->text, key, timeout_s);
    case ORIEL_ANSWER_CONFLICT:
        return oriel_fail(ORIEL_ERR_MISMATCH,
                          "store at %s: \"%.80s\" is set already, to another value", client->text,
                          key);
    case ORIEL_ANSWER_FULL:
    case ORIEL_ANSWER_COUNT:
        break;
    }
    return oriel_fail(ORIEL_ERR_NO_RESOURCE, "store at %s: no room for \"%.80s\"", client->text,
                      key);
}

static oriel_status store_set(void *ctx, const char *key, const void *value, size_t len)
{
    struct client *client = ctx;
    double timeout_s = fmax(client->timeout_s, answer_grace_s);
    oriel_message request = {.op = ORIEL_MESSAGE_SET, .key = key, .value = value, .value_len = len};
    oriel_message reply;
    uint8_t *bytes;
    oriel_status st;

    if (key == NULL || (value == NULL && len > 0))
        return oriel_fail(ORIEL_ERR_INVALID, "store at %s: set with %s NULL", client->text,
                          key == NULL ? "key" : "value");
    request.key_len = strlen(key);
    st = call(client, &request, timeout_s, &bytes, &reply);
    if (st != ORIEL_OK)
        return st;
    oriel_sys_now->release(bytes);
    return judge_answer(client, reply.answer, key, timeout_s);
}

static oriel_status store_get(void *ctx, const char *key, double timeout_s, void *value,
                              size_t capacity, size_t *len_p)
{
    struct client *client = ctx;
    oriel_message request = {.op = ORIEL_MESSAGE_GET, .key = key};
    oriel_message reply;
    uint8_t *bytes;
    oriel_status st;

    if (key == NULL || len_p == NULL || (value == NULL && capacity > 0))
        return oriel_fail(ORIEL_ERR_INVALID, "store at %s: get with key, value or len_p NULL",
                          client->text);
    timeout_s = timeout_s > 0 ? fmin(timeout_s, UINT32_MAX * 1e-3) : 0;
    request.key_len = strlen(key);
    request.timeout_ms = (uint32_t)(timeout_s * 1e3);
    st = call(client, &request, timeout_s + answer_grace_s, &bytes, &reply);
    if (st != ORIEL_OK)
        return st;
    st = judge_answer(client, reply.answer, key, timeout_s);
    if (st == ORIEL_OK) {
        size_t n = reply.value_len < capacity ? reply.value_len : capacity;

        if (n > 0)
            memcpy(value, reply.value, n);
        *len_p = reply.value_len;
    }
    oriel_sys_now->release(bytes);
    return st;
}

/* ---- life --------------------------------------------------------------- */

static void free_client(struct client *client)
{
    while (client->idle != NULL) {
        struct link *link = client->idle;

        client->idle = link->next;
        link_close(link);
    }
    if (client->secret != NULL)
        explicit_bzero(client->secret, strlen(client->secret));
    oriel_sys_now->release(client->secret);
    pthread_mutex_destroy(&client->lock);
    oriel_sys_now->release(client);
}

static oriel_status reach_server(struct client *client, const char *secret)
{
    struct link *link;
    oriel_status st;

    client->secret = oriel_sys_now->alloc(strlen(secret) + 1);
    if (client->secret == NULL)
        return oriel_fail(ORIEL_ERR_NO_RESOURCE, "store at %s: no memory", client->text);
    strcpy(client->secret, secret);
    st = link_take(client, client->timeout_s, &link);
    if (st != ORIEL_OK)
        return st;
    link_keep(client, link);
    client->was_reached = 1;
    return ORIEL_OK;
}

static oriel_status check_target(const char *address, const char *secret, oriel_address *address_p)
{
    oriel_status st = oriel_address_parse(address, address_p);

    if (st == ORIEL_OK)
        st = oriel_address_check_secret(address_p, secret);
    if (st == ORIEL_OK && !address_p->is_unix && address_p->port == 0)
        st =
            oriel_fail(ORIEL_ERR_INVALID, "store at %s: a client needs the port's number", address);
    return st;
}

oriel_status oriel_store_connect(const char *address, const char *secret, double timeout_s,
                                 oriel_store *store_p)
{
    oriel_address parsed;
    struct client *client;
    oriel_status st;

    if (store_p == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "store: store_p is NULL");
    st = check_target(address, secret, &parsed);
    if (st != ORIEL_OK)
        return st;
    client = oriel_sys_now->alloc(sizeof(*client));
    if (client == NULL)
        return oriel_fail(ORIEL_ERR_NO_RESOURCE, "store at %s: no memory", address);
    client->address = parsed;
    client->timeout_s = timeout_s > 0 ? timeout_s : 0;
    oriel_address_format(&parsed, client->text);
    pthread_mutex_init(&client->lock, NULL);
    st = reach_server(client, secret != NULL ? secret : "");
    if (st != ORIEL_OK) {
        free_client(client);
        return st;
    }

    *store_p = (oriel_store){
        .struct_size = sizeof(*store_p), .ctx = client, .set = store_set, .get = store_get};
    return ORIEL_OK;
}

oriel_status oriel_store_dial(const char *address, const char *secret, double timeout_s, int *fd_p)
{
    struct client client = {.secret = (char *)secret};
    oriel_status st = check_target(address, secret, &client.address);

    return st == ORIEL_OK ? dial_any(&client, oriel_now() + timeout_s, fd_p) : st;
}

void oriel_store_disconnect(oriel_store *store)
{
    struct client *client = store != NULL ? store->ctx : NULL;

    if (client == NULL)
        return;
    oriel_log(ORIEL_LOG_DEBUG, "store at %s: %lu requests", client->text,
              atomic_load(&client->requests));
    free_client(client);
    *store = (oriel_store)ORIEL_STORE_INIT;
}
