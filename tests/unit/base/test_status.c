/* labels: tsan valgrind */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/status.h"

static void test_fail_records_the_sentence(void **state)
{
    (void)state;
    assert_int_equal(oriel_fail(ORIEL_ERR_PEER, "rank %d is gone", 3), ORIEL_ERR_PEER);
    assert_string_equal(oriel_last_error(), "rank 3 is gone");
}

static void test_fail_may_quote_the_last_error(void **state)
{
    (void)state;
    oriel_fail(ORIEL_ERR_PEER, "first");
    oriel_fail(ORIEL_ERR_PEER, "second after %s", oriel_last_error());
    assert_string_equal(oriel_last_error(), "second after first");
}

static void test_fail_in_prefixes(void **state)
{
    (void)state;
    oriel_fail(ORIEL_ERR_SYSTEM, "no memory");
    assert_int_equal(oriel_fail_in(ORIEL_ERR_SYSTEM, "window %d", 7), ORIEL_ERR_SYSTEM);
    assert_string_equal(oriel_last_error(), "window 7: no memory");
}

static void test_long_text_is_cut(void **state)
{
    char text[5000];

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    oriel_fail(ORIEL_ERR_SYSTEM, "%s", text);
    assert_in_range(strlen(oriel_last_error()), 1000, 2047);
    for (int i = 0; i < 20; i++)
        oriel_fail_in(ORIEL_ERR_SYSTEM, "%s", text);
    assert_in_range(strlen(oriel_last_error()), 1000, 2047);
}

static void *fail_elsewhere(void *arg)
{
    *(int *)arg = oriel_last_error()[0] == '\0';
    oriel_fail(ORIEL_ERR_SYSTEM, "of the other thread");
    return NULL;
}

static void test_text_belongs_to_the_thread(void **state)
{
    pthread_t thread;
    int was_empty = 0;

    (void)state;
    oriel_fail(ORIEL_ERR_SYSTEM, "of this thread");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &was_empty), 0);
    pthread_join(thread, NULL);
    assert_true(was_empty);
    assert_string_equal(oriel_last_error(), "of this thread");
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(oriel_version(), ORIEL_VERSION_STRING);
    assert_string_equal(oriel_status_name(ORIEL_ERR_AUTH), "ORIEL_ERR_AUTH");
    assert_string_equal(oriel_status_name((oriel_status)99), "unknown status");
    for (int i = 0; i < ORIEL_DTYPE_COUNT; i++) {
        assert_non_null(oriel_dtype_name((oriel_dtype)i));
        assert_in_range(oriel_dtype_size((oriel_dtype)i), 1, 16);
    }
    for (int i = 0; i < ORIEL_REDOP_COUNT; i++)
        assert_non_null(oriel_redop_name((oriel_redop)i));
    assert_string_equal(oriel_dtype_name(ORIEL_BF16), "bf16");
    assert_int_equal(oriel_dtype_size(ORIEL_C128), 16);
    assert_int_equal(oriel_dtype_size((oriel_dtype)-1), 0);
    assert_int_equal(oriel_dtype_size(ORIEL_DTYPE_COUNT), 0);
    assert_string_equal(oriel_dtype_name((oriel_dtype)-1), "unknown dtype");
    assert_string_equal(oriel_redop_name(ORIEL_REDOP_COUNT), "unknown operation");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_records_the_sentence),
        cmocka_unit_test(test_fail_may_quote_the_last_error),
        cmocka_unit_test(test_fail_in_prefixes),
        cmocka_unit_test(test_long_text_is_cut),
        cmocka_unit_test(test_text_belongs_to_the_thread),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
