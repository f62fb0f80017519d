/* Prints the bits that a reduction of random floats gave on each rank:
 * bits [local ranks] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/check.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/values.h"

static uint64_t hash(const unsigned char *bytes, size_t n)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    return h;
}

/* Any bit pattern but infinities and NaN, so floats of all magnitudes. */
static void fill(float *out, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++) {
        union {
            uint32_t bits;
            float value;
        } x = {.bits = (uint32_t)values_mix(i, (uint64_t)rank + 1000)};

        if ((x.bits >> 23 & 0xff) >= 0xf0)
            x.bits ^= 0x40000000u;
        out[i] = x.value;
    }
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    static const size_t counts[] = {1, 100, 501, 2033, 5000, 70001, 300000};

    (void)arg;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        test_buffer send = buffer_make(counts[i] * sizeof(float), 0);
        test_buffer recv = buffer_make(counts[i] * sizeof(float), 0);

        fill((float *)(void *)send.data, counts[i], rank);
        CHECK_OK(oriel_all_reduce(oriel_comm_world(comm), rank, send.data, recv.data, counts[i],
                                  ORIEL_F32, ORIEL_SUM));
        printf("bits %zu %016" PRIx64 "\n", counts[i], hash(recv.data, recv.bytes));
        buffer_free(&send);
        buffer_free(&recv);
    }
}

int main(int argc, char **argv)
{
    oriel_comm *comm = process_comm(process_argument(argc, argv, 1, 1), 60.0, NULL);

    ranks_run(comm, body, NULL);
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
