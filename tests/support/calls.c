#include "support/calls.h"

#include <string.h>

#include "core/comm.h"
#include "support/check.h"

static void flight_fill(test_flight *flight, oriel_group *group, int rank, const test_call *call)
{
    size_t bytes = call->count * oriel_dtype_size(call->dtype);

    *flight = (test_flight){.group = group, .rank = rank, .call = *call};
    flight->send = buffer_make(bytes, call->send_shift);
    if (!call->in_place)
        flight->recv = buffer_make(bytes, call->recv_shift);
    values_fill(flight->send.data, call->count, call->dtype, call->op, rank, call->seed);
}

static void *recv_of(const test_flight *flight)
{
    return flight->call.in_place ? flight->send.data : flight->recv.data;
}

static void flight_check(test_flight *flight)
{
    const test_call *c = &flight->call;
    const oriel_group *group = flight->group;
    long wrong =
        values_wrong(recv_of(flight), c->count, c->dtype, c->op, group->ranks, group->n, c->seed);

    CHECK(wrong < 0, "rank %d of %d, %s %s, count %zu, seed %u: element %ld is wrong", flight->rank,
          group->n, oriel_dtype_name(c->dtype), oriel_redop_name(c->op), c->count, c->seed, wrong);
    if (!c->in_place) {
        wrong =
            values_wrong(flight->send.data, c->count, c->dtype, c->op, &flight->rank, 1, c->seed);
        CHECK(wrong < 0, "rank %d: element %ld of send was changed", flight->rank, wrong);
        buffer_free(&flight->recv);
    }
    buffer_free(&flight->send);
}

void call_check(oriel_group *group, int rank, const test_call *call)
{
    test_flight flight;

    flight_fill(&flight, group, rank, call);
    CHECK_OK(oriel_all_reduce(group, rank, flight.send.data, recv_of(&flight), call->count,
                              call->dtype, call->op));
    flight_check(&flight);
}

void call_check_all(oriel_group *group, int rank, const size_t *counts, int n)
{
    unsigned seed = 0;

    for (int dtype = 0; dtype < ORIEL_DTYPE_COUNT; dtype++) {
        for (int op = 0; op < ORIEL_REDOP_COUNT; op++) {
            for (int i = 0; i < n; i++) {
                test_call call = {.dtype = (oriel_dtype)dtype,
                                  .op = (oriel_redop)op,
                                  .count = counts[i],
                                  .in_place = seed % 3 == 0,
                                  .seed = seed};
                call_check(group, rank, &call);
                seed++;
            }
        }
    }
}

void flight_start(test_flight *flight, oriel_group *group, int rank, const test_call *call)
{
    flight_fill(flight, group, rank, call);
    CHECK_OK(oriel_all_reduce_start(group, rank, flight->send.data, recv_of(flight), call->count,
                                    call->dtype, call->op, &flight->request));
}

void flight_wait(test_flight *flight)
{
    CHECK_OK(oriel_request_wait(flight->request));
    flight_check(flight);
}

int flight_test(test_flight *flight)
{
    oriel_status st = oriel_request_test(flight->request);

    if (st == ORIEL_IN_PROGRESS)
        return 0;
    CHECK_OK(st);
    flight_check(flight);
    return 1;
}

test_call call_random(unsigned seed, size_t max_bytes)
{
    uint64_t h = values_mix(seed, 17);
    test_call call = {.dtype = (oriel_dtype)(h % ORIEL_DTYPE_COUNT),
                      .op = (oriel_redop)(h / 32 % ORIEL_REDOP_COUNT),
                      .send_shift = h / 128 % 4 == 0 ? h / 512 % 64 : 0,
                      .recv_shift = h / 128 % 4 == 1 ? h / 512 % 64 : 0,
                      .in_place = h / 65536 % 4 == 0,
                      .seed = seed};
    size_t most = max_bytes / oriel_dtype_size(call.dtype);

    /* Sizes of all magnitudes alike. */
    for (uint64_t bits = h / 1048576 % 64; bits > 0 && most > 1; bits /= 2)
        most = bits & 1 ? most / 3 : most;
    call.count = values_mix(h, 3) % (most + 1);
    return call;
}
