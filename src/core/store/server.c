/* The server of oriel's store: one thread, one poll loop.
 *
 * Strangers cannot starve the job's processes: at most UNPROVEN_MAX
 * connections that have not proved the secret are kept, each for a few seconds,
 * and a new one takes the place of the oldest. A client that loses its place
 * that way simply connects again. */
#include "core/store/store.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "core/store/peer.h"

enum {
    UNPROVEN_MAX = 256,
    ACCEPT_BATCH = 64, /* between two looks at the connections there are */
    POLL_PAUSE_MS = 10,
    FIRST_ROOM = 64,
    POLL_STOP = 0, /* places in the poll array */
    POLL_LISTENER = 1,
    POLL_PEERS = 2,
    LOG_LINES = 20, /* in log_period_s; the rest is counted */
    LOOK_S = 1      /* the longest sleep: ending does not depend on the wake-up alone */
};
static const size_t table_limit = (size_t)64 << 20;
static const double accept_pause_s = 0.1;
static const double log_period_s = 10.0;
static const double starved_period_s = 60.0;

struct oriel_store_server {
    oriel_store_host host;            /* what peers are served from */
    char address[ORIEL_ADDRESS_TEXT]; /* that it listens at, for messages */
    pthread_t thread;                 /* serves them all */

    int stop_fd;          /* eventfd that wakes the thread ... */
    _Atomic int stopping; /* ... to see this */
    double linger_until;  /* written before `stopping` */

    int listener;               /* -1: closed */
    double accept_after;        /* no accept before: descriptors had run out */
    double starved_quiet_until; /* no line before about descriptors that have run out */

    oriel_store_peer **peers; /* oldest first; NULL where one was closed */
    struct pollfd *polls;     /* places as in POLL_..., then the peers */
    size_t n;                 /* peers, also those that were closed in this turn */
    size_t room;              /* that both arrays have space for */

    double log_until;         /* end of the period that the next two count in */
    unsigned log_lines;       /* written in it */
    unsigned long log_hidden; /* not written in it, only counted */
};

/* ---- log lines: strangers must not fill the disk ------------------------ */

static void log_hidden(oriel_store_server *server)
{
    if (server->log_hidden > 0)
        oriel_log(ORIEL_LOG_WARN, "store at %s: %lu more connections were closed without a line",
                  server->address, server->log_hidden);
    server->log_hidden = 0;
}

static void log_closed(oriel_store_server *server, const char *who, const char *why)
{
    double now = oriel_now();

    if (now >= server->log_until) {
        log_hidden(server);
        server->log_until = now + log_period_s;
        server->log_lines = 0;
    }
    if (server->log_lines++ >= LOG_LINES) {
        server->log_hidden++;
        return;
    }
    oriel_log(ORIEL_LOG_WARN, "store at %s: closed the connection of %s: %s", server->address, who,
              why);
}

/* ---- connections -------------------------------------------------------- */

static void close_peer(oriel_store_server *server, size_t i)
{
    oriel_store_peer_destroy(server->peers[i]);
    server->peers[i] = NULL;
}

static size_t count_peers(const oriel_store_server *server, int proven)
{
    size_t n = 0;

    for (size_t i = 0; i < server->n; i++)
        n += server->peers[i] != NULL && oriel_store_peer_is_proven(server->peers[i]) == proven;
    return n;
}

/* 1 when there was one to close. */
static int close_oldest_unproven(oriel_store_server *server)
{
    for (size_t i = 0; i < server->n; i++) {
        oriel_store_peer *peer = server->peers[i];

        if (peer != NULL && !oriel_store_peer_is_proven(peer)) {
            log_closed(server, oriel_store_peer_name(peer),
                       "too many connections that have not proved that they know the secret");
            close_peer(server, i);
            return 1;
        }
    }
    return 0;
}

static void drop_closed(oriel_store_server *server)
{
    size_t kept = 0;

    for (size_t i = 0; i < server->n; i++) {
        if (server->peers[i] != NULL)
            server->peers[kept++] = server->peers[i];
    }
    server->n = kept;
}

static oriel_status make_room(oriel_store_server *server)
{
    size_t room = server->room > 0 ? 2 * server->room : FIRST_ROOM;
    oriel_store_peer **peers;
    struct pollfd *polls;

    if (server->n < server->room)
        return ORIEL_OK;
    peers = oriel_sys_now->alloc(room * sizeof(*peers));
    polls = oriel_sys_now->alloc((POLL_PEERS + room) * sizeof(*polls));
    if (peers == NULL || polls == NULL) {
        oriel_sys_now->release(peers);
        oriel_sys_now->release(polls);
        return oriel_fail(ORIEL_ERR_NO_RESOURCE, "no memory for %zu connections", room);
    }
    if (server->n > 0)
        memcpy(peers, server->peers, server->n * sizeof(*peers));
    oriel_sys_now->release(server->peers);
    oriel_sys_now->release(server->polls);
    server->peers = peers;
    server->polls = polls;
    server->room = room;
    return ORIEL_OK;
}

