/* labels: tsan valgrind */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/store/address.h"
#include "core/store/codec.h"

/* The message as it lies on the wire, in memory of exactly its size, so that a
 * sanitizer sees a read past its end. */
static uint8_t *wire(const oriel_message *message, size_t *size_p)
{
    uint8_t *bytes = malloc(ORIEL_MESSAGE_HEADER + message->key_len + message->value_len);

    assert_non_null(bytes);
    assert_int_equal(oriel_message_encode(message, bytes), ORIEL_OK);
    if (message->key_len > 0)
        memcpy(bytes + ORIEL_MESSAGE_HEADER, message->key, message->key_len);
    if (message->value_len > 0)
        memcpy(bytes + ORIEL_MESSAGE_HEADER + message->key_len, message->value, message->value_len);
    *size_p = ORIEL_MESSAGE_HEADER + message->key_len + message->value_len;
    return bytes;
}

static void assert_round_trip(const oriel_message *message)
{
    oriel_message back;
    size_t size, used;
    uint8_t *bytes = wire(message, &size);

    assert_int_equal(oriel_message_decode(bytes, size, &back, &used), ORIEL_OK);
    assert_int_equal(used, size);
    assert_int_equal(back.op, message->op);
    assert_int_equal(back.answer, message->answer);
    assert_int_equal(back.timeout_ms, message->timeout_ms);
    assert_int_equal(back.key_len, message->key_len);
    assert_int_equal(back.value_len, message->value_len);
    if (message->key_len > 0)
        assert_memory_equal(back.key, message->key, message->key_len);
    if (message->value_len > 0)
        assert_memory_equal(back.value, message->value, message->value_len);
    free(bytes);
}

static const oriel_message a_set = {.op = ORIEL_MESSAGE_SET,
                                    .key = "key",
                                    .key_len = 3,
                                    .value = (const uint8_t *)"v",
                                    .value_len = 1};
static const oriel_message a_get = {
    .op = ORIEL_MESSAGE_GET, .key = "key", .key_len = 3, .timeout_ms = 0x89abcdef};
static const oriel_message a_reply = {
    .op = ORIEL_MESSAGE_REPLY, .value = (const uint8_t *)"value", .value_len = 5};

static void test_messages_come_back_as_they_went(void **state)
{
    static uint8_t big[ORIEL_MESSAGE_PAYLOAD_MAX];
    static char long_key[ORIEL_MESSAGE_KEY_MAX];
    oriel_message message = a_set;

    (void)state;
    memset(long_key, 'k', sizeof(long_key));
    assert_round_trip(&a_set);
    assert_round_trip(&a_get);
    assert_round_trip(&a_reply);
    message.value_len = 0;
    assert_round_trip(&message);
    message.key = long_key;
    message.key_len = sizeof(long_key);
    message.value = big;
    message.value_len = sizeof(big) - sizeof(long_key);
    assert_round_trip(&message);
    for (int answer = 0; answer < ORIEL_ANSWER_COUNT; answer++)
        assert_round_trip(&(oriel_message){.op = ORIEL_MESSAGE_REPLY, .answer = answer});
}

static void test_a_message_is_little_endian(void **state)
{
    static const uint8_t expected[] = {3,    0,    0,    0,    2,   0,   3,  0,
                                       0xef, 0xcd, 0xab, 0x89, 'k', 'e', 'y'};
    size_t size;
    uint8_t *bytes = wire(&a_get, &size);

    (void)state;
    assert_int_equal(size, sizeof(expected));
    assert_memory_equal(bytes, expected, size);
    free(bytes);
}

/* At every shorter length the decoder asks for more and says how much. */
static void test_a_truncated_message_is_in_progress(void **state)
{
    const oriel_message *messages[] = {&a_set, &a_get, &a_reply};

    (void)state;
    for (int i = 0; i < 3; i++) {
        size_t size, need;
        uint8_t *bytes = wire(messages[i], &size);

        for (size_t len = 0; len < size; len++) {
            oriel_message message;
            uint8_t *cut = malloc(len + 1);

            memcpy(cut, bytes, len);
            cut = realloc(cut, len > 0 ? len : 1);
            assert_int_equal(oriel_message_decode(cut, len, &message, &need), ORIEL_IN_PROGRESS);
            assert_int_equal(need, len < ORIEL_MESSAGE_HEADER ? ORIEL_MESSAGE_HEADER : size);
            free(cut);
        }
        free(bytes);
    }
}

static void put_u32(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(x >> 8 * i);
}

/* The header alone decides: nobody waits for 4 GiB that will not come. */
static void test_an_over_long_length_is_refused_from_the_header(void **state)
{
    static const uint32_t lengths[] = {ORIEL_MESSAGE_PAYLOAD_MAX + 1, 1u << 24, 1u << 31,
                                       UINT32_MAX};
    uint8_t header[ORIEL_MESSAGE_HEADER];
    oriel_message message;
    size_t need;

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        assert_int_equal(oriel_message_encode(&a_set, header), ORIEL_OK);
        put_u32(header, lengths[i]);
        assert_int_equal(oriel_message_decode(header, sizeof(header), &message, &need),
                         ORIEL_ERR_INVALID);
    }
}

