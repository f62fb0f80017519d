/* Starts one process of a job: its own process group, /dev/null as input, the
 * given pipes as output, the job's variables in its environment. Or, on another host, a shell
 * by a command such as ssh, which is told through its input what to start. */
#ifndef ORIEL_TOOLS_SPAWN_H
#define ORIEL_TOOLS_SPAWN_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "run/hosts.h"

/* What `oriel run` changes for itself and its children must not inherit. */
typedef struct oriel_inherited {
    sigset_t mask;            /* signals that are blocked */
    struct sigaction on_pipe; /* what SIGPIPE does */
    struct rlimit files;      /* how many it may have open */
} oriel_inherited;

void oriel_inherited_save(oriel_inherited *inherited_p);

typedef struct oriel_spawner {
    char **argv;                      /* the program and its arguments */
    const oriel_inherited *inherited; /* what children get back */
    char **env;                       /* of a child; NULL ends it */
    char *texts[4];     /* the job's variables, in `env` too; the first differs by process */
    int null;           /* /dev/null */
    oriel_hosts *hosts; /* NULL: processes run here */
    char *script;       /* what a shell on a host is told */
    int *inputs;        /* of the shells: when they are closed the processes end; -1: none */
    int count;          /* of `inputs` */
} oriel_spawner;

/* `hosts` may be NULL. Returns -1 with errno set. */
int oriel_spawner_create(char **argv, int count, const char *store, const char *secret,
                         const oriel_inherited *inherited, oriel_hosts *hosts,
                         oriel_spawner *spawner_p);
void oriel_spawner_destroy(oriel_spawner *spawner);

/* Returns the process id once the program runs, or -1 with errno set; then
 * `*forked_p` says whether there was a process but the program could not be
 * started in it (1), or no process (0). */
pid_t oriel_spawn(oriel_spawner *spawner, int process_id, int out, int err, int *forked_p);

#endif
