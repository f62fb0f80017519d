/* The loops behind oriel_reduce_elements: one table for each instruction set, all giving
 * the same bits. For reduce.c, its tests and its bench. */
#ifndef ORIEL_OPS_REDUCE_KERNELS_H
#define ORIEL_OPS_REDUCE_KERNELS_H

#include "oriel/oriel.h"

/* dst = a op b. dst may equal a or b; nothing needs to be aligned. */
typedef void (*oriel_reduce_pair)(void *dst, const void *a, const void *b, size_t count);
/* To and from f32, for dtypes that accumulate in it. */
typedef void (*oriel_reduce_load)(float *dst, const void *src, size_t count);
typedef void (*oriel_reduce_store)(void *dst, const float *src, size_t count);

/* dtypes that accumulate in f32 have load and store, the others NULL. Those
 * have pair only where one pass is faster than load, f32's pair and store. */
typedef struct oriel_reduce_kernels {
    const char *name; /* of the instruction set, for tests and the bench */
    /* Combines two sources; NULL: by load, f32's pair and store. */
    oriel_reduce_pair pair[ORIEL_DTYPE_COUNT][ORIEL_REDOP_COUNT];
    oriel_reduce_load load[ORIEL_DTYPE_COUNT];   /* NULL: the dtype needs none */
    oriel_reduce_store store[ORIEL_DTYPE_COUNT]; /* likewise */
} oriel_reduce_kernels;

extern const oriel_reduce_kernels oriel_reduce_kernels_base;
#if defined(__x86_64__)
extern const oriel_reduce_kernels oriel_reduce_kernels_avx2;
#endif

/* The tables that this CPU can run, best first; NULL past the last. */
const oriel_reduce_kernels *oriel_reduce_kernels_get(int index);

/* oriel_reduce_elements with a table of the caller's choice. */
void oriel_reduce_with(const oriel_reduce_kernels *kernels, void *dst, const void *const *src,
                       int n, size_t count, oriel_dtype dtype, oriel_redop redop);

#endif
