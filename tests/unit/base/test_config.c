/* labels: tsan valgrind */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"

static int clear_environment(void **state)
{
    oriel_option option;

    (void)state;
    for (int i = 0; oriel_option_get(i, &option) == ORIEL_OK; i++)
        unsetenv(option.name);
    return oriel_config_load() == ORIEL_OK ? 0 : -1;
}

/* What `act` prints on stderr; the caller frees it. */
static char *capture(void (*act)(void))
{
    int file = memfd_create("stderr", MFD_CLOEXEC);
    int saved = dup(STDERR_FILENO);
    char *text = calloc(1, 8192);

    assert_true(file >= 0 && saved >= 0 && text != NULL);
    dup2(file, STDERR_FILENO);
    act();
    dup2(saved, STDERR_FILENO);
    assert_true(pread(file, text, 8191, 0) >= 0);
    close(file);
    close(saved);
    return text;
}

static void load(void)
{
    oriel_config_load();
}

static void test_defaults(void **state)
{
    (void)state;
    assert_true(oriel_config_number(ORIEL_OPT_TIMEOUT) == 600);
    assert_true(oriel_config_number(ORIEL_OPT_WARN_AFTER) == 10);
    assert_true(oriel_config_number(ORIEL_OPT_INIT_TIMEOUT) == 300);
    assert_true(oriel_config_number(ORIEL_OPT_STAGING) == 64 << 20);
    assert_true(oriel_config_number(ORIEL_OPT_CHUNK) == 128 << 10);
    assert_true(oriel_config_number(ORIEL_OPT_SPIN) == 10);
    assert_true(oriel_config_number(ORIEL_OPT_DIRECT) == 1);
    assert_true(oriel_config_number(ORIEL_OPT_PROCESS_ID) == -1);
    assert_string_equal(oriel_config_string(ORIEL_OPT_LOG), "warn");
    assert_string_equal(oriel_config_string(ORIEL_OPT_STORE), "");
}

static void test_environment_wins(void **state)
{
    oriel_option option;

    (void)state;
    setenv("ORIEL_TIMEOUT", "2.5", 1);
    setenv("ORIEL_STAGING", "8m", 1);
    setenv("ORIEL_CHUNK", "4096", 1);
    setenv("ORIEL_STORE", "unix:@x", 1);
    setenv("ORIEL_SPIN", "", 1);
    assert_int_equal(oriel_config_load(), ORIEL_OK);
    assert_true(oriel_config_number(ORIEL_OPT_TIMEOUT) == 2.5);
    assert_true(oriel_config_number(ORIEL_OPT_STAGING) == 8 << 20);
    assert_true(oriel_config_number(ORIEL_OPT_CHUNK) == 4096);
    assert_true(oriel_config_number(ORIEL_OPT_SPIN) == 10);
    assert_string_equal(oriel_config_string(ORIEL_OPT_STORE), "unix:@x");
    assert_int_equal(oriel_option_get(ORIEL_OPT_TIMEOUT, &option), ORIEL_OK);
    assert_string_equal(option.source, "environment");
    assert_int_equal(oriel_option_get(ORIEL_OPT_SPIN, &option), ORIEL_OK);
    assert_string_equal(option.source, "default");
}

static void refuses(const char *name, const char *value)
{
    setenv(name, value, 1);
    if (oriel_config_load() != ORIEL_ERR_INVALID)
        fail_msg("%s=%s was taken", name, value);
    assert_non_null(strstr(oriel_last_error(), name));
    unsetenv(name);
}

static void test_bad_values_are_named(void **state)
{
    static char long_text[4096];

    (void)state;
    memset(long_text, 'x', sizeof(long_text) - 1);
    refuses("ORIEL_TIMEOUT", "soon");
    refuses("ORIEL_TIMEOUT", "0");
    refuses("ORIEL_TIMEOUT", "-1");
    refuses("ORIEL_TIMEOUT", "nan");
    refuses("ORIEL_TIMEOUT", "inf");
    refuses("ORIEL_TIMEOUT", "5K");
    refuses("ORIEL_TIMEOUT", "5 ");
    assert_non_null(strstr(oriel_last_error(), "from 0.001 to 1e9"));
    refuses("ORIEL_CHUNK", "1");
    assert_non_null(strstr(oriel_last_error(), "from 1K to 4M"));
    refuses("ORIEL_PROCESS_ID", "x");
    assert_non_null(strstr(oriel_last_error(), "from 0 to 1048576"));
    refuses("ORIEL_STAGING", "1T");
    refuses("ORIEL_STAGING", "40MB");
    refuses("ORIEL_STAGING", "K");
    refuses("ORIEL_CHUNK", "5000.5");
    refuses("ORIEL_DIRECT", "2");
    refuses("ORIEL_GPU_CTAS", "-1");
    refuses("ORIEL_GPU_CTAS", "1025");
    refuses("ORIEL_GPU_KERNEL_CTAS", "many");
    refuses("ORIEL_GPU_STAGE", "1023K");
    refuses("ORIEL_GPU_ARENA", "1M");
    refuses("ORIEL_LOG", "loud");
    refuses("ORIEL_FABRIC", "rdma");
    refuses("ORIEL_PROCESS_ID", "-1");
    refuses("ORIEL_NUM_PROCESSES", "0");
    refuses("ORIEL_STORE", long_text);
    refuses("ORIEL_SECRET", long_text);
    assert_null(strstr(oriel_last_error(), "xxx"));
    assert_true(oriel_config_number(ORIEL_OPT_TIMEOUT) == 600);
}

