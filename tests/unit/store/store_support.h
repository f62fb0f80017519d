/* What the tests of the store share: a sys table that can be told to fail, a
 * server on each kind of address, and raw sockets that speak the protocol byte
 * by byte. Waits are bounded by `patience_s`; nothing sleeps to synchronise. */
#ifndef TESTS_UNIT_STORE_SUPPORT_H
#define TESTS_UNIT_STORE_SUPPORT_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sys.h"
#include "core/store/address.h"
#include "core/store/store.h"
#include "core/store/codec.h"

static const double patience_s = 60.0;
static const char secret[] = "the job's secret";

/* ---- a sys table with knobs ------------------------------------------------ */

static _Atomic int accept_error;  /* errno that accept fails with, 0: none */
static _Atomic int accept_calls;  /* while accept_error was set */
static _Atomic int connect_fails; /* how often connect has failed */

static inline int spy_accept(int fd)
{
    int error = atomic_load(&accept_error);

    if (error == 0)
        return oriel_sys_real.accept(fd);
    atomic_fetch_add(&accept_calls, 1);
    errno = error;
    return -1;
}

static inline int spy_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    int rc = oriel_sys_real.connect(fd, addr, len);

    if (rc != 0 && errno != EINPROGRESS)
        atomic_fetch_add(&connect_fails, 1);
    return rc;
}

static oriel_sys spy;

static inline void use_spy(void)
{
    spy = oriel_sys_real;
    spy.accept = spy_accept;
    spy.connect = spy_connect;
    oriel_sys_now = &spy;
}

/* ---- both kinds of address --------------------------------------------------- */

static const char *const kinds[] = {NULL, "127.0.0.1:0"}; /* NULL: a fresh Unix socket */
enum { KINDS = 2 };

static inline oriel_store_server *start(const char *address)
{
    oriel_store_server *server = NULL;
    oriel_status st = oriel_store_server_create(address, secret, &server);

    if (st != ORIEL_OK)
        fail_msg("%s", oriel_last_error());
    return server;
}

static inline oriel_store join(const oriel_store_server *server)
{
    oriel_store store = ORIEL_STORE_INIT;
    oriel_status st =
        oriel_store_connect(oriel_store_server_address(server), secret, patience_s, &store);

    if (st != ORIEL_OK)
        fail_msg("%s", oriel_last_error());
    return store;
}

/* The right peers are served: a new one, with a key nobody used. */
static inline void assert_serves(const oriel_store_server *server)
{
    static int number;
    oriel_store store = join(server);
    char key[32];
    char value[8];
    size_t len = 0;

    snprintf(key, sizeof(key), "alive/%d", number++);
    assert_int_equal(store.set(store.ctx, key, "yes", 3), ORIEL_OK);
    assert_int_equal(store.get(store.ctx, key, patience_s, value, sizeof(value), &len), ORIEL_OK);
    assert_int_equal(len, 3);
    assert_memory_equal(value, "yes", 3);
    oriel_store_disconnect(&store);
}

/* ---- raw sockets ------------------------------------------------------------- */

/* -1 and errno on failure. Blocking. */
static inline int raw_try_connect(const char *text)
{
    oriel_endpoint endpoints[ORIEL_ADDRESS_ENDPOINTS];
    oriel_address address;
    int n, fd;

    if (oriel_address_parse(text, &address) != ORIEL_OK ||
        oriel_address_resolve(&address, endpoints, &n) != ORIEL_OK)
        return -1;
    fd = socket(endpoints[0].addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&endpoints[0].addr, endpoints[0].len) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static inline int raw_connect(const oriel_store_server *server)
{
    int fd = raw_try_connect(oriel_store_server_address(server));

    assert_true(fd >= 0);
    return fd;
}

static inline void raw_send(int fd, const void *bytes, size_t len)
{
    assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), len);
}

/* Bytes that came before the end, the deadline or `len`. */
static inline size_t raw_receive(int fd, void *bytes, size_t len)
{
    double deadline = oriel_now() + patience_s;
    size_t got = 0;

    while (got < len && oriel_now() < deadline) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        ssize_t n;

        if (poll(&ready, 1, 100) <= 0)
            continue;
        n = recv(fd, (char *)bytes + got, len - got, 0);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    return got;
}

