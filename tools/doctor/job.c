#include "doctor/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "tool.h"

void oriel_job_say(oriel_job *job, const char *fmt, ...)
{
    char text[512] = "oriel run: ";
    size_t used = strlen(text);
    va_list args;

    va_start(args, fmt);
    vsnprintf(text + used, sizeof(text) - used - 1, fmt, args);
    va_end(args);
    strcat(text, "\n");
    oriel_sink_put(&job->sinks[1], text, strlen(text));
}

/* ---- set-up ------------------------------------------------------------- */

/* A SIGHUP that is ignored already stays so: that is what nohup asks for. */
static int signals_take(void)
{
    struct sigaction on_hangup;
    sigset_t taken;

    sigemptyset(&taken);
    sigaddset(&taken, SIGCHLD);
    sigaddset(&taken, SIGINT);
    sigaddset(&taken, SIGTERM);
    sigaddset(&taken, SIGQUIT);
    sigaction(SIGHUP, NULL, &on_hangup);
    if (on_hangup.sa_handler != SIG_IGN)
        sigaddset(&taken, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &taken, NULL) != 0)
        return -1;
    signal(SIGPIPE, SIG_IGN);
    /* With SIGCHLD ignored the kernel would collect our children itself. */
    signal(SIGCHLD, SIG_DFL);
    return signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Two or three pipes, a log and a store connection for each process. */
static int files_raise(int count)
{
    rlim_t need = 5 * (rlim_t)count + 64;
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return -1;
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        return -1;
    if (files.rlim_cur >= need)
        return 0;
    fprintf(stderr, "oriel run: -n %d needs %llu open files and the limit is %llu (ulimit -Hn)\n",
            count, (unsigned long long)need, (unsigned long long)files.rlim_cur);
    return -1;
}

static int logs_open(oriel_job *job)
{
    const char *dir = job->params->log_dir;

    if (dir == NULL)
        return 0;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "oriel run: cannot make the folder %s: %s\n", dir, strerror(errno));
        return -1;
    }
    for (int i = 0; i < job->params->count; i++) {
        char *path;
        int fd;

        if (asprintf(&path, "%s/%d.log", dir, i) < 0)
            return -1;
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0)
            fprintf(stderr, "oriel run: cannot write %s: %s\n", path, strerror(errno));
        free(path);
        if (fd < 0)
            return -1;
        job->processes[i].log.fd = fd;
    }
    return 0;
}

static int tables_create(oriel_job *job)
{
    int count = job->params->count;

    job->processes = calloc((size_t)count, sizeof(*job->processes));
    job->polls = calloc(3 + 2 * (size_t)count, sizeof(*job->polls));
    if (job->processes == NULL || job->polls == NULL)
        return -1;
    for (int i = 0; i < count; i++) {
        oriel_process *process = &job->processes[i];

        process->log.fd = -1;
        for (int r = 0; r < 2; r++) {
            oriel_relay *relay = &process->relays[r];

            relay->fd = -1;
            relay->sink = &job->sinks[r];
            relay->log = &process->log;
            if (job->params->tag)
                snprintf(relay->tag, sizeof(relay->tag), "[%d] ", i);
        }
    }
    return 0;
}

int oriel_job_create(const oriel_job_params *params, oriel_job **job_p)
{
    oriel_job *job = calloc(1, sizeof(*job));

    if (job == NULL)
        goto err_say;
    job->params = params;
    job->signals = -1;
    job->first = -1;
    job->held = -1;
    oriel_sink_create(STDOUT_FILENO, &job->sinks[0]);
    oriel_sink_create(STDERR_FILENO, &job->sinks[1]);
    if (tables_create(job) != 0)
        goto err_say;
    if (files_raise(params->count) != 0 || logs_open(job) != 0)
        goto err_destroy;
    job->signals = signals_take();
    if (job->signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 ||
        oriel_keeper_create(params->count, &job->keeper) != 0)
        goto err_say;
    if (params->timeout_s > 0)
        job->limit = oriel_now() + params->timeout_s;
    *job_p = job;
    return 0;

err_say:
    fprintf(stderr, "oriel run: cannot prepare the job: %s\n", strerror(errno));
err_destroy:
    oriel_job_destroy(job);
    return -1;
}

