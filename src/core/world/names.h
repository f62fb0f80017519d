/* What kernels are called, in the heap, so that every process can name one that
 * another has asked for. */
#ifndef ORIEL_CORE_WORLD_NAMES_H
#define ORIEL_CORE_WORLD_NAMES_H

#include "core/heap/heap.h"

enum { HEAP_NAMES = 128 }; /* of kernels */

typedef struct heap_name {
    _Atomic uint64_t identity; /* 0: free */
    _Atomic uint32_t written;  /* `text` may be read */
    char text[116];
} heap_name;

/* Local: whoever knows it says it; the table may be full. */
void oriel_name_keep(const oriel_heap *heap, uint64_t identity, const char *text);
/* "kernel" and a number where nobody has said. */
void oriel_name_find(const oriel_heap *heap, uint64_t identity, char *out, size_t len);
int oriel_name_known(const oriel_heap *heap, uint64_t identity);

#endif
