/* MPI's side, with its usual calls. Started by mpirun; an MPI error ends the job,
 * which is MPI's default. */
#include <mpi.h>

#include "loop.h"

static int offsets[MAX_RANKS], from_offsets[MAX_RANKS];
static int send_sizes[MAX_RANKS], recv_sizes[MAX_RANKS];

static const char *side_rank_variable(void)
{
    return "OMPI_COMM_WORLD_LOCAL_RANK";
}

static void side_open(int *argc, char ***argv, struct call *call)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &call->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &call->ranks);
}

static void side_prepare(const struct call *call)
{
    for (int peer = 0; peer < call->ranks; peer++) {
        int to = distance(call, call->rank, peer);
        int from = distance(call, peer, call->rank);

        offsets[peer] = (int)share_begin(call, to);
        from_offsets[peer] = (int)share_begin(call, from);
        send_sizes[peer] = (int)share_size(call, to);
        recv_sizes[peer] = (int)share_size(call, from);
    }
}

static void side_call(const struct call *c, long index)
{
    int count = (int)c->count;
    int next = (c->rank + 1) % c->ranks;
    int previous = (c->rank + c->ranks - 1) % c->ranks;

    switch (c->op) {
    case ALL_REDUCE:
        MPI_Allreduce(c->send, c->recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALL_GATHER:
        MPI_Allgather(c->send, count, MPI_FLOAT, c->recv, count, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(c->send, c->recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALL_TO_ALL:
        MPI_Alltoall(c->send, count, MPI_FLOAT, c->recv, count, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case BROADCAST:
        MPI_Bcast(c->recv, count, MPI_FLOAT, (int)(index % c->ranks), MPI_COMM_WORLD);
        break;
    case PERMUTE:
        MPI_Sendrecv(c->send, count, MPI_FLOAT, next, 0, c->recv, count, MPI_FLOAT, previous, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
    case BARRIER:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
    case RAGGED_ALL_TO_ALL:
        MPI_Alltoallv(c->send, send_sizes, offsets, MPI_FLOAT, c->recv, recv_sizes, from_offsets,
                      MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case OPERATIONS:
        break;
    }
}

static void side_barrier(const struct call *call)
{
    (void)call;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void side_max(const struct call *call, double *values, int n)
{
    (void)call;
    MPI_Allreduce(MPI_IN_PLACE, values, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static void side_close(void)
{
    MPI_Finalize();
}