static oriel_status decode_changed(const oriel_message *message, size_t at, uint8_t value)
{
    oriel_message back;
    size_t size, need;
    uint8_t *bytes = wire(message, &size);
    oriel_status st;

    bytes[at] = value;
    st = oriel_message_decode(bytes, size, &back, &need);
    free(bytes);
    return st;
}

static void test_a_bad_field_is_refused(void **state)
{
    (void)state;
    assert_int_equal(decode_changed(&a_set, 4, 0), ORIEL_ERR_INVALID);    /* no operation */
    assert_int_equal(decode_changed(&a_set, 4, 4), ORIEL_ERR_INVALID);    /* unknown */
    assert_int_equal(decode_changed(&a_set, 4, 2), ORIEL_ERR_INVALID);    /* get with a value */
    assert_int_equal(decode_changed(&a_set, 5, 1), ORIEL_ERR_INVALID);    /* request with answer */
    assert_int_equal(decode_changed(&a_set, 6, 0), ORIEL_ERR_INVALID);    /* no key */
    assert_int_equal(decode_changed(&a_set, 6, 5), ORIEL_ERR_INVALID);    /* key beyond the end */
    assert_int_equal(decode_changed(&a_set, 8, 1), ORIEL_ERR_INVALID);    /* set with a timeout */
    assert_int_equal(decode_changed(&a_set, 13, 0), ORIEL_ERR_INVALID);   /* zero in the key */
    assert_int_equal(decode_changed(&a_reply, 5, 1), ORIEL_ERR_INVALID);  /* failure with a value */
    assert_int_equal(decode_changed(&a_reply, 5, 99), ORIEL_ERR_INVALID); /* unknown answer */
    assert_int_equal(decode_changed(&a_reply, 6, 2), ORIEL_ERR_INVALID);  /* reply with a key */
}

static void test_what_would_be_refused_is_not_sent(void **state)
{
    uint8_t header[ORIEL_MESSAGE_HEADER];
    oriel_message message = a_set;

    (void)state;
    message.value_len = ORIEL_MESSAGE_PAYLOAD_MAX - message.key_len + 1;
    assert_int_equal(oriel_message_encode(&message, header), ORIEL_ERR_INVALID);
    message.value_len = SIZE_MAX;
    assert_int_equal(oriel_message_encode(&message, header), ORIEL_ERR_INVALID);
    message = a_set;
    message.key_len = 0;
    assert_int_equal(oriel_message_encode(&message, header), ORIEL_ERR_INVALID);
    message.key_len = ORIEL_MESSAGE_KEY_MAX + 1;
    assert_int_equal(oriel_message_encode(&message, header), ORIEL_ERR_INVALID);
}

static void test_the_handshake_comes_back_as_it_went(void **state)
{
    uint8_t nonce[ORIEL_NONCE_BYTES], mac[ORIEL_SHA256_BYTES];
    uint8_t hello[ORIEL_HELLO_BYTES], proof[ORIEL_PROOF_BYTES], verdict[ORIEL_VERDICT_BYTES];
    const uint8_t *nonce_back, *mac_back;

    (void)state;
    memset(nonce, 0xa5, sizeof(nonce));
    memset(mac, 0x5a, sizeof(mac));
    oriel_hello_encode(nonce, hello);
    oriel_proof_encode(nonce, mac, proof);
    oriel_verdict_encode(mac, verdict);

    assert_int_equal(oriel_hello_decode(hello, sizeof(hello), &nonce_back), ORIEL_OK);
    assert_memory_equal(nonce_back, nonce, sizeof(nonce));
    assert_int_equal(oriel_proof_decode(proof, sizeof(proof), &nonce_back, &mac_back), ORIEL_OK);
    assert_memory_equal(nonce_back, nonce, sizeof(nonce));
    assert_memory_equal(mac_back, mac, sizeof(mac));
    assert_int_equal(oriel_verdict_decode(verdict, sizeof(verdict), &mac_back), ORIEL_OK);
    assert_memory_equal(mac_back, mac, sizeof(mac));

    for (size_t len = 0; len < sizeof(hello); len++)
        assert_int_equal(oriel_hello_decode(hello, len, &nonce_back), ORIEL_IN_PROGRESS);
    for (size_t len = 0; len < sizeof(proof); len++)
        assert_int_equal(oriel_proof_decode(proof, len, &nonce_back, &mac_back), ORIEL_IN_PROGRESS);
    for (size_t len = 0; len < sizeof(verdict); len++)
        assert_int_equal(oriel_verdict_decode(verdict, len, &mac_back), ORIEL_IN_PROGRESS);
}