static void groups_kill(oriel_job *job)
{
    for (int i = 0; i < job->params->count; i++) {
        if (job->keeper.groups[i] > 0)
            kill(-job->keeper.groups[i], SIGKILL);
    }
}

/* ---- start -------------------------------------------------------------- */

static int pipes_create(int pipes[2][2])
{
    for (int r = 0; r < 2; r++) {
        if (pipe2(pipes[r], O_CLOEXEC) != 0) {
            if (r == 1) {
                close(pipes[0][0]);
                close(pipes[0][1]);
            }
            return -1;
        }
        /* Only our end: the flag belongs to one end, not to the pipe. */
        fcntl(pipes[r][0], F_SETFL, O_NONBLOCK);
    }
    return 0;
}

static void start_failed(oriel_job *job, const oriel_spawner *spawner, int i, int forked)
{
    int missing = errno == ENOENT || errno == ENOTDIR;

    if (!forked) {
        oriel_job_say(job, "cannot start process %d: %s", i, strerror(errno));
        job->code = ORIEL_EXIT_FAILED;
        return;
    }
    oriel_job_say(job, "cannot start \"%s\": %s",
                  spawner->hosts != NULL ? spawner->hosts->words[0] : spawner->argv[0],
                  strerror(errno));
    job->code = missing ? ORIEL_EXIT_NOT_FOUND : ORIEL_EXIT_CANNOT_START;
}

static int process_start(oriel_job *job, oriel_spawner *spawner, int i)
{
    oriel_process *process = &job->processes[i];
    int pipes[2][2];
    int forked = 0;
    pid_t pid = -1;

    if (pipes_create(pipes) == 0) {
        pid = oriel_spawn(spawner, i, pipes[0][1], pipes[1][1], &forked);
        for (int r = 0; r < 2; r++) {
            process->relays[r].fd = pipes[r][0];
            close(pipes[r][1]);
        }
    }
    if (pid < 0) {
        start_failed(job, spawner, i, forked);
        return -1;
    }
    job->keeper.groups[i] = pid;
    job->live++;
    return 0;
}

/* No process has got far without the others: no grace. */
static void start_undo(oriel_job *job)
{
    job->phase = ORIEL_JOB_KILL;
    job->deadline = oriel_now() + ORIEL_JOB_KILL_S;
    groups_kill(job);
}

void oriel_job_start(oriel_job *job, oriel_spawner *spawner)
{
    for (int i = 0; i < job->params->count; i++) {
        if (process_start(job, spawner, i) != 0) {
            start_undo(job);
            return;
        }
    }
}

/* ---- end ---------------------------------------------------------------- */

/* The groups are killed once more, blindly, while their ids still belong to
 * uncollected processes; only then are those collected. */
static void processes_collect(oriel_job *job)
{
    groups_kill(job);
    for (int i = 0; i < job->params->count; i++) {
        pid_t pid = job->keeper.groups[i];

        job->keeper.groups[i] = 0;
        if (pid > 0)
            waitpid(pid, NULL, WNOHANG);
    }
}

void oriel_job_destroy(oriel_job *job)
{
    if (job == NULL)
        return;
    if (job->keeper.pid > 0) {
        processes_collect(job);
        oriel_keeper_destroy(&job->keeper);
    }
    for (int i = 0; job->processes != NULL && i < job->params->count; i++) {
        for (int r = 0; r < 2; r++)
            oriel_relay_close(&job->processes[i].relays[r]);
        if (job->processes[i].log.fd >= 0)
            close(job->processes[i].log.fd);
    }
    for (int s = 0; s < 2; s++)
        oriel_sink_destroy(&job->sinks[s]);
    if (job->signals >= 0)
        close(job->signals);
    free(job->polls);
    free(job->processes);
    free(job);
}
