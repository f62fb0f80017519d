#include "run/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t table_bytes(int count)
{
    return (size_t)count * sizeof(pid_t);
}

/* In a session of its own: a signal to the launcher's group is not for it. It
 * must not hold the launcher's output open either. */
static void keeper_detach(void)
{
    sigset_t all;
    int null = open("/dev/null", O_RDWR);

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "oriel-keeper");
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (null < 0 || dup2(null, fd) < 0)
            close(fd);
    }
    if (null > STDERR_FILENO)
        close(null);
}

static _Noreturn void keeper_main(int wire, volatile pid_t *groups, int count)
{
    char byte;

    keeper_detach();
    while (read(wire, &byte, 1) < 0 && errno == EINTR)
        ;
    for (int i = 0; i < count; i++) {
        if (groups[i] > 0)
            kill(-groups[i], SIGKILL);
    }
    _exit(0);
}

int oriel_keeper_create(int count, oriel_keeper *keeper_p)
{
    int ends[2];
    int error;
    pid_t pid;
    void *groups =
        mmap(NULL, table_bytes(count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (groups == MAP_FAILED)
        return -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        goto err_unmap;
    pid = fork();
    if (pid < 0)
        goto err_close;
    if (pid == 0) {
        close(ends[1]);
        keeper_main(ends[0], groups, count);
    }
    close(ends[0]);
    *keeper_p = (oriel_keeper){.pid = pid, .wire = ends[1], .groups = groups, .count = count};
    return 0;

err_close:
    error = errno;
    close(ends[0]);
    close(ends[1]);
    errno = error;
err_unmap:
    error = errno;
    munmap(groups, table_bytes(count));
    errno = error;
    return -1;
}

void oriel_keeper_destroy(oriel_keeper *keeper)
{
    close(keeper->wire);
    while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    munmap((void *)keeper->groups, table_bytes(keeper->count));
}
