/* labels: tsan valgrind */
/* The store when something fails: a server that misbehaves, and every single
 * system call and allocation in turn. */
#include "unit/store/store_support.h"

#include <dirent.h>

/* ---- a server that misbehaves ------------------------------------------------ */

enum script { SPEAKS_HTTP, KNOWS_NO_SECRET, NEVER_ANSWERS, ANSWERS_4GIB, ANSWERS_A_REQUEST };

struct impostor {
    pthread_t thread;
    enum script script;
    int listener;
    char address[ORIEL_ADDRESS_TEXT];
};

static int listen_on(const char *text)
{
    oriel_endpoint endpoints[ORIEL_ADDRESS_ENDPOINTS];
    oriel_address address;
    int n, fd;

    assert_int_equal(oriel_address_parse(text, &address), ORIEL_OK);
    assert_int_equal(oriel_address_resolve(&address, endpoints, &n), ORIEL_OK);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&endpoints[0].addr, endpoints[0].len), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* In a thread, where cmocka cannot fail: what goes wrong shows at the client. */
static void shake_hands(int fd, const char *with)
{
    uint8_t nonce[ORIEL_NONCE_BYTES] = {3}, mac[ORIEL_SHA256_BYTES];
    uint8_t hello[ORIEL_HELLO_BYTES], proof[ORIEL_PROOF_BYTES], verdict[ORIEL_VERDICT_BYTES];
    const uint8_t *client_nonce = NULL, *client_mac;

    oriel_hello_encode(nonce, hello);
    (void)!send(fd, hello, sizeof(hello), MSG_NOSIGNAL);
    if (raw_receive(fd, proof, sizeof(proof)) != sizeof(proof) ||
        oriel_proof_decode(proof, sizeof(proof), &client_nonce, &client_mac) != ORIEL_OK)
        return;
    oriel_handshake_mac(with, 'S', nonce, client_nonce, mac);
    oriel_verdict_encode(mac, verdict);
    (void)!send(fd, verdict, sizeof(verdict), MSG_NOSIGNAL);
}

static void answer(int fd, enum script script)
{
    static const uint8_t huge[ORIEL_MESSAGE_HEADER] = {255, 255, 255, 255, ORIEL_MESSAGE_REPLY};
    static const uint8_t request[] = {1, 0, 0, 0, ORIEL_MESSAGE_GET, 0, 1, 0, 0, 0, 0, 0, 'k'};
    uint8_t asked[ORIEL_MESSAGE_HEADER + 3];

    (void)!raw_receive(fd, asked, sizeof(asked));
    if (script == ANSWERS_4GIB)
        (void)!send(fd, huge, sizeof(huge), MSG_NOSIGNAL);
    if (script == ANSWERS_A_REQUEST)
        (void)!send(fd, request, sizeof(request), MSG_NOSIGNAL);
}

