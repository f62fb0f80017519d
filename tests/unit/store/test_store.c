/* labels: tsan valgrind */
/* The store and the processes of a job: what set and get promise. */
#include "unit/store/store_support.h"

#include "core/store/table.h"

static void test_a_value_comes_back(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        oriel_store_server *server = start(kinds[k]);
        oriel_store a = join(server), b = join(server);
        char value[8] = "????";
        size_t len = 99;

        assert_int_equal(a.set(a.ctx, "key", "value", 5), ORIEL_OK);
        assert_int_equal(b.get(b.ctx, "key", 0, value, sizeof(value), &len), ORIEL_OK);
        assert_int_equal(len, 5);
        assert_memory_equal(value, "value", 5);

        /* Room for less: the beginning and the whole length. */
        memset(value, '?', sizeof(value));
        assert_int_equal(b.get(b.ctx, "key", 0, value, 2, &len), ORIEL_OK);
        assert_int_equal(len, 5);
        assert_memory_equal(value, "va?", 3);
        assert_int_equal(b.get(b.ctx, "key", 0, NULL, 0, &len), ORIEL_OK);
        assert_int_equal(len, 5);

        assert_int_equal(a.set(a.ctx, "empty", NULL, 0), ORIEL_OK);
        assert_int_equal(b.get(b.ctx, "empty", 0, value, sizeof(value), &len), ORIEL_OK);
        assert_int_equal(len, 0);
        oriel_store_disconnect(&a);
        oriel_store_disconnect(&b);
        oriel_store_server_destroy(server, 0);
    }
}

static void test_a_key_keeps_its_first_value(void **state)
{
    oriel_store_server *server = start(NULL);
    oriel_store store = join(server);
    char value[8];
    size_t len;

    (void)state;
    assert_int_equal(store.set(store.ctx, "key", "one", 3), ORIEL_OK);
    assert_int_equal(store.set(store.ctx, "key", "one", 3), ORIEL_OK);
    assert_int_equal(store.set(store.ctx, "key", "two", 3), ORIEL_ERR_MISMATCH);
    assert_non_null(strstr(oriel_last_error(), "\"key\""));
    assert_non_null(strstr(oriel_last_error(), oriel_store_server_address(server)));
    assert_int_equal(store.set(store.ctx, "key", "on", 2), ORIEL_ERR_MISMATCH);
    assert_int_equal(store.get(store.ctx, "key", 0, value, sizeof(value), &len), ORIEL_OK);
    assert_memory_equal(value, "one", 3);
    oriel_store_disconnect(&store);
    oriel_store_server_destroy(server, 0);
}

static void test_values_of_every_size_come_back(void **state)
{
    oriel_store_server *server = start("127.0.0.1:0");
    oriel_store store = join(server);
    const size_t most = ORIEL_MESSAGE_PAYLOAD_MAX - 4;
    unsigned char *out = malloc(most + 1), *in = malloc(most);
    size_t sizes[] = {1, 499, 500, 501, 65536, 300000, most};
    size_t len;

    (void)state;
    for (size_t i = 0; i <= most; i++)
        out[i] = (unsigned char)(i * 31 >> 3);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char key[5];

        snprintf(key, sizeof(key), "key%zu", i);
        assert_int_equal(store.set(store.ctx, key, out, sizes[i]), ORIEL_OK);
        assert_int_equal(store.get(store.ctx, key, 0, in, most, &len), ORIEL_OK);
        assert_int_equal(len, sizes[i]);
        assert_memory_equal(in, out, len);
    }
    assert_int_equal(store.set(store.ctx, "long", out, most + 1), ORIEL_ERR_INVALID);
    free(out);
    free(in);
    oriel_store_disconnect(&store);
    oriel_store_server_destroy(server, 0);
}

