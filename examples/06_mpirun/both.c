/* A program of MPI that hands one of its operations to oriel.
 *
 *     mpirun -n 4 ./both
 */
#include <mpi.h>
#include <oriel/oriel.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 100000 };

/* MPI ends the other processes, too. */
static void stop_unless(int good, const char *why)
{
    if (good)
        return;
    fprintf(stderr, "both: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    static double mine[COUNT], by_mpi[COUNT], by_oriel[COUNT];
    oriel_comm *comm;
    oriel_status st;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    /* Finds its place by what mpirun said: one rank per process, MPI's number. */
    st = oriel_comm_create(NULL, &comm);
    stop_unless(st == ORIEL_OK, oriel_last_error());
    stop_unless(oriel_comm_first_rank(comm) == rank, "oriel and MPI number ranks differently");

    for (int i = 0; i < COUNT; i++)
        mine[i] = rank + i; /* whole numbers: their sums are exact in every order */
    MPI_Allreduce(mine, by_mpi, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    st =
        oriel_all_reduce(oriel_comm_world(comm), rank, mine, by_oriel, COUNT, ORIEL_F64, ORIEL_SUM);
    stop_unless(st == ORIEL_OK, oriel_last_error());
    stop_unless(memcmp(by_mpi, by_oriel, sizeof by_mpi) == 0, "the sums differ");
    printf("rank %d of %d: the same sums\n", rank, oriel_comm_size(comm));

    st = oriel_comm_destroy(comm);
    stop_unless(st == ORIEL_OK, oriel_last_error());
    MPI_Finalize();
    return 0;
}
