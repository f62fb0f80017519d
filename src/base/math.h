/* Arithmetic with sizes. */
#ifndef ORIEL_BASE_MATH_H
#define ORIEL_BASE_MATH_H

#include <stdint.h>

static inline uint64_t oriel_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t oriel_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t oriel_divide_up(uint64_t value, uint64_t by)
{
    return (value + by - 1) / by;
}

/* The next multiple of `to`. */
static inline uint64_t oriel_round_up(uint64_t value, uint64_t to)
{
    return oriel_divide_up(value, to) * to;
}

/* The multiple of `to` before it. */
static inline uint64_t oriel_round_down(uint64_t value, uint64_t to)
{
    return value / to * to;
}

#endif
