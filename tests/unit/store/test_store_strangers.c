/* labels: tsan valgrind */
/* The store and everybody else: whatever a stranger sends, he is closed with a
 * line in the log, and the job's processes are served. */
#include "unit/store/store_support.h"

#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>

static const char closed_line[] = "closed the connection of";

static void test_a_wrong_secret_is_refused_on_both_sides(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        oriel_store_server *server = start(kinds[k]);
        oriel_store store = ORIEL_STORE_INIT;
        double before = oriel_now();

        log_capture();
        assert_int_equal(
            oriel_store_connect(oriel_store_server_address(server), "guess", patience_s, &store),
            ORIEL_ERR_AUTH);
        assert_true(oriel_now() - before < patience_s); /* at once, not after retries */
        assert_int_equal(log_count("does not know the secret", 1), 1);
        assert_null(store.ctx);
        assert_non_null(strstr(oriel_last_error(), oriel_store_server_address(server)));
        assert_non_null(
            strstr(oriel_last_error(), "set ORIEL_SECRET to the same value in all processes"));
        assert_serves(server);
        oriel_store_server_destroy(server, 0);
    }
}

static void test_garbage_is_closed_and_logged(void **state)
{
    static const char http[] = "GET / HTTP/1.1\r\n\r\n";
    static uint8_t noise[100000];

    (void)state;
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)(i * 2654435761u >> 24);
    for (int k = 0; k < KINDS; k++) {
        oriel_store_server *server = start(kinds[k]);
        int fd = raw_connect(server);

        log_capture();
        raw_send(fd, http, strlen(http));
        assert_closed(fd);
        fd = raw_connect(server);
        (void)!send(fd, noise, sizeof(noise), MSG_NOSIGNAL); /* closed while it is sent */
        assert_closed(fd);
        assert_int_equal(log_count(closed_line, 2), 2);
        assert_serves(server);
        oriel_store_server_destroy(server, 0);
    }
}

/* A proof is good for one connection: the nonces of the next one differ. */
static void test_a_replayed_proof_is_refused(void **state)
{
    oriel_store_server *server = start("127.0.0.1:0");
    int first = raw_connect(server), second = raw_connect(server);
    uint8_t proof[ORIEL_PROOF_BYTES], hello[ORIEL_HELLO_BYTES], verdict[ORIEL_VERDICT_BYTES];
    const uint8_t *mac;

    (void)state;
    raw_proof(first, secret, proof);
    assert_int_equal(raw_receive(second, hello, sizeof(hello)), sizeof(hello));
    raw_send(second, proof, sizeof(proof));
    assert_int_equal(raw_receive(second, verdict, sizeof(verdict)), sizeof(verdict));
    assert_int_equal(oriel_verdict_decode(verdict, sizeof(verdict), &mac), ORIEL_ERR_AUTH);
    assert_closed(second);
    close(first);
    oriel_store_server_destroy(server, 0);
}

/* Nothing behind an unproven handshake is looked at, whatever it says. */
static void test_messages_before_the_proof_are_never_read(void **state)
{
    oriel_store_server *server = start("127.0.0.1:0");
    oriel_store store = join(server);
    int fd = raw_connect(server);
    uint8_t bytes[ORIEL_PROOF_BYTES + 64];
    size_t len;

    (void)state;
    raw_proof(fd, "guess", bytes);
    len = raw_request(ORIEL_MESSAGE_SET, "planted", 0, 0, bytes + ORIEL_PROOF_BYTES);
    raw_send(fd, bytes, ORIEL_PROOF_BYTES + len);
    assert_closed(fd);
    assert_int_equal(store.get(store.ctx, "planted", 0, NULL, 0, &len), ORIEL_ERR_TIMEOUT);
    oriel_store_disconnect(&store);
    oriel_store_server_destroy(server, 0);
}

static void test_a_half_open_connection_is_closed_after_a_while(void **state)
{
    oriel_store_server *server = start("127.0.0.1:0");
    int silent = raw_connect(server), slow = raw_connect(server);
    double before = oriel_now();

    (void)state;
    log_capture();
    raw_send(slow, "oriel-s1", 8);
    assert_serves(server);
    assert_closed(silent);
    assert_closed(slow);
    assert_int_equal(log_count("did not prove within 5 s", 2), 2);
    assert_true(oriel_now() - before > 4);
    assert_serves(server);
    oriel_store_server_destroy(server, 0);
}

