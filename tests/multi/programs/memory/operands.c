/* labels: valgrind-soak */
/* processes: 3 */
/* Every operation between processes with operands that lie in windows, of all ranks, of some or of
 * none: operands [local ranks] [random calls] [how], with how of plain, freed or past (rank 0's is
 * in a window that was freed, or goes beyond its end), or kill (rank 1 dies in the middle). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/protocol/cell.h"
#include "support/check.h"
#include "support/family.h"
#include "support/process.h"
#include "support/ranks.h"

enum { FLIGHTS = 5, PLACES = 2 * FLIGHTS, PLACE = 7 << 19, LAST = 5, MOST_CALLS = 1000 };

struct plan {
    oriel_window *window;
    int calls;
};

static unsigned char *part_of(oriel_window *window, int rank)
{
    void *ptr = NULL;

    CHECK_OK(oriel_window_ptr(window, rank, &ptr));
    return ptr;
}

/* ---- a call whose buffers lie in a window ----------------------------------------------- */

struct placed {
    family_flight flight;
    test_buffer send, recv; /* the usual ones, as they were */
};

/* In `round`: bit 0 for send, bit 1 for recv. All ranks, every second one, rank 0 alone, all but
 * that, one in this call and another in the next, none. */
static unsigned share_of(unsigned round, int rank)
{
    unsigned shares[] = {1, rank % 2 ? 3 : 0, rank == 0, 3, rank != 0, (round + (unsigned)rank) % 4,
                         0};

    return shares[round % (sizeof shares / sizeof *shares)];
}

static void move(test_buffer *buffer, test_buffer *usual, unsigned char *place, size_t shift)
{
    *usual = *buffer;
    if (buffer->base == NULL || buffer->bytes + shift > PLACE)
        return;
    buffer->data = place + shift;
    memcpy(buffer->data, usual->data, buffer->bytes);
}

/* The places are numbers 2 * i and 2 * i + 1 of the rank's. */
static void open_placed(struct placed *p, oriel_group *group, int rank, const family_call *call,
                        unsigned char *part, int i, unsigned share)
{
    family_open(&p->flight, group, rank, call);
    p->send = p->flight.send;
    p->recv = p->flight.recv;
    if (share & 1)
        move(&p->flight.send, &p->send, part + (size_t)(2 * i) * PLACE, call->shift);
    if (share & 2)
        move(&p->flight.recv, &p->recv, part + (size_t)(2 * i + 1) * PLACE, call->seed % 64);
}

/* The call has ended, so the memory is its owner's: whoever still reads it gets something else. */
static void take_back(test_buffer *buffer, const test_buffer *usual, int changed)
{
    if (buffer->data != usual->data) {
        if (changed)
            memcpy(usual->data, buffer->data, buffer->bytes);
        memset(buffer->data, 0xdd, buffer->bytes);
    }
    *buffer = *usual;
}

static void finish_placed(struct placed *p)
{
    int in_place = p->recv.base == NULL;

    take_back(&p->flight.send, &p->send, in_place);
    take_back(&p->flight.recv, &p->recv, 1);
    family_finish(&p->flight);
}

static void check_placed(oriel_group *group, int rank, const family_call *call, unsigned char *part,
                         unsigned share)
{
    struct placed p;

    open_placed(&p, group, rank, call, part, 0, share);
    CHECK_OK(family_run(&p.flight));
    finish_placed(&p);
}

static void edges(oriel_comm *comm, int rank, unsigned char *part)
{
    size_t chunk = comm->heap.header->chunk_bytes;
    size_t list[] = {1, 1000, (24 << 10) + 3, chunk + 1, 5 * chunk - 3, (3 << 20) - 7};
    unsigned seed = 0;

    for (int kind = 1; kind < ORIEL_KIND_KERNEL; kind++) {
        for (unsigned i = 0; i < sizeof list / sizeof *list; i++) {
            for (int in_place = 0; in_place < 3; in_place++, seed++) {
                family_call call = {.kind = (enum oriel_kind)kind,
                                    .dtype = ORIEL_U8,
                                    .count = list[i],
                                    .row = 1,
                                    .slices = 2,
                                    .shift = seed % 3 ? seed % 64 : 0,
                                    .in_place = in_place,
                                    .seed = seed};

                check_placed(oriel_comm_world(comm), rank, &call, part, share_of(seed / 2, rank));
            }
        }
    }
}

