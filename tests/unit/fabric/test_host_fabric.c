/* labels: valgrind */
/* The host fabric: a segment is mapped only where the peer's has all of the bytes. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/fabric.h"
#include "support/check.h"
#include "support/resources.h"

enum { BYTES = 8192, PATIENCE_MS = 30000 };
static const oriel_fabric *const fabric = &oriel_fabric_host;

struct peer {
    oriel_port port;
    oriel_segment segment;
};

static const oriel_segment *lookup(void *ctx, uint64_t id)
{
    (void)id;
    return &((struct peer *)ctx)->segment;
}

static void *serve(void *arg)
{
    struct peer *peer = arg;
    struct pollfd waiting = {.fd = peer->port.fd, .events = POLLIN};

    CHECK(poll(&waiting, 1, PATIENCE_MS) == 1, "nobody asked");
    fabric->port_serve(&peer->port, lookup, peer);
    return NULL;
}

/* Asks a peer whose segment has BYTES for one of `bytes`. */
static oriel_status fetch(size_t bytes, oriel_segment *segment_p)
{
    struct peer peer;
    pthread_t server;
    oriel_status st;

    CHECK_OK(fabric->segment_create(BYTES, &peer.segment));
    CHECK_OK(fabric->port_create(&peer.port));
    memset(peer.segment.base, 7, BYTES);
    CHECK(pthread_create(&server, NULL, serve, &peer) == 0, "no thread");
    st = fabric->segment_fetch(&peer.port.ticket, 1, bytes, PATIENCE_MS * 1e-3, segment_p);
    pthread_join(server, NULL);
    fabric->port_close(&peer.port);
    fabric->segment_close(&peer.segment);
    return st;
}

static void test_whole(void **state)
{
    test_resources before = resources_now();
    oriel_segment segment;

    (void)state;
    CHECK_OK(fetch(BYTES, &segment));
    assert_int_equal(((const char *)segment.base)[BYTES - 1], 7);
    fabric->segment_close(&segment);
    resources_check(before, "after a segment");
}

static void test_short(void **state)
{
    test_resources before = resources_now();
    oriel_segment segment = {.fd = -1};

    (void)state;
    CHECK_IS(ORIEL_ERR_MISMATCH, fetch(BYTES + 1, &segment));
    check_says("has 8192 bytes instead of 8193", NULL);
    assert_null(segment.base);
    resources_check(before, "after a segment that is too short");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_short),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
