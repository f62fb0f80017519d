#include "core/store/codec.h"

#include <string.h>

enum { MAGIC_BYTES = 8 };
/* The last character is the version of everything this file describes. */
static const char magic[MAGIC_BYTES + 1] = "oriel-s1";

static void put_u16(uint8_t *p, uint16_t x)
{
    p[0] = (uint8_t)x;
    p[1] = (uint8_t)(x >> 8);
}

static void put_u32(uint8_t *p, uint32_t x)
{
    put_u16(p, (uint16_t)x);
    put_u16(p + 2, (uint16_t)(x >> 16));
}

static uint16_t take_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t take_u32(const uint8_t *p)
{
    return take_u16(p) | (uint32_t)take_u16(p + 2) << 16;
}

/* One set of rules for both directions: what is refused here can neither be
 * sent nor received. */
static oriel_status message_check(unsigned op, unsigned answer, size_t key_len, size_t value_len,
                                  uint32_t timeout_ms)
{
    int request = op == ORIEL_MESSAGE_SET || op == ORIEL_MESSAGE_GET;

    if (!request && op != ORIEL_MESSAGE_REPLY)
        return oriel_fail(ORIEL_ERR_INVALID, "message with unknown operation %u", op);
    if (request && (key_len == 0 || key_len > ORIEL_MESSAGE_KEY_MAX))
        return oriel_fail(ORIEL_ERR_INVALID,
                          "message with a key of %zu bytes, which must be 1 to %d", key_len,
                          ORIEL_MESSAGE_KEY_MAX);
    if (!request && key_len != 0)
        return oriel_fail(ORIEL_ERR_INVALID, "reply with a key of %zu bytes", key_len);
    if (answer >= (request ? 1 : ORIEL_ANSWER_COUNT))
        return oriel_fail(ORIEL_ERR_INVALID, "message of operation %u with answer %u", op, answer);
    if (op != ORIEL_MESSAGE_GET && timeout_ms != 0)
        return oriel_fail(ORIEL_ERR_INVALID, "message of operation %u with a timeout", op);
    if ((op == ORIEL_MESSAGE_GET || answer != ORIEL_ANSWER_OK) && value_len != 0)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "message of operation %u, answer %u with a value of %zu bytes", op,
                          answer, value_len);
    if (value_len > ORIEL_MESSAGE_PAYLOAD_MAX - key_len)
        return oriel_fail(ORIEL_ERR_INVALID, "message of %zu bytes, at most %d are allowed",
                          key_len + value_len, ORIEL_MESSAGE_PAYLOAD_MAX);
    return ORIEL_OK;
}

static oriel_status key_check(const char *key, size_t key_len)
{
    if (key_len > 0 && memchr(key, 0, key_len) != NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "message with a zero byte in its key");
    return ORIEL_OK;
}

oriel_status oriel_message_encode(const oriel_message *message,
                                  uint8_t header_p[ORIEL_MESSAGE_HEADER])
{
    oriel_status st = message_check(message->op, message->answer, message->key_len,
                                    message->value_len, message->timeout_ms);

    if (st == ORIEL_OK)
        st = key_check(message->key, message->key_len);
    if (st != ORIEL_OK)
        return st;

    put_u32(header_p, (uint32_t)(message->key_len + message->value_len));
    header_p[4] = (uint8_t)message->op;
    header_p[5] = (uint8_t)message->answer;
    put_u16(header_p + 6, (uint16_t)message->key_len);
    put_u32(header_p + 8, message->timeout_ms);
    return ORIEL_OK;
}

oriel_status oriel_message_decode(const uint8_t *bytes, size_t len, oriel_message *message_p,
                                  size_t *size_p)
{
    uint32_t length;
    uint16_t key_len;
    oriel_status st;

    if (len < ORIEL_MESSAGE_HEADER) {
        *size_p = ORIEL_MESSAGE_HEADER;
        return ORIEL_IN_PROGRESS;
    }
    length = take_u32(bytes);
    key_len = take_u16(bytes + 6);
    if (key_len > length)
        return oriel_fail(ORIEL_ERR_INVALID, "message of %u bytes with a key of %u", length,
                          key_len);
    st = message_check(bytes[4], bytes[5], key_len, length - key_len, take_u32(bytes + 8));
    if (st != ORIEL_OK)
        return st;
    if (len - ORIEL_MESSAGE_HEADER < length) {
        *size_p = ORIEL_MESSAGE_HEADER + length;
        return ORIEL_IN_PROGRESS;
    }
    st = key_check((const char *)bytes + ORIEL_MESSAGE_HEADER, key_len);
    if (st != ORIEL_OK)
        return st;

    message_p->op = bytes[4];
    message_p->answer = bytes[5];
    message_p->timeout_ms = take_u32(bytes + 8);
    message_p->key = (const char *)bytes + ORIEL_MESSAGE_HEADER;
    message_p->key_len = key_len;
    message_p->value = bytes + ORIEL_MESSAGE_HEADER + key_len;
    message_p->value_len = length - key_len;
    *size_p = ORIEL_MESSAGE_HEADER + length;
    return ORIEL_OK;
}