static void send_header(const oriel_store_server *server, uint32_t length, uint8_t op)
{
    uint8_t header[ORIEL_MESSAGE_HEADER] = {0};
    int fd = raw_join(server);

    for (int i = 0; i < 4; i++)
        header[i] = (uint8_t)(length >> 8 * i);
    header[4] = op;
    header[6] = 1;
    raw_send(fd, header, sizeof(header));
    assert_closed(fd);
}

static void test_a_bad_header_of_a_proven_peer_is_closed(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        oriel_store_server *server = start(kinds[k]);

        log_capture();
        send_header(server, UINT32_MAX, ORIEL_MESSAGE_SET);
        send_header(server, ORIEL_MESSAGE_PAYLOAD_MAX + 1, ORIEL_MESSAGE_SET);
        send_header(server, 10, 77);
        send_header(server, 0, ORIEL_MESSAGE_GET);
        assert_int_equal(log_count(closed_line, 4), 4);
        assert_serves(server);
        oriel_store_server_destroy(server, 0);
    }
}

static void test_a_reply_is_no_request(void **state)
{
    oriel_store_server *server = start(NULL);
    int fd = raw_join(server);
    oriel_message message = {.op = ORIEL_MESSAGE_REPLY};
    uint8_t header[ORIEL_MESSAGE_HEADER];

    (void)state;
    assert_int_equal(oriel_message_encode(&message, header), ORIEL_OK);
    raw_send(fd, header, sizeof(header));
    assert_closed(fd);
    oriel_store_server_destroy(server, 0);
}

/* A request right behind the proof is read after it. */
static void test_a_right_peer_need_not_wait_for_the_verdict(void **state)
{
    oriel_store_server *server = start("127.0.0.1:0");
    int fd = raw_connect(server);
    uint8_t bytes[ORIEL_PROOF_BYTES + 64], verdict[ORIEL_VERDICT_BYTES];
    size_t len;

    (void)state;
    raw_proof(fd, secret, bytes);
    len = raw_request(ORIEL_MESSAGE_SET, "key", 0, 0, bytes + ORIEL_PROOF_BYTES);
    raw_send(fd, bytes, ORIEL_PROOF_BYTES + len);
    assert_int_equal(raw_receive(fd, verdict, sizeof(verdict)), sizeof(verdict));
    assert_reply(fd, ORIEL_ANSWER_OK, "");
    close(fd);
    oriel_store_server_destroy(server, 0);
}

/* However the bytes are cut, and with requests one behind the other. */
static void test_a_right_peer_may_send_as_it_likes(void **state)
{
    oriel_store_server *server = start("127.0.0.1:0");
    int fd = raw_connect(server);
    uint8_t bytes[ORIEL_PROOF_BYTES], verdict[ORIEL_VERDICT_BYTES], two[128];
    size_t len;

    (void)state;
    raw_proof(fd, secret, bytes);
    for (size_t i = 0; i < sizeof(bytes); i++)
        raw_send(fd, bytes + i, 1);
    assert_int_equal(raw_receive(fd, verdict, sizeof(verdict)), sizeof(verdict));
    len = raw_request(ORIEL_MESSAGE_SET, "key", 0, 5, two);
    memcpy(two + len, "value", 5);
    len += 5;
    for (size_t i = 0; i < len; i++)
        raw_send(fd, two + i, 1);
    assert_reply(fd, ORIEL_ANSWER_OK, "");

    len = raw_request(ORIEL_MESSAGE_GET, "none", 50, 0, two);
    len += raw_request(ORIEL_MESSAGE_GET, "key", 0, 0, two + len);
    raw_send(fd, two, len);
    assert_reply(fd, ORIEL_ANSWER_NOT_FOUND, "");
    assert_reply(fd, ORIEL_ANSWER_OK, "value");
    close(fd);
    oriel_store_server_destroy(server, 0);
}

