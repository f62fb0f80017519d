/* One process comes around the others' deadline, so that an operation sometimes
 * succeeds and sometimes fails; prints which, for each round: contest [rounds] */
#include <stdio.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/process.h"
#include "support/values.h"

static const double deadline_s = 0.03;

static oriel_status round_of(unsigned round)
{
    uint64_t luck = values_mix(round, 99);
    size_t count = round % 2 ? 10 : 60000;
    test_buffer buffer = buffer_make(count * sizeof(float), 0);
    char job[32];
    oriel_comm *comm;
    oriel_status st;
    double until;
    int rank;

    snprintf(job, sizeof job, "contest-%u", round);
    comm = process_comm(1, 30.0, job);
    CHECK_OK(oriel_comm_destroy(comm)); /* all start the round together */
    snprintf(job, sizeof job, "contest-%u-short", round);
    comm = process_comm(1, deadline_s, job);
    rank = oriel_comm_first_rank(comm);
    if ((int)(luck % (uint64_t)oriel_comm_size(comm)) == rank) {
        until = oriel_now() + deadline_s * (0.8 + (double)(luck / 16 % 1000) / 2500.0);
        while (oriel_now() < until)
            oriel_relax(1);
    }
    st = oriel_all_reduce(oriel_comm_world(comm), rank, buffer.data, buffer.data, count, ORIEL_F32,
                          ORIEL_SUM);
    oriel_comm_abandon(comm);
    buffer_free(&buffer);
    return st;
}

int main(int argc, char **argv)
{
    int rounds = process_argument(argc, argv, 1, 20);

    for (int i = 0; i < rounds; i++) {
        oriel_status st = round_of((unsigned)i);
        printf("round %d %s\n", i, st == ORIEL_OK ? "good" : "bad");
    }
    return 0;
}