static void test_bad_arguments_are_refused(void **state)
{
    oriel_store_server *server = start(NULL), *other = NULL;
    oriel_store store = join(server), none = ORIEL_STORE_INIT;
    char long_key[ORIEL_MESSAGE_KEY_MAX + 2];
    size_t len;

    (void)state;
    memset(long_key, 'k', sizeof(long_key));
    long_key[sizeof(long_key) - 1] = '\0';
    assert_int_equal(store.set(store.ctx, NULL, "", 0), ORIEL_ERR_INVALID);
    assert_int_equal(store.set(store.ctx, "", "", 0), ORIEL_ERR_INVALID);
    assert_int_equal(store.set(store.ctx, long_key, "", 0), ORIEL_ERR_INVALID);
    assert_int_equal(store.set(store.ctx, "k", NULL, 1), ORIEL_ERR_INVALID);
    assert_int_equal(store.set(store.ctx, "k", "", SIZE_MAX), ORIEL_ERR_INVALID);
    assert_int_equal(store.get(store.ctx, NULL, 0, NULL, 0, &len), ORIEL_ERR_INVALID);
    assert_int_equal(store.get(store.ctx, "k", 0, NULL, 1, &len), ORIEL_ERR_INVALID);
    assert_int_equal(store.get(store.ctx, "k", 0, NULL, 0, NULL), ORIEL_ERR_INVALID);
    oriel_store_disconnect(&store);
    assert_null(store.ctx);
    oriel_store_disconnect(&store);
    oriel_store_disconnect(NULL);

    assert_int_equal(oriel_store_connect(NULL, "s", 1, &none), ORIEL_ERR_INVALID);
    assert_int_equal(oriel_store_connect("nonsense", "s", 1, &none), ORIEL_ERR_INVALID);
    assert_int_equal(oriel_store_connect("127.0.0.1:0", "s", 1, &none), ORIEL_ERR_INVALID);
    assert_int_equal(oriel_store_connect("unix:@x", "s", 1, NULL), ORIEL_ERR_INVALID);
    assert_int_equal(oriel_store_server_create("nonsense", "s", &other), ORIEL_ERR_INVALID);
    assert_int_equal(oriel_store_server_create(NULL, "s", NULL), ORIEL_ERR_INVALID);
    assert_int_equal(oriel_store_server_create(oriel_store_server_address(server), secret, &other),
                     ORIEL_ERR_SYSTEM);
    assert_non_null(strstr(oriel_last_error(), oriel_store_server_address(server)));
    assert_null(other);
    assert_null(none.ctx);
    oriel_store_server_destroy(server, 0);
    oriel_store_server_destroy(NULL, 0);
}

static void test_addresses_are_those_clients_connect_to(void **state)
{
    static const char *const asked[] = {":0", "127.0.0.1:0", "localhost:0", "[::1]:0"};
    static const char *const heads[] = {"127.0.0.1:", "127.0.0.1:", "localhost:", "[::1]:"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        oriel_store_server *server = NULL;
        const char *address;

        if (oriel_store_server_create(asked[i], secret, &server) != ORIEL_OK) {
            assert_int_equal(i, 3); /* a machine without IPv6 */
            print_message("[::1] left out: %s\n", oriel_last_error());
            continue;
        }
        address = oriel_store_server_address(server);
        assert_memory_equal(address, heads[i], strlen(heads[i]));
        assert_true(atoi(address + strlen(heads[i])) > 0);
        assert_serves(server);
        oriel_store_server_destroy(server, 0);
    }
}

static void test_secrets_may_be_empty_on_unix_sockets_alone(void **state)
{
    static const char *const none[] = {NULL, ""};

    (void)state;
    for (int i = 0; i < 2; i++) {
        oriel_store_server *server = NULL;
        oriel_store store = ORIEL_STORE_INIT;

        assert_int_equal(oriel_store_server_create("127.0.0.1:0", none[i], &server),
                         ORIEL_ERR_INVALID);
        assert_non_null(strstr(oriel_last_error(), "ORIEL_SECRET"));
        assert_int_equal(oriel_store_connect("127.0.0.1:1", none[i], 1, &store), ORIEL_ERR_INVALID);
        assert_int_equal(oriel_store_server_create(NULL, none[i], &server), ORIEL_OK);
        assert_int_equal(oriel_store_connect(oriel_store_server_address(server), none[1 - i],
                                             patience_s, &store),
                         ORIEL_OK);
        oriel_store_disconnect(&store);
        oriel_store_server_destroy(server, 0);
    }
}

