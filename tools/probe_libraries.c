/* Libraries that oriel never links: each is opened only to say whether it is
 * there, in a process of its own, since opening one runs code of others. */
#include <dlfcn.h>
#include <stddef.h>
#include <unistd.h>

#include "doctor.h"

static const struct library {
    const char *name;
    const char *files[3]; /* newest first */
    const char *fabric;   /* the part of oriel that uses it */
    const char *why;
    const char *mend;
} libraries[] = {
    {.name = "CUDA driver",
     .files = {"libcuda.so.1"},
     .fabric = "cuda",
     .why = "no NVIDIA GPU can be used; the CPU works",
     .mend = "on a machine with a GPU install NVIDIA's driver"},
    {.name = "NVRTC",
     .files = {"libnvrtc.so.13", "libnvrtc.so.12"},
     .fabric = "cuda",
     .why = "kernels cannot be compiled for a GPU; the copy inside JAX's CUDA wheels is not "
            "searched here",
     .mend = "python3 -m pip install \"jax[cuda13]\""},
    {.name = "NCCL",
     .files = {"libnccl.so.2"},
     .fabric = "nccl",
     .why = "GPU memory does not move between machines; the copy inside JAX's CUDA wheels is not "
            "searched here",
     .mend = "python3 -m pip install \"jax[cuda13]\""},
    {.name = "UCX",
     .files = {"libucp.so.0"},
     .fabric = "ucx",
     .why = "host memory does not move between machines; one machine needs none of it",
     .mend = "install UCX (Debian: libucx0)"},
    {.name = "NIXL",
     .files = {"libnixl.so"},
     .fabric = "nixl",
     .why = "one-sided transfers have one engine less",
     .mend = "python3 -m pip install nixl"},
};

enum { OPENED, ABSENT, OPEN_S = 20 };

/* OPENED, ABSENT, or -1 when it ended the process or took too long. */
static int file_open(const char *file)
{
    pid_t pid = oriel_probe_fork(OPEN_S);

    if (pid == 0)
        _exit(dlopen(file, RTLD_LAZY | RTLD_LOCAL) != NULL ? OPENED : ABSENT);
    return pid > 0 ? oriel_probe_wait(pid) : -1;
}

static int library_open(const struct library *library, const char **file_p)
{
    int outcome = ABSENT;

    for (size_t i = 0; i < 3 && library->files[i] != NULL && outcome == ABSENT; i++) {
        *file_p = library->files[i];
        outcome = file_open(library->files[i]);
    }
    return outcome;
}

static void probe_library(oriel_report *report, const struct library *library)
{
    static const char unused[] = "this version of oriel has no use for it yet";
    int used = oriel_probe_has_fabric(library->fabric);
    const char *file = NULL;

    switch (library_open(library, &file)) {
    case OPENED:
        oriel_report_add(report, library->name, ORIEL_FINDING_OK, used ? "" : unused, "",
                         "%s is here", file);
        break;
    case ABSENT:
        oriel_report_add(report, library->name, ORIEL_FINDING_MISSING, used ? library->why : unused,
                         used ? library->mend : "", "%s is not found", library->files[0]);
        break;
    default:
        oriel_report_add(report, library->name, ORIEL_FINDING_WARN, used ? library->why : unused,
                         "install it anew; it is broken", "%s is here but cannot be opened", file);
    }
}

void oriel_probe_libraries(oriel_report *report)
{
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
        probe_library(report, &libraries[i]);
}