static void *pose(void *arg)
{
    static const char http[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    struct impostor *impostor = arg;
    int fd = accept(impostor->listener, NULL, NULL);
    char rest[16];

    if (impostor->script == SPEAKS_HTTP)
        (void)!send(fd, http, strlen(http), MSG_NOSIGNAL);
    else
        shake_hands(fd, impostor->script == KNOWS_NO_SECRET ? "guess" : secret);
    if (impostor->script >= NEVER_ANSWERS)
        answer(fd, impostor->script);
    (void)!raw_receive(fd, rest, sizeof(rest)); /* until the client leaves */
    close(fd);
    return NULL;
}

static void pose_as(struct impostor *impostor, enum script script)
{
    snprintf(impostor->address, sizeof(impostor->address), "unix:@oriel-test-impostor-%d",
             (int)getpid());
    impostor->script = script;
    impostor->listener = listen_on(impostor->address);
    assert_int_equal(pthread_create(&impostor->thread, NULL, pose, impostor), 0);
}

static void unmask(struct impostor *impostor)
{
    pthread_join(impostor->thread, NULL);
    close(impostor->listener);
}

static void test_an_impostor_is_found_out(void **state)
{
    struct impostor impostor;
    oriel_store store = ORIEL_STORE_INIT;

    (void)state;
    pose_as(&impostor, SPEAKS_HTTP);
    assert_int_equal(oriel_store_connect(impostor.address, secret, patience_s, &store),
                     ORIEL_ERR_INVALID);
    assert_non_null(strstr(oriel_last_error(), impostor.address));
    unmask(&impostor);

    pose_as(&impostor, KNOWS_NO_SECRET);
    assert_int_equal(oriel_store_connect(impostor.address, secret, patience_s, &store),
                     ORIEL_ERR_AUTH);
    assert_non_null(strstr(oriel_last_error(), "ORIEL_SECRET"));
    unmask(&impostor);
    assert_null(store.ctx);
}

static void test_a_bad_answer_is_an_error(void **state)
{
    static const enum script scripts[] = {ANSWERS_4GIB, ANSWERS_A_REQUEST};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct impostor impostor;
        oriel_store store = ORIEL_STORE_INIT;
        size_t len = 77;

        pose_as(&impostor, scripts[i]);
        assert_int_equal(oriel_store_connect(impostor.address, secret, patience_s, &store),
                         ORIEL_OK);
        assert_int_equal(store.get(store.ctx, "key", 1, NULL, 0, &len), ORIEL_ERR_INVALID);
        assert_int_equal(len, 77);
        oriel_store_disconnect(&store);
        unmask(&impostor);
    }
}

/* A server that hangs does not hang its clients. */
static void test_a_client_has_a_deadline_of_its_own(void **state)
{
    struct impostor impostor;
    oriel_store store = ORIEL_STORE_INIT;
    double before;
    size_t len;

    (void)state;
    pose_as(&impostor, NEVER_ANSWERS);
    assert_int_equal(oriel_store_connect(impostor.address, secret, patience_s, &store), ORIEL_OK);
    before = oriel_now();
    assert_int_equal(store.get(store.ctx, "key", 0, NULL, 0, &len), ORIEL_ERR_TIMEOUT);
    assert_in_range((int)(oriel_now() - before), 4, 30);
    assert_non_null(strstr(oriel_last_error(), "did not answer"));
    oriel_store_disconnect(&store);
    unmask(&impostor);
}

static void *connect_in_thread(void *arg)
{
    struct impostor *impostor = arg;
    oriel_store store = ORIEL_STORE_INIT;

    impostor->script = oriel_store_connect(impostor->address, secret, patience_s, &store) == 0;
    oriel_store_disconnect(&store);
    return NULL;
}

/* As when many strangers take the places: the client comes again. */
static void test_a_client_that_is_cut_off_comes_again(void **state)
{
    struct impostor client;
    oriel_store_server *server;
    int listener;

    (void)state;
    snprintf(client.address, sizeof(client.address), "unix:@oriel-test-again-%d", (int)getpid());
    listener = listen_on(client.address);
    assert_int_equal(pthread_create(&client.thread, NULL, connect_in_thread, &client), 0);
    for (int i = 0; i < 3; i++) {
        int fd = accept(listener, NULL, NULL);

        assert_true(fd >= 0);
        close(fd);
    }
    close(listener);
    server = start(client.address);
    pthread_join(client.thread, NULL);
    assert_true(client.script);
    oriel_store_server_destroy(server, 0);
}

/* ---- call number N fails ------------------------------------------------------ */

static _Atomic int calls;
static _Atomic int failing; /* the call that fails, -1: none */

static int fails(int error)
{
    if (atomic_fetch_add(&calls, 1) != atomic_load(&failing))
        return 0;
    errno = error;
    return 1;
}

static void *f_alloc(size_t bytes)
{
    return fails(ENOMEM) ? NULL : oriel_sys_real.alloc(bytes);
}

static int f_socket(int domain, int type, int protocol)
{
    return fails(EMFILE) ? -1 : oriel_sys_real.socket(domain, type, protocol);
}

static int f_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    return fails(EADDRINUSE) ? -1 : oriel_sys_real.bind(fd, addr, len);
}