/* The get is in the socket before the set is sent, so the server has parked it
 * when it answers an unrelated set. */
static void test_a_parked_get_is_answered_by_the_set(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        oriel_store_server *server = start(kinds[k]);
        oriel_store store = join(server);
        int one = raw_join(server), two = raw_join(server);
        struct pollfd ready = {.fd = one, .events = POLLIN};

        raw_get(one, "late", 60000);
        raw_get(two, "late", 60000);
        assert_int_equal(store.set(store.ctx, "other", "x", 1), ORIEL_OK);
        assert_int_equal(poll(&ready, 1, 0), 0);
        assert_int_equal(store.set(store.ctx, "late", "come", 4), ORIEL_OK);
        assert_reply(one, ORIEL_ANSWER_OK, "come");
        assert_reply(two, ORIEL_ANSWER_OK, "come");
        close(one);
        close(two);
        oriel_store_disconnect(&store);
        oriel_store_server_destroy(server, 0);
    }
}

struct getter {
    pthread_t thread;
    oriel_store store;
    oriel_status st;
    char value[8];
    size_t len;
};

static void *get_in_thread(void *arg)
{
    struct getter *getter = arg;

    getter->st = getter->store.get(getter->store.ctx, "key", patience_s, getter->value,
                                   sizeof(getter->value), &getter->len);
    return NULL;
}

/* One client, several threads: those that wait do not hold up the one that sets. */
static void test_threads_of_one_client_do_not_block_each_other(void **state)
{
    enum { THREADS = 4 };
    oriel_store_server *server = start("127.0.0.1:0");
    oriel_store store = join(server);
    struct getter getters[THREADS] = {0};

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        getters[i].store = store;
        assert_int_equal(pthread_create(&getters[i].thread, NULL, get_in_thread, &getters[i]), 0);
    }
    assert_int_equal(store.set(store.ctx, "other", "x", 1), ORIEL_OK);
    assert_int_equal(store.set(store.ctx, "key", "value", 5), ORIEL_OK);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(getters[i].thread, NULL);
        assert_int_equal(getters[i].st, ORIEL_OK);
        assert_int_equal(getters[i].len, 5);
        assert_memory_equal(getters[i].value, "value", 5);
    }
    oriel_store_disconnect(&store);
    oriel_store_server_destroy(server, 0);
}

static void test_a_get_gives_up_at_its_timeout(void **state)
{
    oriel_store_server *server = start(NULL);
    oriel_store store = join(server);
    size_t len = 77;
    double before = oriel_now();

    (void)state;
    assert_int_equal(store.get(store.ctx, "never", 0, NULL, 0, &len), ORIEL_ERR_TIMEOUT);
    assert_int_equal(store.get(store.ctx, "never", -1, NULL, 0, &len), ORIEL_ERR_TIMEOUT);
    assert_int_equal(store.get(store.ctx, "never", 0.25, NULL, 0, &len), ORIEL_ERR_TIMEOUT);
    assert_true(oriel_now() - before >= 0.25);
    assert_non_null(strstr(oriel_last_error(), "never"));
    assert_non_null(strstr(oriel_last_error(), "nobody set"));
    assert_int_equal(len, 77);
    /* The connection is as good as before. */
    assert_int_equal(store.set(store.ctx, "never", "", 0), ORIEL_OK);
    assert_int_equal(store.get(store.ctx, "never", 0, NULL, 0, &len), ORIEL_OK);
    oriel_store_disconnect(&store);
    oriel_store_server_destroy(server, 0);
}

