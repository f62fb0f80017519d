#include "run/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXEC_WAIT_MS = 10000 };

static const char *const names[4] = {"ORIEL_PROCESS_ID", "ORIEL_NUM_PROCESSES", "ORIEL_STORE",
                                     "ORIEL_SECRET"};

void oriel_inherited_save(oriel_inherited *inherited_p)
{
    sigprocmask(SIG_SETMASK, NULL, &inherited_p->mask);
    sigaction(SIGPIPE, NULL, &inherited_p->on_pipe);
    getrlimit(RLIMIT_NOFILE, &inherited_p->files);
}

/* ---- environment -------------------------------------------------------- */

static int is_ours(const char *entry)
{
    for (int i = 0; i < 4; i++) {
        size_t len = strlen(names[i]);

        if (strncmp(entry, names[i], len) == 0 && entry[len] == '=')
            return 1;
    }
    return 0;
}

static char *variable(const char *name, const char *value)
{
    char *text = NULL;

    return asprintf(&text, "%s=%s", name, value) < 0 ? NULL : text;
}

/* Our own environment, less the job's variables of an outer `oriel run`. */
static char **environment_create(char *const texts[4])
{
    size_t count = 0;
    size_t used = 0;
    char **env;

    while (environ[count] != NULL)
        count++;
    env = calloc(count + 5, sizeof(*env));
    if (env == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        if (!is_ours(environ[i]))
            env[used++] = environ[i];
    }
    memcpy(env + used, texts, 4 * sizeof(*env));
    return env;
}

static int prepare_hosts(oriel_spawner *spawner)
{
    spawner->script = malloc(HOSTS_SCRIPT_MAX);
    spawner->inputs = calloc((size_t)spawner->count, sizeof(*spawner->inputs));
    for (int i = 0; spawner->inputs != NULL && i < spawner->count; i++)
        spawner->inputs[i] = -1;
    return spawner->script != NULL && spawner->inputs != NULL ? 0 : -1;
}

int oriel_spawner_create(char **argv, int count, const char *store, const char *secret,
                         const oriel_inherited *inherited, oriel_hosts *hosts,
                         oriel_spawner *spawner_p)
{
    oriel_spawner made = {
        .argv = argv, .inherited = inherited, .null = -1, .hosts = hosts, .count = count};
    char number[16];

    snprintf(number, sizeof(number), "%d", count);
    made.texts[0] = variable(names[0], "0000000000");
    made.texts[1] = variable(names[1], number);
    made.texts[2] = variable(names[2], store);
    made.texts[3] = variable(names[3], secret);
    made.null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (made.null < 0)
        goto err_free;
    errno = ENOMEM;
    for (int i = 0; i < 4; i++) {
        if (made.texts[i] == NULL)
            goto err_free;
    }
    made.env = environment_create(made.texts);
    if (made.env == NULL || (hosts != NULL && prepare_hosts(&made) != 0))
        goto err_free;
    *spawner_p = made;
    return 0;

err_free:
    oriel_spawner_destroy(&made);
    return -1;
}

void oriel_spawner_destroy(oriel_spawner *spawner)
{
    int error = errno;

    for (int i = 0; i < 4; i++)
        free(spawner->texts[i]);
    free(spawner->env);
    for (int i = 0; spawner->inputs != NULL && i < spawner->count; i++) {
        if (spawner->inputs[i] >= 0)
            close(spawner->inputs[i]);
    }
    free(spawner->inputs);
    free(spawner->script);
    if (spawner->null >= 0)
        close(spawner->null);
    *spawner = (oriel_spawner){.null = -1};
    errno = error;
}

/* ---- the new process ---------------------------------------------------- */

/* Runs between fork and exec of a process with threads: only system calls. */
static _Noreturn void child_exec(const oriel_spawner *spawner, char **argv, int in, pid_t launcher,
                                 int out, int err, int report)
{
    int error;
    ssize_t n;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The launcher may have died before the mark was set. */
    if (getppid() != launcher)
        _exit(1);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(err, STDERR_FILENO) >= 0) {
        setrlimit(RLIMIT_NOFILE, &spawner->inherited->files);
        sigaction(SIGPIPE, &spawner->inherited->on_pipe, NULL);
        sigprocmask(SIG_SETMASK, &spawner->inherited->mask, NULL);
        execvpe(argv[0], argv, spawner->env);
    }
    error = errno;
    n = write(report, &error, sizeof(error));
    (void)n; /* the exit code says it too */
    _exit(127);
}

/* The report pipe closes when exec succeeds and carries errno when it fails. A
 * file system that stalls counts as a start, so that the job's own deadlines
 * decide. */
static int exec_error(int report)
{
    struct pollfd ready = {.fd = report, .events = POLLIN};
    int error = 0;
    int rc;

    do {
        rc = poll(&ready, 1, EXEC_WAIT_MS);
    } while (rc < 0 && errno == EINTR);
    if (rc <= 0 || read(report, &error, sizeof(error)) != (ssize_t)sizeof(error))
        return 0;
    return error;
}

/* A shell's input that holds all that it is told, and is kept open. It fits a pipe, so that
 * nobody has to read it first. Returns the end to read from, or -1 with errno set. */
static int input_create(oriel_spawner *spawner, int process_id)
{
    char *const env[] = {spawner->texts[0], spawner->texts[1], spawner->texts[2], spawner->texts[3],
                         NULL};
    int bytes = oriel_hosts_script(env, spawner->argv, spawner->script);
    int ends[2];

    errno = E2BIG;
    if (bytes < 0 || pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    if (write(ends[1], spawner->script, (size_t)bytes) != bytes) {
        close(ends[0]);
        close(ends[1]);
        errno = E2BIG;
        return -1;
    }
    spawner->inputs[process_id] = ends[1];
    return ends[0];
}

pid_t oriel_spawn(oriel_spawner *spawner, int process_id, int out, int err, int *forked_p)
{
    pid_t launcher = getpid();
    char **argv =
        spawner->hosts != NULL ? oriel_hosts_argv(spawner->hosts, process_id) : spawner->argv;
    int in = spawner->null;
    int report[2];
    int error;
    pid_t pid;

    *forked_p = 0;
    sprintf(strchr(spawner->texts[0], '=') + 1, "%d", process_id);
    if (spawner->hosts != NULL && (in = input_create(spawner, process_id)) < 0)
        return -1;
    if (pipe2(report, O_CLOEXEC) != 0)
        return -1;
    pid = fork();
    if (pid == 0)
        child_exec(spawner, argv, in, launcher, out, err, report[1]);
    if (in != spawner->null)
        close(in);
    error = errno;
    close(report[1]);
    if (pid > 0) {
        *forked_p = 1;
        setpgid(pid, pid); /* the child does it too: either may come first */
        error = exec_error(report[0]);
    }
    close(report[0]);
    if (pid > 0 && error != 0)
        waitpid(pid, NULL, 0);
    errno = error;
    return pid > 0 && error == 0 ? pid : -1;
}
