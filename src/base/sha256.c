#include "base/sha256.h"

#include <string.h>

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t load_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store_be32(uint8_t *p, uint32_t x)
{
    p[0] = (uint8_t)(x >> 24);
    p[1] = (uint8_t)(x >> 16);
    p[2] = (uint8_t)(x >> 8);
    p[3] = (uint8_t)x;
}

static void expand_block(const uint8_t *block, uint32_t w[64])
{
    for (int i = 0; i < 16; i++)
        w[i] = load_be32(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;

        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
}

static void absorb_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];

    expand_block(block, w);
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
        uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
        uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
        uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));

        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void oriel_sha256_begin(oriel_sha256 *sha)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(sha->state, start, sizeof(start));
    sha->bytes = 0;
}

void oriel_sha256_update(oriel_sha256 *sha, const void *data, size_t len)
{
    const uint8_t *from = data;

    while (len > 0) {
        size_t used = sha->bytes % ORIEL_SHA256_BLOCK;
        size_t n = ORIEL_SHA256_BLOCK - used;

        if (n > len)
            n = len;
        memcpy(sha->block + used, from, n);
        sha->bytes += n;
        from += n;
        len -= n;
        if (used + n == ORIEL_SHA256_BLOCK)
            absorb_block(sha->state, sha->block);
    }
}

void oriel_sha256_end(oriel_sha256 *sha, uint8_t digest[ORIEL_SHA256_BYTES])
{
    static const uint8_t padding[ORIEL_SHA256_BLOCK] = {0x80};
    uint64_t bits = sha->bytes * 8;
    size_t used = sha->bytes % ORIEL_SHA256_BLOCK;
    uint8_t tail[8];

    /* The length takes the last 8 bytes of a block. */
    oriel_sha256_update(sha, padding, (used < 56 ? 56 : 120) - used);
    store_be32(tail, (uint32_t)(bits >> 32));
    store_be32(tail + 4, (uint32_t)bits);
    oriel_sha256_update(sha, tail, sizeof(tail));
    for (int i = 0; i < 8; i++)
        store_be32(digest + 4 * i, sha->state[i]);
}

void oriel_hmac_sha256(const void *key, size_t key_len, const void *data, size_t len,
                       uint8_t mac[ORIEL_SHA256_BYTES])
{
    uint8_t inner[ORIEL_SHA256_BLOCK] = {0};
    uint8_t outer[ORIEL_SHA256_BLOCK];
    oriel_sha256 sha;

    oriel_sha256_begin(&sha);
    if (key_len > ORIEL_SHA256_BLOCK) {
        oriel_sha256_update(&sha, key, key_len);
        oriel_sha256_end(&sha, inner);
        oriel_sha256_begin(&sha);
    } else if (key_len > 0) {
        memcpy(inner, key, key_len);
    }
    for (int i = 0; i < ORIEL_SHA256_BLOCK; i++) {
        outer[i] = inner[i] ^ 0x5c;
        inner[i] ^= 0x36;
    }

    oriel_sha256_update(&sha, inner, sizeof(inner));
    oriel_sha256_update(&sha, data, len);
    oriel_sha256_end(&sha, mac);
    oriel_sha256_begin(&sha);
    oriel_sha256_update(&sha, outer, sizeof(outer));
    oriel_sha256_update(&sha, mac, ORIEL_SHA256_BYTES);
    oriel_sha256_end(&sha, mac);
}

int oriel_digest_equal(const uint8_t a[ORIEL_SHA256_BYTES], const uint8_t b[ORIEL_SHA256_BYTES])
{
    /* volatile: the compiler may not turn this into an early exit. */
    volatile uint8_t difference = 0;

    for (int i = 0; i < ORIEL_SHA256_BYTES; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}
