/* labels: tsan valgrind */
/* Windows of a world of one process; tests/multi/programs/memory/windows.c has several. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/world/comm.h"
#include "support/check.h"
#include "support/ranks.h"
#include "support/resources.h"

enum { RANKS = 3, WINDOWS = 40 };
static const double patience_s = 30.0;

static unsigned char *part_of(oriel_window *window, int rank)
{
    void *ptr = NULL;

    CHECK_OK(oriel_window_ptr(window, rank, &ptr));
    return ptr;
}

static void test_sizes(void **state)
{
    static const size_t sizes[] = {1, 7, 64, 4095, 4096, 4097, 1 << 20, (64 << 20) + 1};
    oriel_comm *comm =
        ranks_comm(RANKS, patience_s, "ORIEL_ARENA", "64M", "ORIEL_WINDOWS", "1G", NULL);

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        oriel_window *window = NULL;

        CHECK_OK(oriel_window_create(oriel_comm_world(comm), sizes[i], &window));
        assert_int_equal(oriel_window_bytes(window), sizes[i]);
        for (int r = 0; r < RANKS; r++) {
            unsigned char *part = part_of(window, r);

            assert_int_equal((uintptr_t)part % 64, 0);
            assert_int_equal(part[0] | part[sizes[i] - 1], 0);
            memset(part, r + 1, sizes[i] < 10000 ? sizes[i] : 10000);
        }
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(part_of(window, r)[0], r + 1);
        oriel_window_free(window);
    }
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

static void found_at(oriel_comm *comm, const unsigned char *addr, oriel_window *window, int rank,
                     size_t offset)
{
    oriel_window *found = NULL;
    size_t found_offset = 0;
    int found_rank = -1;

    CHECK_OK(oriel_window_find(comm, addr, &found, &found_rank, &found_offset));
    assert_ptr_equal(found, window);
    assert_int_equal(found_rank, rank);
    assert_int_equal(found_offset, offset);
}

static void not_found_at(oriel_comm *comm, const void *addr)
{
    oriel_window *found = (oriel_window *)comm;
    size_t offset = 77;
    int rank = 88;

    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_find(comm, addr, &found, &rank, &offset));
    check_says("no window", NULL);
    assert_ptr_equal(found, comm);
    assert_int_equal(rank, 88);
    assert_int_equal(offset, 77);
}

static void test_find(void **state)
{
    oriel_comm *comm =
        ranks_comm(RANKS, patience_s, "ORIEL_ARENA", "64M", "ORIEL_WINDOWS", "1G", NULL);
    oriel_window *windows[WINDOWS];
    unsigned char *gone;

    (void)state;
    for (size_t w = 0; w < WINDOWS; w++)
        CHECK_OK(oriel_window_create(oriel_comm_world(comm), 5000 + w, &windows[w]));
    for (size_t w = 0; w < WINDOWS; w++) {
        for (int r = 0; r < RANKS; r++) {
            unsigned char *part = part_of(windows[w], r);

            found_at(comm, part, windows[w], r, 0);
            found_at(comm, part + 4999 + w, windows[w], r, 4999 + w);
            not_found_at(comm, part + 5000 + w); /* the rest of its last page */
        }
    }
    not_found_at(comm, NULL);
    not_found_at(comm, &windows);
    not_found_at(comm, (void *)UINTPTR_MAX);
    gone = part_of(windows[3], 1);
    oriel_window_free(windows[3]);
    not_found_at(comm, gone);
    found_at(comm, part_of(windows[4], 2) + 8, windows[4], 2, 8);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK); /* frees the others */
}

static void test_bad_arguments(void **state)
{
    oriel_comm *comm =
        ranks_comm(RANKS, patience_s, "ORIEL_ARENA", "64M", "ORIEL_WINDOWS", "1G", NULL);
    oriel_window *window = NULL;
    oriel_window *none = (oriel_window *)comm;
    void *ptr = comm;
    size_t offset;
    int rank;

    (void)state;
    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_create(NULL, 64, &none));
    check_says("group is NULL", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_create(oriel_comm_world(comm), 64, NULL));
    check_says("window_p is NULL", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_create(oriel_comm_world(comm), 0, &none));
    check_says("bytes is 0", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_create(oriel_comm_world(comm), SIZE_MAX, &none));
    check_says("18446744073709551615", NULL);
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), 64, &window));
    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_ptr(NULL, 0, &ptr));
    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_ptr(window, 0, NULL));
    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_ptr(window, -1, &ptr));
    check_says("rank is -1", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_ptr(window, RANKS, &ptr));
    check_says("rank is 3", NULL);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_find(NULL, window, &none, &rank, &offset));
    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_find(comm, window, NULL, &rank, &offset));
    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_find(comm, window, &none, NULL, &offset));
    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_find(comm, window, &none, &rank, NULL));
    assert_ptr_equal(none, comm);
    assert_ptr_equal(ptr, comm);
    assert_int_equal(oriel_window_bytes(NULL), 0);
    oriel_window_free(NULL);
    oriel_window_free(window);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* More than any machine has: a status, and the comm still works. */