static oriel_status admit(oriel_store_server *server, int fd, double now)
{
    oriel_store_peer *peer;
    oriel_status st = make_room(server);

    if (st != ORIEL_OK) {
        oriel_sys_now->close(fd);
        return st;
    }
    st = oriel_store_peer_create(fd, &server->host, now, &peer);
    if (st == ORIEL_OK)
        server->peers[server->n++] = peer;
    return st;
}

/* Polling a listener that cannot accept would spin: an unproven connection
 * gives up its descriptor, or accepting pauses. */
static void handle_starvation(oriel_store_server *server, int error, double now)
{
    if (now >= server->starved_quiet_until) {
        server->starved_quiet_until = now + starved_period_s;
        oriel_log(ORIEL_LOG_WARN,
                  "store at %s: cannot accept a connection: %s; raise the limit of open files "
                  "(ulimit -n)",
                  server->address, strerror(error));
    }
    if (!close_oldest_unproven(server))
        server->accept_after = now + accept_pause_s;
}

static void accept_peers(oriel_store_server *server, double now)
{
    size_t unproven = count_peers(server, 0);

    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int fd = oriel_sys_now->accept(server->listener);

        if (fd < 0 && errno == EAGAIN)
            return;
        if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
            continue;
        if (fd < 0) {
            handle_starvation(server, errno, now);
            return;
        }
        if (admit(server, fd, now) != ORIEL_OK)
            log_closed(server, "a new peer", oriel_last_error());
        else if (++unproven > UNPROVEN_MAX)
            unproven -= (size_t)close_oldest_unproven(server);
    }
}

/* ---- the loop ----------------------------------------------------------- */

static int poll_timeout_ms(double seconds)
{
    if (seconds <= 0)
        return 0;
    return (int)ceil(fmin(seconds, LOOK_S) * 1e3);
}

/* Fills the poll array and says how long to wait. */
static int prepare_poll(oriel_store_server *server, int stopping, double now)
{
    int paused = now < server->accept_after;
    double until = paused ? server->accept_after : INFINITY;

    if (stopping)
        until = fmin(until, server->linger_until);
    server->polls[POLL_STOP] =
        (struct pollfd){.fd = stopping ? -1 : server->stop_fd, .events = POLLIN};
    server->polls[POLL_LISTENER] =
        (struct pollfd){.fd = paused ? -1 : server->listener, .events = POLLIN};
    for (size_t i = 0; i < server->n; i++) {
        oriel_store_peer *peer = server->peers[i];

        server->polls[POLL_PEERS + i] = (struct pollfd){.fd = oriel_store_peer_fd(peer),
                                                        .events = oriel_store_peer_events(peer)};
        until = fmin(until, oriel_store_peer_deadline(peer));
    }
    return poll_timeout_ms(until - now);
}

static void close_failed(oriel_store_server *server, size_t i, oriel_status st)
{
    if (st != ORIEL_ERR_PEER)
        log_closed(server, oriel_store_peer_name(server->peers[i]), oriel_last_error());
    close_peer(server, i);
}

/* Two passes: a key that one peer sets answers all that wait for it. */
static void serve_peers(oriel_store_server *server, double now)
{
    oriel_status st;

    for (size_t i = 0; i < server->n; i++) {
        st = oriel_store_peer_service(server->peers[i], server->polls[POLL_PEERS + i].revents,
                                      &server->host, now);
        if (st != ORIEL_OK)
            close_failed(server, i, st);
    }
    for (size_t i = 0; i < server->n; i++) {
        if (server->peers[i] == NULL)
            continue;
        st = oriel_store_peer_tick(server->peers[i], &server->host, now);
        if (st != ORIEL_OK)
            close_failed(server, i, st);
    }
}

/* The kernel was out of memory, which passes; the job depends on this loop. */
static void handle_failed_poll(oriel_store_server *server, int error, double now)
{
    for (size_t i = 0; i < POLL_PEERS + server->n; i++)
        server->polls[i].revents = 0;
    if (now >= server->starved_quiet_until) {
        server->starved_quiet_until = now + starved_period_s;
        oriel_log(ORIEL_LOG_WARN, "store at %s: poll failed: %s", server->address, strerror(error));
    }
    oriel_sys_now->poll(NULL, 0, POLL_PAUSE_MS);
}

/* A client that comes now wants the next store at this address, and so does one that waits for a
 * key. */
static void stop_listening(oriel_store_server *server)
{
    if (server->listener >= 0)
        oriel_sys_now->close(server->listener);
    server->listener = -1;
    server->host.ends = 1;
}