static void test_a_missing_server_is_an_error_that_names_it(void **state)
{
    oriel_store store = ORIEL_STORE_INIT;
    double before = oriel_now();

    (void)state;
    assert_int_equal(oriel_store_connect("unix:@oriel-nobody", NULL, 0.2, &store),
                     ORIEL_ERR_TIMEOUT);
    assert_true(oriel_now() - before >= 0.2);
    assert_non_null(strstr(oriel_last_error(), "unix:@oriel-nobody"));
    assert_non_null(strstr(oriel_last_error(), "nobody listens"));
    assert_int_equal(oriel_store_connect("127.0.0.1:1", secret, 0.2, &store), ORIEL_ERR_TIMEOUT);
    assert_non_null(strstr(oriel_last_error(), "127.0.0.1:1"));
    assert_int_equal(oriel_store_connect("no-such-host.invalid:1", secret, 0, &store),
                     ORIEL_ERR_TIMEOUT);
    assert_non_null(strstr(oriel_last_error(), "no-such-host.invalid"));
}

static const char *late_address(void)
{
    static _Thread_local char text[64];

    snprintf(text, sizeof(text), "unix:@oriel-test-late-%d", (int)getpid());
    return text;
}

static void *connect_in_thread(void *arg)
{
    struct getter *getter = arg;

    getter->st = oriel_store_connect(late_address(), secret, patience_s, &getter->store);
    return NULL;
}

static void test_a_client_waits_for_a_late_server(void **state)
{
    struct getter getter = {0};
    double deadline = oriel_now() + patience_s;
    oriel_store_server *server;

    (void)state;
    atomic_store(&connect_fails, 0);
    assert_int_equal(pthread_create(&getter.thread, NULL, connect_in_thread, &getter), 0);
    while (atomic_load(&connect_fails) == 0 && oriel_now() < deadline)
        oriel_relax(1);
    assert_true(atomic_load(&connect_fails) > 0);
    server = start(late_address());
    pthread_join(getter.thread, NULL);
    assert_int_equal(getter.st, ORIEL_OK);
    oriel_store_disconnect(&getter.store);
    oriel_store_server_destroy(server, 0);
}

static void test_a_server_that_ends_fails_the_waiting(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        oriel_store_server *server = start(kinds[k]);
        struct getter getter = {.store = join(server)};
        int raw = raw_join(server);
        double before;

        raw_get(raw, "never", 600000);
        assert_int_equal(pthread_create(&getter.thread, NULL, get_in_thread, &getter), 0);
        assert_serves(server);
        before = oriel_now();
        oriel_store_server_destroy(server, 0);
        assert_closed(raw);
        pthread_join(getter.thread, NULL);
        assert_int_equal(getter.st, ORIEL_ERR_PEER);

        /* It was there: a caller that comes again need not wait for it. */
        assert_int_equal(getter.store.set(getter.store.ctx, "key", "", 0), ORIEL_ERR_PEER);
        assert_true(oriel_now() - before < patience_s);
        oriel_store_disconnect(&getter.store);
    }
}

static void *destroy_in_thread(void *arg)
{
    oriel_store_server_destroy(arg, patience_s);
    return NULL;
}

static void test_a_lingering_server_serves_until_all_have_left(void **state)
{
    oriel_store_server *server = start(NULL);
    oriel_store store = join(server);
    pthread_t thread;
    size_t len;
    double before = oriel_now();

    (void)state;
    assert_int_equal(store.set(store.ctx, "key", "", 0), ORIEL_OK);
    assert_int_equal(pthread_create(&thread, NULL, destroy_in_thread, server), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(store.get(store.ctx, "key", 0, NULL, 0, &len), ORIEL_OK);
    oriel_store_disconnect(&store);
    pthread_join(thread, NULL);
    assert_true(oriel_now() - before < patience_s);
}

/* It comes for the next store at this address, which is not there as long as this one is. */
static void test_a_server_that_ends_sends_away_those_that_wait_for_a_key(void **state)
{
    oriel_store_server *server = start(NULL);
    oriel_store store = join(server);
    pthread_t thread;
    size_t len;
    double before = oriel_now();

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, destroy_in_thread, server), 0);
    assert_int_equal(store.get(store.ctx, "never", 2 * patience_s, NULL, 0, &len), ORIEL_ERR_PEER);
    pthread_join(thread, NULL);
    assert_true(oriel_now() - before < patience_s);
    oriel_store_disconnect(&store);
}