/* Random bits: they are those of operands that lie elsewhere. */
static void same_bits(oriel_comm *comm, int rank, unsigned char *part)
{
    enum { COUNT = 300 * 1000 };
    float *send = (float *)(void *)(part + 4);
    float *plain = malloc(COUNT * sizeof *plain);
    float *recv = malloc(2 * COUNT * sizeof *recv);
    oriel_group *world = oriel_comm_world(comm);

    CHECK(plain != NULL && recv != NULL, "out of memory");
    for (int i = 0; i < COUNT; i++)
        plain[i] = (float)values_mix((uint64_t)i, (uint64_t)rank) * 1e-9f;
    memcpy(send, plain, COUNT * sizeof *plain);
    CHECK_OK(oriel_all_reduce(world, rank, plain, recv, COUNT, ORIEL_F32, ORIEL_SUM));
    CHECK_OK(oriel_all_reduce(world, rank, send, recv + COUNT, COUNT, ORIEL_F32, ORIEL_SUM));
    CHECK(memcmp(recv, recv + COUNT, COUNT * sizeof *recv) == 0, "other bits");
    CHECK_OK(oriel_all_reduce(world, rank, rank == 0 ? plain : send, recv + COUNT, COUNT, ORIEL_F32,
                              ORIEL_SUM));
    CHECK(memcmp(recv, recv + COUNT, COUNT * sizeof *recv) == 0, "other bits");
    CHECK_OK(oriel_all_reduce(world, rank, send, send, COUNT, ORIEL_F32, ORIEL_SUM));
    CHECK(memcmp(recv, send, COUNT * sizeof *recv) == 0, "other bits in place");
    free(plain);
    free(recv);
}

/* Each member to the next. */
static void messages(oriel_comm *comm, int rank, unsigned char *part)
{
    enum { BYTES = 400 * 1000 };
    oriel_group *world = oriel_comm_world(comm);
    int to = (rank + 1) % comm->size;
    int from = (rank + comm->size - 1) % comm->size;
    test_buffer want = buffer_make(BYTES, 0);
    test_buffer recv = buffer_make(BYTES, 3);

    for (unsigned i = 0; i < 4 && comm->size > 1; i++) {
        unsigned char *send = part + i;

        values_fill_bytes(send, BYTES, (uint64_t)rank, i);
        values_fill_bytes(want.data, BYTES, (uint64_t)from, i);
        CHECK_OK(oriel_sendrecv(world, rank, send, BYTES, to, recv.data, BYTES, from, ORIEL_U8));
        memset(send, 0xdd, BYTES);
        CHECK(memcmp(recv.data, want.data, BYTES) == 0, "not what rank %d has sent", from);
    }
    buffer_free(&want);
    buffer_free(&recv);
}

/* Several at once, waited for in an order that differs between ranks. */
static void in_flight(oriel_comm *comm, int rank, unsigned round, unsigned char *part)
{
    struct placed flights[FLIGHTS];

    for (int i = 0; i < FLIGHTS; i++) {
        family_call call = family_random(round * FLIGHTS + (unsigned)i, 300 * 1000);

        open_placed(&flights[i], oriel_comm_world(comm), rank, &call, part, i,
                    share_of(round + (unsigned)i, rank));
        family_begin(&flights[i].flight);
    }
    for (int i = 0; i < FLIGHTS; i++) {
        struct placed *p = &flights[(i * (1 + rank % 4) + rank) % FLIGHTS];

        CHECK_OK(oriel_request_wait(p->flight.request));
        finish_placed(p);
    }
}

static void body(oriel_comm *comm, int rank, void *arg)
{
    const struct plan *plan = arg;
    unsigned char *part = part_of(plan->window, rank);

    same_bits(comm, rank, part);
    messages(comm, rank, part);
    edges(comm, rank, part);
    for (unsigned i = 0; i < (unsigned)plan->calls; i++) {
        family_call call = family_random(i, i % 10 == 0 ? 3 << 20 : 400 * 1000);

        check_placed(oriel_comm_world(comm), rank, &call, part, share_of(i, rank));
        if (i % 8 == 0)
            in_flight(comm, rank, i, part);
    }
}

/* The window is freed as soon as the call has ended here. */
static void fleeting(oriel_comm *comm, unsigned round)
{
    enum { BYTES = 300 * 1000 };
    int rank = oriel_comm_first_rank(comm);
    unsigned char *recv = calloc((size_t)comm->size, BYTES);
    test_buffer want = buffer_make(BYTES, 0);
    oriel_window *window = NULL;
    unsigned char *send;

    CHECK(recv != NULL, "out of memory");
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), BYTES, &window));
    send = part_of(window, rank);
    values_fill_bytes(send, BYTES, (uint64_t)rank, round);
    CHECK_OK(oriel_all_gather(oriel_comm_world(comm), rank, send, recv, BYTES, ORIEL_U8));
    oriel_window_free(window);
    for (int i = 0; i < comm->size; i++) {
        values_fill_bytes(want.data, BYTES, (uint64_t)i, round);
        CHECK(memcmp(recv + (size_t)i * BYTES, want.data, BYTES) == 0, "not what rank %d sent", i);
    }
    buffer_free(&want);
    free(recv);
}

