/* Element-wise reduction of several sources into one destination. */
#ifndef ORIEL_OPS_REDUCE_REDUCE_H
#define ORIEL_OPS_REDUCE_REDUCE_H

#include "oriel/oriel.h"

/* dst[i] = src[0][i] op src[1][i] op ... op src[n-1][i], combined from left to
 * right in that order, whatever `count`, alignment or CPU: bit for bit the same
 * result. f16, bf16, f8e4m3fn and f8e5m2 accumulate in f32 and are rounded once
 * at the end (nearest even; f8e4m3fn overflows to NaN, f8e5m2 to infinity, as
 * XLA's conversions do). Integers wrap. bool: SUM and MAX are OR, PROD and MIN
 * are AND, any byte but 0 is true, and XOR is that of truth values. min and max return NaN when any
 * element is NaN, and take -0 for less than +0; complex min and max compare lexicographically, real
 * part first, as XLA does: strictly, with the later element where that does not hold, so also where
 * an element is NaN. Every NaN that a computation gives is the same one, quiet and positive; n = 1
 * copies. Subnormals are kept and rounding is to nearest, whatever the calling thread has set. dst
 * may equal any src[k]; other overlaps are not allowed. No pointer needs to be aligned beyond one
 * byte. n >= 1. No allocation, no lock. */
void oriel_reduce_elements(void *dst, const void *const *src, int n, size_t count,
                           oriel_dtype dtype, oriel_redop redop);

/* Fills with NaN, signed minimum, unsigned maximum or false. */
void oriel_poison(void *dst, size_t count, oriel_dtype dtype);

/* Whether the pair is supported: every one of the enums but AND, OR and XOR of floats. Those of
 * truth values on numbers, as MPI has them, are these on bool after a comparison with 0: loops of
 * their own would save the caller one pass. */
int oriel_reduce_supported(oriel_dtype dtype, oriel_redop redop);

#endif