static void test_a_stranger_is_refused_at_his_first_wrong_byte(void **state)
{
    const uint8_t *nonce, *mac;
    uint8_t verdict[ORIEL_VERDICT_BYTES];

    (void)state;
    assert_int_equal(oriel_proof_decode((const uint8_t *)"G", 1, &nonce, &mac), ORIEL_ERR_INVALID);
    assert_int_equal(oriel_proof_decode((const uint8_t *)"oriel-s2", 8, &nonce, &mac),
                     ORIEL_ERR_INVALID);
    assert_int_equal(oriel_hello_decode((const uint8_t *)"orielX", 6, &nonce), ORIEL_ERR_INVALID);
    oriel_verdict_encode(NULL, verdict);
    assert_int_equal(oriel_verdict_decode(verdict, sizeof(verdict), &mac), ORIEL_ERR_AUTH);
    verdict[0] = 2;
    assert_int_equal(oriel_verdict_decode(verdict, 1, &mac), ORIEL_ERR_INVALID);
}

/* Secret, role and each nonce: whatever differs, the proof differs. */
static void test_a_proof_depends_on_all_it_should(void **state)
{
    uint8_t a[ORIEL_NONCE_BYTES] = {1}, b[ORIEL_NONCE_BYTES] = {2};
    uint8_t mac[6][ORIEL_SHA256_BYTES];

    (void)state;
    oriel_handshake_mac("secret", 'C', a, b, mac[0]);
    oriel_handshake_mac("secret", 'S', a, b, mac[1]);
    oriel_handshake_mac("secret", 'C', b, a, mac[2]);
    oriel_handshake_mac("secret", 'C', a, a, mac[3]);
    oriel_handshake_mac("Secret", 'C', a, b, mac[4]);
    oriel_handshake_mac("", 'C', a, b, mac[5]);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(mac[i], mac[j], ORIEL_SHA256_BYTES);
}

static void test_addresses_are_read_and_written(void **state)
{
    static const struct {
        const char *text, *host, *again;
        int is_unix;
        unsigned port;
    } cases[] = {
        {"unix:@oriel-1", "oriel-1", "unix:@oriel-1", 1, 0},
        {"unix:@a:b", "a:b", "unix:@a:b", 1, 0},
        {"node7:29500", "node7", "node7:29500", 0, 29500},
        {"127.0.0.1:0", "127.0.0.1", "127.0.0.1:0", 0, 0},
        {":65535", "127.0.0.1", "127.0.0.1:65535", 0, 65535},
        {"[::1]:80", "::1", "[::1]:80", 0, 80},
    };
    oriel_address address;
    char text[ORIEL_ADDRESS_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(oriel_address_parse(cases[i].text, &address), ORIEL_OK);
        assert_int_equal(address.is_unix, cases[i].is_unix);
        assert_string_equal(address.host, cases[i].host);
        assert_int_equal(address.port, cases[i].port);
        oriel_address_format(&address, text);
        assert_string_equal(text, cases[i].again);
    }
}

static void test_a_bad_address_is_refused(void **state)
{
    static const char *const bad[] = {
        "",       "host",      "unix:",      "unix:@",     "unix:/tmp/x",   "host:",
        "host:x", "host:-1",   "host:65536", "host:99999", "host: 1",       "::1:80",
        "[]:1",   "[unix]:80", "[::1]",      "host:1:2",   "host:000000080"};
    char long_text[400];
    oriel_address address;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(oriel_address_parse(bad[i], &address), ORIEL_ERR_INVALID);
    assert_int_equal(oriel_address_parse(NULL, &address), ORIEL_ERR_INVALID);

    memset(long_text, 'h', sizeof(long_text));
    memcpy(long_text + sizeof(long_text) - 3, ":1", 3);
    assert_int_equal(oriel_address_parse(long_text, &address), ORIEL_ERR_INVALID);
    memcpy(long_text, "unix:@", 6);
    long_text[6 + 107] = '\0';
    assert_int_equal(oriel_address_parse(long_text, &address), ORIEL_OK);
    memcpy(long_text + 6 + 107, "h", 2);
    assert_int_equal(oriel_address_parse(long_text, &address), ORIEL_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_come_back_as_they_went),
        cmocka_unit_test(test_a_message_is_little_endian),
        cmocka_unit_test(test_a_truncated_message_is_in_progress),
        cmocka_unit_test(test_an_over_long_length_is_refused_from_the_header),
        cmocka_unit_test(test_a_bad_field_is_refused),
        cmocka_unit_test(test_what_would_be_refused_is_not_sent),
        cmocka_unit_test(test_the_handshake_comes_back_as_it_went),
        cmocka_unit_test(test_a_stranger_is_refused_at_his_first_wrong_byte),
        cmocka_unit_test(test_a_proof_depends_on_all_it_should),
        cmocka_unit_test(test_addresses_are_read_and_written),
        cmocka_unit_test(test_a_bad_address_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
