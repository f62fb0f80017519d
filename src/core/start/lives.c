#include "core/start/lives.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"

/* Stands for a process that had ended before it could be followed: poll says POLLNVAL of it. */
enum { NEVER_OPEN = 1 << 30 };

void oriel_life_show(oriel_life *life_p)
{
    *life_p = (oriel_life){.pid = (int32_t)getpid()};
    if (oriel_sys_now->read_line("/proc/sys/kernel/random/boot_id", life_p->boot,
                                 sizeof life_p->boot) != 0)
        life_p->boot[0] = '\0';
    if (oriel_sys_now->read_link("/proc/self/ns/pid", life_p->pids, sizeof life_p->pids) != 0)
        life_p->pids[0] = '\0';
}

void oriel_lives_open(oriel_lives *lives, int num_processes)
{
    size_t n = (size_t)num_processes;

    *lives = (oriel_lives){.n = num_processes};
    oriel_life_show(&lives->own);
    lives->of = oriel_sys_now->alloc(n * sizeof *lives->of);
    lives->fds = oriel_sys_now->alloc(n * sizeof *lives->fds);
    if (lives->of == NULL || lives->fds == NULL)
        oriel_lives_close(lives); /* n is 0 from here on */
    for (int p = 0; p < lives->n; p++)
        lives->fds[p].fd = -1;
}

void oriel_lives_close(oriel_lives *lives)
{
    for (int p = 0; p < lives->n && lives->fds != NULL; p++) {
        if (lives->fds[p].fd >= 0 && lives->fds[p].fd != NEVER_OPEN)
            oriel_sys_now->close(lives->fds[p].fd);
    }
    oriel_sys_now->release(lives->of);
    oriel_sys_now->release(lives->fds);
    *lives = (oriel_lives){.n = 0};
}

/* A pid means nothing elsewhere, so what is unknown counts as different. */
static int is_beside(const oriel_life *own, const oriel_life *other)
{
    return own->boot[0] != '\0' && own->pids[0] != '\0' &&
           strncmp(own->boot, other->boot, sizeof own->boot) == 0 &&
           strncmp(own->pids, other->pids, sizeof own->pids) == 0;
}

void oriel_lives_follow(oriel_lives *lives, int process, const oriel_life *life)
{
    int fd;

    if (process < 0 || process >= lives->n || lives->fds[process].fd >= 0 ||
        !is_beside(&lives->own, life))
        return;
    fd = oriel_sys_now->pidfd(life->pid);
    if (fd < 0 && errno == ESRCH)
        fd = NEVER_OPEN;
    lives->of[process] = *life;
    lives->fds[process] = (struct pollfd){.fd = fd, .events = POLLIN};
}

int oriel_lives_goes_on(const oriel_lives *lives, const oriel_life *life)
{
    struct pollfd poll = {.fd = -1, .events = POLLIN};
    int goes_on;

    if (is_beside(&lives->own, life) && life->pid != lives->own.pid)
        poll.fd = oriel_sys_now->pidfd(life->pid);
    if (poll.fd < 0)
        return 0;
    goes_on = oriel_sys_now->poll(&poll, 1, 0) == 0;
    oriel_sys_now->close(poll.fd);
    return goes_on;
}

int oriel_lives_ended(const oriel_lives *lives, double seconds)
{
    if (lives->n == 0 ||
        oriel_sys_now->poll(lives->fds, (nfds_t)lives->n, (int)(seconds * 1e3)) <= 0)
        return -1;
    for (int p = 0; p < lives->n; p++) {
        if (lives->fds[p].fd >= 0 && lives->fds[p].revents != 0)
            return p;
    }
    return -1;
}
