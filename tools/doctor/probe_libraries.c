/* Libraries that oriel never links: each is opened only to say whether it is
 * there, in a process of its own, since opening one runs code of others. */
#include <dlfcn.h>
#include <stddef.h>
#include <unistd.h>

#include "doctor/doctor.h"

static const struct library {
    const char *name; /* for the finding */
    const char *file; /* as dlopen takes it */
    const char *why;  /* what it would be good for */
} libraries[] = {
    {.name = "UCX",
     .file = "libucp.so.0",
     .why = "moves memory between machines; oriel uses NCCL for that"},
    {.name = "NIXL",
     .file = "libnixl.so",
     .why = "one-sided transfers between machines; oriel uses NCCL for that"},
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

static void probe_library(oriel_report *report, const struct library *library)
{
    switch (file_open(library->file)) {
    case OPENED:
        oriel_report_add(report, library->name, ORIEL_FINDING_OK, library->why, "", "%s is here",
                         library->file);
        break;
    case ABSENT:
        oriel_report_add(report, library->name, ORIEL_FINDING_MISSING, library->why,
                         "nothing to do: oriel works without it", "%s is not found", library->file);
        break;
    default:
        oriel_report_add(report, library->name, ORIEL_FINDING_WARN, library->why, "install it anew",
                         "%s is here but cannot be opened", library->file);
    }
}

void oriel_probe_libraries(oriel_report *report)
{
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
        probe_library(report, &libraries[i]);
}