/* A reply that its reader leaves lying holds up nobody and comes whole. */
static void test_a_slow_reader_holds_up_nobody(void **state)
{
    enum { SIZE = 1000000, READERS = 8 }; /* beyond what a Unix socket holds */
    oriel_store_server *server = start(NULL);
    oriel_store store = join(server);
    uint8_t *value = malloc(SIZE), *in = malloc(ORIEL_MESSAGE_HEADER + SIZE);
    int fd[READERS];

    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        value[i] = (uint8_t)(i * 31 >> 3);
    assert_int_equal(store.set(store.ctx, "big", value, SIZE), ORIEL_OK);
    for (int i = 0; i < READERS; i++) {
        fd[i] = raw_join(server);
        raw_get(fd[i], "big", 0);
    }
    assert_serves(server);
    close(fd[0]); /* leaves in the middle of its reply */
    for (int i = 1; i < READERS; i++) {
        assert_int_equal(raw_receive(fd[i], in, ORIEL_MESSAGE_HEADER + SIZE),
                         ORIEL_MESSAGE_HEADER + SIZE);
        assert_memory_equal(in + ORIEL_MESSAGE_HEADER, value, SIZE);
        close(fd[i]);
    }
    free(value);
    free(in);
    oriel_store_disconnect(&store);
    oriel_store_server_destroy(server, 0);
}

struct worker {
    pthread_t thread;
    oriel_store store;
    _Atomic int stop;
    _Atomic int calls;
    oriel_status st;
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    size_t len;

    while (!atomic_load(&worker->stop) && worker->st == ORIEL_OK) {
        worker->st = worker->store.get(worker->store.ctx, "key", patience_s, NULL, 0, &len);
        atomic_fetch_add(&worker->calls, 1);
    }
    return NULL;
}

/* Opens `total` connections that say nothing and keeps the newest `held`. */
static int flood(const oriel_store_server *server, int *fds, int total, int held)
{
    int opened = 0;

    for (int i = 0; i < held; i++)
        fds[i] = -1;
    for (int i = 0; i < total; i++) {
        int *slot = &fds[i % held];

        if (*slot >= 0)
            close(*slot);
        *slot = raw_try_connect(oriel_store_server_address(server));
        opened += *slot >= 0;
    }
    return opened;
}

static int count_open(const int *fds, int n)
{
    int open = 0;

    for (int i = 0; i < n; i++) {
        struct pollfd peer = {.fd = fds[i], .events = POLLRDHUP};

        open += poll(&peer, 1, 0) == 0;
    }
    return open;
}

/* As many at a time as the limit of open files allows, leaving some for the
 * server's ends and for the right peers. */
static int room_for_connections(int wanted)
{
    const int reserve = 700;
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur < (rlim_t)(wanted + reserve))
        return (int)limit.rlim_cur - reserve;
    return wanted;
}

static void test_ten_thousand_connections_starve_nobody(void **state)
{
    enum { TOTAL = 10000 };
    int held = room_for_connections(TOTAL);
    int *fds = malloc((size_t)held * sizeof(*fds));

    (void)state;
    for (int k = 0; k < KINDS; k++) {
        oriel_store_server *server = start(kinds[k]);
        struct worker worker = {.store = join(server)};

        assert_int_equal(worker.store.set(worker.store.ctx, "key", "v", 1), ORIEL_OK);
        assert_int_equal(pthread_create(&worker.thread, NULL, work, &worker), 0);
        log_capture();
        assert_int_equal(flood(server, fds, TOTAL, held), TOTAL);
        assert_true(atomic_load(&worker.calls) > 0);
        assert_serves(server); /* with all of them still open on this side */
        assert_in_range(count_open(fds, held), 1, 256);
        atomic_store(&worker.stop, 1);
        pthread_join(worker.thread, NULL);
        assert_int_equal(worker.st, ORIEL_OK);
        for (int i = 0; i < held; i++)
            close(fds[i]);
        oriel_store_disconnect(&worker.store);
        oriel_store_server_destroy(server, 0);
        assert_in_range(log_count("oriel[", 1), 1, 200); /* and not 10,000 lines */
    }
    free(fds);
}

