/* labels: tsan valgrind */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/sha256.h"

static void assert_digest(const uint8_t digest[ORIEL_SHA256_BYTES], const char *expected)
{
    char hex[2 * ORIEL_SHA256_BYTES + 1];

    for (int i = 0; i < ORIEL_SHA256_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(hex, expected);
}

static void hash(const void *data, size_t len, uint8_t digest[ORIEL_SHA256_BYTES])
{
    oriel_sha256 sha;

    oriel_sha256_begin(&sha);
    oriel_sha256_update(&sha, data, len);
    oriel_sha256_end(&sha, digest);
}

/* RFC 6234, section 8.5, and FIPS 180-2, appendix B. */
static void test_sha256_gives_the_published_digests(void **state)
{
    static const struct {
        const char *text, *digest;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
         "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    uint8_t digest[ORIEL_SHA256_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        hash(cases[i].text, strlen(cases[i].text), digest);
        assert_digest(digest, cases[i].digest);
    }
}

static void test_sha256_takes_a_million_letters_in_odd_pieces(void **state)
{
    uint8_t digest[ORIEL_SHA256_BYTES];
    oriel_sha256 sha;
    char piece[1000];

    (void)state;
    memset(piece, 'a', sizeof(piece));
    oriel_sha256_begin(&sha);
    for (size_t left = 1000000, n = 1; left > 0; left -= n) {
        n = n % 997 + 1;
        if (n > left)
            n = left;
        oriel_sha256_update(&sha, piece, n);
    }
    oriel_sha256_end(&sha, digest);
    assert_digest(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* The padding has a case for each length modulo a block. */
static void test_sha256_is_the_same_however_the_text_is_cut(void **state)
{
    uint8_t text[2 * ORIEL_SHA256_BLOCK + 5];
    uint8_t whole[ORIEL_SHA256_BYTES], cut[ORIEL_SHA256_BYTES];
    oriel_sha256 sha;

    (void)state;
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (uint8_t)(7 * i);
    for (size_t len = 0; len <= sizeof(text); len++) {
        hash(text, len, whole);
        for (size_t at = 0; at <= len; at += 13) {
            oriel_sha256_begin(&sha);
            oriel_sha256_update(&sha, text, at);
            oriel_sha256_update(&sha, text + at, len - at);
            oriel_sha256_end(&sha, cut);
            assert_memory_equal(whole, cut, sizeof(whole));
        }
    }
}

static void fill(uint8_t *bytes, size_t len, int value)
{
    memset(bytes, value, len);
}

/* RFC 4231, test cases 1 to 4, 6 and 7; 5 only truncates its result. */
static void test_hmac_gives_the_digests_of_rfc_4231(void **state)
{
    static const char big_key[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    static const char big_both[] =
        "This is a test using a larger than block-size key and a larger than block-size data. "
        "The key needs to be hashed before being used by the HMAC algorithm.";
    uint8_t key[131], data[50], mac[ORIEL_SHA256_BYTES];

    (void)state;
    fill(key, 20, 0x0b);
    oriel_hmac_sha256(key, 20, "Hi There", 8, mac);
    assert_digest(mac, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");

    oriel_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, mac);
    assert_digest(mac, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");

    fill(key, 20, 0xaa);
    fill(data, 50, 0xdd);
    oriel_hmac_sha256(key, 20, data, 50, mac);
    assert_digest(mac, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");

    for (int i = 0; i < 25; i++)
        key[i] = (uint8_t)(i + 1);
    fill(data, 50, 0xcd);
    oriel_hmac_sha256(key, 25, data, 50, mac);
    assert_digest(mac, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");

    fill(key, 131, 0xaa);
    oriel_hmac_sha256(key, 131, big_key, strlen(big_key), mac);
    assert_digest(mac, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    oriel_hmac_sha256(key, 131, big_both, strlen(big_both), mac);
    assert_digest(mac, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

static void test_hmac_takes_an_empty_key(void **state)
{
    uint8_t mac[ORIEL_SHA256_BYTES];

    (void)state;
    oriel_hmac_sha256(NULL, 0, "", 0, mac);
    assert_digest(mac, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

static void test_digests_differ_when_any_bit_does(void **state)
{
    uint8_t a[ORIEL_SHA256_BYTES], b[ORIEL_SHA256_BYTES];

    (void)state;
    fill(a, sizeof(a), 0x5a);
    memcpy(b, a, sizeof(a));
    assert_true(oriel_digest_equal(a, b));
    for (int bit = 0; bit < 8 * ORIEL_SHA256_BYTES; bit++) {
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(oriel_digest_equal(a, b));
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256_gives_the_published_digests),
        cmocka_unit_test(test_sha256_takes_a_million_letters_in_odd_pieces),
        cmocka_unit_test(test_sha256_is_the_same_however_the_text_is_cut),
        cmocka_unit_test(test_hmac_gives_the_digests_of_rfc_4231),
        cmocka_unit_test(test_hmac_takes_an_empty_key),
        cmocka_unit_test(test_digests_differ_when_any_bit_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
