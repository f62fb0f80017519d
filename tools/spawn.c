#include "spawn.h"

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

int oriel_spawner_create(char **argv, int count, const char *store, const char *secret,
                         const oriel_inherited *inherited, oriel_spawner *spawner_p)
{
    oriel_spawner made = {.argv = argv, .inherited = inherited, .null = -1};
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
    if (made.env == NULL)
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
    if (spawner->null >= 0)
        close(spawner->null);
    *spawner = (oriel_spawner){.null = -1};
    errno = error;
}

/* ---- the new process ---------------------------------------------------- */

/* Runs between fork and exec of a process with threads: only system calls. */
static _Noreturn void child_exec(const oriel_spawner *spawner, pid_t launcher, int out, int err,
                                 int report)
{
    int error;
    ssize_t n;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The launcher may have died before the mark was set. */
    if (getppid() != launcher)
        _exit(1);
    if (dup2(spawner->null, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(err, STDERR_FILENO) >= 0) {
        setrlimit(RLIMIT_NOFILE, &spawner->inherited->files);
        sigaction(SIGPIPE, &spawner->inherited->on_pipe, NULL);
        sigprocmask(SIG_SETMASK, &spawner->inherited->mask, NULL);
        execvpe(spawner->argv[0], spawner->argv, spawner->env);
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

pid_t oriel_spawn(oriel_spawner *spawner, int process_id, int out, int err, int *forked_p)
{
    pid_t launcher = getpid();
    int report[2];
    int error;
    pid_t pid;

    *forked_p = 0;
    sprintf(strchr(spawner->texts[0], '=') + 1, "%d", process_id);
    if (pipe2(report, O_CLOEXEC) != 0)
        return -1;
    pid = fork();
    if (pid == 0)
        child_exec(spawner, launcher, out, err, report[1]);
    error = errno;
    close(report[1]);
    if (pid > 0) {
        *forked_p = 1;
        setpgid(pid, pid); /* the child does it too: whoever comes first */
        error = exec_error(report[0]);
    }
    close(report[0]);
    if (pid > 0 && error != 0)
        waitpid(pid, NULL, 0);
    errno = error;
    return pid > 0 && error == 0 ? pid : -1;
}