static void test_too_large(void **state)
{
    oriel_comm *comm =
        ranks_comm(RANKS, patience_s, "ORIEL_ARENA", "64M", "ORIEL_WINDOWS", "1G", NULL);
    oriel_window *window = NULL;

    (void)state;
    CHECK_IS(ORIEL_ERR_NO_RESOURCE,
             oriel_window_create(oriel_comm_world(comm), (size_t)1 << 46, &window));
    assert_null(window);
    CHECK_OK(oriel_comm_check(comm));
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), 64, &window));
    oriel_window_free(window);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

static void test_nothing_left(void **state)
{
    oriel_comm *comm =
        ranks_comm(RANKS, patience_s, "ORIEL_ARENA", "64M", "ORIEL_WINDOWS", "1G", NULL);
    oriel_window *first = NULL;
    test_resources before;

    (void)state;
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), 1, &first)); /* maps the arena */
    before = resources_now();
    for (int i = 0; i < 300; i++) {
        oriel_window *window = NULL;

        CHECK_OK(oriel_window_create(oriel_comm_world(comm), 10000, &window));
        memset(part_of(window, i % RANKS), 1, 10000);
        oriel_window_free(window);
    }
    resources_check(before, "after 300 windows");
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* What is freed is used again, and is zero then; numbers are not. */
static void test_again(void **state)
{
    oriel_comm *comm =
        ranks_comm(RANKS, patience_s, "ORIEL_ARENA", "64M", "ORIEL_WINDOWS", "1G", NULL);
    oriel_group *world = oriel_comm_world(comm);
    oriel_window *kept = NULL;
    oriel_window *window = NULL;
    const unsigned char *was;
    uint64_t last = 0;

    (void)state;
    CHECK_OK(oriel_window_create(world, 100000, &window));
    CHECK_OK(oriel_window_create(world, 100000, &kept));
    was = part_of(window, 1);
    memset(part_of(kept, 1), 7, 100000);
    for (int i = 0; i < 10; i++) {
        assert_true(oriel_window_number(window) > last);
        last = oriel_window_number(window);
        assert_ptr_equal(part_of(window, 1), was);
        for (int k = 0; k < 100000; k++)
            assert_int_equal(part_of(window, 1)[k], 0);
        memset(part_of(window, 1), i + 1, 100000);
        oriel_window_free(window);
        CHECK_OK(oriel_window_create(world, 99000 + (size_t)i, &window));
        last = oriel_window_number(kept) > last ? oriel_window_number(kept) : last;
    }
    assert_int_equal(part_of(kept, 1)[0], 7);
    assert_int_equal(part_of(kept, 1)[99999], 7);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* Of a group: its members have parts, and others have none. */
static void test_groups(void **state)
{
    oriel_comm *comm =
        ranks_comm(RANKS, patience_s, "ORIEL_ARENA", "64M", "ORIEL_WINDOWS", "1G", NULL);
    oriel_group *pair = NULL;
    oriel_window *window = NULL;
    void *ptr = NULL;

    (void)state;
    CHECK_OK(oriel_group_create(comm, (int[]){2, 0}, 2, &pair));
    CHECK_OK(oriel_window_create(pair, 5000, &window));
    memset(part_of(window, 0), 1, 5000);
    memset(part_of(window, 2), 2, 5000);
    CHECK_IS(ORIEL_ERR_INVALID, oriel_window_ptr(window, 1, &ptr));
    check_says("rank is 1, which has no part of the window", NULL);
    oriel_group_destroy(pair); /* the window does not need it */
    found_at(comm, part_of(window, 2) + 4999, window, 2, 4999);
    oriel_window_free(window);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* Sizes, order of making and freeing drawn; each window keeps what was written to it. */
static void test_random(void **state)
{
    enum { MOST = 200, STEPS = 10000 };
    oriel_comm *comm =
        ranks_comm(RANKS, patience_s, "ORIEL_ARENA", "64M", "ORIEL_WINDOWS", "1G", NULL);
    oriel_window *windows[MOST] = {NULL};

    (void)state;
    srand(1);
    for (int i = 0; i < STEPS; i++) {
        int k = rand() % MOST;
        size_t bytes = 1 + (size_t)rand() % (1u << rand() % 18);

        for (int r = 0; windows[k] != NULL && r < RANKS; r++) {
            size_t has = oriel_window_bytes(windows[k]);

            assert_int_equal(part_of(windows[k], r)[0], k + r);
            assert_int_equal(part_of(windows[k], r)[has - 1], k + r);
            found_at(comm, part_of(windows[k], r) + has - 1, windows[k], r, has - 1);
        }
        oriel_window_free(windows[k]);
        CHECK_OK(oriel_window_create(oriel_comm_world(comm), bytes, &windows[k]));
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(part_of(windows[k], r)[0] | part_of(windows[k], r)[bytes - 1], 0);
            memset(part_of(windows[k], r), k + r, bytes);
        }
    }
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* Both limits have a sentence, after which the comm works. */
static void test_full(void **state)
{
    enum { MOST = 16384 };
    oriel_comm *comm = ranks_comm(1, patience_s, "ORIEL_WINDOWS", "100M", NULL);
    oriel_window *window = NULL;
    oriel_window *last = NULL;

    (void)state;
    CHECK_IS(ORIEL_ERR_NO_RESOURCE,
             oriel_window_create(oriel_comm_world(comm), 101 << 20, &window));
    check_says("a window of 105906176 bytes needs 109051904 of the 104857600 of ORIEL_WINDOWS",
               "of which at most 104857600 are left in one piece", NULL);
    assert_null(window);
    for (int i = 0; i < MOST; i++)
        CHECK_OK(oriel_window_create(oriel_comm_world(comm), 1, &last));
    CHECK_IS(ORIEL_ERR_NO_RESOURCE, oriel_window_create(oriel_comm_world(comm), 1, &window));
    check_says("a world has at most 16384 windows", NULL);
    oriel_window_free(last);
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), 1, &window));
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* Whatever was made and freed, in whatever order: when all is free, all is in one piece. */
static void test_one_piece(void **state)
{
    enum { MOST = 300 };
    oriel_comm *comm = ranks_comm(1, patience_s, "ORIEL_WINDOWS", "100M", NULL);
    oriel_window *windows[MOST];
    oriel_window *large = NULL;

    (void)state;
    srand(2);
    for (int round = 0; round < 20; round++) {
        int n = 0;
        oriel_status st = ORIEL_OK;

        while (n < MOST && st == ORIEL_OK) {
            size_t bytes = 1 + (size_t)rand() % (1u << rand() % 24);

            st = oriel_window_create(oriel_comm_world(comm), bytes, &windows[n]);
            n += st == ORIEL_OK;
        }
        CHECK_IS(ORIEL_ERR_NO_RESOURCE,
                 oriel_window_create(oriel_comm_world(comm), 90 << 20, &large));
        while (n > 0) {
            int k = rand() % n;

            oriel_window_free(windows[k]);
            windows[k] = windows[--n];
        }
        CHECK_OK(oriel_window_create(oriel_comm_world(comm), 90 << 20, &large));
        oriel_window_free(large);
    }
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* As many windows as there may be, with a gap below each: a gap is no window. */
static void test_gaps(void **state)
{
    enum { MOST = 16384 };
    static oriel_window *windows[MOST];
    oriel_comm *comm = ranks_comm(1, patience_s, "ORIEL_WINDOWS", "1G", NULL);
    oriel_window *more = NULL;

    (void)state;
    for (int i = 0; i < MOST; i++)
        CHECK_OK(oriel_window_create(oriel_comm_world(comm), 1, &windows[i]));
    for (int i = 0; i < MOST; i += 2) {
        oriel_window_free(windows[i]);
        CHECK_OK(oriel_window_create(oriel_comm_world(comm), 5000, &windows[i]));
    }
    CHECK_IS(ORIEL_ERR_NO_RESOURCE, oriel_window_create(oriel_comm_world(comm), 1, &more));
    for (int i = 0; i < MOST; i++)
        oriel_window_free(windows[i]);
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), 900 << 20, &more));
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* A child has a copy of the object, and what it does to it is not done to the window. */
static void test_child(void **state)
{
    oriel_comm *comm = ranks_comm(RANKS, patience_s, NULL);
    oriel_window *window = NULL;
    oriel_window *other = NULL;

    (void)state;
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), 5000, &window));
    memset(part_of(window, 2), 9, 5000);
    comm->pid++; /* as a child sees it */
    oriel_window_free(window);
    comm->pid--;
    assert_int_equal(part_of(window, 2)[4999], 9);
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), 5000, &other));
    assert_ptr_not_equal(part_of(window, 0), part_of(other, 0));
    oriel_window_free(window);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

