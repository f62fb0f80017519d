/* The system calls the host fabric stands on, tried between two processes as
 * the library uses them. Sandboxes and seccomp filters refuse some of them. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/config.h"
#include "base/sys.h"
#include "doctor/doctor.h"

enum { WAIT_S = 2, CHILD_LIFE_S = 5 };

pid_t oriel_probe_fork(unsigned seconds)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(seconds);
    }
    return pid;
}

int oriel_probe_wait(pid_t pid)
{
    int status = -1;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- memfd -------------------------------------------------------------- */

static void probe_memfd(oriel_report *report)
{
    size_t bytes = (size_t)oriel_config_number(ORIEL_OPT_STAGING);
    int fd = oriel_sys_now->memfd("oriel-doctor");
    volatile char *memory = NULL;
    int error;

    if (fd >= 0 && oriel_sys_now->truncate(fd, (off_t)bytes) == 0)
        memory = oriel_sys_now->map(bytes, fd);
    error = errno;
    if (memory != NULL) {
        memory[bytes - 1] = 1;
        oriel_sys_now->unmap((void *)memory, bytes);
    }
    if (fd >= 0)
        oriel_sys_now->close(fd);
    if (memory != NULL)
        oriel_report_add(report, "memfd", ORIEL_FINDING_OK,
                         "shared memory without a name: nothing is left behind by kill -9, no "
                         "other user can open it, and the size of /dev/shm does not limit it",
                         "", "made and mapped %zu bytes", bytes);
    else
        oriel_report_add(report, "memfd", ORIEL_FINDING_ERROR,
                         "processes share their memory through it",
                         "allow memfd_create and files of this size (ulimit -f) in the sandbox",
                         "%zu bytes cannot be made and mapped: %s", bytes, strerror(error));
}

/* ---- futex -------------------------------------------------------------- */

static _Noreturn void futex_sleeper(_Atomic uint32_t *word)
{
    _exit(oriel_sys_now->futex_wait(word, 0, WAIT_S) == 0 ? 0 : 1);
}

/* The word never changes: only a wake-up that arrives ends the child's sleep
 * before its deadline. */
static int futex_wakes(_Atomic uint32_t *word)
{
    double deadline = oriel_now() + WAIT_S;
    pid_t pid = oriel_probe_fork(CHILD_LIFE_S);
    long woken = 0;

    if (pid == 0)
        futex_sleeper(word);
    if (pid < 0)
        return -1;
    while (woken == 0 && oriel_now() < deadline) {
        woken = syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
        oriel_relax(1);
    }
    return oriel_probe_wait(pid) == 0 && woken == 1 ? 0 : -1;
}

static void probe_futex(oriel_report *report)
{
    const size_t bytes = 4096;
    int fd = oriel_sys_now->memfd("oriel-doctor");
    void *memory = NULL;
    int rc = -1;

    if (fd >= 0 && oriel_sys_now->truncate(fd, (off_t)bytes) == 0)
        memory = oriel_sys_now->map(bytes, fd);
    if (memory != NULL) {
        rc = futex_wakes(memory);
        oriel_sys_now->unmap(memory, bytes);
    }
    if (fd >= 0)
        oriel_sys_now->close(fd);
    if (rc == 0)
        oriel_report_add(report, "futex", ORIEL_FINDING_OK,
                         "a rank that waits longer than ORIEL_SPIN sleeps and is woken", "",
                         "woke another process through shared memory");
    else
        oriel_report_add(report, "futex", ORIEL_FINDING_ERROR,
                         "ranks that wait sleep on it and would not be woken",
                         "allow the futex system call between processes in the sandbox",
                         "did not wake another process through shared memory");
}

/* ---- record locks ------------------------------------------------------- */

/* Says with one byte that it holds the lock, keeps it until the parent closes
 * its end, and loses it by ending. */
static _Noreturn void lock_holder(int fd, int say, int hear)
{
    char byte = 0;

    if (oriel_sys_now->lock_byte(fd, 0) != 0 || write(say, &byte, 1) != 1)
        _exit(1);
    while (read(hear, &byte, 1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

static int lock_tells(int fd)
{
    int up[2];
    int down[2];
    int held = -1;
    int after = -1;
    char byte;
    pid_t pid;

    if (pipe2(up, O_CLOEXEC) != 0)
        return -1;
    if (pipe2(down, O_CLOEXEC) != 0) {
        close(up[0]);
        close(up[1]);
        return -1;
    }
    pid = oriel_probe_fork(CHILD_LIFE_S);
    if (pid == 0) {
        close(down[1]);
        lock_holder(fd, up[1], down[0]);
    }
    close(up[1]);
    close(down[0]);
    if (pid > 0 && read(up[0], &byte, 1) == 1)
        held = oriel_sys_now->locked_byte(fd, 0);
    close(down[1]);
    close(up[0]);
    if (pid > 0 && oriel_probe_wait(pid) == 0)
        after = oriel_sys_now->locked_byte(fd, 0);
    return held == 1 && after == 0 ? 0 : -1;
}

static void probe_lock(oriel_report *report)
{
    int fd = oriel_sys_now->memfd("oriel-doctor");
    int rc = -1;

    if (fd >= 0 && oriel_sys_now->truncate(fd, 4096) == 0)
        rc = lock_tells(fd);
    if (fd >= 0)
        oriel_sys_now->close(fd);
    if (rc == 0)
        oriel_report_add(report, "record locks", ORIEL_FINDING_OK,
                         "the kernel drops them when a process dies: that is how the others know",
                         "", "held by a living process, free after its end");
    else
        oriel_report_add(report, "record locks", ORIEL_FINDING_ERROR,
                         "the death of a process would not be noticed",
                         "allow fcntl(F_SETLK, F_GETLK) on memfd in the sandbox",
                         "fcntl locks do not show whether another process lives");
}

void oriel_probe_system(oriel_report *report)
{
    probe_memfd(report);
    probe_futex(report);
    probe_lock(report);
}
