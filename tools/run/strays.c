#include "run/strays.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_SCANS = 8 };

struct process {
    pid_t pid;    /* its own */
    pid_t parent; /* that of its parent */
    pid_t group;  /* that of its group */
    char state;   /* as /proc has it: 'Z' has ended, nobody has asked for its status */
};

/* The name in /proc/<pid>/stat may hold anything; the fields start after its
 * last parenthesis. */
static int process_read(const char *pid, struct process *process_p)
{
    char path[64];
    char text[512];
    const char *fields;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    fields = strrchr(text, ')');
    process_p->pid = (pid_t)strtol(pid, NULL, 10);
    if (fields == NULL || sscanf(fields + 1, " %c %d %d", &process_p->state, &process_p->parent,
                                 &process_p->group) != 3)
        return -1;
    return 0;
}

/* 0 is no member: it fills the table's empty places, and it is the group of
 * kernel threads and of processes outside our namespace. */
static int family_leads(const oriel_family *family, pid_t pid)
{
    if (pid <= 0)
        return 0;
    for (int i = 0; i < family->count; i++) {
        if (family->groups[i] == pid)
            return 1;
    }
    return 0;
}

/* The started processes are collected last, by their owner: until then their
 * process ids, which are the group ids, cannot be given to anybody else. */
static int is_stray(const oriel_family *family, const struct process *process)
{
    if (process->pid == family->keeper || family_leads(family, process->pid))
        return 0;
    return process->parent == getpid() || family_leads(family, process->group);
}

/* Once through all processes. *moved_p: one of them ended meanwhile, and may have left another
 * that is not on the list, which was made before. */
static int scan(const oriel_family *family, int signal, int *moved_p)
{
    DIR *proc = opendir("/proc");
    struct process process;
    struct dirent *entry;
    int alive = 0;

    *moved_p = 0;
    if (proc == NULL)
        return 0;
    while ((entry = readdir(proc)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        if (process_read(entry->d_name, &process) != 0) {
            *moved_p = 1;
            continue;
        }
        if (!is_stray(family, &process))
            continue;
        if (process.state == 'Z') {
            waitpid(process.pid, NULL, WNOHANG);
            *moved_p = 1;
            continue;
        }
        alive++;
        if (signal != 0)
            kill(process.pid, signal);
    }
    closedir(proc);
    return alive;
}

int oriel_strays_signal(const oriel_family *family, int signal)
{
    int moved = 1;
    int alive = 0;

    /* Bounded: on a busy machine others end all the time. */
    for (int i = 0; i < MOST_SCANS && alive == 0 && moved; i++)
        alive = scan(family, signal, &moved);
    return alive;
}
