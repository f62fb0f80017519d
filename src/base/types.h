/* The sizes of elements, inline for callers that ask in every call. */
#ifndef ORIEL_BASE_TYPES_H
#define ORIEL_BASE_TYPES_H

#include "oriel/oriel.h"

extern const unsigned char oriel_dtype_shifts[ORIEL_DTYPE_COUNT];

/* The cast catches values from outside C, negative ones too. */
static inline int oriel_dtype_known(oriel_dtype dtype)
{
    return (unsigned)dtype < ORIEL_DTYPE_COUNT;
}

/* An element of a known dtype has 1 << shift bytes. */
static inline unsigned oriel_dtype_shift(oriel_dtype dtype)
{
    return oriel_dtype_shifts[dtype];
}

#endif
