/* The Python side, asked through the interpreter: its packages' metadata only,
 * since importing JAX takes seconds and may start a GPU. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "doctor/doctor.h"
#include "oriel/oriel.h"
#include "tool.h"

static const double deadline_s = 20;

static const char script[] = "import glob, importlib.util, platform\n"
                             "from importlib.metadata import version\n"
                             "def of(name):\n"
                             "    try:\n"
                             "        return version(name)\n"
                             "    except Exception:\n"
                             "        return '-'\n"
                             "print(platform.python_version(), *map(of, ('jax', 'jaxlib', "
                             "'oriel')))\n"
                             "spec = importlib.util.find_spec('nvidia')\n"
                             "roots = list(spec.submodule_search_locations) if spec else []\n"
                             "for names in (('cu13/lib/libnvrtc.so.*', "
                             "'cuda_nvrtc/lib/libnvrtc.so.*'), ('nccl/lib/libnccl.so.2',)):\n"
                             "    found = [file for root in roots for name in names\n"
                             "             for file in sorted(glob.glob(f'{root}/{name}'))]\n"
                             "    print(found[0] if found else '')\n";

/* ---- asking ------------------------------------------------------------- */

static _Noreturn void script_exec(const char *python, int out)
{
    int null = open("/dev/null", O_RDWR);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(null, STDERR_FILENO) >= 0)
        execl(python, python, "-c", script, (char *)NULL);
    _exit(127);
}

size_t oriel_probe_read(int fd, double deadline, void *data, size_t bytes)
{
    size_t used = 0;

    while (used < bytes) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        double left = deadline - oriel_now();
        ssize_t n;

        if (left <= 0 || poll(&ready, 1, (int)(left * 1000) + 1) == 0)
            break;
        n = read(fd, (char *)data + used, bytes - used);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        used += n > 0 ? (size_t)n : 0;
    }
    return used;
}

static int script_output(const char *python, char *text, size_t bytes)
{
    int ends[2];
    size_t used;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid = fork();
    if (pid == 0)
        script_exec(python, ends[1]);
    close(ends[1]);
    used = pid > 0 ? oriel_probe_read(ends[0], oriel_now() + deadline_s, text, bytes - 1) : 0;
    close(ends[0]);
    if (pid > 0) {
        kill(pid, SIGKILL); /* its answer is complete, or too late */
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    text[used] = '\0';
    return used > 0 ? 0 : -1;
}

/* ---- judging ------------------------------------------------------------ */

static int older_than(const char *version, int major, int minor)
{
    int have_major = 0;
    int have_minor = 0;

    if (sscanf(version, "%d.%d", &have_major, &have_minor) < 1)
        return 1;
    return have_major < major || (have_major == major && have_minor < minor);
}

static void judge_python(oriel_report *report, const char *path, const char *version)
{
    int old = older_than(version, 3, 11);

    oriel_report_add(report, "python", old ? ORIEL_FINDING_WARN : ORIEL_FINDING_OK,
                     old ? "the Python package needs 3.11 or later" : "",
                     old ? "make a virtual environment with a newer Python and use its bin folder"
                         : "",
                     "%s (%s)", version, path);
}

static void judge_jax(oriel_report *report, const char *jax, const char *jaxlib)
{
    if (strcmp(jax, "-") == 0)
        oriel_report_add(report, "jax", ORIEL_FINDING_MISSING,
                         "C programs work without it; jax.jit does not",
                         "python3 -m pip install jax", "not installed in this Python");
    else if (older_than(jax, 0, 10))
        oriel_report_add(report, "jax", ORIEL_FINDING_WARN,
                         "the Python package needs jax 0.10.0 or later",
                         "python3 -m pip install --upgrade jax", "%s with jaxlib %s", jax, jaxlib);
    else
        oriel_report_add(report, "jax", ORIEL_FINDING_OK, "", "", "%s with jaxlib %s", jax, jaxlib);
}

static void judge_package(oriel_report *report, const char *version)
{
    if (strcmp(version, "-") == 0)
        oriel_report_add(report, "oriel for Python", ORIEL_FINDING_MISSING,
                         "`import oriel`, `oriel bench` and `oriel verify` need it",
                         "in oriel's source folder: python3 -m pip install .",
                         "not installed in this Python");
    else if (strcmp(version, oriel_version()) != 0)
        oriel_report_add(report, "oriel for Python", ORIEL_FINDING_WARN,
                         "the command and the package come from different installations",
                         "install both from one wheel, or use the command beside this Python",
                         "%s, but this command is %s", version, oriel_version());
    else
        oriel_report_add(report, "oriel for Python", ORIEL_FINDING_OK, "", "", "%s", version);
}

/* The lines after the first. */
static void read_wheels(char *text, oriel_wheels *wheels)
{
    char *rest = text;

    strsep(&rest, "\n");
    if (rest != NULL)
        snprintf(wheels->nvrtc, sizeof(wheels->nvrtc), "%s", strsep(&rest, "\n"));
    if (rest != NULL)
        snprintf(wheels->nccl, sizeof(wheels->nccl), "%s", strsep(&rest, "\n"));
}

void oriel_probe_python(oriel_report *report, oriel_wheels *wheels_p)
{
    char python[PATH_MAX];
    char text[256 + 2 * FACTS_PATH];
    char versions[4][48];

    if (oriel_python_find(python, sizeof(python)) != 0) {
        oriel_report_add(report, "python", ORIEL_FINDING_MISSING,
                         "C programs work without it; jax, `oriel bench` and `oriel verify` do not",
                         "install Python 3.11 or later",
                         "no python3 beside this command or on PATH");
        return;
    }
    if (script_output(python, text, sizeof(text)) != 0 ||
        sscanf(text, "%47s %47s %47s %47s", versions[0], versions[1], versions[2], versions[3]) !=
            4) {
        oriel_report_add(report, "python", ORIEL_FINDING_WARN,
                         "its version and packages are unknown",
                         "start it by hand and see what it says", "%s gave no answer within %g s",
                         python, deadline_s);
        return;
    }
    judge_python(report, python, versions[0]);
    judge_jax(report, versions[1], versions[2]);
    judge_package(report, versions[3]);
    read_wheels(text, wheels_p);
}
