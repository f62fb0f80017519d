/* One all_reduce as a test makes it: crafted values between guard bytes, the
 * output filled with something else, everything looked at afterwards. */
#ifndef TESTS_SUPPORT_CALLS_H
#define TESTS_SUPPORT_CALLS_H

#include "support/values.h"

typedef struct test_call {
    oriel_dtype dtype;
    oriel_redop op;
    size_t count;
    size_t send_shift, recv_shift; /* bytes off a cache line */
    int in_place;
    unsigned seed;
} test_call;

/* A call that was started. */
typedef struct test_flight {
    oriel_group *group;
    int rank;
    test_call call;
    test_buffer send, recv;
    oriel_request *request;
} test_flight;

/* Blocking. */
void call_check(oriel_group *group, int rank, const test_call *call);
/* Every dtype with every op, for each of `counts`. */
void call_check_all(oriel_group *group, int rank, const size_t *counts, int n);

void flight_start(test_flight *flight, oriel_group *group, int rank, const test_call *call);
void flight_wait(test_flight *flight);
/* Whether it is done. */
int flight_test(test_flight *flight);

/* A call whose every property follows from `seed`, at most `max_bytes` long. */
test_call call_random(unsigned seed, size_t max_bytes);

#endif