void oriel_hello_encode(const uint8_t nonce[ORIEL_NONCE_BYTES], uint8_t hello_p[ORIEL_HELLO_BYTES])
{
    memcpy(hello_p, magic, MAGIC_BYTES);
    memcpy(hello_p + MAGIC_BYTES, nonce, ORIEL_NONCE_BYTES);
}

void oriel_proof_encode(const uint8_t nonce[ORIEL_NONCE_BYTES],
                        const uint8_t mac[ORIEL_SHA256_BYTES], uint8_t proof_p[ORIEL_PROOF_BYTES])
{
    oriel_hello_encode(nonce, proof_p);
    memcpy(proof_p + ORIEL_HELLO_BYTES, mac, ORIEL_SHA256_BYTES);
}

void oriel_verdict_encode(const uint8_t mac[ORIEL_SHA256_BYTES],
                          uint8_t verdict_p[ORIEL_VERDICT_BYTES])
{
    memset(verdict_p, 0, ORIEL_VERDICT_BYTES);
    if (mac != NULL) {
        verdict_p[0] = 1;
        memcpy(verdict_p + 1, mac, ORIEL_SHA256_BYTES);
    }
}

/* Judges each byte as it comes: a stranger's short greeting is refused at once
 * instead of at the deadline. */
static oriel_status magic_check(const uint8_t *bytes, size_t len)
{
    size_t n = len < MAGIC_BYTES ? len : MAGIC_BYTES;

    if (n > 0 && memcmp(bytes, magic, n) != 0)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "the other side does not speak version %c of the store's protocol",
                          magic[MAGIC_BYTES - 1]);
    return ORIEL_OK;
}

oriel_status oriel_hello_decode(const uint8_t *bytes, size_t len, const uint8_t **nonce_p)
{
    oriel_status st = magic_check(bytes, len);

    if (st != ORIEL_OK)
        return st;
    if (len < ORIEL_HELLO_BYTES)
        return ORIEL_IN_PROGRESS;
    *nonce_p = bytes + MAGIC_BYTES;
    return ORIEL_OK;
}

oriel_status oriel_proof_decode(const uint8_t *bytes, size_t len, const uint8_t **nonce_p,
                                const uint8_t **mac_p)
{
    oriel_status st = magic_check(bytes, len);

    if (st != ORIEL_OK)
        return st;
    if (len < ORIEL_PROOF_BYTES)
        return ORIEL_IN_PROGRESS;
    *nonce_p = bytes + MAGIC_BYTES;
    *mac_p = bytes + ORIEL_HELLO_BYTES;
    return ORIEL_OK;
}

oriel_status oriel_verdict_decode(const uint8_t *bytes, size_t len, const uint8_t **mac_p)
{
    if (len >= 1 && bytes[0] > 1)
        return oriel_fail(ORIEL_ERR_INVALID, "the store answered the proof with verdict %u",
                          bytes[0]);
    if (len < ORIEL_VERDICT_BYTES)
        return ORIEL_IN_PROGRESS;
    if (bytes[0] == 0)
        return oriel_fail(ORIEL_ERR_AUTH, "it refused this process's secret: set ORIEL_SECRET to "
                                          "the same value in all processes");
    *mac_p = bytes + 1;
    return ORIEL_OK;
}

void oriel_handshake_mac(const char *secret, char role,
                         const uint8_t server_nonce[ORIEL_NONCE_BYTES],
                         const uint8_t client_nonce[ORIEL_NONCE_BYTES],
                         uint8_t mac_p[ORIEL_SHA256_BYTES])
{
    uint8_t text[MAGIC_BYTES + 1 + 2 * ORIEL_NONCE_BYTES];

    memcpy(text, magic, MAGIC_BYTES);
    text[MAGIC_BYTES] = (uint8_t)role;
    memcpy(text + MAGIC_BYTES + 1, server_nonce, ORIEL_NONCE_BYTES);
    memcpy(text + MAGIC_BYTES + 1 + ORIEL_NONCE_BYTES, client_nonce, ORIEL_NONCE_BYTES);
    oriel_hmac_sha256(secret, strlen(secret), text, sizeof(text), mac_p);
}