/* The world has a member whose process has not mapped the arena. */
static void small_group(oriel_comm *comm)
{
    enum { COUNT = 200 * 1000 };
    int ranks[] = {0, 1};
    int rank = oriel_comm_first_rank(comm);
    oriel_window *window = NULL;
    oriel_group *pair = NULL;
    float *recv = malloc(COUNT * sizeof *recv);
    float *send = recv;

    CHECK(recv != NULL, "out of memory");
    if (rank < 2) {
        CHECK_OK(oriel_group_create(comm, ranks, 2, &pair));
        CHECK_OK(oriel_window_create(pair, COUNT * sizeof *recv, &window));
        send = (float *)(void *)part_of(window, rank);
    }
    for (int i = 0; i < COUNT; i++)
        send[i] = (float)(i + rank);
    CHECK_OK(
        oriel_all_reduce(oriel_comm_world(comm), rank, send, recv, COUNT, ORIEL_F32, ORIEL_MAX));
    for (int i = 0; i < COUNT; i++)
        CHECK(recv[i] == (float)(i + comm->size - 1), "element %d is %g", i, (double)recv[i]);
    oriel_window_free(window);
    oriel_group_destroy(pair);
    free(recv);
}

/* ---- calls that fail ------------------------------------------------------------------ */

static void refused(oriel_comm *comm, oriel_window *window, const char *how)
{
    enum { COUNT = 1 << 20 };
    int rank = oriel_comm_first_rank(comm);
    unsigned char *wrong = part_of(window, rank);
    float *recv = calloc(COUNT, sizeof *recv);
    int freed = strcmp(how, "freed") == 0;

    CHECK(recv != NULL, "out of memory");
    if (freed)
        oriel_window_free(window);
    else
        wrong += (size_t)PLACES * PLACE - 4096;
    CHECK(oriel_all_reduce(oriel_comm_world(comm), rank, rank == 0 ? (void *)wrong : recv, recv,
                           COUNT, ORIEL_F32, ORIEL_SUM) != ORIEL_OK,
          "an operand in no window");
    check_says("rank 0: send of all_reduce: it ",
               freed ? "among the windows of rank 0, but in none that is held: it was freed"
                     : "has 4194304 bytes, of which window ",
               NULL);
    free(recv);
}

static void die(oriel_comm *comm, const float *send, float *recv, size_t count)
{
    oriel_request *request;

    oriel_all_reduce_start(oriel_comm_world(comm), 1, send, recv, count, ORIEL_F32, ORIEL_SUM,
                           &request);
    oriel_request_test(request);
    kill(getpid(), SIGKILL);
}

static void until_one_fails(oriel_comm *comm, oriel_window *window)
{
    enum { COUNT = 1 << 19 };
    int rank = oriel_comm_first_rank(comm);
    float *send = (float *)(void *)part_of(window, rank);
    float *recv = calloc(COUNT, sizeof *recv);
    oriel_status st = ORIEL_OK;

    CHECK(recv != NULL, "out of memory");
    for (int call = 0; st == ORIEL_OK && call < MOST_CALLS; call++) {
        if (rank == 1 && call == LAST)
            die(comm, send, recv, COUNT);
        st =
            oriel_all_reduce(oriel_comm_world(comm), rank, send, recv, COUNT, ORIEL_F32, ORIEL_SUM);
    }
    CHECK(values_unpoisoned(recv, COUNT, ORIEL_F32) < 0, "recv is not poisoned");
    printf("%s %s\n", oriel_status_name(st), oriel_last_error());
    free(recv);
}

int main(int argc, char **argv)
{
    struct plan plan = {.calls = process_argument(argc, argv, 2, 20)};
    int local_ranks = process_argument(argc, argv, 1, 1);
    const char *how = argc > 3 ? argv[3] : "plain";
    oriel_comm *comm;

    setenv("ORIEL_ARENA", "1M", 0); /* of each rank; valgrind has few addresses to give away */
    setenv("ORIEL_WINDOWS", "64M", 0);
    comm = process_comm(local_ranks, 60.0, NULL);
    if (local_ranks == 1 && comm->size > 1)
        small_group(comm);
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), (size_t)PLACES * PLACE, &plan.window));
    if (strcmp(how, "plain") == 0) {
        for (unsigned i = 0; i < 20 && local_ranks == 1; i++)
            fleeting(comm, i);
        ranks_run(comm, body, &plan);
    } else if (strcmp(how, "kill") == 0) {
        until_one_fails(comm, plan.window);
    } else {
        refused(comm, plan.window, how);
    }
    CHECK_OK(oriel_comm_destroy(comm));
    printf("clean\n");
    return 0;
}
