/* labels: valgrind */
/* processes: 2 */
/* One job makes comm after comm and leaves nothing behind: lifecycle [comms] */
#include <stdio.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/family.h"
#include "support/process.h"
#include "support/resources.h"

int main(int argc, char **argv)
{
    int comms = process_argument(argc, argv, 1, 5);
    family_call call = {
        .kind = ORIEL_KIND_ALL_REDUCE, .dtype = ORIEL_F32, .op = ORIEL_SUM, .count = 5000};
    test_resources before = resources_now();
    double begun = oriel_now();

    for (int i = 0; i < comms; i++) {
        oriel_comm *comm = process_comm(1, 60.0, NULL);

        call.seed = (unsigned)i;
        family_check(oriel_comm_world(comm), oriel_comm_first_rank(comm), &call);
        CHECK_OK(oriel_comm_barrier(comm));
        CHECK_OK(oriel_comm_destroy(comm));
        resources_check(before, "after destroy");
    }
    printf("seconds %.3f\n", oriel_now() - begun);
    return 0;
}
