/* What tests send: small whole numbers, chosen so that sums and products over 8
 * members are exact in every dtype; and the results, computed in another way than
 * the library does it. */
#ifndef TESTS_SUPPORT_VALUES_H
#define TESTS_SUPPORT_VALUES_H

#include "oriel/oriel.h"

/* `op`, or one that floats have in its place. */
oriel_redop values_op(oriel_dtype dtype, oriel_redop op);
/* What member `id` sends. */
void values_fill(void *out, size_t count, oriel_dtype dtype, oriel_redop op, int id, unsigned seed);
/* The same for operations that only move bytes. */
void values_fill_bytes(void *out, size_t bytes, uint64_t id, unsigned seed);
/* The first element that is not the reduction of what the members sent; -1: all are. */
long values_wrong(const void *got, size_t count, oriel_dtype dtype, oriel_redop op, const int *ids,
                  int n, unsigned seed);
/* Random bits, NaNs and all, of member `id`. */
void values_random(void *out, size_t bytes, uint64_t seed, int id);
/* The first byte in which two results differ; -1: none. */
long values_difference(const void *a, const void *b, size_t bytes);
/* The first element that is not what a failure leaves behind; -1: all are. */
long values_unpoisoned(const void *got, size_t count, oriel_dtype dtype);

/* A well mixed number that depends on both. */
uint64_t values_mix(uint64_t a, uint64_t b);

/* Memory with guard bytes on both sides; `data` lies `shift` bytes off a cache
 * line, filled with a pattern that is no result. */
typedef struct test_buffer {
    unsigned char *base;
    unsigned char *data;
    size_t bytes;
} test_buffer;

test_buffer buffer_make(size_t bytes, size_t shift);
void buffer_free(test_buffer *buffer); /* checks the guards */

#endif