/* Reads what there is until the server closes; fails at the deadline. */
static inline void assert_closed(int fd)
{
    double deadline = oriel_now() + patience_s;
    char bytes[256];

    while (oriel_now() < deadline) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};

        if (poll(&ready, 1, 100) > 0 && recv(fd, bytes, sizeof(bytes), 0) <= 0) {
            close(fd);
            return;
        }
    }
    fail_msg("the server did not close the connection");
}

static inline void raw_proof(int fd, const char *with, uint8_t proof_p[ORIEL_PROOF_BYTES])
{
    uint8_t hello[ORIEL_HELLO_BYTES], nonce[ORIEL_NONCE_BYTES] = {7}, mac[ORIEL_SHA256_BYTES];
    const uint8_t *server_nonce = NULL;

    assert_int_equal(raw_receive(fd, hello, sizeof(hello)), sizeof(hello));
    assert_int_equal(oriel_hello_decode(hello, sizeof(hello), &server_nonce), ORIEL_OK);
    oriel_handshake_mac(with, 'C', server_nonce, nonce, mac);
    oriel_proof_encode(nonce, mac, proof_p);
}

static inline int raw_join(const oriel_store_server *server)
{
    int fd = raw_connect(server);
    uint8_t proof[ORIEL_PROOF_BYTES], verdict[ORIEL_VERDICT_BYTES];
    const uint8_t *mac;

    raw_proof(fd, secret, proof);
    raw_send(fd, proof, sizeof(proof));
    assert_int_equal(raw_receive(fd, verdict, sizeof(verdict)), sizeof(verdict));
    assert_int_equal(oriel_verdict_decode(verdict, sizeof(verdict), &mac), ORIEL_OK);
    return fd;
}

/* Header and key of a request; the caller appends a value. */
static inline size_t raw_request(enum oriel_message_op op, const char *key, uint32_t timeout_ms,
                                 size_t value_len, uint8_t *bytes_p)
{
    oriel_message message = {.op = op,
                             .timeout_ms = timeout_ms,
                             .key = key,
                             .key_len = strlen(key),
                             .value_len = value_len};

    assert_int_equal(oriel_message_encode(&message, bytes_p), ORIEL_OK);
    memcpy(bytes_p + ORIEL_MESSAGE_HEADER, key, message.key_len);
    return ORIEL_MESSAGE_HEADER + message.key_len;
}

static inline void raw_get(int fd, const char *key, uint32_t timeout_ms)
{
    uint8_t bytes[ORIEL_MESSAGE_HEADER + 64];

    raw_send(fd, bytes, raw_request(ORIEL_MESSAGE_GET, key, timeout_ms, 0, bytes));
}

static inline void assert_reply(int fd, enum oriel_message_answer answer, const char *value)
{
    uint8_t bytes[ORIEL_MESSAGE_HEADER + 64];
    size_t size = ORIEL_MESSAGE_HEADER + strlen(value), used;
    oriel_message message;

    assert_int_equal(raw_receive(fd, bytes, size), size);
    assert_int_equal(oriel_message_decode(bytes, size, &message, &used), ORIEL_OK);
    assert_int_equal(message.op, ORIEL_MESSAGE_REPLY);
    assert_int_equal(message.answer, answer);
    assert_int_equal(message.value_len, strlen(value));
    assert_memory_equal(message.value, value, message.value_len);
}

/* ---- what is logged ---------------------------------------------------------- */

static int log_fd = -1;
static int stderr_fd = -1;

static inline void log_capture(void)
{
    stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    log_fd = memfd_create("log", MFD_CLOEXEC);
    assert_true(stderr_fd >= 0 && log_fd >= 0);
    dup2(log_fd, STDERR_FILENO);
}

static inline int log_lines(const char *text)
{
    static char lines[1 << 20];
    ssize_t n = pread(log_fd, lines, sizeof(lines) - 1, 0);
    int count = 0;

    lines[n > 0 ? n : 0] = '\0';
    for (char *at = strstr(lines, text); at != NULL; at = strstr(at + 1, text))
        count++;
    return count;
}

/* Ends the capture; how many lines hold `text`, once `expected` do or patience
 * ends: a client may know its fate before the server has written of it. */
static inline int log_count(const char *text, int expected)
{
    double deadline = oriel_now() + patience_s;

    while (log_lines(text) < expected && oriel_now() < deadline)
        oriel_relax(1);
    dup2(stderr_fd, STDERR_FILENO);
    close(stderr_fd);
    expected = log_lines(text);
    close(log_fd);
    return expected;
}

#endif
