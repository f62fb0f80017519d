/* Copies of every small length and alignment, and of some large ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/copy.h"

enum { ROOM = 8192 };

typedef void (*copier)(void *dst, const void *src, size_t bytes);

static unsigned char from[ROOM], to[ROOM];

/* Bytes arrive, and nothing beside them changes. */
static void check(copier copy, size_t to_at, size_t from_at, size_t bytes)
{
    memset(to, 0xee, sizeof to);
    copy(to + to_at, from + from_at, bytes);
    assert_memory_equal(to + to_at, from + from_at, bytes);
    for (size_t i = 0; i < to_at; i++)
        assert_int_equal(to[i], 0xee);
    for (size_t i = to_at + bytes; i < to_at + bytes + 128; i++)
        assert_int_equal(to[i], 0xee);
}

static void check_all(copier copy)
{
    static const size_t alignments[] = {0, 1, 8, 16, 31, 48, 63};
    static const size_t large[] = {1023, 1024, 1025, 1087, 1088, 2048, 4095, 4096, 4161, 7000};

    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (unsigned char)(i * 7 + i / 251);
    for (size_t a = 0; a < 7; a++) {
        for (size_t b = 0; b < 7; b++) {
            for (size_t bytes = 0; bytes < 200; bytes++)
                check(copy, alignments[a], alignments[b], bytes);
            for (size_t k = 0; k < 10; k++)
                check(copy, alignments[a], alignments[b], large[k]);
        }
    }
}

static void test_plain_copies(void **state)
{
    (void)state;
    check_all(oriel_copy);
}

static void test_streaming_copies(void **state)
{
    (void)state;
    check_all(oriel_copy_stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_copies),
        cmocka_unit_test(test_streaming_copies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
