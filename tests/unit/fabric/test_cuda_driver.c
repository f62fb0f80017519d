#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "fabric/cuda/driver.h"

static oriel_sys sys;
static int nvidiactl_errno;

static int read_line(const char *path, char *line, size_t len)
{
    if (strcmp(path, "/dev/nvidiactl") != 0)
        return oriel_sys_real.read_line(path, line, len);
    errno = nvidiactl_errno;
    return -1;
}

static int open_fake(void **state)
{
    char self[1024] = "";
    char path[1100];

    (void)state;
    sys = oriel_sys_real;
    sys.read_line = read_line;
    oriel_sys_now = &sys;
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(path, sizeof path, "%s/fake/libcuda.so.1", dirname(self));
    return dlopen(path, RTLD_NOW) != NULL ? 0 : -1; /* found by its name from now on */
}

static void refuses(const char *fake, const char *words)
{
    setenv("FAKE_CUDA", fake, 1);
    assert_int_not_equal(oriel_cuda_open(), ORIEL_OK);
    if (strstr(oriel_last_error(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", oriel_last_error(), words);
    assert_null(oriel_cu);
}

/* Each cause has its sentence, and none is remembered. */
static void test_why_there_is_no_device(void **state)
{
    (void)state;
    nvidiactl_errno = EACCES;
    refuses("init=100", "no permission to open /dev/nvidiactl");
    refuses("gpus=0", "no permission to open /dev/nvidiactl");
    nvidiactl_errno = ENOENT;
    refuses("init=100", "there is no /dev/nvidiactl");
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    refuses("init=100", "CUDA_VISIBLE_DEVICES=\"\" hides all");
    refuses("init=803", "of different versions");
    refuses("init=1", "cuInit failed: CUDA_ERROR_FAKE (1)");
    setenv("FAKE_CUDA", "", 1);
    assert_int_equal(oriel_cuda_open(), ORIEL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_why_there_is_no_device)};

    return cmocka_run_group_tests(tests, open_fake, NULL);
}
