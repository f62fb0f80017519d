/* What travels on a connection to oriel's store, as bytes: pure functions, no
 * sockets. All integers are little-endian.
 *
 * Handshake, every message of fixed length; nothing else is read before it ends:
 *   server -> client  hello    magic, server's nonce
 *   client -> server  proof    magic, client's nonce, HMAC for the role 'C'
 *   server -> client  verdict  1 and HMAC for the role 'S', or 0 and zeros
 * The client proves first, so that a stranger that connects gets nothing that it
 * could try secrets against.
 *
 * Messages, one request at a time, each answered by one reply:
 *   u32 length   bytes after the header, at most ORIEL_MESSAGE_PAYLOAD_MAX
 *   u8  op
 *   u8  answer   in a reply, otherwise 0
 *   u16 key_len
 *   u32 timeout  milliseconds, in a get, otherwise 0
 *   key, then value */
#ifndef ORIEL_CORE_STORE_CODEC_H
#define ORIEL_CORE_STORE_CODEC_H

#include "base/status.h"
#include "base/sha256.h"

enum {
    ORIEL_MESSAGE_HEADER = 12,
    ORIEL_MESSAGE_PAYLOAD_MAX = 1 << 20,
    ORIEL_MESSAGE_KEY_MAX = 1024,
    ORIEL_NONCE_BYTES = 32,
    ORIEL_HELLO_BYTES = 8 + ORIEL_NONCE_BYTES,
    ORIEL_PROOF_BYTES = 8 + ORIEL_NONCE_BYTES + ORIEL_SHA256_BYTES,
    ORIEL_VERDICT_BYTES = 1 + ORIEL_SHA256_BYTES
};

enum oriel_message_op { ORIEL_MESSAGE_SET = 1, ORIEL_MESSAGE_GET = 2, ORIEL_MESSAGE_REPLY = 3 };

enum oriel_message_answer {
    ORIEL_ANSWER_OK = 0,
    ORIEL_ANSWER_NOT_FOUND = 1, /* the key was not set within the get's timeout */
    ORIEL_ANSWER_CONFLICT = 2,  /* the key has another value */
    ORIEL_ANSWER_FULL = 3,      /* the store holds as much as it may */
    ORIEL_ANSWER_COUNT = 4
};

/* `key` and `value` point into the bytes that were decoded; the key is not
 * terminated, is not empty in a request and holds no zero byte. */
typedef struct oriel_message {
    enum oriel_message_op op;         /* what is asked for; a reply says so */
    enum oriel_message_answer answer; /* of a reply */
    uint32_t timeout_ms;              /* of a get: how long the server waits for the key */
    const char *key;                  /* of a request */
    size_t key_len;                   /* bytes; 1 ... ORIEL_MESSAGE_KEY_MAX */
    const uint8_t *value;             /* of a set, or of a get's reply */
    size_t value_len;                 /* bytes; key and value fit a payload */
} oriel_message;

/* Checks `message` and writes its header; the key and the value follow it. */
oriel_status oriel_message_encode(const oriel_message *message,
                                  uint8_t header_p[ORIEL_MESSAGE_HEADER]);
/* ORIEL_OK: `message_p` is filled and `size_p` is its size. ORIEL_IN_PROGRESS: the
 * bytes are a good beginning, and the message takes at least `*size_p`. A bad
 * header is ORIEL_ERR_INVALID before a byte after it is asked for. */
oriel_status oriel_message_decode(const uint8_t *bytes, size_t len, oriel_message *message_p,
                                  size_t *size_p);

void oriel_hello_encode(const uint8_t nonce[ORIEL_NONCE_BYTES], uint8_t hello_p[ORIEL_HELLO_BYTES]);
void oriel_proof_encode(const uint8_t nonce[ORIEL_NONCE_BYTES],
                        const uint8_t mac[ORIEL_SHA256_BYTES], uint8_t proof_p[ORIEL_PROOF_BYTES]);
/* A refusal when `mac` is NULL. */
void oriel_verdict_encode(const uint8_t mac[ORIEL_SHA256_BYTES],
                          uint8_t verdict_p[ORIEL_VERDICT_BYTES]);

/* The decoders point into `bytes`. ORIEL_IN_PROGRESS: a good beginning;
 * ORIEL_ERR_INVALID as soon as the beginning is no oriel's. */
oriel_status oriel_hello_decode(const uint8_t *bytes, size_t len, const uint8_t **nonce_p);
oriel_status oriel_proof_decode(const uint8_t *bytes, size_t len, const uint8_t **nonce_p,
                                const uint8_t **mac_p);
/* A refusal is ORIEL_ERR_AUTH. */
oriel_status oriel_verdict_decode(const uint8_t *bytes, size_t len, const uint8_t **mac_p);

/* `role` is 'C' or 'S': without it a proof could be sent back as its own answer. */
void oriel_handshake_mac(const char *secret, char role,
                         const uint8_t server_nonce[ORIEL_NONCE_BYTES],
                         const uint8_t client_nonce[ORIEL_NONCE_BYTES],
                         uint8_t mac_p[ORIEL_SHA256_BYTES]);

#endif
