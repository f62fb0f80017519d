/* SHA-256 (FIPS 180-4) and HMAC over it (RFC 2104): what the processes of a job
 * prove their secret with. Own code, because the library links to libc alone. */
#ifndef ORIEL_BASE_SHA256_H
#define ORIEL_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { ORIEL_SHA256_BYTES = 32, ORIEL_SHA256_BLOCK = 64 };

typedef struct oriel_sha256 {
    uint32_t state[8];                 /* of the blocks so far */
    uint64_t bytes;                    /* taken in so far */
    uint8_t block[ORIEL_SHA256_BLOCK]; /* the last of them, less than a block */
} oriel_sha256;

void oriel_sha256_begin(oriel_sha256 *sha);
void oriel_sha256_update(oriel_sha256 *sha, const void *data, size_t len);
void oriel_sha256_end(oriel_sha256 *sha, uint8_t digest[ORIEL_SHA256_BYTES]);

void oriel_hmac_sha256(const void *key, size_t key_len, const void *data, size_t len,
                       uint8_t mac[ORIEL_SHA256_BYTES]);

/* 1 when equal. Takes the same time wherever the first difference is, so that a
 * peer cannot guess a digest byte by byte. */
int oriel_digest_equal(const uint8_t a[ORIEL_SHA256_BYTES], const uint8_t b[ORIEL_SHA256_BYTES]);

#endif
