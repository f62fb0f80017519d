/* oriel's side: only the public header. Started by `oriel run`. */
#include <oriel/oriel.h>

#include "loop.h"

static oriel_comm *comm;
static oriel_group *world;
static int ring[2 * MAX_RANKS];
static int64_t offsets[MAX_RANKS], send_sizes[MAX_RANKS], recv_sizes[MAX_RANKS];
static oriel_ragged ragged = ORIEL_RAGGED_INIT;

static void must(oriel_status status)
{
    if (status == ORIEL_OK)
        return;
    fprintf(stderr, "oriel_bench: %s\n", oriel_last_error());
    exit(1);
}

static const char *side_rank_variable(void)
{
    return "ORIEL_PROCESS_ID";
}

static void side_open(int *argc, char ***argv, struct call *call)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;

    (void)argc;
    (void)argv;
    must(oriel_comm_create(&params, &comm));
    world = oriel_comm_world(comm);
    call->rank = oriel_comm_first_rank(comm);
    call->ranks = oriel_comm_size(comm);
}

static void side_prepare(const struct call *call)
{
    for (int peer = 0; peer < call->ranks; peer++) {
        int to = distance(call, call->rank, peer);
        int from = distance(call, peer, call->rank);

        ring[2 * peer] = peer;
        ring[2 * peer + 1] = (peer + 1) % call->ranks;
        offsets[peer] = (int64_t)share_begin(call, to);
        send_sizes[peer] = (int64_t)share_size(call, to);
        recv_sizes[peer] = (int64_t)share_size(call, from);
    }
    ragged.send_rows = ragged.recv_rows = call->elements;
    ragged.input_offsets = ragged.output_offsets = offsets;
    ragged.send_sizes = send_sizes;
    ragged.recv_sizes = recv_sizes;
}

static oriel_status call_now(const struct call *c, int root)
{
    switch (c->op) {
    case ALL_REDUCE:
        return oriel_all_reduce(world, c->rank, c->send, c->recv, c->count, ORIEL_F32, ORIEL_SUM);
    case ALL_GATHER:
        return oriel_all_gather(world, c->rank, c->send, c->recv, c->count, ORIEL_F32);
    case REDUCE_SCATTER:
        return oriel_reduce_scatter(world, c->rank, c->send, c->recv, c->count, ORIEL_F32,
                                    ORIEL_SUM);
    case ALL_TO_ALL:
        return oriel_all_to_all(world, c->rank, c->send, c->recv, c->count, ORIEL_F32);
    case BROADCAST:
        return oriel_broadcast(world, c->rank, c->recv, c->recv, c->count, ORIEL_F32, root);
    case PERMUTE:
        return oriel_permute(world, c->rank, c->send, c->recv, c->count, ORIEL_F32, ring, c->ranks);
    case BARRIER:
        return oriel_barrier(world, c->rank);
    case RAGGED_ALL_TO_ALL:
        return oriel_ragged_all_to_all(world, c->rank, c->send, c->recv, ORIEL_F32, &ragged);
    case OPERATIONS:
        break;
    }
    return ORIEL_ERR_INVALID;
}

static void side_call(const struct call *call, long index)
{
    must(call_now(call, (int)(index % call->ranks)));
}

static void side_barrier(const struct call *call)
{
    (void)call;
    must(oriel_comm_barrier(comm));
}

static void side_max(const struct call *call, double *values, int n)
{
    must(oriel_all_reduce(world, call->rank, values, values, (size_t)n, ORIEL_F64, ORIEL_MAX));
}

static void side_close(void)
{
    must(oriel_comm_destroy(comm));
}
