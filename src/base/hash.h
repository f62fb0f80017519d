/* A 64-bit hash that is the same on every process and machine. */
#ifndef ORIEL_BASE_HASH_H
#define ORIEL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The finaliser of splitmix64. */
static inline uint64_t oriel_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static inline uint64_t oriel_hash(const void *data, size_t len, uint64_t seed)
{
    const unsigned char *bytes = data;
    uint64_t h = oriel_mix(seed ^ len);

    for (size_t i = 0; i < len; i++)
        h = (h ^ bytes[i]) * 0x100000001b3ull;
    return oriel_mix(h);
}

#endif