static void test_a_lingering_server_has_a_deadline(void **state)
{
    oriel_store_server *server = start(NULL);
    oriel_store store = join(server);
    double before = oriel_now();

    (void)state;
    oriel_store_server_destroy(server, 0.2);
    assert_true(oriel_now() - before >= 0.2);
    assert_true(oriel_now() - before < patience_s);
    oriel_store_disconnect(&store);
}

static void test_a_table_takes_what_it_may_hold(void **state)
{
    oriel_store_table *table = oriel_store_table_create(1000);
    static const uint8_t bytes[1000];
    oriel_message request = {.key = "a", .key_len = 1, .value = bytes, .value_len = 900};
    const uint8_t *value;
    size_t len;

    (void)state;
    assert_int_equal(oriel_store_table_set(table, &request), ORIEL_ANSWER_OK);
    request.key = "b";
    assert_int_equal(oriel_store_table_set(table, &request), ORIEL_ANSWER_FULL);
    assert_false(oriel_store_table_get(table, &request, &value, &len));
    request.key = "a";
    assert_int_equal(oriel_store_table_set(table, &request), ORIEL_ANSWER_OK);
    assert_true(oriel_store_table_get(table, &request, &value, &len));
    assert_int_equal(len, 900);
    oriel_store_table_destroy(table);
    oriel_store_table_destroy(NULL);
}

static void test_a_full_store_says_so_and_keeps_what_it_has(void **state)
{
    enum { MIB = 1 << 20, LIMIT_MIB = 64 };
    oriel_store_server *server = start(NULL);
    oriel_store store = join(server);
    char *value = calloc(1, MIB);
    oriel_status st = ORIEL_OK;
    size_t len;
    char key[16];
    int n = 0;

    (void)state;
    for (; st == ORIEL_OK && n <= LIMIT_MIB; n++) {
        snprintf(key, sizeof(key), "key%d", n);
        st = store.set(store.ctx, key, value, MIB - 64);
    }
    assert_int_equal(st, ORIEL_ERR_NO_RESOURCE);
    assert_int_equal(store.get(store.ctx, key, 0, NULL, 0, &len), ORIEL_ERR_TIMEOUT);
    assert_int_equal(store.get(store.ctx, "key0", 0, value, MIB, &len), ORIEL_OK);
    assert_int_equal(len, MIB - 64);
    free(value);
    oriel_store_disconnect(&store);
    oriel_store_server_destroy(server, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_value_comes_back),
        cmocka_unit_test(test_a_key_keeps_its_first_value),
        cmocka_unit_test(test_values_of_every_size_come_back),
        cmocka_unit_test(test_bad_arguments_are_refused),
        cmocka_unit_test(test_addresses_are_those_clients_connect_to),
        cmocka_unit_test(test_secrets_may_be_empty_on_unix_sockets_alone),
        cmocka_unit_test(test_a_parked_get_is_answered_by_the_set),
        cmocka_unit_test(test_threads_of_one_client_do_not_block_each_other),
        cmocka_unit_test(test_a_get_gives_up_at_its_timeout),
        cmocka_unit_test(test_a_missing_server_is_an_error_that_names_it),
        cmocka_unit_test(test_a_client_waits_for_a_late_server),
        cmocka_unit_test(test_a_server_that_ends_fails_the_waiting),
        cmocka_unit_test(test_a_lingering_server_serves_until_all_have_left),
        cmocka_unit_test(test_a_server_that_ends_sends_away_those_that_wait_for_a_key),
        cmocka_unit_test(test_a_lingering_server_has_a_deadline),
        cmocka_unit_test(test_a_table_takes_what_it_may_hold),
        cmocka_unit_test(test_a_full_store_says_so_and_keeps_what_it_has),
    };

    use_spy();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