static int f_listen(int fd, int backlog)
{
    return fails(EADDRINUSE) ? -1 : oriel_sys_real.listen(fd, backlog);
}

static int f_accept(int fd)
{
    return fails(EMFILE) ? -1 : oriel_sys_real.accept(fd);
}

static int f_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    return fails(EHOSTUNREACH) ? -1 : oriel_sys_real.connect(fd, addr, len);
}

static ssize_t f_sendmsg(int fd, const struct msghdr *msg)
{
    return fails(EPIPE) ? -1 : oriel_sys_real.sendmsg(fd, msg);
}

static ssize_t f_recvmsg(int fd, struct msghdr *msg)
{
    return fails(ECONNRESET) ? -1 : oriel_sys_real.recvmsg(fd, msg);
}

static int f_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    return fails(ENOMEM) ? -1 : oriel_sys_real.poll(fds, n, timeout_ms);
}

static int f_eventfd(void)
{
    return fails(EMFILE) ? -1 : oriel_sys_real.eventfd();
}

static int f_thread(pthread_t *thread, void *(*fn)(void *), void *arg)
{
    return fails(EAGAIN) ? -1 : oriel_sys_real.thread(thread, fn, arg);
}

static int f_random(void *buf, size_t bytes)
{
    return fails(EIO) ? -1 : oriel_sys_real.random(buf, bytes);
}

static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

/* The first failure, or ORIEL_OK; nothing is left behind either way. */
static oriel_status run_once(const char *address)
{
    static uint8_t value[600]; /* more than a connection has room for at first */
    oriel_store_server *server = NULL;
    oriel_store store = ORIEL_STORE_INIT;
    size_t len;
    oriel_status st = oriel_store_server_create(address, secret, &server);

    if (st == ORIEL_OK)
        st = oriel_store_connect(oriel_store_server_address(server), secret, 0.5, &store);
    if (st == ORIEL_OK)
        st = store.set(store.ctx, "key", value, sizeof(value));
    if (st == ORIEL_OK)
        st = store.get(store.ctx, "key", 1, value, sizeof(value), &len);
    oriel_store_disconnect(&store);
    oriel_store_server_destroy(server, 0);
    return st;
}

/* How many calls there were, and how many of them made a run fail. */
static int fail_each_call(const char *address, int *failures_p)
{
    int n = 0;

    do {
        atomic_store(&failing, n++);
        atomic_store(&calls, 0);
        if (run_once(address) != ORIEL_OK) {
            ++*failures_p;
            assert_true(strlen(oriel_last_error()) > 0);
        }
    } while (atomic_load(&calls) > atomic_load(&failing) && n < 1000);
    return n;
}

static void test_every_call_may_fail_once(void **state)
{
    int descriptors = count_descriptors();
    oriel_sys sys = oriel_sys_real;
    int failures = 0;

    (void)state;
    sys.alloc = f_alloc;
    sys.socket = f_socket;
    sys.bind = f_bind;
    sys.listen = f_listen;
    sys.accept = f_accept;
    sys.connect = f_connect;
    sys.sendmsg = f_sendmsg;
    sys.recvmsg = f_recvmsg;
    sys.poll = f_poll;
    sys.eventfd = f_eventfd;
    sys.thread = f_thread;
    sys.random = f_random;
    oriel_sys_now = &sys;
    log_capture();
    for (int k = 0; k < KINDS; k++)
        assert_in_range(fail_each_call(kinds[k], &failures), 20, 999);
    (void)log_count("oriel[", 0);
    oriel_sys_now = &oriel_sys_real;
    assert_true(failures > 20);
    assert_int_equal(count_descriptors(), descriptors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_impostor_is_found_out),
        cmocka_unit_test(test_a_bad_answer_is_an_error),
        cmocka_unit_test(test_a_client_has_a_deadline_of_its_own),
        cmocka_unit_test(test_a_client_that_is_cut_off_comes_again),
        cmocka_unit_test(test_every_call_may_fail_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
