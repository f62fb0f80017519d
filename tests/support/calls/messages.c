#include "support/calls/messages.h"

#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/values.h"

enum { MESSAGES = 24 };

/* One of all that the members send each other, and what a member does of it. */
struct message {
    int from, to; /* positions */
    size_t bytes;
    unsigned seed;
    test_buffer buffer;     /* of this member's end */
    oriel_request *request; /* NULL: not started, or over */
    int mine, started;
};

static size_t size_of(uint64_t luck, size_t most)
{
    static const size_t some[] = {0, 1, 8, 1000, 1009, 5000, 40 << 10, 300 << 10};
    size_t bytes = some[luck % (sizeof some / sizeof *some)];

    if (luck / 8 % 3 == 0)
        bytes = luck / 24 % (most + 1);
    return bytes < most ? bytes : most;
}

static void draw(struct message *m, int n, int mine, unsigned seed, unsigned k, size_t most)
{
    uint64_t luck = values_mix(seed, k);

    memset(m, 0, sizeof *m);
    m->from = (int)(luck % (unsigned)n);
    m->to = (int)((unsigned)m->from + 1 + luck / 64 % ((unsigned)n - 1)) % n;
    m->bytes = size_of(luck >> 20, most);
    m->seed = seed * MESSAGES + k;
    m->mine = m->from == mine || m->to == mine;
    if (!m->mine)
        return;
    m->buffer = buffer_make(m->bytes, luck % 64);
    if (m->from == mine)
        values_fill_bytes(m->buffer.data, m->bytes, m->seed, seed);
}

/* The receiver has what was sent, and the sender has it still. */
static void end(struct message *m, unsigned seed)
{
    test_buffer want = buffer_make(m->bytes, 0);

    values_fill_bytes(want.data, m->bytes, m->seed, seed);
    CHECK(memcmp(want.data, m->buffer.data, m->bytes) == 0, "%zu bytes from %d to %d, seed %u",
          m->bytes, m->from, m->to, m->seed);
    memset(m->buffer.data, 0xee, m->bytes); /* nobody reads it any more */
    buffer_free(&want);
    buffer_free(&m->buffer);
    m->mine = 0;
}

static int begin(oriel_group *group, int rank, struct message *all, unsigned k)
{
    struct message *m = &all[k];

    if (!m->mine || m->started)
        return 0;
    for (unsigned before = 0; before < k; before++) { /* those of one direction have an order */
        if (all[before].from == m->from && all[before].to == m->to && !all[before].started)
            return 0;
    }
    if (m->from == oriel_group_index(group, rank))
        CHECK_OK(
            oriel_send_start(group, rank, m->buffer.data, m->bytes, ORIEL_U8, m->to, &m->request));
    else
        CHECK_OK(oriel_recv_start(group, rank, m->buffer.data, m->bytes, ORIEL_U8, m->from,
                                  &m->request));
    m->started = 1;
    return 1;
}

void messages_started(oriel_group *group, int rank, unsigned seed, size_t most)
{
    int mine = oriel_group_index(group, rank);
    struct message all[MESSAGES];
    unsigned left = 0;
    uint64_t luck = values_mix(seed, 1000 + (uint64_t)mine);

    for (unsigned k = 0; k < MESSAGES; k++) {
        draw(&all[k], oriel_group_size(group), mine, seed, k, most);
        left += (unsigned)all[k].mine;
    }
    for (unsigned to_begin = left; to_begin > 0; luck = values_mix(luck, seed))
        to_begin -= (unsigned)begin(group, rank, all, luck % MESSAGES);
    for (; left > 0; luck = values_mix(luck, seed)) {
        struct message *m = &all[luck % MESSAGES];
        oriel_status st = ORIEL_IN_PROGRESS;

        if (!m->mine)
            continue;
        if (luck >> 32 & 1)
            st = oriel_request_test(m->request);
        if (st == ORIEL_IN_PROGRESS && (luck >> 32 & 3) != 3)
            st = oriel_request_wait(m->request);
        if (st == ORIEL_IN_PROGRESS)
            continue;
        CHECK_OK(st);
        end(m, seed);
        left--;
    }
}

void messages_blocking(oriel_group *group, int rank, unsigned seed, size_t most)
{
    int mine = oriel_group_index(group, rank);

    for (unsigned k = 0; k < MESSAGES; k++) {
        struct message m;

        draw(&m, oriel_group_size(group), mine, seed, k, most);
        if (!m.mine)
            continue;
        if (m.from == mine)
            CHECK_OK(oriel_send(group, rank, m.buffer.data, m.bytes, ORIEL_U8, m.to));
        else
            CHECK_OK(oriel_recv(group, rank, m.buffer.data, m.bytes, ORIEL_U8, m.from));
        end(&m, seed);
    }
}

void messages_exchanged(oriel_group *group, int rank, unsigned seed, size_t most)
{
    int mine = oriel_group_index(group, rank);
    int n = oriel_group_size(group);

    for (unsigned k = 0; k < MESSAGES / 4; k++) {
        int by = (int)(values_mix(seed, k) % (unsigned)(n - 1)) + 1;
        int dest = (mine + by) % n;
        int source = (mine + n - by) % n;
        size_t bytes[] = {size_of(values_mix(seed + k, (uint64_t)mine), most),
                          size_of(values_mix(seed + k, (uint64_t)source), most)};
        test_buffer send = buffer_make(bytes[0], k);
        test_buffer recv = buffer_make(bytes[1], 0);
        test_buffer want = buffer_make(bytes[1], 0);

        values_fill_bytes(send.data, bytes[0], (uint64_t)mine, seed + k);
        values_fill_bytes(want.data, bytes[1], (uint64_t)source, seed + k);
        CHECK_OK(oriel_sendrecv(group, rank, send.data, bytes[0], dest, recv.data, bytes[1], source,
                                ORIEL_U8));
        CHECK(memcmp(want.data, recv.data, bytes[1]) == 0, "exchange %u: not what %d has sent", k,
              source);
        buffer_free(&send);
        buffer_free(&recv);
        buffer_free(&want);
    }
}
