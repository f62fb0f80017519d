/* What kernels and the calls of programs are called, in the heap, so that every process can name
 * one that another has asked for. */
#ifndef ORIEL_CORE_WORLD_NAMES_H
#define ORIEL_CORE_WORLD_NAMES_H

#include "core/world/comm.h"

enum {
    HEAP_NAMES = 4096,      /* of kernels and calls */
    HEAP_NAME_LETTERS = 484 /* python/oriel/_calls writes as many, with the end */
};

typedef struct heap_name {
    _Atomic uint64_t identity;    /* 0: free */
    _Atomic uint32_t written;     /* `text` may be read */
    char text[HEAP_NAME_LETTERS]; /* the name, cut where it is longer */
} heap_name;

/* Local: a rank that knows a name says it; the table may be full. */
void oriel_name_keep(const oriel_heap *heap, uint64_t identity, const char *text);
/* Writes "kernel" and a number where no rank has said it. */
void oriel_name_find(const oriel_heap *heap, uint64_t identity, char *out, size_t len);
int oriel_name_known(const oriel_heap *heap, uint64_t identity);
/* Writes " at train:12" of a call of a program that has a name; "" of others. */
void oriel_name_place(const oriel_heap *heap, uint64_t call, char *out, size_t len);
/* Returns the identity of the i-th entry; 0: it is free. */
uint64_t oriel_name_at(const oriel_heap *heap, uint32_t i);

/* Whether two calls are of one function that ranks have lowered differently. */
int oriel_name_rivals(const oriel_heap *heap, uint64_t a, uint64_t b);

/* What a rank asked for. */
typedef struct oriel_asked {
    int rank;           /* in the world */
    const char *what;   /* in words */
    uint64_t call;      /* as in its record */
    unsigned execution; /* likewise */
} oriel_asked;
/* Two ranks differ. The sentence shows both sides, and where these read alike what their programs
 * call. */
void oriel_comm_abort_different(oriel_comm *comm, const oriel_asked *a, const oriel_asked *b);

#endif
