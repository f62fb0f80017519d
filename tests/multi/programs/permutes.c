/* Permutations where ranks share cores, and most go by the lane: permutes [rounds] [how], with
 * how of plain, or kill (rank 1 dies in the middle of one). */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/world/comm.h"
#include "ops/choose.h"
#include "support/check.h"
#include "support/process.h"
#include "support/resources.h"
#include "support/values.h"

enum { LAST = 5, MOST_CALLS = 1000 };
enum shape { RING, SWAP, SELF, HALF, LEFT_OUT, NOBODY, SHAPES };
static const double patience_s = 30.0;

static int make_pairs(enum shape shape, int n, int *pairs)
{
    int num = 0;

    for (int i = 0; i < n; i++) {
        int to[SHAPES] = {
            (i + 1) % n, (i ^ 1) < n ? i ^ 1 : i, i, i % 2 ? -1 : n - 1 - i, i == 0 ? 1 : -1, -1};

        if (to[shape] < 0)
            continue;
        pairs[2 * num] = i;
        pairs[2 * num++ + 1] = to[shape];
    }
    return num;
}

static void fill(unsigned char *out, size_t bytes, int rank, unsigned call)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = values_mix(call + i, (uint64_t)rank);
        memcpy(out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

/* What `from` has sent; nothing, where there is nobody. */
static void check_bytes(const unsigned char *got, size_t bytes, int from, unsigned call)
{
    test_buffer want = buffer_make(bytes, 0);

    memset(want.data, 0, bytes);
    if (from >= 0)
        fill(want.data, bytes, from, call);
    CHECK(memcmp(got, want.data, bytes) == 0, "call %u: not what rank %d has sent", call, from);
    buffer_free(&want);
}

/* The outcome; what is got is right, and what is sent as it was. */
static oriel_status permute(oriel_group *group, int rank, enum shape shape, size_t bytes,
                            int in_place, unsigned call)
{
    test_buffer send = buffer_make(bytes, call % 64);
    test_buffer recv = buffer_make(bytes, call * 3 % 64);
    unsigned char *into = in_place ? send.data : recv.data;
    int pairs[2 * HEAP_MAX_RANKS];
    int num = make_pairs(shape, group->n, pairs);
    int from = -1;
    oriel_status st;

    for (int i = 0; i < num; i++)
        from = pairs[2 * i + 1] == rank ? pairs[2 * i] : from;
    fill(send.data, bytes, rank, call);
    st = oriel_permute(group, rank, send.data, into, bytes, ORIEL_U8, pairs, num);
    if (st == ORIEL_OK)
        check_bytes(into, bytes, from, call);
    else
        CHECK(values_unpoisoned(into, bytes, ORIEL_U8) < 0, "recv is not poisoned");
    if (!in_place)
        check_bytes(send.data, bytes, rank, call);
    memset(send.data, 0xee, bytes); /* nobody reads it any more */
    buffer_free(&send);
    buffer_free(&recv);
    return st;
}

static void all_shapes(oriel_group *world, int rank, unsigned rounds)
{
    size_t room = world->facts.place;
    size_t most = oriel_choose_rows(&world->facts);
    size_t sizes[] = {room + 1, most, 100, 2 * room, room, 2 * room + 1, most - 5001, most + 1};
    unsigned call = 0;

    for (unsigned round = 0; round < rounds; round++) {
        for (int shape = 0; shape < SHAPES; shape++) {
            for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++, call++) {
                int in_place[] = {0, 1, rank % 2};

                CHECK_OK(permute(world, rank, (enum shape)shape, sizes[i],
                                 in_place[(call + round) % 3], call));
            }
        }
    }
}

/* Source and destination, and those that are neither, do not wait for each other. */
static void alone(oriel_comm *comm, int rank)
{
    oriel_group *world = oriel_comm_world(comm);
    oriel_group *meeting = NULL;
    int ranks[HEAP_MAX_RANKS];

    for (int i = 0; i < comm->size; i++)
        ranks[i] = i;
    CHECK_OK(oriel_group_create(comm, ranks, comm->size, &meeting));
    for (unsigned turn = 0; turn < 6; turn++) {
        int first = rank < 2 ? turn % 2 == 0 : turn % 2 == 1;

        if (!first)
            CHECK_OK(oriel_barrier(meeting, rank));
        CHECK_OK(
            permute(world, rank, LEFT_OUT, world->facts.place + 1 + turn, turn % 3 == 0, turn));
        if (first)
            CHECK_OK(oriel_barrier(meeting, rank));
    }
    oriel_group_destroy(meeting);
}

/* Rank 1 brings what it has, and is gone. Rank 2 may have it by then. */
static void die_in_one(oriel_group *world, size_t bytes)
{
    test_buffer send = buffer_make(bytes, 0);
    int pairs[2 * HEAP_MAX_RANKS];
    int num = make_pairs(RING, world->n, pairs);
    oriel_request *request;

    fill(send.data, bytes, 1, LAST);
    oriel_permute_start(world, 1, send.data, send.data, bytes, ORIEL_U8, pairs, num, &request);
    oriel_request_test(request);
    kill(getpid(), SIGKILL);
}

static void until_one_fails(oriel_group *world, int rank)
{
    size_t bytes = world->facts.place + 12345;
    oriel_status st = ORIEL_OK;

    for (unsigned call = 0; st == ORIEL_OK && call < MOST_CALLS; call++) {
        if (rank == 1 && call == LAST)
            die_in_one(world, bytes);
        st = permute(world, rank, RING, bytes, 1, call);
    }
    printf("%s %s\n", oriel_status_name(st), oriel_last_error());
}

int main(int argc, char **argv)
{
    const char *how = argc > 2 ? argv[2] : "plain";
    test_resources before = resources_now();
    oriel_comm *comm;
    oriel_group *world;
    int rank;

    comm = process_comm(1, patience_s, NULL);
    world = oriel_comm_world(comm);
    rank = oriel_comm_first_rank(comm);
    CHECK_OK(oriel_barrier(world, rank)); /* the next calls have a lane */
    CHECK(comm->oversubscribed && oriel_choose_rows(&world->facts) > world->facts.place,
          "room %zu, at most %zu", world->facts.place, oriel_choose_rows(&world->facts));
    if (strcmp(how, "plain") == 0) {
        all_shapes(world, rank, (unsigned)process_argument(argc, argv, 1, 1));
        alone(comm, rank);
    } else {
        until_one_fails(world, rank);
    }
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "at the end");
    printf("clean\n");
    return 0;
}