/* Accept fails for want of descriptors: one line, no spinning, and the peers
 * that are there are served; afterwards all is as before. */
static void test_running_out_of_descriptors_passes(void **state)
{
    oriel_store_server *server = start("127.0.0.1:0");
    oriel_store store = join(server);
    size_t len;
    int fd;

    (void)state;
    log_capture();
    atomic_store(&accept_calls, 0);
    atomic_store(&accept_error, EMFILE);
    fd = raw_connect(server);
    assert_int_equal(store.get(store.ctx, "never", 0.5, NULL, 0, &len), ORIEL_ERR_TIMEOUT);
    atomic_store(&accept_error, 0);
    assert_in_range(atomic_load(&accept_calls), 1, 20);
    assert_int_equal(log_count("cannot accept a connection", 1), 1);
    assert_serves(server);
    close(fd);
    oriel_store_disconnect(&store);
    oriel_store_server_destroy(server, 0);
}

/* ---- another user ------------------------------------------------------------ */

enum { NOBODY = 65534 };

/* In the child, as another user: connects to the address that comes through
 * `from` and must be closed unheard, then poses as a server itself. */
static int be_another_user(const char *own, int from, int to)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t len = strlen(own);
    char address[ORIEL_ADDRESS_TEXT] = "", byte;
    int fd, listener;

    if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0 || read(from, address, sizeof(address)) <= 0)
        return 2;
    fd = raw_try_connect(address);
    if (fd < 0 || recv(fd, &byte, 1, 0) > 0)
        return 3;
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(addr.sun_path + 1, own, len);
    if (bind(listener, (struct sockaddr *)&addr,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) != 0 ||
        listen(listener, 8) != 0 || write(to, "r", 1) != 1)
        return 4;
    return read(from, &byte, 1) == 0 ? 0 : 5;
}

/* Forked before any thread runs, as the sanitizers like it. */
static void test_another_user_is_refused_on_both_sides(void **state)
{
    oriel_store_server *server;
    oriel_store store = ORIEL_STORE_INIT;
    char own[64], address[80], byte;
    int to[2], from[2], status;
    pid_t pid;

    (void)state;
    if (geteuid() != 0) {
        print_message("left out: only root can become another user\n");
        skip();
    }
    snprintf(own, sizeof(own), "oriel-test-foreign-%d", (int)getpid());
    snprintf(address, sizeof(address), "unix:@%s", own);
    assert_int_equal(pipe(to) | pipe(from), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(to[1]);
        _exit(be_another_user(own, to[0], from[1]));
    }
    close(to[0]);
    close(from[1]);
    server = start(NULL);
    assert_true(write(to[1], oriel_store_server_address(server),
                      strlen(oriel_store_server_address(server))) > 0);
    assert_int_equal(read(from[0], &byte, 1), 1);
    assert_int_equal(oriel_store_connect(address, secret, patience_s, &store), ORIEL_ERR_AUTH);
    assert_non_null(strstr(oriel_last_error(), "of user 65534"));
    close(to[1]);
    close(from[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_serves(server);
    oriel_store_server_destroy(server, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wrong_secret_is_refused_on_both_sides),
        cmocka_unit_test(test_garbage_is_closed_and_logged),
        cmocka_unit_test(test_a_replayed_proof_is_refused),
        cmocka_unit_test(test_messages_before_the_proof_are_never_read),
        cmocka_unit_test(test_a_half_open_connection_is_closed_after_a_while),
        cmocka_unit_test(test_a_bad_header_of_a_proven_peer_is_closed),
        cmocka_unit_test(test_a_reply_is_no_request),
        cmocka_unit_test(test_a_right_peer_need_not_wait_for_the_verdict),
        cmocka_unit_test(test_a_right_peer_may_send_as_it_likes),
        cmocka_unit_test(test_a_slow_reader_holds_up_nobody),
        cmocka_unit_test(test_ten_thousand_connections_starve_nobody),
        cmocka_unit_test(test_running_out_of_descriptors_passes),
        cmocka_unit_test(test_another_user_is_refused_on_both_sides),
    };

    use_spy();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