/* An operation may work on a window. */
static void reduce_windows(oriel_comm *comm, int rank, void *arg)
{
    oriel_window *window = arg;
    uint32_t *mine = (uint32_t *)(void *)part_of(window, rank);

    for (uint32_t i = 0; i < 1000; i++)
        mine[i] = i + (uint32_t)rank;
    CHECK_OK(
        oriel_all_reduce(oriel_comm_world(comm), rank, mine, mine, 1000, ORIEL_U32, ORIEL_SUM));
    for (uint32_t i = 0; i < 1000; i++)
        CHECK(mine[i] == RANKS * i + 3, "element %u is %u", i, mine[i]);
}

static void test_reduce_windows(void **state)
{
    oriel_comm *comm =
        ranks_comm(RANKS, patience_s, "ORIEL_ARENA", "64M", "ORIEL_WINDOWS", "1G", NULL);
    oriel_window *window = NULL;

    (void)state;
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), 4000, &window));
    ranks_run(comm, reduce_windows, window);
    oriel_window_free(window);
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),         cmocka_unit_test(test_find),
        cmocka_unit_test(test_bad_arguments), cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_nothing_left),  cmocka_unit_test(test_again),
        cmocka_unit_test(test_groups),        cmocka_unit_test(test_random),
        cmocka_unit_test(test_full),          cmocka_unit_test(test_reduce_windows),
        cmocka_unit_test(test_one_piece),     cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_child),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
