/* What needs JAX is Python: `oriel bench` and `oriel verify` become
 * `python3 -m oriel bench` and `python3 -m oriel verify`. */
#include "tool.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char oriel_bench_help[] =
    "usage: oriel bench <operation> [arguments]\n"
    "\n"
    "Measures an operation beside its peers, or the start of jobs, for example:\n"
    "  oriel bench all_reduce -n 4 --vs jax,mpi\n"
    "  oriel bench startup\n"
    "Runs `python3 -m oriel bench` with the interpreter beside this command, or else\n"
    "python3 on PATH; `python3 -m oriel bench --help` lists its arguments.\n";

const char oriel_verify_help[] =
    "usage: oriel verify [-n N] [--sizes S] [--nccl FILE] [--timeout S] [--json F] [--keep-log F]\n"
    "\n"
    "Runs XLA's own collectives with the flags that make it register their buffers with\n"
    "NCCL as symmetric memory, and shows each registration and whether the results are\n"
    "right. Exit code 0: seen and right; 1: failed; 3: no registration seen; 4: a wrong\n"
    "result; 77: not available here; 124: the time was up.\n"
    "Runs `python3 -m oriel verify` with the interpreter beside this command, or else\n"
    "python3 on PATH; `python3 -m oriel verify --help` explains its arguments.\n";

int oriel_command_folder(char *path, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", path, bytes - 1);

    if (n < 0)
        return -1;
    path[n] = '\0';
    *(strrchr(path, '/') + 1) = '\0';
    return 0;
}

static int python_beside(char *path, size_t bytes)
{
    static const char *const names[] = {"python3", "python"};
    char folder[PATH_MAX];

    if (oriel_command_folder(folder, sizeof(folder)) != 0)
        return -1;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        int length = snprintf(path, bytes, "%s%s", folder, names[i]);

        if (length >= 0 && (size_t)length < bytes && access(path, X_OK) == 0)
            return 0;
    }
    return -1;
}

int oriel_path_find(const char *name, char *path, size_t bytes)
{
    const char *dirs = getenv("PATH");

    while (dirs != NULL && *dirs != '\0') {
        size_t length = strcspn(dirs, ":");
        int used = snprintf(path, bytes, "%.*s/%s", (int)length, dirs, name);

        if (length > 0 && used >= 0 && (size_t)used < bytes && access(path, X_OK) == 0)
            return 0;
        dirs += length + (dirs[length] == ':');
    }
    return -1;
}

int oriel_python_find(char *path, size_t bytes)
{
    return python_beside(path, bytes) == 0 ? 0 : oriel_path_find("python3", path, bytes);
}

int oriel_python_main(int argc, char **argv)
{
    char python[PATH_MAX];
    char **args;

    if (oriel_python_find(python, sizeof(python)) != 0) {
        fprintf(stderr,
                "oriel %s: needs Python, and there is no python3 beside this command or on PATH\n",
                argv[0]);
        return ORIEL_EXIT_NOT_FOUND;
    }
    args = calloc((size_t)argc + 4, sizeof(*args));
    if (args == NULL) {
        fprintf(stderr, "oriel %s: out of memory\n", argv[0]);
        return ORIEL_EXIT_FAILED;
    }
    args[0] = python;
    args[1] = "-m";
    args[2] = "oriel";
    memcpy(args + 3, argv, (size_t)argc * sizeof(*args));
    execv(python, args);
    fprintf(stderr, "oriel %s: cannot start %s: %s\n", argv[0], python, strerror(errno));
    free(args);
    return ORIEL_EXIT_CANNOT_START;
}
