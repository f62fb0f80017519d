/* One call of any operation as a test makes it: what each member sends follows from
 * the call alone, so every member knows what it must get. Buffers lie between guard
 * bytes, results start as something else, and inputs are looked at afterwards. */
#ifndef TESTS_SUPPORT_FAMILY_H
#define TESTS_SUPPORT_FAMILY_H

#include "core/world/trace.h"
#include "support/values.h"

typedef struct family_call {
    enum oriel_kind kind;
    oriel_dtype dtype;
    oriel_redop op;
    size_t count;  /* elements of a block; ragged: rows of a slice at most */
    size_t row;    /* ragged: elements of a row */
    int slices;    /* ragged */
    int lone;      /* ragged: 1 + the one member that sends so many; the others few */
    size_t shift;  /* bytes off a cache line */
    int in_place;  /* 1: yes, 2: every second member */
    unsigned seed; /* root, permutation and sizes follow from it */
} family_call;

enum { FAMILY_MAX = 64 };

typedef struct family_flight {
    oriel_group *group;
    int rank, n, index;
    family_call call;
    test_buffer send, recv; /* in place only one of them */
    int pairs[2 * FAMILY_MAX];
    int num_pairs;
    oriel_ragged ragged;
    int64_t *arrays;
    oriel_request *request;
} family_flight;

/* Blocking. */
void family_check(oriel_group *group, int rank, const family_call *call);
/* An all_reduce of every dtype with every op, for each of `counts`. */
void family_check_reductions(oriel_group *group, int rank, const size_t *counts, int n);

void family_start(family_flight *flight, oriel_group *group, int rank, const family_call *call);
void family_wait(family_flight *flight);
/* Whether it is done. */
int family_test(family_flight *flight);

/* Blocking, for a call that may fail: right results, or a poisoned `recv` and why. */
oriel_status family_try(oriel_group *group, int rank, const family_call *call);
/* The same in parts, for a test that looks at the buffers in between. */
void family_open(family_flight *flight, oriel_group *group, int rank, const family_call *call);
oriel_status family_run(family_flight *flight);
void family_begin(family_flight *flight);
/* After success: checks all of it, and closes. */
void family_finish(family_flight *flight);
void family_check_poison(const family_flight *flight);
void family_close(family_flight *flight);

/* Whether member `index` of `n` must get an error if member `other` does not come; one
 * that need not may learn of it in its next call. */
int family_needs(const family_call *call, int n, int index, int other);

/* A call whose every property follows from `seed`, with blocks of at most `max_bytes`. */
family_call family_random(unsigned seed, size_t max_bytes);
/* The same, of one kind. */
family_call family_random_of(enum oriel_kind kind, unsigned seed, size_t max_bytes);
/* The kind of this name; ends the program where there is none. */
enum oriel_kind family_kind(const char *name);

#endif