static void test_secret_is_not_shown(void **state)
{
    oriel_option option;

    (void)state;
    assert_int_equal(oriel_option_get(ORIEL_OPT_SECRET, &option), ORIEL_OK);
    assert_string_equal(option.value, "");
    setenv("ORIEL_SECRET", "hush", 1);
    assert_int_equal(oriel_config_load(), ORIEL_OK);
    assert_int_equal(oriel_option_get(ORIEL_OPT_SECRET, &option), ORIEL_OK);
    assert_string_equal(option.value, "(set)");
    assert_string_equal(oriel_config_string(ORIEL_OPT_SECRET), "hush");
}

static void test_every_option_is_described(void **state)
{
    oriel_option option;
    int n = 0;

    (void)state;
    while (oriel_option_get(n, &option) == ORIEL_OK) {
        assert_int_equal(strncmp(option.name, "ORIEL_", 6), 0);
        assert_true(strlen(option.help) > 10);
        n++;
    }
    assert_int_equal(n, ORIEL_OPT_COUNT);
    assert_int_equal(oriel_option_get(-1, &option), ORIEL_ERR_INVALID);
    assert_int_equal(oriel_option_get(0, NULL), ORIEL_ERR_INVALID);
}

static void test_unknown_name_warns_once(void **state)
{
    char *first, *second;

    (void)state;
    setenv("ORIEL_TIMEOTU", "5", 1);
    setenv("ORIEL_LOCAL_RANK", "1", 1);
    first = capture(load);
    second = capture(load);
    unsetenv("ORIEL_TIMEOTU");
    unsetenv("ORIEL_LOCAL_RANK");
    assert_non_null(strstr(first, "warn: ORIEL_TIMEOTU"));
    assert_non_null(strstr(first, "nearest is ORIEL_TIMEOUT"));
    assert_non_null(strstr(first, "ORIEL_LOCAL_RANK"));
    assert_string_equal(second, "");
    free(first);
    free(second);
}

/* More names than are remembered, each longer than is compared. */
static void test_many_unknown_names(void **state)
{
    char name[100];
    char *text;

    (void)state;
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "ORIEL_%d_%080d", i, 0);
        setenv(name, "1", 1);
    }
    free(capture(load));
    text = capture(load);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "ORIEL_%d_%080d", i, 0);
        unsetenv(name);
    }
    assert_string_equal(text, "");
    free(text);
}

static void say_all(void)
{
    oriel_log_set_process(4);
    oriel_log(ORIEL_LOG_ERROR, "e %d", 1);
    oriel_log(ORIEL_LOG_INFO, "i");
    oriel_log_set_process(-1);
    oriel_log(ORIEL_LOG_WARN, "w");
}

static void test_log_level_and_form(void **state)
{
    char expected[100];
    char *text = capture(say_all);

    (void)state;
    snprintf(expected, sizeof(expected), "oriel[4]: error: e 1\noriel[pid %d]: warn: w\n",
             (int)getpid());
    assert_string_equal(text, expected);
    free(text);

    setenv("ORIEL_LOG", "error", 1);
    assert_int_equal(oriel_config_load(), ORIEL_OK);
    text = capture(say_all);
    assert_string_equal(text, "oriel[4]: error: e 1\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_defaults, clear_environment),
        cmocka_unit_test_setup(test_environment_wins, clear_environment),
        cmocka_unit_test_setup(test_bad_values_are_named, clear_environment),
        cmocka_unit_test_setup(test_secret_is_not_shown, clear_environment),
        cmocka_unit_test_setup(test_every_option_is_described, clear_environment),
        cmocka_unit_test_setup(test_unknown_name_warns_once, clear_environment),
        cmocka_unit_test_setup(test_many_unknown_names, clear_environment),
        cmocka_unit_test_setup(test_log_level_and_form, clear_environment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
