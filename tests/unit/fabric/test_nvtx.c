#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fabric/cuda/nvtx.h"

/* tests/fake/nvtx.c, beside this program. */
static void find_tool(char *path, size_t len)
{
    char self[1024] = "";

    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(path, len, "%s/fake/nvtx.so", dirname(self));
}

/* Without a tool a range is nothing; one that is attached hears what the call is. */
static void test_ranges(void **state)
{
    char path[1100];
    const char *text;
    void *tool;

    (void)state;
    oriel_nvtx_push("all_reduce", 1, 2);
    oriel_nvtx_pop();
    find_tool(path, sizeof path);
    setenv("NVTX_INJECTION64_PATH", path, 1);
    oriel_nvtx_open();
    oriel_nvtx_open();
    oriel_nvtx_push("all_reduce", 4096, 2);
    oriel_nvtx_pop();
    tool = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(tool);
    text = dlsym(tool, "fake_nvtx_text");
    assert_string_equal(text, "domain oriel\n"
                              "push oriel.all_reduce, 4096 bytes, 2 ranks, payload 4096\n"
                              "pop\n");
    dlclose(tool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
