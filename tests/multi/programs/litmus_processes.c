/* labels: valgrind-soak */
/* processes: 3 */
/* The promises about order between processes: litmus_processes [rounds] [local ranks] */
#include <stdlib.h>

#include "support/check.h"
#include "support/launch.h"
#include "support/process.h"

int main(int argc, char **argv)
{
    int rounds = process_argument(argc, argv, 1, 12);
    launch how = {0};

    setenv("ORIEL_JITTER", "30", 1);
    setenv("ORIEL_ARENA", "64M", 0); /* of each rank; valgrind has few addresses to give away */
    how.comm = process_comm(process_argument(argc, argv, 2, 2), 60.0, NULL);
    CHECK_OK(oriel_crew_create(&how.crew));
    launch_litmus(&how, rounds);
    /* The memory of the first round is used again. */
    launch_litmus(&how, 2);
    oriel_crew_destroy(how.crew);
    CHECK_OK(oriel_comm_destroy(how.comm));
    return 0;
}
