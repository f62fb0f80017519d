#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/device/code.h"

static void test_a_file_is_of_one_part_architecture_and_compiler(void **state)
{
    static const struct {
        int part, arch;
        const char *version;
    } cases[] = {{0, 90, "13.0"}, {1, 90, "13.0"}, {0, 100, "13.0"}, {0, 90, "13.1"}, {0, 90, ""}};
    enum { N = sizeof cases / sizeof *cases };
    char paths[N][512];
    char again[512];

    (void)state;
    for (int i = 0; i < N; i++) {
        oriel_device_code_name(cases[i].part, cases[i].arch, cases[i].version, paths[i],
                               sizeof paths[i]);
        oriel_device_code_name(cases[i].part, cases[i].arch, cases[i].version, again, sizeof again);
        assert_string_equal(paths[i], again);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(paths[i], paths[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_is_of_one_part_architecture_and_compiler)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