static void *serve(void *arg)
{
    oriel_store_server *server = arg;

    for (;;) {
        double now = oriel_now();
        int stopping = atomic_load(&server->stopping);
        int timeout_ms;

        if (stopping)
            stop_listening(server);
        if (stopping && (now >= server->linger_until || count_peers(server, 1) == 0))
            break;
        timeout_ms = prepare_poll(server, stopping, now);
        if (oriel_sys_now->poll(server->polls, POLL_PEERS + server->n, timeout_ms) < 0)
            handle_failed_poll(server, errno, now);
        now = oriel_now();
        serve_peers(server, now);
        if (server->polls[POLL_LISTENER].revents != 0)
            accept_peers(server, now);
        drop_closed(server);
    }

    /* Here, not in destroy: clients must not wait for a loop that has ended. */
    oriel_sys_now->close(server->listener);
    server->listener = -1;
    for (size_t i = 0; i < server->n; i++)
        close_peer(server, i);
    server->n = 0;
    log_hidden(server);
    return NULL;
}

/* ---- life --------------------------------------------------------------- */

static oriel_status open_listener(oriel_store_server *server)
{
    oriel_endpoint endpoints[ORIEL_ADDRESS_ENDPOINTS];
    oriel_endpoint bound = {.len = sizeof(bound.addr)};
    int n;
    oriel_status st = oriel_address_resolve(&server->host.address, endpoints, &n);

    if (st != ORIEL_OK)
        return oriel_fail_in(st, "store at %s", server->address);
    for (int i = 0; i < n && server->listener < 0; i++)
        server->listener = oriel_endpoint_listen(&endpoints[i]);
    if (server->listener < 0 ||
        oriel_sys_now->getsockname(server->listener, (struct sockaddr *)&bound.addr, &bound.len) !=
            0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "store at %s: cannot listen: %s", server->address,
                          strerror(errno));
    if (!server->host.address.is_unix)
        server->host.address.port = oriel_endpoint_port(&bound);
    oriel_address_format(&server->host.address, server->address);
    return ORIEL_OK;
}

/* A name nobody else has, and that does not tell the secret. */
static oriel_status choose_address(const char *address, oriel_address *address_p)
{
    char text[ORIEL_ADDRESS_TEXT];
    unsigned long long random;

    if (address != NULL)
        return oriel_address_parse(address, address_p);
    if (oriel_sys_now->random(&random, sizeof(random)) != 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "store: no random bytes: %s", strerror(errno));
    snprintf(text, sizeof(text), "unix:@oriel-%u-%d-%016llx", (unsigned)geteuid(), (int)getpid(),
             random);
    return oriel_address_parse(text, address_p);
}

static void free_server(oriel_store_server *server)
{
    if (server->listener >= 0)
        oriel_sys_now->close(server->listener);
    if (server->stop_fd >= 0)
        oriel_sys_now->close(server->stop_fd);
    oriel_store_table_destroy(server->host.table);
    if (server->host.secret != NULL)
        explicit_bzero(server->host.secret, strlen(server->host.secret));
    oriel_sys_now->release(server->host.secret);
    oriel_sys_now->release(server->peers);
    oriel_sys_now->release(server->polls);
    oriel_sys_now->release(server);
}

static oriel_status start_server(oriel_store_server *server, const char *secret)
{
    oriel_status st;

    server->host.secret = oriel_sys_now->alloc(strlen(secret) + 1);
    server->host.table = oriel_store_table_create(table_limit);
    st = make_room(server);
    if (st != ORIEL_OK || server->host.secret == NULL || server->host.table == NULL)
        return oriel_fail(ORIEL_ERR_NO_RESOURCE, "store at %s: no memory", server->address);
    strcpy(server->host.secret, secret);
    server->stop_fd = oriel_sys_now->eventfd();
    if (server->stop_fd < 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "store at %s: eventfd failed: %s", server->address,
                          strerror(errno));
    st = open_listener(server);
    if (st != ORIEL_OK)
        return st;
    if (oriel_sys_now->thread(&server->thread, serve, server) != 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "store at %s: cannot start a thread: %s",
                          server->address, strerror(errno));
    return ORIEL_OK;
}

oriel_status oriel_store_server_create(const char *address, const char *secret,
                                       oriel_store_server **server_p)
{
    oriel_address parsed;
    oriel_store_server *server;
    oriel_status st;

    if (server_p == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "store: server_p is NULL");
    st = choose_address(address, &parsed);
    if (st == ORIEL_OK)
        st = oriel_address_check_secret(&parsed, secret);
    if (st != ORIEL_OK)
        return st;
    server = oriel_sys_now->alloc(sizeof(*server));
    if (server == NULL)
        return oriel_fail(ORIEL_ERR_NO_RESOURCE, "store: no memory");
    server->listener = server->stop_fd = -1;
    server->host.address = parsed;
    oriel_address_format(&parsed, server->address);
    st = start_server(server, secret != NULL ? secret : "");
    if (st != ORIEL_OK) {
        free_server(server);
        return st;
    }

    *server_p = server;
    return ORIEL_OK;
}

const char *oriel_store_server_address(const oriel_store_server *server)
{
    return server->address;
}

void oriel_store_server_destroy(oriel_store_server *server, double linger_s)
{
    if (server == NULL)
        return;
    server->linger_until = oriel_now() + linger_s;
    atomic_store(&server->stopping, 1);
    oriel_sys_now->signal(server->stop_fd); /* one that got lost costs LOOK_S */
    pthread_join(server->thread, NULL);
    free_server(server);
}
