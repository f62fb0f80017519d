/* The machine as such: kernel, cores, memory, files, compiler and /proc, as a process may use them.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/config.h"
#include "base/sys.h"
#include "run/cgroup.h"
#include "doctor/doctor.h"
#include "tool.h"

static const double mib = 1024.0 * 1024.0;

static void probe_kernel(oriel_report *report)
{
    struct utsname name;

    if (uname(&name) == 0)
        oriel_report_add(report, "kernel", ORIEL_FINDING_OK, "", "", "%s %s, %s", name.sysname,
                         name.release, name.machine);
}

static void probe_cores(oriel_report *report)
{
    int cores = oriel_cpu_count();
    double quota = oriel_cgroup_cores();

    if (quota > 0 && quota < cores) {
        oriel_report_add(report, "cores", ORIEL_FINDING_WARN,
                         "a rank spins before it sleeps: with more ranks than the limit has cores "
                         "the kernel stops all of them for part of each period",
                         "run at most as many ranks as the limit has cores, or raise the limit",
                         "%d, but the control group allows the time of %.3g", cores, quota);
        return;
    }
    oriel_report_add(report, "cores", cores > 1 ? ORIEL_FINDING_OK : ORIEL_FINDING_WARN,
                     cores > 1 ? "more ranks than cores work, but wait for each other's turns"
                               : "two ranks on one core wait for each other's turns",
                     cores > 1 ? "" : "give the job at least one core for each rank", "%d", cores);
}

/* A value of /proc/meminfo in bytes, 0 when it is not there. */
static double meminfo(const char *name)
{
    FILE *file = fopen("/proc/meminfo", "re");
    size_t len = strlen(name);
    double bytes = 0;
    char line[128];

    if (file == NULL)
        return 0;
    while (bytes == 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, len) == 0 && line[len] == ':')
            bytes = strtod(line + len + 1, NULL) * 1024;
    }
    fclose(file);
    return bytes;
}

static void probe_memory(oriel_report *report)
{
    double total = meminfo("MemTotal");
    double free_now = meminfo("MemAvailable");
    double limit = oriel_cgroup_memory();
    double room = limit > 0 ? fmin(limit, free_now) : free_now;
    double need = 4 * oriel_config_number(ORIEL_OPT_STAGING);
    char limit_text[64] = "";

    if (limit > 0 && limit < total)
        snprintf(limit_text, sizeof(limit_text), ", the control group allows %.0f MiB",
                 limit / mib);
    if (total == 0)
        return;
    oriel_report_add(report, "memory", room < need ? ORIEL_FINDING_WARN : ORIEL_FINDING_OK,
                     "each rank takes up to ORIEL_STAGING bytes for staging, beside its own data",
                     room < need ? "free some memory, or set a smaller ORIEL_STAGING" : "",
                     "%.0f MiB, %.0f MiB of it available%s", total / mib, free_now / mib,
                     limit_text);
}

static void limit_text(rlim_t limit, char *text, size_t bytes)
{
    if (limit == RLIM_INFINITY)
        snprintf(text, bytes, "unlimited");
    else
        snprintf(text, bytes, "%llu", (unsigned long long)limit);
}

static void probe_files(oriel_report *report)
{
    const rlim_t enough = 1024;
    const char *mend = "";
    struct rlimit files;
    char soft[32];
    char hard[32];

    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    limit_text(files.rlim_cur, soft, sizeof(soft));
    limit_text(files.rlim_max, hard, sizeof(hard));
    if (files.rlim_max < enough)
        mend = "have the hard limit raised: limits.conf, or docker run --ulimit nofile=4096";
    else if (files.rlim_cur < enough)
        mend = "raise the limit: ulimit -n $(ulimit -Hn)";
    oriel_report_add(report, "open files", mend[0] != '\0' ? ORIEL_FINDING_WARN : ORIEL_FINDING_OK,
                     "`oriel run -n N` needs 5 N + 64, and raises its own limit to the hard one",
                     mend, "at most %s (hard limit %s)", soft, hard);
}

/* As oriel.kernel finds it: $CC, which may have arguments, or cc. */
static void probe_compiler(oriel_report *report)
{
    const char *why = "oriel.kernel compiles kernels for CPUs with it, where they run";
    const char *cc = getenv("CC");
    char name[PATH_MAX];
    char path[PATH_MAX];

    if (cc == NULL || sscanf(cc, "%4095s", name) != 1)
        snprintf(name, sizeof(name), "cc");
    if (strchr(name, '/') != NULL ? access(name, X_OK) == 0
                                  : oriel_path_find(name, path, sizeof(path)) == 0)
        oriel_report_add(report, "C compiler", ORIEL_FINDING_OK, why, "", "%s",
                         strchr(name, '/') != NULL ? name : path);
    else
        oriel_report_add(report, "C compiler", ORIEL_FINDING_MISSING, why,
                         "install gcc or clang (apt install gcc), or name one in CC",
                         "%s is not found", name);
}

static void probe_proc(oriel_report *report)
{
    char line[64];

    if (oriel_file_line("/proc/self/stat", line, sizeof(line)) == 0)
        oriel_report_add(report, "/proc", ORIEL_FINDING_OK,
                         "`oriel run` finds there what the processes leave behind", "", "mounted");
    else
        oriel_report_add(report, "/proc", ORIEL_FINDING_WARN,
                         "`oriel run` cannot find processes that have left their group",
                         "mount it: mount -t proc proc /proc", "not mounted");
}

void oriel_probe_machine(oriel_report *report)
{
    probe_kernel(report);
    probe_cores(report);
    probe_memory(report);
    probe_files(report);
    probe_proc(report);
    probe_compiler(report);
}
